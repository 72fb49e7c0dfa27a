"""Reads records from JSONL and CSV files by bytes, so that each record can be read again alone."""

import csv
import io
import json
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, Any

from pydantic import JsonValue

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.packed import ForwardReader, is_compressed, open_stream
from memagent_batch.inputs.records import (
    BOM,
    Column,
    Kind,
    Place,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
    make_record,
    refuse_missing,
)

_SPAN_BYTES = 16 * 1024 * 1024
"""Most bytes that are read at once for several records; a larger record is read alone."""
_GAP_BYTES = 256 * 1024
"""Records this near, bytes, are read in one request: cheaper than two."""
OTHER_SEPARATORS = (";", "\t", "|")
"""What stands in place of commas in tables that call themselves CSV."""


@dataclass(slots=True, kw_only=True)
class ByteLines:
    """The lines of a stream as text, with line ends, keeping count of bytes and lines."""

    stream: IO[bytes]
    """The bytes."""
    path: str
    """The file, for messages."""
    position: int = 0
    """Bytes of the file before the next line."""
    num_lines: int = 0
    """Lines read so far."""

    def __iter__(self) -> "ByteLines":
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            InputError: it is not UTF-8.
        """
        line = self.stream.readline()
        if not line:
            raise StopIteration
        start = self.position
        self.position += len(line)
        self.num_lines += 1
        has_bom = start == 0 and line.startswith(BOM)
        try:
            return line.decode("utf-8-sig" if has_bom else "utf-8")
        except UnicodeDecodeError as error:
            byte = start + error.start + (len(BOM) if has_bom else 0) + 1
            raise InputError(
                f"{self.path}, line {self.num_lines}: invalid UTF-8 at byte {byte} of the file; write the file as UTF-8"
            ) from error


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonlReader:
    """Reads JSONL: one JSON object a line; blank lines are skipped."""

    def read(
        self, location: Location, *, columns: Sequence[Column], groups: tuple[int, int] | None, keep_bad: bool = False
    ) -> Iterator[Record]:
        """See `RecordReader`. A place is (first byte, byte after the last). A key that is absent counts as null,
        but not one that no line of the file has.
        """
        there: dict[str, None] = {}
        with open_lines(location) as lines:
            for place, line in _placed_lines(lines):
                where = f"{location.uri}, line {lines.num_lines}"
                values = partial(_json_values, line, columns=columns, where=where, there=there)
                yield make_record(values, place=place, where=where, keep_bad=keep_bad)
        for column in columns if there else ():
            if column.presence is Presence.SOME and column.absent is None and column.name not in there:
                refuse_missing(column, there=tuple(there), where=location.uri)

    def fetch(
        self, location: Location, *, columns: Sequence[Column], places: Sequence[Place]
    ) -> Iterator[tuple[Place, tuple[Value, ...]]]:
        """See `RecordReader`."""
        for place, lines in _fetch_lines(location, places=places):
            yield place, _line_values(lines, columns=columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class CsvReader:
    """Reads CSV: commas, double quotes, a header row; quoted fields may hold line ends."""

    def read(
        self, location: Location, *, columns: Sequence[Column], groups: tuple[int, int] | None, keep_bad: bool = False
    ) -> Iterator[Record]:
        """See `RecordReader`. A place is (first byte, byte after the last). Malformed CSV ends the file."""
        with open_lines(location) as lines:
            header = _csv_header(lines)
            fields = [_field(header, column=column, path=location.uri) for column in columns]
            for row in _placed_rows(lines):
                where = f"{location.uri}, line {row.line}"
                values = partial(_csv_values, row.cells, header=header, fields=fields, columns=columns, where=where)
                yield make_record(values, place=row.place, where=where, keep_bad=keep_bad)

    def fetch(
        self, location: Location, *, columns: Sequence[Column], places: Sequence[Place]
    ) -> Iterator[tuple[Place, tuple[Value, ...]]]:
        """See `RecordReader`."""
        with open_lines(location) as lines:
            header = _csv_header(lines)
        fields = [_field(header, column=column, path=location.uri) for column in columns]
        for place, lines in _fetch_lines(location, places=places):
            yield place, _csv_line(lines, header=header, fields=fields, columns=columns)


@contextmanager
def open_lines(location: Location) -> Iterator[ByteLines]:
    """Opens a file of text lines.

    Raises:
        InputError: the file is missing or can't be read.
    """
    with input_errors(location.uri), open_stream(location) as stream:
        yield ByteLines(stream=stream, path=location.uri)


def line_at(location: Location, position: int) -> int:
    """Line of the file, from 1, in which the byte at `position`, from 0, stands. Reads the file up to there."""
    num_lines = 1
    with input_errors(location.uri), open_stream(location) as stream:
        while position > 0 and (block := stream.read(min(position, _SPAN_BYTES))):
            num_lines += block.count(b"\n")
            position -= len(block)
    return num_lines


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


def _json_values(
    line: str | InputError, *, columns: Sequence[Column], where: str, there: dict[str, None]
) -> tuple[Value, ...]:
    """The values of a line. Adds its keys to `there`: all that the file has, in their order."""
    if isinstance(line, InputError):
        raise line
    item = json_object(line, where=where)
    there.update(dict.fromkeys(item))
    for column in columns:
        if column.presence is Presence.EVERY and column.absent is None and column.name not in item:
            refuse_missing(column, there=tuple(item), where=where)
    return _item_values(item, columns=columns, where=where)


def _item_values(item: Mapping[str, JsonValue], *, columns: Sequence[Column], where: str) -> tuple[Value, ...]:
    return tuple(
        column_value(item.get(column.name, column.substitute), column=column, where=where) for column in columns
    )


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


def _line_values(lines: ByteLines, *, columns: Sequence[Column]) -> tuple[Value, ...]:
    """The values of the one line that is left; a line that is no record any more concerns this one only."""
    try:
        return _item_values(json_object(next(lines, ""), where="its line"), columns=columns, where="its line")
    except InputError as error:
        return (Unreadable(reason=str(error)),) * len(columns)


@dataclass(frozen=True, slots=True, kw_only=True)
class _CsvRow:
    place: Place
    line: int
    """Line of the file in which it begins, from 1."""
    cells: list[str]


def _placed_rows(lines: ByteLines) -> Iterator[_CsvRow]:
    """The CSV rows that are not blank.

    Raises:
        InputError: a row is malformed, or not UTF-8.
    """
    csv.field_size_limit(sys.maxsize)
    start, line = lines.position, lines.num_lines + 1
    try:
        for cells in csv.reader(lines, strict=True):
            if cells:
                yield _CsvRow(place=Place(start=start, stop=lines.position), line=line, cells=cells)
            start, line = lines.position, lines.num_lines + 1
    except csv.Error as error:
        until = f" to {lines.num_lines}" if lines.num_lines > line else ""
        raise InputError(
            f"{lines.path}, line {line}{until}: malformed CSV ({error}); quote fields with double quotes and end rows "
            "with a line feed"
        ) from error


def _csv_header(lines: ByteLines) -> list[str]:
    for row in _placed_rows(lines):
        return row.cells
    raise InputError(f"{lines.path} is empty; a CSV file needs a header row with the column names")


def _field(header: Sequence[str], *, column: Column, path: str) -> int | None:
    """Position of a column; None where it is optional and absent."""
    count = header.count(column.name)
    if count > 1:
        raise InputError(f"{path} has {count} columns {column.name!r}; rename all but one")
    if count == 0:
        _require_commas(header, path=path)
        if column.presence is not Presence.OPTIONAL and column.absent is None:
            refuse_missing(column, there=header, where=path)
    return header.index(column.name) if count else None


def _require_commas(header: Sequence[str], *, path: str) -> None:
    """Refuses a table whose fields are separated by another character, which a header of one column shows."""
    separator = next((other for other in OTHER_SEPARATORS if len(header) == 1 and other in header[0]), None)
    if separator is not None:
        raise InputError(
            f"{path}: its fields are separated by {separator!r}; write them with commas (in pandas: "
            f"read_csv(..., sep={separator!r}).to_csv(..., index=False)), or the table as Parquet"
        )


def _require_width(row: Sequence[str], *, header: Sequence[str], where: str) -> None:
    if len(row) != len(header):
        raise InputError(f"{where} has {len(row)} fields, the header {len(header)}; quote fields that hold commas")


def _csv_values(
    row: Sequence[str],
    *,
    header: Sequence[str],
    fields: Sequence[int | None],
    columns: Sequence[Column],
    where: str,
) -> tuple[Value, ...]:
    _require_width(row, header=header, where=where)
    return tuple(
        column_value(_csv_value(row, field=field, column=column), column=column, where=where)
        for field, column in zip(fields, columns, strict=True)
    )


def _csv_value(row: Sequence[str], *, field: int | None, column: Column) -> str | int | list[Any] | None:
    """A field's value. CSV has no null, so an empty field of an optional column is one; a JSON list may be a value."""
    value = column.substitute if field is None else row[field]
    if value == "" and column.presence is Presence.OPTIONAL:
        return None
    if isinstance(value, str) and column.kind is Kind.REFERENCES and value.startswith("["):
        try:
            return list(json.loads(value))
        except ValueError:
            return value
    return value


def _csv_line(
    lines: ByteLines, *, header: Sequence[str], fields: Sequence[int | None], columns: Sequence[Column]
) -> tuple[Value, ...]:
    """The values of the one row that is left; a row that is no record any more concerns this one only."""
    reason = "its row is gone"
    try:
        for row in _placed_rows(lines):
            return _csv_values(row.cells, header=header, fields=fields, columns=columns, where="its row")
    except InputError as error:
        reason = str(error)
    return (Unreadable(reason=reason),) * len(columns)


def _fetch_lines(location: Location, *, places: Sequence[Place]) -> Iterator[tuple[Place, ByteLines]]:
    """The bytes at sorted `places`, a few near ones at a time; a compressed file is unpacked up to the last of them."""
    if is_compressed(location.path):
        with input_errors(location.uri), open_stream(location) as stream:
            reader = ForwardReader(stream)
            for place in places:
                data = io.BytesIO(reader.read(place.start, place.stop))
                yield place, ByteLines(stream=data, path=location.uri, position=place.start)
        return
    for span in _spans(places):
        first = span[0].start
        with input_errors(location.uri):
            data = location.fs.cat_file(location.path, start=first, end=span[-1].stop)
        for place in span:
            stream = io.BytesIO(data[place.start - first : place.stop - first])
            yield place, ByteLines(stream=stream, path=location.uri, position=place.start)


def _spans(places: Iterable[Place]) -> Iterator[list[Place]]:
    """Groups sorted places that are worth reading in one request."""
    span: list[Place] = []
    for place in places:
        is_near = span and place.start - span[-1].stop <= _GAP_BYTES and place.stop - span[0].start <= _SPAN_BYTES
        if span and not is_near:
            yield span
            span = []
        span.append(place)
    if span:
        yield span
