"""Reads records from Parquet and Arrow IPC files: projected columns, one small batch at a time."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any, Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
from pyarrow import types

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.records import (
    Absent,
    Column,
    Kind,
    Place,
    Presence,
    Record,
    Value,
    column_value,
    decode,
    make_record,
    refuse_missing,
    refuse_type,
)

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


class GroupedFile(Protocol):
    """A file whose rows stand in groups that can be read apart."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the file."""
        ...

    @property
    def group_bytes(self) -> tuple[int, ...]:
        """Size of each group, about, bytes."""
        ...

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Streams the columns `names` of one group."""
        ...

    def num_rows(self, group: int) -> int:
        """Rows of one group."""
        ...

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """The columns `names` of one group at once."""
        ...

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        """Groups that may hold a row for which the condition is true, as far as the file knows."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnarReader:
    """Reads Parquet and Arrow IPC files; which one is seen from the file."""

    def read(
        self, location: Location, *, columns: Sequence[Column], groups: tuple[int, int] | None, keep_bad: bool = False
    ) -> Iterator[Record]:
        """See `RecordReader`. A place is (row group or record batch, row in it)."""
        with open_grouped(location) as file:
            columns = present_columns(file.schema, columns=columns, where=location.uri)
            for group in range(*(groups or (0, len(file.group_bytes)))):
                first_row = 0
                for batch in file.batches(group, names=_stored_names(columns)):
                    prefix = f"{location.uri}, row group {group + 1}"
                    places = [Place(start=group, stop=first_row + row) for row in range(batch.num_rows)]
                    yield from _records(batch, columns=columns, places=places, prefix=prefix, keep_bad=keep_bad)
                    first_row += batch.num_rows

    def fetch(
        self, location: Location, *, columns: Sequence[Column], places: Sequence[Place]
    ) -> Iterator[tuple[Place, tuple[Value, ...]]]:
        """See `RecordReader`. Reads each row group once, and no further than its last row that is wanted."""
        with open_grouped(location) as file:
            columns = present_columns(file.schema, columns=columns, where=location.uri)
            for group, group_places in groupby(places, key=attrgetter("start")):
                if group < len(file.group_bytes):
                    rows = [place.stop for place in group_places]
                    yield from _fetch_group(file, group, columns=columns, rows=rows)


def batch_records(batch: pa.RecordBatch, *, columns: Sequence[Column], where: str) -> Iterator[Record]:
    """Streams the records of a batch in memory, as of a file. A place is (0, row).

    Raises:
        InputError: a column is missing or of a wrong type, or a value can't be read.
    """
    columns = present_columns(batch.schema, columns=columns, where=where)
    places = [Place(start=0, stop=row) for row in range(batch.num_rows)]
    yield from _records(batch, columns=columns, places=places, prefix=where, keep_bad=False)


@contextmanager
def open_grouped(location: Location) -> Iterator[GroupedFile]:
    """Opens a Parquet or Arrow IPC file, whichever it is.

    Raises:
        InputError: the file is missing, truncated or neither of the two.
    """
    with input_errors(location.uri), _open_native(location) as stream:
        if stream.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC:
            yield _ArrowFile.open(stream)
            return
        stream.seek(0)
        if stream.read(4) == b"\xff\xff\xff\xff":
            raise InputError(
                f"{location.uri} is an Arrow IPC stream, whose rows can't be found again; "
                "write it with pyarrow.ipc.new_file or as Parquet"
            )
        yield _ParquetFile.open(stream)


def _open_native(location: Location) -> pa.NativeFile:
    if location.is_local:
        return pa.OSFile(location.path)
    return pa.PythonFile(location.fs.open(location.path, "rb", block_size=_ROWS_BLOCK_BYTES), mode="r")


@dataclass(frozen=True, kw_only=True)
class _ParquetFile:
    stream: pa.NativeFile
    file: pq.ParquetFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "_ParquetFile":
        stream.seek(0)
        file = pq.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        metadata = file.metadata
        sizes = tuple(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        return cls(stream=stream, file=file, schema=file.schema_arrow, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = self._batch_rows(group, names=names)
        yield from self.file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)

    def num_rows(self, group: int) -> int:
        return int(self.file.metadata.row_group(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        return self.file.read_row_group(group, columns=list(names), use_threads=False)

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        fragment = ds.ParquetFileFormat().make_fragment(self.stream)
        return frozenset(group.id for group in fragment.subset(condition, schema=self.schema).row_groups)

    def _batch_rows(self, group: int, *, names: Sequence[str]) -> int:
        """Rows of about `_BATCH_BYTES`."""
        metadata = self.file.metadata.row_group(group)
        chunks = [metadata.column(index) for index in range(metadata.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema.startswith(tuple(names))]
        num_bytes = sum(chunk.total_uncompressed_size for chunk in wanted)
        rows: int = _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)
        return max(1, min(_BATCH_ROWS, rows))


@dataclass(frozen=True, kw_only=True)
class _ArrowFile:
    stream: pa.NativeFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "_ArrowFile":
        stream.seek(0)
        file = pa.ipc.open_file(stream)
        num_batches = file.num_record_batches
        sizes = (stream.size() // max(1, num_batches),) * num_batches
        return cls(stream=stream, schema=file.schema, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in names])
        batch = pa.ipc.open_file(self.stream, options=options).get_batch(group)
        batch.validate()
        yield batch

    def num_rows(self, group: int) -> int:
        return int(pa.ipc.open_file(self.stream).get_batch(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches(self.batches(group, names=names))

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        return frozenset(range(len(self.group_bytes)))


def present_columns(schema: pa.Schema, *, columns: Sequence[Column], where: str) -> list[Column]:
    """The columns as the file has them: with their names in it, or with what stands for them where it lacks them.

    Raises:
        InputError: one is missing, there twice, or of a wrong type.
    """
    return [_present_column(schema, column, where=where) for column in columns]


def _present_column(schema: pa.Schema, column: Column, *, where: str) -> Column:
    name = stored_name(schema, column)
    count = schema.names.count(name)
    if count > 1:
        raise InputError(f"{where} has {count} columns {name!r}; rename all but one")
    if count == 0:
        if column.absent is None and column.presence is not Presence.OPTIONAL:
            refuse_missing(column, there=schema.names, where=where)
        return replace(column, stored_as=None, absent=column.absent or Absent())
    type_ = schema.field(name).type
    if not _is_allowed(type_, kind=column.kind):
        refuse_type(str(type_), column=column, where=where)
    return replace(column, stored_as=name)


def stored_name(schema: pa.Schema, column: Column) -> str:
    """The name of a column in a file: of the field with its id, where the file has ids."""
    if column.field_id is not None:
        ids: dict[bytes | None, str] = {(field.metadata or {}).get(_FIELD_ID): field.name for field in schema}
        if ids.keys() - {None}:
            return ids.get(str(column.field_id).encode(), "")
    return column.stored_as or column.name


def _stored_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Names to read, each once."""
    return tuple(dict.fromkeys(column.stored_as for column in columns if column.stored_as is not None))


def _is_allowed(type_: pa.DataType, *, kind: Kind) -> bool:
    type_ = _plain_type(type_)
    if kind is Kind.CARRIED or types.is_null(type_) or _is_text(type_):
        return True
    if kind is Kind.REFERENCES and _is_list(type_):
        item = _plain_type(type_.value_type)
        return bool(types.is_null(item) or types.is_integer(item) or _is_text(item))
    return bool(kind is not Kind.DOCUMENT and kind is not Kind.TEXT and types.is_integer(type_))


def _plain_type(type_: pa.DataType) -> pa.DataType:
    """The type of the values themselves, without extension and dictionary."""
    if isinstance(type_, pa.BaseExtensionType):
        return _plain_type(type_.storage_type)
    return _plain_type(type_.value_type) if types.is_dictionary(type_) else type_


def _is_text(type_: pa.DataType) -> bool:
    return bool(types.is_string(type_) or types.is_large_string(type_) or types.is_string_view(type_))


def _is_list(type_: pa.DataType) -> bool:
    return bool(types.is_list(type_) or types.is_large_list(type_) or types.is_fixed_size_list(type_))


def _records(
    batch: pa.RecordBatch,
    *,
    columns: Sequence[Column],
    places: Sequence[Place],
    prefix: str,
    keep_bad: bool,
    first_row: int | None = None,
) -> Iterator[Record]:
    """The rows of a batch at `places`; all of them, or those of a batch that begins with row `first_row`."""
    arrays = [_plain_array(batch.column(column.stored_as)) if column.stored_as else None for column in columns]
    rows = range(len(places)) if first_row is None else [place.stop - first_row for place in places]
    for row, place in zip(rows, places, strict=True):
        where = f"{prefix}, row {place.stop + 1}"
        values = partial(_values, arrays, row, columns=columns, where=where)
        yield make_record(values, place=place, where=where, keep_bad=keep_bad)


def _values(
    arrays: Sequence[pa.Array | None], index: int, *, columns: Sequence[Column], where: str
) -> tuple[Value, ...]:
    return tuple(
        column_value(_item(array, index, column=column), column=column, where=where)
        for array, column in zip(arrays, columns, strict=True)
    )


def group_records(
    file: GroupedFile, group: int, *, columns: Sequence[Column], rows: Sequence[int], prefix: str, keep_bad: bool
) -> Iterator[Record]:
    """Streams the records at `rows`, which are sorted, of one row group; `columns` are of `present_columns`."""
    for batch, first_row, wanted in _wanted(file, group, columns=columns, rows=rows):
        places = [Place(start=group, stop=row) for row in wanted]
        yield from _records(
            batch, columns=columns, places=places, first_row=first_row, prefix=prefix, keep_bad=keep_bad
        )


def _fetch_group(
    file: GroupedFile, group: int, *, columns: Sequence[Column], rows: Sequence[int]
) -> Iterator[tuple[Place, tuple[Value, ...]]]:
    """Values at `rows`, which are sorted, of one row group."""
    for batch, first_row, wanted in _wanted(file, group, columns=columns, rows=rows):
        arrays = [_plain_array(batch.column(column.stored_as)) if column.stored_as else None for column in columns]
        paired = list(zip(arrays, columns, strict=True))
        for row in wanted:
            where, index = f"row {row + 1}", row - first_row
            values = [
                column_value(_item(array, index, column=each), column=each, where=where) for array, each in paired
            ]
            yield Place(start=group, stop=row), tuple(values)


def _wanted(
    file: GroupedFile, group: int, *, columns: Sequence[Column], rows: Sequence[int]
) -> Iterator[tuple[pa.RecordBatch, int, Sequence[int]]]:
    """The batches of a row group that hold some of `rows`: with their first row, and those rows."""
    first_row = 0
    for batch in file.batches(group, names=_stored_names(columns)) if rows else ():
        next_row = first_row + batch.num_rows
        wanted = rows[bisect_left(rows, first_row) : bisect_left(rows, next_row)]
        if wanted:
            yield batch, first_row, wanted
        first_row = next_row
        if first_row > rows[-1]:
            return


def _plain_array(array: pa.Array) -> pa.Array:
    """Values without extension and dictionary; texts as bytes, since Arrow does not promise that they are UTF-8."""
    if isinstance(array.type, pa.BaseExtensionType):
        return _plain_array(array.storage)
    if types.is_dictionary(array.type):
        return _plain_array(array.dictionary_decode())
    if types.is_string(array.type):
        return array.view(pa.binary())  # the same bytes; a cast would copy them
    if _is_text(array.type):
        return array.cast(pa.large_binary())
    if types.is_nested(array.type) or types.is_integer(array.type):
        return array
    return _plain_array(array.cast(pa.string()))


def _item(array: pa.Array | None, index: int, *, column: Column) -> Any:
    if array is None:
        return column.substitute
    value = array[index].as_py()
    return decode(value) if isinstance(value, bytes) else value


def plain_value(value: pa.Scalar) -> str | int | None:
    """A value of a partition as the rows of a file would give it."""
    array = _plain_array(pa.array([value.as_py()], value.type))
    item = array[0].as_py()
    return item.decode() if isinstance(item, bytes) else item
