"""Reads records from Parquet and Arrow IPC files: projected columns, with what stands for those that a file lacks."""

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import groupby
from operator import attrgetter
from typing import Any

import pyarrow as pa
from pyarrow import types

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.grouped import GroupedFile, open_grouped
from memagent_batch.inputs.formats.records import (
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

_FIELD_ID = b"PARQUET:field_id"


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


def present_columns(schema: pa.Schema, *, columns: Sequence[Column], where: str) -> list[Column]:
    """The columns as the file has them: with their names in it, or with what stands for them where it lacks them.

    Raises:
        InputError: one is missing, there twice, or of a wrong type.
    """
    return [_present_column(schema, column, where=where) for column in columns]


def _present_column(schema: pa.Schema, column: Column, *, where: str) -> Column:
    name = "" if column.is_partition else stored_name(schema, column, where=where)
    count = schema.names.count(name) if name else 0
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


def stored_name(schema: pa.Schema, column: Column, *, where: str) -> str:
    """The name of a column in a file; empty where the file lacks it. A column with an id is found by that alone.

    Raises:
        InputError: it has an id, and it is not known which column of the file has that.
    """
    if column.field_id is None:
        return column.stored_as or column.name
    ids: dict[bytes | None, str] = {(field.metadata or {}).get(_FIELD_ID): field.name for field in schema}
    if ids.keys() - {None}:
        return ids.get(str(column.field_id).encode(), "")
    return _mapped_name(schema, column, where=where)


def _mapped_name(schema: pa.Schema, column: Column, *, where: str) -> str:
    """The name of a column in a file without ids, by what its table says of such files."""
    if column.mapped_names is None:
        raise InputError(
            f"{where} has no field ids, and its table maps no names to them, so that its columns can't be told: set "
            "the table's property schema.name-mapping.default, or write the file again"
        )
    names = [name for name in column.mapped_names if name in schema.names]
    if len(names) > 1:
        raise InputError(
            f"{where} has no field ids, and by the table's name mapping {' and '.join(map(repr, names))} both are "
            f"column {column.name!r}; write the file again, or mend the table's property schema.name-mapping.default"
        )
    return names[0] if names else ""


def _stored_names(columns: Sequence[Column]) -> tuple[str, ...]:
    """Names to read, each once."""
    return tuple(dict.fromkeys(column.stored_as for column in columns if column.stored_as is not None))


def _is_allowed(type_: pa.DataType, *, kind: Kind) -> bool:
    type_ = _plain_type(type_)
    if kind in (Kind.CARRIED, Kind.ORDER) or types.is_null(type_) or _is_text(type_):
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


def _is_binary(type_: pa.DataType) -> bool:
    return bool(types.is_large_binary(type_) or types.is_binary_view(type_) or types.is_fixed_size_binary(type_))


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
    arrays = _arrays(batch, columns)
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
        arrays = _arrays(batch, columns)
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


def _arrays(batch: pa.RecordBatch, columns: Sequence[Column]) -> list[pa.Array | None]:
    """The values of the columns in a batch; None of a column that the file lacks."""
    return [_column_array(batch.column(each.stored_as), kind=each.kind) if each.stored_as else None for each in columns]


def _column_array(array: pa.Array, *, kind: Kind) -> pa.Array:
    type_ = _plain_type(array.type)
    if kind is not Kind.ORDER or not types.is_timestamp(type_) or type_.tz is None:
        return _plain_array(array)
    in_utc = array.cast(pa.timestamp(type_.unit, "UTC"))
    return _plain_array(in_utc.cast(pa.timestamp(type_.unit)))  # a Z behind it would come after a fraction of a second


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
