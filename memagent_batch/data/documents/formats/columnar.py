"""Reads records from Parquet and Arrow IPC files: projected columns, with what stands for those that a file lacks."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from memagent_batch.data.documents.formats.records import (
    ColumnKind,
    Columns,
    FileColumn,
    InputColumn,
    Record,
    Value,
    column_value,
    decode,
    make_record,
    plain_columns,
    wrong_type,
)
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import BUFFER_BYTES, open_native
from memagent_batch.errors import InputError

_BATCH_BYTES = 4 * 1024 * 1024
"""Size that a batch of Parquet rows is aimed at, bytes: small beside a document of millions of tokens."""
_BATCH_ROWS = 16
"""Most rows of a batch: bounds it where dictionary encoding hides how large the texts are."""
_ARROW_MAGIC = b"ARROW1"
_STREAM_MAGIC = b"\xff\xff\xff\xff"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """A Parquet file, opened: its row groups are read apart."""

    file: pq.ParquetFile

    @property
    def schema(self) -> pa.Schema:
        """The columns."""
        return self.file.schema_arrow

    def group_bytes(self) -> tuple[int, ...]:
        """Size of each row group, bytes."""
        metadata = self.file.metadata
        return tuple(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))

    def num_rows(self, group: int) -> int:
        """Rows of one group."""
        return int(self.file.metadata.row_group(group).num_rows)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Streams the columns `names` of one group, in batches of about `_BATCH_BYTES`."""
        metadata = self.file.metadata.row_group(group)
        chunks = [metadata.column(index) for index in range(metadata.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema.startswith(tuple(names))]
        num_bytes = sum(chunk.total_uncompressed_size for chunk in wanted)
        rows = max(1, min(_BATCH_ROWS, _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)))
        yield from self.file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)

    def read_group(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """Reads the columns `names` of one group."""
        return self.file.read_row_group(group, columns=list(names), use_threads=False)


@dataclass(frozen=True, kw_only=True)
class ArrowFile:
    """An Arrow IPC file, opened: its record batches count as row groups."""

    stream: pa.NativeFile
    schema: pa.Schema
    num_batches: int

    def group_bytes(self) -> tuple[int, ...]:
        """Size of each record batch, as if all were equal, bytes."""
        return (self.stream.size() // max(1, self.num_batches),) * self.num_batches

    def num_rows(self, group: int) -> int:
        """Rows of one record batch."""
        return int(pa.ipc.open_file(self.stream).get_batch(group).num_rows)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Reads the columns `names` of one record batch."""
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in names])
        batch = pa.ipc.open_file(self.stream, options=options).get_batch(group)
        batch.validate()
        yield batch

    def read_group(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """Reads the columns `names` of one record batch."""
        return pa.Table.from_batches(self.batches(group, names=names))


GroupedFile = ParquetFile | ArrowFile


@contextmanager
def open_grouped(location: Location) -> Iterator[GroupedFile]:
    """Opens a Parquet or Arrow IPC file, whichever it is.

    Raises:
        InputError: the file is missing, truncated or neither of the two.
    """
    with input_errors(location.uri), open_native(location) as stream:
        begin = stream.read(len(_ARROW_MAGIC))
        stream.seek(0)
        if begin == _ARROW_MAGIC:
            file = pa.ipc.open_file(stream)
            yield ArrowFile(stream=stream, schema=file.schema, num_batches=file.num_record_batches)
        elif begin.startswith(_STREAM_MAGIC):
            raise InputError(
                f"{location.uri} is an Arrow IPC stream, whose rows can't be found again; "
                "write it with pyarrow.ipc.new_file or as Parquet"
            )
        else:
            yield ParquetFile(file=pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False))


def batch_records(batch: pa.RecordBatch, *, columns: Columns, where: str) -> Iterator[Record]:
    """Streams the records of a batch in memory, as of a file. A place is (0, row).

    Raises:
        InputError: a column is missing or of a wrong type, or a value can't be read.
    """
    present = present_columns(batch.schema, columns=plain_columns(columns), where=where)
    rows = range(batch.num_rows)
    yield from _records(batch, rows, columns=present, group=0, first_row=0, prefix=where, keep_bad=False)


def group_records(
    file: GroupedFile,
    group: int,
    *,
    columns: Sequence[FileColumn],
    where: str,
    rows: Sequence[int] | None = None,
    keep_bad: bool,
) -> Iterator[Record]:
    """Streams the records of one row group, or those at `rows`, which are sorted; `columns` of `present_columns`."""
    first_row, prefix = 0, f"{where}, row group {group + 1}"
    names = tuple(dict.fromkeys(each.stored_as for each in columns if each.stored_as is not None))
    for batch in file.batches(group, names=names) if rows is None or rows else ():
        next_row = first_row + batch.num_rows
        wanted: Sequence[int] = range(first_row, next_row)
        if rows is not None:
            wanted = rows[bisect_left(rows, first_row) : bisect_left(rows, next_row)]
        yield from _records(
            batch, wanted, columns=columns, group=group, first_row=first_row, prefix=prefix, keep_bad=keep_bad
        )
        first_row = next_row
        if rows is not None and first_row > rows[-1]:
            return


def present_columns(schema: pa.Schema, *, columns: Sequence[FileColumn], where: str) -> list[FileColumn]:
    """Returns the columns with their names in a file, or with what stands for them where it lacks them.

    Raises:
        InputError: one is missing, there twice, or of a wrong type.
    """
    present = []
    for each in columns:
        found = _with_stored_name(each, schema, where=where).found_in(schema.names, where=where)
        if found.stored_as is not None and not _is_allowed(schema.field(found.stored_as).type, kind=each.column.kind):
            raise wrong_type(str(schema.field(found.stored_as).type), column=each.column, where=where)
        present.append(found)
    return present


def _with_stored_name(column: FileColumn, schema: pa.Schema, *, where: str) -> FileColumn:
    """The column with its name in a file of a lake's table. A column with an id is found by that alone."""
    table = column.in_table
    if table is None or table.field_id is None:
        return column
    ids: dict[bytes | None, str] = {(field.metadata or {}).get(_FIELD_ID): field.name for field in schema}
    if ids.keys() - {None}:
        return replace(column, stored_as=ids.get(str(table.field_id).encode()))
    if table.mapped_names is None:
        raise InputError(
            f"{where} has no field ids, and its table maps no names to them, so that its columns are ambiguous: set "
            "the table's property schema.name-mapping.default, or write the file again"
        )
    names = [name for name in table.mapped_names if name in schema.names]
    if len(names) > 1:
        raise InputError(
            f"{where} has no field ids, and by the table's name mapping {' and '.join(map(repr, names))} both are "
            f"column {column.column.name!r}; write the file again, or fix the table's property "
            "schema.name-mapping.default"
        )
    return replace(column, stored_as=names[0] if names else None)


def _is_allowed(type_: pa.DataType, *, kind: ColumnKind) -> bool:
    type_ = _plain_type(type_)
    if kind in (ColumnKind.CARRIED, ColumnKind.TYPED, ColumnKind.ORDER) or types.is_null(type_) or _is_text(type_):
        return True
    if kind is ColumnKind.REFERENCES and _is_list(type_):
        item = _plain_type(type_.value_type)
        return bool(types.is_null(item) or types.is_integer(item) or _is_text(item))
    return bool(kind is not ColumnKind.DOCUMENT and kind is not ColumnKind.TEXT and types.is_integer(type_))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values themselves, without extension and dictionary."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain_type(type_.storage_type)
    return _plain_type(type_.value_type) if types.is_dictionary(type_) else type_


def _is_text(type_: pa.DataType) -> bool:
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_binary(type_: pa.DataType) -> bool:
    return bool(types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def _records(
    batch: pa.RecordBatch,
    rows: Sequence[int],
    *,
    columns: Sequence[FileColumn],
    group: int,
    first_row: int,
    prefix: str,
    keep_bad: bool,
) -> Iterator[Record]:
    """The records of some rows of a group, in a batch that begins with `first_row`."""
    if not rows:
        return
    arrays = [
        _column_array(batch.column(each.stored_as), column=each.column, where=prefix) if each.stored_as else None
        for each in columns
    ]
    for row in rows:
        where = f"{prefix}, row {row + 1}"
        values = partial(_values, arrays, row - first_row, columns=columns, where=where)
        yield make_record(values, place=(group, row), where=where, keep_bad=keep_bad)


def _values(
    arrays: Sequence[pa.Array | None], index: int, *, columns: Sequence[FileColumn], where: str
) -> tuple[Value, ...]:
    values = []
    for array, each in zip(arrays, columns, strict=True):
        value = each.constant if array is None else array[index].as_py()
        if isinstance(value, bytes):
            value = decode(value)
        values.append(column_value(value, column=each.column, where=where, is_typed=array is not None))
    return tuple(values)


def _column_array(array: pa.Array, *, column: InputColumn, where: str) -> pa.Array:
    type_ = _plain_type(array.type)
    if column.kind is ColumnKind.TYPED and not types.is_string(column.type):
        return _typed_array(array, column=column, where=where)
    if column.kind is not ColumnKind.ORDER or not types.is_timestamp(type_) or type_.tz is None:
        return _plain_array(array)
    in_utc = array.cast(pa.timestamp(type_.unit, "UTC"))
    return _plain_array(in_utc.cast(pa.timestamp(type_.unit)))  # a Z behind it would come after a fraction of a second


def _typed_array(array: pa.Array, *, column: InputColumn, where: str) -> pa.Array:
    if isinstance(array.type, pa.BaseExtensionType):
        array = array.storage
    if types.is_timestamp(array.type) and array.type.unit == "ns":
        array = array.cast(pa.timestamp("us", array.type.tz), safe=False)  # no table of a lake keeps nanoseconds
    try:
        return array.cast(column.type)
    except pa.ArrowException as error:
        raise InputError(
            f"{where}: column {column.name!r} is {array.type}, and {column.type} in other files ({error}); write it "
            "with one type in all files, or leave it out"
        ) from error


def _plain_array(array: pa.Array) -> pa.Array:
    """Values without extension and dictionary; texts as bytes, since a value may be no UTF-8."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain_array(array.storage)
    if types.is_dictionary(array.type):
        return _plain_array(array.dictionary_decode())
    if types.is_string(array.type) or types.is_binary(array.type):
        return array.view(pa.binary())  # the same bytes; a cast would copy them
    if _is_text(array.type) or _is_binary(array.type):
        return array.cast(pa.large_binary())
    if types.is_nested(array.type) or types.is_integer(array.type):
        return array
    return _plain_array(array.cast(pa.string()))


def plain_value(value: pa.Scalar) -> str | int | None:
    """Returns a value of a partition as the rows of a file would give it."""
    array = _plain_array(pa.array([value.as_py()], value.type))
    item = array[0].as_py()
    return item.decode() if isinstance(item, bytes) else item
