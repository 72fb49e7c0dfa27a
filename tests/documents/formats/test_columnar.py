from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.data.documents.data_files import DataFile, read_records
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, Unreadable, Value
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

TEXT = InputColumn(name="text", kind=ColumnKind.DOCUMENT, presence=Presence.SOME, setting="input.text_column")
ID = InputColumn(
    name="document_id", kind=ColumnKind.IDENTIFIER, presence=Presence.EVERY, setting="input.document_id_column"
)
CARRIED = InputColumn(name="c", kind=ColumnKind.CARRIED, presence=Presence.SOME)
REFERENCES = InputColumn(name="r", kind=ColumnKind.REFERENCES, presence=Presence.OPTIONAL)


def _write_parquet(table: pa.Table, path: Path) -> None:
    pq.write_table(table, path, row_group_size=2)


def _write_arrow(table: pa.Table, path: Path) -> None:
    with pa.ipc.new_file(str(path), table.schema) as writer:
        writer.write_table(table, max_chunksize=2)


WRITERS = pytest.mark.parametrize("write", [_write_parquet, _write_arrow])
Write = Callable[[pa.Table, Path], None]


def _read(path: Path, *columns: InputColumn) -> list[tuple[Value, ...]]:
    records = read_records(DataFile(location=Location(uri=str(path)), format=Format.PARQUET), columns=columns)
    return [record.values for record in records]


@pytest.mark.parametrize(
    "array",
    [
        pa.array(["é", None, ""], pa.string()),
        pa.array(["é", None, ""], pa.large_string()),
        pa.array(["é", None, ""], pa.string_view()),
        pa.array(["é", None, ""]).dictionary_encode(),
    ],
    ids=lambda array: str(array.type),
)
@WRITERS
def test_read_text_of_any_string_type_is_text(array: pa.Array, write: Write, tmp_path: Path) -> None:
    write(pa.table({"text": array}), tmp_path / "f")
    assert _read(tmp_path / "f", TEXT) == [("é",), (None,), ("",)]


@WRITERS
def test_read_invalid_utf8_concerns_its_row_only(write: Write, tmp_path: Path) -> None:
    data = pa.array([b"good", b"ab\xff", b"too"], pa.binary())
    array = pa.Array.from_buffers(pa.string(), 3, data.buffers())
    write(pa.table({"text": array}), tmp_path / "f")
    good, bad, too = [values[0] for values in _read(tmp_path / "f", TEXT)]
    assert (good, too) == ("good", "too")
    assert isinstance(bad, Unreadable)
    assert "byte 3" in bad.reason


@pytest.mark.parametrize(
    ("column", "array", "expected"),
    [
        (TEXT, pa.nulls(1), None),
        (ID, pa.array([2**63], pa.uint64()), str(2**63)),
        (CARRIED, pa.array([True]), "true"),
        (CARRIED, pa.array([0.1], pa.float32()), "0.1"),
        (CARRIED, pa.array([{"a": [1, None]}]), '{"a": [1, null]}'),
        (CARRIED, pa.array([0], pa.date32()), "1970-01-01"),
        (CARRIED, pa.array([None], pa.int64()), None),
        (REFERENCES, pa.array([["a", "b"]]), ["a", "b"]),
        (REFERENCES, pa.array(["a"]), "a"),
    ],
)
def test_read_value_is_what_the_kind_of_its_column_wants(
    column: InputColumn, array: pa.Array, expected: Any, tmp_path: Path
) -> None:
    _write_parquet(pa.table({column.name: array}), tmp_path / "f")
    assert _read(tmp_path / "f", column) == [(expected,)]


@pytest.mark.parametrize(
    ("column", "array", "type_name"),
    [
        (TEXT, pa.array([1]), "int64"),
        (TEXT, pa.array([b"x"]), "binary"),
        (ID, pa.array([1.0]), "double"),
        (ID, pa.array([0], pa.date32()), "date32"),
        (REFERENCES, pa.array([[1.0]]), "double"),
    ],
)
def test_read_column_of_a_wrong_type_is_refused_with_its_type(
    column: InputColumn, array: pa.Array, type_name: str, tmp_path: Path
) -> None:
    _write_parquet(pa.table({column.name: array}), tmp_path / "f")
    with pytest.raises(InputError, match=f"column {column.name!r} holds .*{type_name}"):
        _read(tmp_path / "f", column)


@WRITERS
def test_read_missing_column_is_refused_with_those_there_and_the_setting(write: Write, tmp_path: Path) -> None:
    write(pa.table({"id": ["a"], "body": ["b"]}), tmp_path / "f")
    with pytest.raises(InputError, match=r"no column 'text'; its columns: 'id', 'body'; .*input\.text_column"):
        _read(tmp_path / "f", TEXT)


def test_read_column_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    table = pa.Table.from_arrays([pa.array(["a"]), pa.array(["b"])], names=["text", "text"])
    _write_arrow(table, tmp_path / "f")
    with pytest.raises(InputError, match="2 columns 'text'"):
        _read(tmp_path / "f", TEXT)


def test_read_arrow_stream_is_refused_with_the_remedy(tmp_path: Path) -> None:
    table = pa.table({"text": ["a"]})
    with pa.ipc.new_stream(str(tmp_path / "f"), table.schema) as writer:
        writer.write_table(table)
    with pytest.raises(InputError, match="new_file"):
        _read(tmp_path / "f", TEXT)
