"""Texts that are longer than the bound: they fail alone, and take no more memory than the bound."""

import bz2
import gzip
import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from tests.documents.lake.forms import indexed

BOUND = 1000
BOUNDED = InputConfig(max_document_bytes=BOUND)
LONG, SHORT = "é" * 501, "é" * 500
ROWS = [{"document_id": "a", "text": "x"}, {"document_id": "b", "text": LONG}, {"document_id": "c", "text": SHORT}]


def _errors(folder: Path, settings: InputConfig) -> dict[str, str | None]:
    table = indexed(Location(uri=str(folder)), settings=settings)
    return dict(zip(table["document_id"].to_pylist(), table["error"].to_pylist(), strict=True))


@pytest.mark.parametrize(("pack", "ending"), [(bytes, ""), (gzip.compress, ".gz"), (bz2.compress, ".bz2")])
def test_index_text_file_that_is_too_long_fails_alone(
    pack: Callable[[bytes], bytes], ending: str, tmp_path: Path
) -> None:
    for row in ROWS:
        (tmp_path / f"{row['document_id']}.txt{ending}").write_bytes(pack(row["text"].encode()))
    errors = _errors(tmp_path, BOUNDED)
    assert [name for name, error in errors.items() if error] == [f"b.txt{ending}"]
    assert f"b.txt{ending}: it has more than 1,000 bytes, the bound of input.max_document_bytes" in str(errors)


def test_index_text_file_of_a_store_that_is_too_long_is_not_fetched(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Location, "read_bytes", _read_small)
    folder = Location(uri="memory://long_texts")
    for name, size in (("a", 10), ("b", 3 * BOUND), ("c", BOUND)):
        (folder / f"{name}.txt").write_bytes(b"x" * size)
    table = indexed(folder, settings=BOUNDED)
    assert dict(zip(table["document_id"].to_pylist(), table["num_bytes"].to_pylist(), strict=True)) == {
        "a.txt": 10,
        "b.txt": 0,
        "c.txt": BOUND,
    }
    assert "it has more than 1,000 bytes, the bound of input.max_document_bytes" in table["error"][1].as_py()


def _read_small(place: Location) -> bytes:
    assert place.fs.size(place.path) <= BOUND
    return bytes(place.fs.cat_file(place.path))


def test_index_line_that_is_too_long_is_a_bad_record_and_those_behind_it_are_read(tmp_path: Path) -> None:
    lines = [json.dumps(row, ensure_ascii=False) for row in [ROWS[0], ROWS[1], {"document_id": "c", "text": "y"}]]
    (tmp_path / "f.jsonl.gz").write_bytes(gzip.compress("\n".join(lines).encode()))
    with pytest.raises(InputError, match=r"f.jsonl.gz, line 2: it has more than 1,000 bytes"):
        _errors(tmp_path, BOUNDED)
    errors = _errors(tmp_path, BOUNDED.model_copy(update={"on_bad_file": OnBadFile.RECORD}))
    assert {name: bool(error) for name, error in errors.items()} == {"a": False, "f.jsonl.gz, line 2": True, "c": False}


@pytest.mark.parametrize("text", [LONG, "many\nlines\n" * 200])
def test_index_field_of_csv_that_is_too_long_is_refused_with_the_setting(text: str, tmp_path: Path) -> None:
    (tmp_path / "f.csv").write_text(f'document_id,text\na,x\nb,"{text}"\n')
    with pytest.raises(InputError, match=r"f.csv, line 3: it has more than 1,000 bytes, the bound of input.max_doc"):
        _errors(tmp_path, BOUNDED)


def test_index_document_of_many_rows_that_is_too_long_together_fails_alone(tmp_path: Path) -> None:
    rows = [
        {"document_id": name, "text": "x" * 400, "page": page} for name in "ab" for page in range(2 + (name == "b"))
    ]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "f.parquet")
    errors = _errors(tmp_path, BOUNDED.model_copy(update={"order_columns": ("page",)}))
    assert {name: bool(error) for name, error in errors.items()} == {"a": False, "b": True}


@pytest.mark.parametrize("name", ["bomb.txt.gz", "bomb.jsonl.gz"])
def test_index_file_that_unpacks_to_far_more_than_the_bound_takes_no_more_memory(name: str, tmp_path: Path) -> None:
    with gzip.open(tmp_path / name, "wb") as file:
        for _ in range(50):
            file.write(b"0" * 2**20)
    (tmp_path / name.replace("bomb", "good")).write_bytes(gzip.compress(b'{"document_id": "a", "text": "x"}\n'))
    settings = InputConfig(max_document_bytes=2**20, on_bad_file=OnBadFile.RECORD)
    tracemalloc.start()
    errors = _errors(tmp_path, settings)
    peak_bytes = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert sorted(map(bool, errors.values())) == [False, True]
    assert peak_bytes < 25 * 2**20
