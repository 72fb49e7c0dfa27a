"""Files, lines and rows that can't be read: refused, or recorded one by one while all others are read."""

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.data.documents.document_index import require_readable
from memagent_batch.data.ingest import row_tasks
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, StorageOutageError
from tests.documents.lake.forms import indexed

RECORD = InputConfig(on_bad_file=OnBadFile.RECORD)
GOOD = b'{"document_id": "good", "text": "a"}\n'


def index(folder: Path | Location, settings: InputConfig = RECORD) -> pa.Table:
    location = folder if isinstance(folder, Location) else Location(uri=str(folder))
    return indexed(location, settings=settings)


def documents(table: pa.Table) -> dict[str, str | None]:
    """What kind of error each document of an index has."""
    return dict(zip(table["document_id"].to_pylist(), table["error_type"].to_pylist(), strict=True))


def parquet_bytes(**columns: Any) -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"document_id": ["a", "b"], "text": ["x", "y"]} | columns), sink)
    return bytes(sink.getvalue())


PARQUET = parquet_bytes()
DAMAGED = PARQUET[:4] + bytes(56) + PARQUET[60:]
"""The footer is whole, the pages are not."""


@pytest.mark.parametrize(
    ("name", "data", "bad"),
    [
        ("bad.parquet", b"", ["bad.parquet"]),
        ("bad.parquet", PARQUET[:-9], ["bad.parquet"]),
        ("bad.parquet", DAMAGED, ["bad.parquet"]),
        ("bad.parquet", parquet_bytes(text=[1, 2]), ["bad.parquet"]),
        ("bad.parquet", parquet_bytes(document_id=["a", None]), ["bad.parquet, row group 1, row 2"]),
        ("bad.arrow", b"ARROW1", ["bad.arrow"]),
        ("bad.csv", b"", ["bad.csv"]),
        ("bad.csv", b"document_id,text\na,x\nb\nc,y\n", ["bad.csv, line 3"]),
        ("bad.csv", b'document_id,text\na,x\nb,"y\n', ["bad.csv"]),
        ("bad.jsonl", GOOD.replace(b"good", b"a") + b"{\n" + GOOD.replace(b"good", b"c"), ["bad.jsonl, line 2"]),
        ("bad.jsonl", b"\xff\n[1]\n", ["bad.jsonl, line 1", "bad.jsonl, line 2"]),
        ("bad.jsonl", b'{"document_id": 1.5, "text": "a"}\n', ["bad.jsonl, line 1"]),
        ("bad.json", b'[\n  {"document_id": "a", "text": "x"}\n]\n', ["bad.json"]),
        ("bad.json", b'\n{\n  "document_id": "a",\n  "text": "x"\n}\n', ["bad.json"]),
        ("deep/bad.pdf", b"%PDF", ["deep/bad.pdf"]),
        ("bad.jsonl.gz", b"x", ["bad.jsonl.gz"]),
        ("bad", b"x", ["bad"]),
    ],
)
def test_bad_file_is_refused_or_recorded_while_the_others_are_read(
    name: str, data: bytes, bad: list[str], tmp_path: Path
) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / name).write_bytes(data)
    settings = InputConfig(carry_columns=("carried",) if b"carried" in data else ())
    (tmp_path / "good.jsonl").write_bytes(GOOD.replace(b"}", b', "carried": 1}'))
    with pytest.raises(InputError, match=name.rpartition("/")[2]):
        index(tmp_path, settings)
    table = index(tmp_path, settings.model_copy(update={"on_bad_file": OnBadFile.RECORD}))
    found = documents(table)
    assert [document_id for document_id, error_type in found.items() if error_type] == bad
    assert set(found.values()) == {None, "BadFileError"}
    assert "good" in found
    assert all(f"{tmp_path}/{name}" in reason for reason in table["error"].to_pylist() if reason)
    require_readable(table)


def test_large_damaged_file_is_recorded_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(row_tasks, "TASK_BYTES", 10)
    (tmp_path / "good.jsonl").write_bytes(GOOD)
    (tmp_path / "bad.parquet").write_bytes(PARQUET[:-9])
    with pytest.raises(InputError, match=r"bad\.parquet"):
        index(tmp_path, InputConfig())
    assert documents(index(tmp_path)) == {"good": None, "bad.parquet": "BadFileError"}


def test_input_without_any_readable_file_is_refused_with_the_first_reason(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(PARQUET)
    with pytest.raises(InputError, match=r"none of the 1 files or rows can be read: .*a\.parquet has no column 'body'"):
        require_readable(index(tmp_path, RECORD.model_copy(update={"text_column": "body"})))


@pytest.mark.s3
def test_store_that_does_not_answer_makes_no_bad_file(s3_bucket: Location) -> None:
    (s3_bucket / "a.parquet").write_bytes(b"x" * 100)
    (s3_bucket / "b.pdf").write_bytes(b"x")
    (s3_bucket / "c.jsonl").write_bytes(GOOD)
    assert documents(index(s3_bucket)) == {"good": None, "a.parquet": "BadFileError", "b.pdf": "BadFileError"}
    away = {"client_kwargs": {"endpoint_url": "http://127.0.0.1:1"}, "config_kwargs": {"retries": {"max_attempts": 0}}}
    with pytest.raises(StorageOutageError):
        index(Location(uri=s3_bucket.uri, storage_options={**s3_bucket.storage_options, **away}))
