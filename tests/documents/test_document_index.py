"""The index: what a plan logs of it, and samples of it."""

import hashlib
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.document_index import INDEX_SCHEMA, index_row, log_documents, sample_documents
from memagent_batch.data.documents.source_listing import list_sources
from memagent_batch.data.store.location import Location
from tests.documents.lake.forms import indexed

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
        found = list_sources([Location(uri=str(uri))], settings=settings)
        index = indexed(Location(uri=str(uri)), settings=settings)
        log_documents(index, num_sources=found.sources.num_rows, left_out=found.left_out)
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
    found = list_sources(places, settings=AUTO)
    assert found.left_out == ("README.md",)
    assert found.sources["source"].to_pylist() == ["3.jsonl", "1.parquet", "2.parquet", "notes/a.txt"]


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
