"""The index: what a plan logs of it, samples of it, and what the next run reuses of it."""

import hashlib
import os
from collections.abc import Callable, Mapping
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.sources import InputConfig, OnBadFile, Trust
from memagent_batch.documents import listing
from memagent_batch.documents.document_index import (
    INDEX_SCHEMA,
    IndexedFiles,
    KeptIndex,
    index_row,
    log_documents,
    reuse_index,
    sample_documents,
)
from memagent_batch.documents.formats.formats import Format
from memagent_batch.documents.lake.tables import documents_place
from memagent_batch.documents.shards import FoundShards, find_shards
from memagent_batch.store.location import Location
from tests.documents.lake.forms import PAGES, SETTINGS, indexed, pages_table, rows_table

AUTO = InputConfig()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Two Parquet files with three documents, a JSONL file with one, and two text files."""
    pq.write_table(pa.table({"document_id": ["a", "b"], "text": ["x", "y"]}), tmp_path / "1.parquet")
    pq.write_table(pa.table({"document_id": ["c"], "text": ["z"]}), tmp_path / "2.parquet")
    (tmp_path / "3.jsonl").write_text('{"document_id": "d", "text": "x"}\n')
    (tmp_path / "README.md").write_text("what this is")
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "a.txt").write_text("a note")
    return tmp_path


@pytest.fixture
def line(caplog: pytest.LogCaptureFixture) -> Callable[..., str]:
    """What is logged of the documents of a place."""
    caplog.set_level("INFO")

    def line(uri: object, settings: InputConfig = AUTO) -> str:
        place = Location(uri=str(uri))
        found = find_shards(place, settings=settings)
        log_documents(indexed(place, settings=settings, found=found), found)
        return caplog.messages[-1]

    return line


def test_text_files_beside_files_with_columns_are_left_out_and_named(folder: Path, line: Callable[..., str]) -> None:
    counted = "4 documents from 3 files; left out: 'README.md', 'notes/a.txt' (a text "
    assert line(folder).startswith(counted)
    assert line(f"{folder}/*").startswith(counted)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("/**/*.txt", "1 document from 1 file"),
        ("/README.md", "1 document from 1 file"),
        ("/notes", "1 document from 1 file"),
        ("/*.parquet", "3 documents from 2 files"),
    ],
)
def test_text_files_that_are_asked_for_or_stand_alone_are_read(
    asked: str, expected: str, folder: Path, line: Callable[..., str]
) -> None:
    assert line(f"{folder}{asked}") == expected


def test_text_file_that_is_named_brings_no_other_one_along(folder: Path) -> None:
    places = [Location(uri=f"{folder}/{name}") for name in ("notes/a.txt", "*")]
    found = find_shards(*places, settings=AUTO)
    assert found.left_out == ("README.md",)
    assert [shard.names for shard in found.shards if shard.format is Format.TEXT] == [("notes/a.txt",)]


def test_text_files_beside_files_that_no_reader_knows_are_read(tmp_path: Path, line: Callable[..., str]) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.pdf").write_bytes(b"%PDF")
    assert line(tmp_path, InputConfig(on_bad_file=OnBadFile.RECORD)) == "1 document from 2 files"


NAMES = st.lists(st.text(min_size=1, max_size=3), unique=True, max_size=30)


def index(names: list[str]) -> pa.Table:
    rows = [index_row(name, document_hash=hashlib.sha256(name[:1].encode()).hexdigest()) for name in names]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


@given(NAMES, st.integers(1, 30), st.integers(1, 30), st.integers(0, 3), st.randoms())
def test_samples_of_any_order_are_nested_and_lose_no_document(
    names: list[str], small: int, large: int, seed: int, random: object
) -> None:
    small, large = sorted((small, large))
    shuffled = names.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    few = sample_documents(index(names), limit=small, seed=seed)
    many = sample_documents(index(shuffled), limit=large, seed=seed)
    taken, more = few.taken["document_id"].to_pylist(), many.taken["document_id"].to_pylist()
    assert set(taken) <= set(more)
    assert len(taken) == min(small, len(names))
    assert few.outside is not None
    assert sorted([*taken, *few.outside["document_id"].to_pylist()]) == sorted(names)
    assert taken == [name for name in names if name in taken]


def test_without_a_limit_all_are_taken_and_a_text_without_a_hash_has_its_id() -> None:
    assert sample_documents(index(["b", "a"]), limit=None, seed=0).outside is None
    unreadable = pa.Table.from_pylist([index_row(name, error="null") for name in "abcdef"], schema=INDEX_SCHEMA)
    draws = [sample_documents(unreadable, limit=2, seed=seed).taken["document_id"].to_pylist() for seed in range(20)]
    assert len({tuple(drawn) for drawn in draws}) > 5


FORMS: Mapping[str, tuple[pa.Table, InputConfig]] = {
    "rows": (rows_table(), InputConfig()),
    "pages": (pages_table(), SETTINGS["pages"]),
}


def _found(place: Location, settings: InputConfig) -> tuple[FoundShards, IndexedFiles]:
    found = find_shards(place, settings=settings)
    return found, IndexedFiles.found(found, settings=settings)


@pytest.mark.parametrize("form", FORMS)
def test_reused_index_of_an_unchanged_table_is_whole_and_of_a_grown_one_has_its_old_files(
    form: str, tmp_path: Path
) -> None:
    from deltalake import write_deltalake

    rows, settings = FORMS[form]
    write_deltalake(tmp_path / "t", rows)
    place = documents_place(f"delta://{tmp_path}/t", {})
    found, files = _found(place, settings)
    index = indexed(place, settings=settings, found=found)
    kept = KeptIndex.of(index, files)
    same = reuse_index(kept, files, found.shards, settings=settings)
    assert same.rows.equals(index)
    assert (same.shards, same.is_whole) == ([], True)
    more = {"document_id": ["e"], "text": ["new"], "day": ["x"]} | ({"page": [1]} if form == "pages" else {})
    write_deltalake(tmp_path / "t", pa.table(more), mode="append")
    grown, now = _found(place, settings)
    reused = reuse_index(kept, now, grown.shards, settings=settings)
    assert sorted(reused.rows["document_id"].to_pylist()) == sorted(PAGES)
    assert sum(len(shard.paths) for shard in reused.shards) == 1
    assert not reused.is_whole


def test_reused_index_of_other_settings_or_with_bad_rows_is_empty(tmp_path: Path) -> None:
    from deltalake import write_deltalake

    write_deltalake(tmp_path / "t", rows_table())
    place, settings = documents_place(f"delta://{tmp_path}/t", {}), InputConfig()
    found, files = _found(place, settings)
    index = indexed(place, settings=settings)
    other = InputConfig(carry_columns=("day",))
    column, errors = index.schema.get_field_index("error_type"), ["BadFileError", None, None, None]
    bad = index.set_column(column, index.schema.field(column), pa.array(errors, pa.large_string()))
    for kept, now, asked in (
        (KeptIndex.of(index, files), _found(place, other)[1], other),
        (KeptIndex.of(bad, files), files, settings),
    ):
        reused = reuse_index(kept, now, found.shards, settings=asked)
        assert (reused.rows.num_rows, reused.shards, reused.is_whole) == (0, found.shards, False)


def _texts(folder: Path, names: str) -> None:
    for name in names:
        (folder / f"{name}.txt").write_text(f"text {name}")


def _left(kept: KeptIndex, place: Location, settings: InputConfig) -> tuple[list[str], list[str], bool]:
    """Documents that are reused, files that are left to index, and whether nothing has changed."""
    found, files = _found(place, settings)
    reused = reuse_index(kept, files, found.shards, settings=settings)
    names = [name for shard in reused.shards for name in shard.names]
    return sorted(reused.rows["document_id"].to_pylist()), names, reused.is_whole


def test_file_of_the_same_size_and_times_is_reused_and_any_other_indexed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", 0)
    _texts(tmp_path, "abcd")
    place, settings = Location(uri=str(tmp_path)), InputConfig()
    kept = KeptIndex.of(indexed(place, settings=settings), _found(place, settings)[1])
    assert _left(kept, place, settings) == (["a.txt", "b.txt", "c.txt", "d.txt"], [], True)
    times = (tmp_path / "b.txt").stat()
    (tmp_path / "b.txt").write_text("text B")  # of the same length, and with its mtime set back
    os.utime(tmp_path / "b.txt", ns=(times.st_atime_ns, times.st_mtime_ns))
    (tmp_path / "c.txt").unlink()
    (tmp_path / "e.txt").write_text("new")
    assert _left(kept, place, settings) == (["a.txt", "d.txt"], ["b.txt", "e.txt"], False)


@pytest.mark.parametrize(("trust", "unsure_seconds"), [(Trust.ETAG, 3600), (Trust.CONTENT, 0)])
def test_file_that_changed_just_now_or_is_trusted_by_content_is_indexed_every_time(
    trust: Trust, unsure_seconds: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listing, "UNSURE_SECONDS", unsure_seconds)
    _texts(tmp_path, "ab")
    place, settings = Location(uri=str(tmp_path)), InputConfig(trust=trust)
    kept = KeptIndex.of(indexed(place, settings=settings), _found(place, settings)[1])
    assert _left(kept, place, settings) == ([], ["a.txt", "b.txt"], False)


@pytest.mark.s3
def test_object_of_the_same_etag_is_reused_and_an_overwritten_one_indexed(s3_bucket: Location) -> None:
    for name in "ab":
        (s3_bucket / f"in/{name}.txt").write_bytes(f"text {name}".encode())
    place, settings = s3_bucket / "in", InputConfig()
    kept = KeptIndex.of(indexed(place, settings=settings), _found(place, settings)[1])
    assert _left(kept, place, settings) == (["a.txt", "b.txt"], [], True)
    (s3_bucket / "in/b.txt").write_bytes(b"text B")
    assert _left(kept, place, settings) == (["a.txt"], ["b.txt"], False)
