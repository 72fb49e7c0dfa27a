"""Reads records from Parquet and Arrow IPC files: projected columns, with what stands for those that a file lacks."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import types

from memagent_batch.data.documents.formats.records import (
    Absent,
    ColumnKind,
    Columns,
    InputColumn,
    Place,
    Presence,
    Record,
    Value,
    column_value,
    decode,
    make_record,
    missing_column,
    wrong_type,
)
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

_BATCH_BYTES = 4 * 1024 * 1024
"""Size that a batch of Parquet rows is aimed at, bytes: small beside a document of millions of tokens."""

_BATCH_ROWS = 16
"""Most rows of a batch: bounds it where dictionary encoding hides how large the texts are."""

_READ_BYTES = 1024 * 1024
"""Buffer of a Parquet column chunk, bytes; the chunk itself is never held."""

_ROWS_BLOCK_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store, bytes."""

_ARROW_MAGIC = b"ARROW1"
_FIELD_ID = b"PARQUET:field_id"


@dataclass(frozen=True, kw_only=True)
class ParquetFile:
    """A Parquet file, opened: its row groups are read apart."""

    file: pq.ParquetFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "ParquetFile":
        """Reads the footer."""
        stream.seek(0)
        file = pq.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        metadata = file.metadata
        sizes = tuple(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        return cls(file=file, schema=file.schema_arrow, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Streams the columns `names` of one group."""
        rows = self._batch_rows(group, names=names)
        yield from self.file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)

    def num_rows(self, group: int) -> int:
        """Rows of one group."""
        return int(self.file.metadata.row_group(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """The columns `names` of one group at once."""
        return self.file.read_row_group(group, columns=list(names), use_threads=False)

    def _batch_rows(self, group: int, *, names: Sequence[str]) -> int:
        """Rows of about `_BATCH_BYTES`."""
        metadata = self.file.metadata.row_group(group)
        chunks = [metadata.column(index) for index in range(metadata.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema.startswith(tuple(names))]
        num_bytes = sum(chunk.total_uncompressed_size for chunk in wanted)
        rows: int = _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)
        return max(1, min(_BATCH_ROWS, rows))


@dataclass(frozen=True, kw_only=True)
class ArrowFile:
    """An Arrow IPC file, opened: its record batches count as row groups."""

    stream: pa.NativeFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "ArrowFile":
        """Reads the footer."""
        stream.seek(0)
        file = pa.ipc.open_file(stream)
        num_batches = file.num_record_batches
        sizes = (stream.size() // max(1, num_batches),) * num_batches
        return cls(stream=stream, schema=file.schema, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Streams the columns `names` of one group."""
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in names])
        batch = pa.ipc.open_file(self.stream, options=options).get_batch(group)
        batch.validate()
        yield batch

    def num_rows(self, group: int) -> int:
        """Rows of one group."""
        return int(pa.ipc.open_file(self.stream).get_batch(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """The columns `names` of one group at once."""
        return pa.Table.from_batches(self.batches(group, names=names))


GroupedFile = ParquetFile | ArrowFile


@contextmanager
def open_grouped(location: Location) -> Iterator[GroupedFile]:
    """Opens a Parquet or Arrow IPC file, whichever it is.

    Raises:
        InputError: the file is missing, truncated or neither of the two.
    """
    with input_errors(location.uri), _open_native(location) as stream:
        if stream.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC:
            yield ArrowFile.open(stream)
            return
        stream.seek(0)
        if stream.read(4) == b"\xff\xff\xff\xff":
            raise InputError(
                f"{location.uri} is an Arrow IPC stream, whose rows can't be found again; "
                "write it with pyarrow.ipc.new_file or as Parquet"
            )
        yield ParquetFile.open(stream)


def _open_native(location: Location) -> pa.NativeFile:
    if location.is_local:
        return pa.OSFile(location.path)
    return pa.PythonFile(location.fs.open(location.path, "rb", block_size=_ROWS_BLOCK_BYTES), mode="r")


class ColumnarReader:
    """Reads Parquet and Arrow IPC files; which one is seen from the file. A place is (row group, row in it)."""

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`."""
        with open_grouped(location) as file:
            columns = present_columns(file.schema, columns=columns, where=location.uri)
            for group in range(len(file.group_bytes)):
                yield from group_records(file, group, columns=columns, where=location.uri, keep_bad=keep_bad)

    def names(self, location: Location) -> Sequence[str]:
        """See `RecordReader`."""
        with open_grouped(location) as file:
            return tuple(file.schema.names)


def batch_records(batch: pa.RecordBatch, *, columns: Columns, where: str) -> Iterator[Record]:
    """Streams the records of a batch in memory, as of a file. A place is (0, row).

    Raises:
        InputError: a column is missing or of a wrong type, or a value can't be read.
    """
    columns = present_columns(batch.schema, columns=columns, where=where)
    places = [Place(start=0, stop=row) for row in range(batch.num_rows)]
    yield from _records(batch, places, columns=columns, first_row=0, prefix=where, keep_bad=False)


def group_records(
    file: GroupedFile,
    group: int,
    *,
    columns: Columns,
    where: str,
    rows: Sequence[int] | None = None,
    keep_bad: bool,
) -> Iterator[Record]:
    """Streams the records of one row group, or those at `rows`, which are sorted; `columns` of `present_columns`."""
    first_row = 0
    names = tuple(dict.fromkeys(column.stored_as for column in columns if column.stored_as is not None))
    for batch in file.batches(group, names=names) if rows is None or rows else ():
        next_row = first_row + batch.num_rows
        wanted: Sequence[int] = range(first_row, next_row)
        if rows is not None:
            wanted = rows[bisect_left(rows, first_row) : bisect_left(rows, next_row)]
        if wanted:
            places = [Place(start=group, stop=row) for row in wanted]
            prefix = f"{where}, row group {group + 1}"
            yield from _records(batch, places, columns=columns, first_row=first_row, prefix=prefix, keep_bad=keep_bad)
        first_row = next_row
        if rows is not None and first_row > rows[-1]:
            return


def present_columns(schema: pa.Schema, *, columns: Columns, where: str) -> list[InputColumn]:
    """The columns as the file has them: with their names in it, or with what stands for them where it lacks them.

    Raises:
        InputError: one is missing, there twice, or of a wrong type.
    """
    return [_present_column(schema, column, where=where) for column in columns]


def _present_column(schema: pa.Schema, column: InputColumn, *, where: str) -> InputColumn:
    name = "" if column.is_partition else _stored_name(schema, column, where=where)
    count = schema.names.count(name) if name else 0
    if count > 1:
        raise InputError(f"{where} has {count} columns {name!r}; rename all but one")
    if count == 0:
        if column.absent is None and column.presence is not Presence.OPTIONAL:
            raise missing_column(column, there=schema.names, where=where)
        return replace(column, stored_as=None, absent=column.absent or Absent())
    type_ = schema.field(name).type
    if not _is_allowed(type_, kind=column.kind):
        raise wrong_type(str(type_), column=column, where=where)
    return replace(column, stored_as=name)


def _stored_name(schema: pa.Schema, column: InputColumn, *, where: str) -> str:
    """The name of a column in a file; empty where the file lacks it. A column with an id is found by that alone."""
    if column.in_table.field_id is None:
        return column.in_table.stored_as or column.name
    ids: dict[bytes | None, str] = {(field.metadata or {}).get(_FIELD_ID): field.name for field in schema}
    if ids.keys() - {None}:
        return ids.get(str(column.in_table.field_id).encode(), "")
    return _mapped_name(schema, column, where=where)


def _mapped_name(schema: pa.Schema, column: InputColumn, *, where: str) -> str:
    """The name of a column in a file without ids, by what its table says of such files."""
    if column.in_table.mapped_names is None:
        raise InputError(
            f"{where} has no field ids, and its table maps no names to them, so that its columns are ambiguous: set "
            "the table's property schema.name-mapping.default, or write the file again"
        )
    names = [name for name in column.in_table.mapped_names if name in schema.names]
    if len(names) > 1:
        raise InputError(
            f"{where} has no field ids, and by the table's name mapping {' and '.join(map(repr, names))} both are "
            f"column {column.name!r}; write the file again, or fix the table's property schema.name-mapping.default"
        )
    return names[0] if names else ""


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
    places: Sequence[Place],
    *,
    columns: Columns,
    first_row: int,
    prefix: str,
    keep_bad: bool,
) -> Iterator[Record]:
    """The records at `places` of a batch that begins with row `first_row` of its group."""
    arrays = [
        _column_array(batch.column(each.stored_as), column=each, where=prefix) if each.stored_as else None
        for each in columns
    ]
    for place in places:
        where = f"{prefix}, row {place.stop + 1}"
        values = partial(_values, arrays, place.stop - first_row, columns=columns, where=where)
        yield make_record(values, place=place, where=where, keep_bad=keep_bad)


def _values(arrays: Sequence[pa.Array | None], index: int, *, columns: Columns, where: str) -> tuple[Value, ...]:
    return tuple(
        column_value(_item(array, index, column=column), column=column, where=where)
        for array, column in zip(arrays, columns, strict=True)
    )


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


def _item(array: pa.Array | None, index: int, *, column: InputColumn) -> Any:
    if array is None:
        return column.substitute
    value = array[index].as_py()
    return decode(value) if isinstance(value, bytes) else value


def plain_value(value: pa.Scalar) -> str | int | None:
    """A value of a partition as the rows of a file would give it."""
    array = _plain_array(pa.array([value.as_py()], value.type))
    item = array[0].as_py()
    return item.decode() if isinstance(item, bytes) else item
