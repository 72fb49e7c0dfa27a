"""Reads records from files of lines: JSONL and CSV. A place is (first byte, byte after the last)."""

import csv
import json
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from pydantic import JsonValue

from memagent_batch.data.documents.formats.byte_lines import ByteLines, open_lines
from memagent_batch.data.documents.formats.records import (
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
    missing_column,
    text_bound,
    too_long,
)
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

NO_TEXT = Unreadable(reason="the text is null: its field is empty, and CSV writes null so")
"""What an empty field is of the column with the text."""
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
"""What may stand between the fields of a table of lines, and how it is called."""


class JsonlReader:
    """Reads JSONL: one JSON object a line; blank lines are skipped."""

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`. A key that is absent counts as null,
        but not one that no line of the file has.
        """
        there: dict[str, None] = {}
        with open_lines(location, max_bytes=text_bound(columns)) as lines:
            for number, (place, line) in enumerate(_placed_lines(lines)):
                where = f"{location.uri}, line {lines.num_lines}"
                if number == 0:
                    _require_lines(line, where=location.uri)
                values = partial(_json_values, line, columns=columns, where=where, there=there)
                yield make_record(values, place=place, where=where, keep_bad=keep_bad)
        for column in columns if there else ():
            if column.presence is Presence.SOME and column.absent is None and column.name not in there:
                raise missing_column(column, there=tuple(there), where=location.uri)

    def names(self, location: Location) -> Sequence[str]:
        """See `RecordReader`. The keys of all lines."""
        there: dict[str, None] = {}
        with open_lines(location, max_bytes=None) as lines:
            for _, line in _placed_lines(lines):
                _json_values(line, columns=(), where=f"{location.uri}, line {lines.num_lines}", there=there)
        return tuple(there)


def _placed_lines(lines: ByteLines) -> Iterator[tuple[Place, str | InputError]]:
    """The lines that are not blank, with their places; an error for each that is not UTF-8."""
    while True:
        start = lines.position
        line: str | InputError
        try:
            line = next(lines)
        except StopIteration:
            return
        except InputError as error:
            line = error
        if isinstance(line, InputError) or line.strip():
            yield Place(start=start, stop=lines.position), line


def _require_lines(first: str | InputError, *, where: str) -> None:
    """Refuses a file that holds one JSON value over many lines: no line is a record."""
    text = first.strip() if isinstance(first, str) else ""
    if text.startswith("["):
        raise InputError(f"{where} is a JSON list; write one JSON object a line (jq -c '.[]' FILE)")
    if text == "{":
        raise InputError(f"{where} has a JSON object over many lines; write one JSON object a line (jq -c . FILE)")


def _json_values(line: str | InputError, *, columns: Columns, where: str, there: dict[str, None]) -> tuple[Value, ...]:
    """The values of a line. Adds its keys to `there`: all that the file has, in their order."""
    if isinstance(line, InputError):
        raise line
    item = json_object(line, where=where)
    there.update(dict.fromkeys(item))
    for column in columns:
        if column.presence is Presence.EVERY and column.absent is None and column.name not in item:
            raise missing_column(column, there=tuple(item), where=where)
    found = (
        column.substitute if column.is_partition else item.get(column.name, column.substitute) for column in columns
    )
    return tuple(column_value(value, column=column, where=where) for value, column in zip(found, columns, strict=True))


def json_object(line: str, *, where: str) -> dict[str, JsonValue]:
    """The object that a line of JSONL holds.

    Raises:
        InputError: it is not JSON, or no object.
    """
    try:
        item = json.loads(line)
    except (ValueError, RecursionError) as error:
        fault = f"{error.msg}, column {error.pos + 1}" if isinstance(error, json.JSONDecodeError) else str(error)
        raise InputError(f"{where}: malformed JSON ({fault}); write one JSON object a line") from error
    if not isinstance(item, dict):
        raise InputError(f"{where} holds {type(item).__name__}, not an object; write one JSON object a line")
    return item


@dataclass(frozen=True, slots=True)
class CsvReader:
    """Reads CSV: commas, double quotes, a header row; quoted fields may hold line ends. Or TSV, with tabs."""

    separator: str = ","

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`. Malformed CSV ends the file."""
        with open_lines(location, max_bytes=text_bound(columns)) as lines:
            table = _Header.read(lines, columns, separator=self.separator)
            for row in _placed_rows(lines, separator=self.separator):
                where = f"{location.uri}, line {row.line}"
                values = partial(table.values, row.cells, where=where)
                yield make_record(values, place=row.place, where=where, keep_bad=keep_bad)

    def names(self, location: Location) -> Sequence[str]:
        """See `RecordReader`."""
        with open_lines(location, max_bytes=None) as lines:
            return _Header.read(lines, (), separator=self.separator).names


@dataclass(frozen=True, slots=True, kw_only=True)
class _CsvRow:
    place: Place
    line: int
    """Line of the file in which it begins, from 1."""
    cells: list[str]


def _placed_rows(lines: ByteLines, *, separator: str) -> Iterator[_CsvRow]:
    """The CSV rows that are not blank."""
    csv.field_size_limit(sys.maxsize if lines.max_bytes is None else lines.max_bytes)
    start, line = lines.position, lines.num_lines + 1
    try:
        for cells in csv.reader(lines, delimiter=separator, strict=True):
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

    separator: str
    names: list[str]
    fields: list[tuple[InputColumn, int | None]]
    """The columns with their positions; None where one is absent, or a key of the file's folder."""

    @classmethod
    def read(cls, lines: ByteLines, columns: Columns, *, separator: str) -> "_Header":
        """Takes the header from the lines of a file."""
        for row in _placed_rows(lines, separator=separator):
            find = partial(_csv_field, row.cells, separator=separator, path=lines.path)
            return cls(separator=separator, names=row.cells, fields=[(column, find(column)) for column in columns])
        raise InputError(f"{lines.path} is empty; a CSV file needs a header row with the column names")

    def values(self, row: Sequence[str], *, where: str) -> tuple[Value, ...]:
        """The values of a row."""
        if len(row) != len(self.names):
            raise InputError(
                f"{where} has {len(row)} fields, the header {len(self.names)}; quote fields that hold "
                f"{SEPARATORS[self.separator]}"
            )
        return tuple(
            column_value(_csv_value(row, field=field, column=column), column=column, where=where)
            for column, field in self.fields
        )


def _csv_field(header: Sequence[str], column: InputColumn, *, separator: str, path: str) -> int | None:
    """Position of a column; None where it is optional and absent, or a key of the file's folder."""
    if column.is_partition:
        return None
    count = header.count(column.name)
    if count > 1:
        raise InputError(f"{path} has {count} columns {column.name!r}; rename all but one")
    if count == 0:
        _require_separator(header, separator=separator, path=path)
        if column.presence is not Presence.OPTIONAL and column.absent is None:
            raise missing_column(column, there=header, where=path)
    return header.index(column.name) if count else None


def _require_separator(header: Sequence[str], *, separator: str, path: str) -> None:
    """Refuses a table whose fields are separated by another character, which a header of one column shows."""
    others = [other for other in SEPARATORS if other != separator and len(header) == 1 and other in header[0]]
    for other in others[:1]:
        sep = "" if separator == "," else f", sep={separator!r}"
        raise InputError(
            f"{path}: its fields are separated by {other!r}; write them with {SEPARATORS[separator]} (in pandas: "
            f"read_csv(..., sep={other!r}).to_csv(...{sep}, index=False)), or the table as Parquet"
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
