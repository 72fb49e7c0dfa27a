import csv
import json
import tempfile
import zipfile
from collections.abc import Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.document_index import require_carry_columns
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError
from memagent_batch.loop.addresses import text_hash
from tests.documents.lake.forms import indexed, ingested, read

PLAIN = InputConfig()

OF_PATHS = ("b.txt", "a", "~.txt", "a b.txt", " .txt", "a\\b.txt", "file:.txt", "line\nbreak.txt", "tab\t.txt")
OF_CHAINS = ("b.txt::c.txt", "2026::report.txt", "simplecache::memory:.txt", "a::b/c.txt")
OF_QUERIES = ("what?.txt", "a.txt?version=b.txt", "a#b.txt", "100%.txt", "a%20b.txt")
OF_GLOBS = ("*.txt", "[1].txt", "1.txt", "{x}.txt")
OF_LETTERS = ("quote'\".txt", "\u00e9\u6f22\U0001f600.txt", "e\u0301.txt")
HOSTILE_NAMES = (*OF_PATHS, *OF_CHAINS, *OF_QUERIES, *OF_GLOBS, *OF_LETTERS)
"""Names that are something else to a shell, a URI, a glob or a chain of file systems."""


def _table(texts: Sequence[str | None]) -> pa.Table:
    return pa.table({"text": pa.array(texts, pa.string()), "document_id": [f"d{index}" for index in range(len(texts))]})


def _write_parquet(texts: Sequence[str | None], folder: Path) -> None:
    pq.write_table(_table(texts), folder / "a.parquet", row_group_size=3)


def _write_arrow(texts: Sequence[str | None], folder: Path) -> None:
    table = _table(texts)
    with pa.ipc.new_file(str(folder / "a.arrow"), table.schema) as writer:
        writer.write_table(table, max_chunksize=3)


def _write_jsonl(texts: Sequence[str | None], folder: Path) -> None:
    lines = [
        json.dumps({"document_id": f"d{index}", "text": text}, ensure_ascii=index % 2 == 0) + "\n"
        for index, text in enumerate(texts)
    ]
    (folder / "a.jsonl").write_bytes("".join(lines).encode())


def _write_csv(texts: Sequence[str | None], folder: Path) -> None:
    with (folder / "a.csv").open("w", encoding="utf-8", newline="") as stream:
        writer = csv.writer(stream)
        writer.writerow(["document_id", "text"])
        writer.writerows([f"d{index}", text] for index, text in enumerate(texts))


def _write_text(texts: Sequence[str | None], folder: Path) -> None:
    for index, text in enumerate(texts):
        (folder / f"d{index}").write_bytes((text or "").encode())


WRITERS = {
    Format.PARQUET: _write_parquet,
    Format.ARROW: _write_arrow,
    Format.JSONL: _write_jsonl,
    Format.CSV: _write_csv,
    Format.TEXT: _write_text,
}
EACH_FORMAT = pytest.mark.parametrize("format_", list(WRITERS))


def _index(location: Location, values: InputConfig = PLAIN) -> pa.Table:
    return indexed(location, settings=values)


def _texts(location: Location, values: InputConfig = PLAIN) -> list[str | None]:
    """In the order of their ids."""
    found = read(location.uri, values, **location.storage_options)
    return [text for _, text in sorted(found.items())]


@EACH_FORMAT
@given(texts=st.lists(st.text(), min_size=1, max_size=8))
def test_ingested_any_texts_come_back_with_ids_and_hashes(format_: Format, texts: list[str]) -> None:
    if format_ is Format.TEXT:
        texts = [text.removeprefix("\ufeff") for text in texts]
    if format_ is Format.CSV:
        texts = [text or " " for text in texts]  # an empty field is null
    with tempfile.TemporaryDirectory() as folder:
        WRITERS[format_](texts, Path(folder))
        location = Location(uri=folder)
        values = InputConfig(format=format_.value)
        index = _index(location, values)
        rows = {row["document_id"]: row for row in index.to_pylist()}
        assert sorted(rows) == sorted(f"d{number}" for number in range(len(texts)))
        found = read(location.uri, values)
    for number, text in enumerate(texts):
        row = rows[f"d{number}"]
        is_read = bool(text.strip())
        expected = (text_hash(text), len(text.encode())) if is_read else (None, 0)
        assert (row["document_hash"], row["num_bytes"]) == expected
        assert found[f"d{number}"] == (text if is_read else None)


def test_ingested_text_file_of_invalid_utf8_is_a_row_with_an_error_that_names_the_byte(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfgood")
    (tmp_path / "b.txt").write_bytes(b"ab\xff")
    good, bad = _index(Location(uri=str(tmp_path))).to_pylist()
    assert (good["document_id"], good["document_hash"], good["error"]) == ("a.txt", text_hash("good"), None)
    assert (bad["document_id"], bad["document_hash"]) == ("b.txt", None)
    assert "b.txt: invalid UTF-8 at byte 3" in bad["error"]


def _write_hostile(place: Location, names: Sequence[str] = HOSTILE_NAMES) -> None:
    for name in names:
        path = f"{place.path}/{name}"
        place.fs.makedirs(path.rsplit("/", 1)[0], exist_ok=True)
        place.fs.pipe_file(path, f"text of {name}".encode())


def _require_own_texts(location: Location, names: Sequence[str] = HOSTILE_NAMES) -> None:
    values = InputConfig(format="text")
    index = _index(location, values)
    ids = index["document_id"].to_pylist()
    assert sorted(ids) == sorted(names)
    assert index["document_hash"].to_pylist() == [text_hash(f"text of {name}") for name in ids]
    assert _texts(location, values) == [f"text of {name}" for name in ids]


def test_ingested_hostile_file_names_each_file_has_its_own_text(tmp_path: Path) -> None:
    _write_hostile(Location(uri=str(tmp_path)))
    _require_own_texts(Location(uri=str(tmp_path)))
    _require_own_texts(Location(uri=f"file://{tmp_path}/"))


@pytest.mark.s3
def test_ingested_hostile_keys_each_key_has_its_own_text(s3_bucket: Location) -> None:
    names = [name for name in HOSTILE_NAMES if "\n" not in name]  # the server of the tests knows no such key
    _write_hostile(s3_bucket / "in", names)
    _require_own_texts(s3_bucket / "in", names)


def test_ingested_in_an_archive_that_the_user_names_texts_come_back(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "x.zip", "w") as archive:
        for name in ("a.txt", "b::c.txt", "d?.txt"):
            archive.writestr(name, name)
    location = Location(uri=f"zip://*.txt::{tmp_path}/x.zip")
    assert _texts(location) == ["a.txt", "b::c.txt", "d?.txt"]


@pytest.mark.s3
def test_ingested_through_a_cache_that_the_user_names_texts_come_back(s3_bucket: Location) -> None:
    for name in ("a.txt", "b::c.txt"):
        s3_bucket.fs.pipe_file(f"{s3_bucket.path}/in/{name}", name.encode())
    location = Location(uri=f"simplecache::{s3_bucket.uri}/in", storage_options={"s3": dict(s3_bucket.storage_options)})
    assert _texts(location) == ["a.txt", "b::c.txt"]


@pytest.mark.parametrize("names", [("answer",), ("day", "day")])
def test_require_carry_columns_name_that_can_not_stand_is_refused(names: tuple[str, ...]) -> None:
    with pytest.raises(InputError, match=names[0]):
        require_carry_columns(InputConfig(carry_columns=names), reserved={"answer"})


@pytest.mark.s3
@EACH_FORMAT
def test_ingested_in_a_bucket_texts_come_back(format_: Format, s3_bucket: Location, tmp_path: Path) -> None:
    texts = ["a,b", 'c"\nd', "é" * 100_000, "e"]
    WRITERS[format_](texts, tmp_path)
    s3_bucket.fs.put(f"{tmp_path}/", f"{s3_bucket.path}/in/", recursive=True)
    values = InputConfig(format=format_.value)
    index = _index(s3_bucket / "in", values)
    assert index["document_hash"].to_pylist() == [text_hash(text) for text in texts]
    assert _texts(s3_bucket / "in", values) == texts


def test_ingested_several_places_on_a_disk_each_has_its_own_text(tmp_path: Path) -> None:
    """Two folders with a file of the same name in each, and a file beside them."""
    folder = Location(uri=str(tmp_path))
    places = [folder / "one", Location(uri=f"file://{tmp_path}/two/deep"), folder / "two/z.txt"]
    for place in (places[0] / "a.txt", places[1] / "a.txt", places[2]):
        place.write_bytes(place.path.encode())
    with ingested(*(place.uri for place in places), settings=PLAIN) as stored:
        index = stored.read_index(PLAIN).taken
        texts = {index["document_id"][text.row].as_py(): text.text for text in stored.read_texts(index)}
    names = ["one/a.txt", "two/deep/a.txt", "two/z.txt"]
    assert texts == dict(
        zip(names, (f"{places[0].path}/a.txt", f"{places[1].path}/a.txt", places[2].path), strict=True)
    )
