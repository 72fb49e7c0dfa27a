"""Reads records from CSV files."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from memagent_batch.documents.formats.byte_lines import ByteLines, fetch_lines, open_lines
from memagent_batch.documents.formats.records import (
    ColumnKind,
    Columns,
    InputColumn,
    Place,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
    make_record,
    raise_missing_column,
    text_bound,
    too_long,
)
from memagent_batch.errors import InputError
from memagent_batch.store.location import Location

NO_TEXT = Unreadable(reason="the text is null: its field is empty, and CSV writes null so")
"""What an empty field is of the column with the text."""
OTHER_SEPARATORS = (";", "\t", "|")
"""What stands in place of commas in tables that call themselves CSV."""


class CsvReader:
    """Reads CSV: commas, double quotes, a header row; quoted fields may hold line ends."""

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`. A place is (first byte, byte after the last). Malformed CSV ends the file."""
        with open_lines(location, max_bytes=text_bound(columns)) as lines:
            table = _Header.read(lines, columns)
            for row in _placed_rows(lines):
                where = f"{location.uri}, line {row.line}"
                values = partial(table.values, row.cells, where=where)
                yield make_record(values, place=row.place, where=where, keep_bad=keep_bad)

    def fetch(self, location: Location, *, columns: Columns, places: Sequence[Place]) -> Iterator[Record]:
        """See `RecordReader`."""
        with open_lines(location, max_bytes=text_bound(columns)) as lines:
            table = _Header.read(lines, columns)
        for place, lines in fetch_lines(location, places=places):
            yield make_record(partial(table.only_values, lines), place=place, where=location.uri, keep_bad=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CsvRow:
    place: Place
    line: int
    """Line of the file in which it begins, from 1."""
    cells: list[str]


def _placed_rows(lines: ByteLines) -> Iterator[_CsvRow]:
    """The CSV rows that are not blank."""
    csv.field_size_limit(sys.maxsize if lines.max_bytes is None else lines.max_bytes)
    start, line = lines.position, lines.num_lines + 1
    try:
        for cells in csv.reader(lines, strict=True):
            if cells:
                yield _CsvRow(place=Place(start=start, stop=lines.position), line=line, cells=cells)
            start, line = lines.position, lines.num_lines + 1
    except csv.Error as error:
        if "field limit" in str(error) and lines.max_bytes is not None:
            raise InputError(f"{lines.path}, line {line}: {too_long(lines.max_bytes)}") from error
        until = f" to {lines.num_lines}" if lines.num_lines > line else ""
        raise InputError(
            f"{lines.path}, line {line}{until}: malformed CSV ({error}); quote fields with double quotes and end rows "
            "with a line feed"
        ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class _Header:
    """The first row of a file, and where the columns stand in it."""

    names: list[str]
    fields: list[tuple[InputColumn, int | None]]
    """The columns with their positions; None where one is absent, or a key of the file's folder."""

    @classmethod
    def read(cls, lines: ByteLines, columns: Columns) -> "_Header":
        """Takes the header from the lines of a file."""
        for row in _placed_rows(lines):
            fields = [(column, _field(row.cells, column=column, path=lines.path)) for column in columns]
            return cls(names=row.cells, fields=fields)
        raise InputError(f"{lines.path} is empty; a CSV file needs a header row with the column names")

    def values(self, row: Sequence[str], *, where: str) -> tuple[Value, ...]:
        """The values of a row."""
        if len(row) != len(self.names):
            raise InputError(
                f"{where} has {len(row)} fields, the header {len(self.names)}; quote fields that hold commas"
            )
        return tuple(
            column_value(_csv_value(row, field=field, column=column), column=column, where=where)
            for column, field in self.fields
        )

    def only_values(self, lines: ByteLines) -> tuple[Value, ...]:
        """The values of the one row that is left."""
        for row in _placed_rows(lines):
            return self.values(row.cells, where="its row")
        raise InputError("its row is gone")


def _field(header: Sequence[str], *, column: InputColumn, path: str) -> int | None:
    """Position of a column; None where it is optional and absent, or a key of the file's folder."""
    if column.is_partition:
        return None
    count = header.count(column.name)
    if count > 1:
        raise InputError(f"{path} has {count} columns {column.name!r}; rename all but one")
    if count == 0:
        _require_commas(header, path=path)
        if column.presence is not Presence.OPTIONAL and column.absent is None:
            raise_missing_column(column, there=header, where=path)
    return header.index(column.name) if count else None


def _require_commas(header: Sequence[str], *, path: str) -> None:
    """Refuses a table whose fields are separated by another character, which a header of one column shows."""
    separator = next((other for other in OTHER_SEPARATORS if len(header) == 1 and other in header[0]), None)
    if separator is not None:
        raise InputError(
            f"{path}: its fields are separated by {separator!r}; write them with commas (in pandas: "
            f"read_csv(..., sep={separator!r}).to_csv(..., index=False)), or the table as Parquet"
        )


def _csv_value(row: Sequence[str], *, field: int | None, column: InputColumn) -> object:
    """A field's value. CSV has no null: an empty field is one in an optional column, and as a document's text.

    A JSON list may be a value.
    """
    value = column.substitute if field is None else row[field]
    if value == "" and column.presence is Presence.OPTIONAL:
        return None
    if value == "" and column.kind is ColumnKind.DOCUMENT and not column.is_part:
        return NO_TEXT
    if isinstance(value, str) and column.kind is ColumnKind.REFERENCES and value.startswith("["):
        try:
            return list(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value
