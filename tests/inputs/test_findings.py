"""What is told of the inputs before anything is read."""

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import describe
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.shards import find_shards

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


def line(uri: object, settings: InputConfig = AUTO) -> str:
    found = find_shards(Location(uri=str(uri)), settings=settings)
    tables = [table for shard in found.shards for table in index_shard(shard, settings=settings, storage_options={})]
    return describe(pa.concat_tables(tables), found)


def test_text_files_beside_files_with_columns_are_left_out_and_named(folder: Path) -> None:
    counted = "4 documents: 3 from 2 Parquet files, 1 from 1 JSONL file; left out: 'README.md', 'notes/a.txt' (a text "
    assert line(folder).startswith(counted)
    assert line(f"{folder}/*").startswith(counted)


@pytest.mark.parametrize(
    ("asked", "expected"),
    [
        ("/**/*.txt", "1 document: 1 text file"),
        ("/README.md", "1 document: 1 text file"),
        ("/notes", "1 document: 1 text file"),
        ("/*.parquet", "3 documents: 3 from 2 Parquet files"),
    ],
)
def test_text_files_that_are_asked_for_or_stand_alone_are_read(asked: str, expected: str, folder: Path) -> None:
    assert line(f"{folder}{asked}") == expected


def test_text_file_that_is_named_brings_no_other_one_along(folder: Path) -> None:
    places = [Location(uri=f"{folder}/{name}") for name in ("notes/a.txt", "*")]
    found = find_shards(*places, settings=AUTO)
    assert found.left_out == ("README.md",)
    assert [shard.names for shard in found.shards if shard.format is Format.TEXT] == [("notes/a.txt",)]


def test_text_files_beside_files_that_no_reader_knows_are_read(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text("a")
    (tmp_path / "b.pdf").write_bytes(b"%PDF")
    assert line(tmp_path, InputConfig(on_bad_file=OnBadFile.RECORD)) == "1 document: 1 text file"


def test_format_text_reads_every_file_as_text(folder: Path) -> None:
    assert line(f"{folder}/*", InputConfig(format="text")) == "5 documents: 5 text files"


def test_many_files_that_are_left_out_are_counted(folder: Path) -> None:
    for number in range(1000):
        (folder / f"{number:04}.txt").write_text("a")
    assert "left out: '0000.txt', '0001.txt', '0002.txt', '0003.txt', '0004.txt' and 997 more (" in line(folder)
