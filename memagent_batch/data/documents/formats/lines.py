"""Reads records of files of lines: JSONL and CSV. A compressed file is unpacked on the way."""

import csv
import io
import json
import posixpath
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from typing import IO, cast

import pyarrow as pa
from pydantic import JsonValue

from memagent_batch.data.documents.formats.records import (
    BOM,
    ColumnKind,
    FileColumn,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
    make_record,
    text_bound,
    too_long,
)
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

COMPRESSIONS: Mapping[str, str] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of names, and what unpacks such files."""
_BLOCK_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store, bytes."""
_SKIPPED_BYTES = 1024 * 1024
"""Bytes of a line that is too long that are passed over at once."""
NO_TEXT = Unreadable(reason="the text is null: its field is empty, and CSV writes null so")
"""What an empty field is of the column with the text."""
SEPARATORS = {",": "commas", "\t": "tabs", ";": "semicolons", "|": "bars"}
"""What may stand between the fields of a table of lines, and how it is called."""


def is_compressed(name: str) -> bool:
    """Whether a file is unpacked while it is read."""
    return posixpath.splitext(name)[1].lower() in COMPRESSIONS


@contextmanager
def open_stream(location: Location) -> Iterator[IO[bytes]]:
    """Opens a file at its beginning, unpacked."""
    with location.fs.open(location.path, "rb", block_size=_BLOCK_BYTES) as file:
        packing = COMPRESSIONS.get(posixpath.splitext(location.path)[1].lower())
        if packing is None:
            yield io.BufferedReader(file)
            return
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), packing) as unpacked:
            yield io.BufferedReader(cast("io.RawIOBase", unpacked))


@dataclass(slots=True, kw_only=True)
class ByteLines:
    """The lines of a stream as text, with line ends, keeping count of bytes and lines."""

    stream: IO[bytes]
    path: str
    position: int = 0
    """Bytes of the file before the next line."""
    max_bytes: int | None = None
    """Most bytes of a line; None for no bound."""
    num_lines: int = 0

    def __iter__(self) -> "ByteLines":
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            InputError: it is not UTF-8, or too long; the next call gives the line behind it.
        """
        line = self.stream.readline(-1 if self.max_bytes is None else self.max_bytes + 1)
        if not line:
            raise StopIteration
        start = self.position
        self.position += len(line)
        self.num_lines += 1
        if self.max_bytes is not None and len(line) > self.max_bytes:
            self._skip_rest(line)
            raise InputError(f"{self.path}, line {self.num_lines}: {too_long(self.max_bytes)}")
        has_bom = start == 0 and line.startswith(BOM)
        try:
            return line.decode("utf-8-sig" if has_bom else "utf-8")
        except UnicodeDecodeError as error:
            byte = start + error.start + (len(BOM) if has_bom else 0) + 1
            raise InputError(
                f"{self.path}, line {self.num_lines}: invalid UTF-8 at byte {byte} of the file; write the file as UTF-8"
            ) from error

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self.stream.readline(_SKIPPED_BYTES)
            self.position += len(line)


@contextmanager
def open_lines(location: Location, *, max_bytes: int | None = None) -> Iterator[ByteLines]:
    """Opens a file of text lines. A line longer than `max_bytes` raises an error; reading can go on with the next line.

    Raises:
        InputError: the file is missing or can't be read.
    """
    with input_errors(location.uri), open_stream(location) as stream:
        yield ByteLines(stream=stream, path=location.uri, max_bytes=max_bytes)


def read_jsonl(location: Location, *, columns: Sequence[FileColumn], keep_bad: bool = False) -> Iterator[Record]:
    """Streams the records of JSONL: one JSON object a line. Blank lines are skipped.

    A key that is absent counts as null, but not one that no line of the file has.
    """
    names: dict[str, None] = {}
    with open_lines(location, max_bytes=text_bound(columns)) as lines:
        for number, line in enumerate(filled_lines(lines)):
            where = f"{location.uri}, line {lines.num_lines}"
            if number == 0:
                _require_lines(line, where=location.uri)
            values = partial(_json_values, line, columns=columns, where=where, names=names)
            yield make_record(values, place=(lines.num_lines, 0), where=where, keep_bad=keep_bad)
    for each in columns if names else ():
        if each.column.presence is Presence.SOME and not each.may_lack and each.stored_as not in names:
            raise each.missing(tuple(names), where=location.uri)


def jsonl_names(location: Location) -> Sequence[str]:
    """Returns the keys of all lines of a JSONL file."""
    names: dict[str, None] = {}
    with open_lines(location) as lines:
        for line in filled_lines(lines):
            _json_values(line, columns=(), where=f"{location.uri}, line {lines.num_lines}", names=names)
    return tuple(names)


def filled_lines(lines: ByteLines) -> Iterator[str | InputError]:
    """The lines that are not blank; an error for each that can't be read."""
    while True:
        line: str | InputError
        try:
            line = next(lines)
        except StopIteration:
            return
        except InputError as error:
            line = error
        if isinstance(line, InputError) or line.strip():
            yield line


def _require_lines(first: str | InputError, *, where: str) -> None:
    """Refuses a file that holds one JSON value over many lines: no line is a record."""
    text = first.strip() if isinstance(first, str) else ""
    if text.startswith("["):
        raise InputError(f"{where} is a JSON list; write one JSON object a line (jq -c '.[]' FILE)")
    if text == "{":
        raise InputError(f"{where} has a JSON object over many lines; write one JSON object a line (jq -c . FILE)")


def _json_values(
    line: str | InputError, *, columns: Sequence[FileColumn], where: str, names: dict[str, None]
) -> tuple[Value, ...]:
    """The values of a line. Adds its keys to `names`: all that the file has, in their order."""
    if isinstance(line, InputError):
        raise line
    item = json_object(line, where=where)
    names.update(dict.fromkeys(item))
    for each in columns:
        if each.column.presence is Presence.EVERY and not each.may_lack and each.stored_as not in item:
            raise each.missing(tuple(item), where=where)
    return tuple(
        column_value(item.get(each.stored_as or "", each.constant), column=each.column, where=where)
        if each.stored_as is not None
        else column_value(each.constant, column=each.column, where=where)
        for each in columns
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


def read_csv(
    location: Location, *, columns: Sequence[FileColumn], separator: str = ",", keep_bad: bool = False
) -> Iterator[Record]:
    """Streams the records of CSV: double quotes, a header row; quoted fields may hold line ends.

    Malformed CSV ends the file.
    """
    with open_lines(location, max_bytes=text_bound(columns)) as lines:
        rows = _csv_rows(lines, separator=separator)
        names = _header(rows, path=lines.path)
        found = [_csv_column(each, names, separator=separator, path=lines.path) for each in columns]
        for line, cells in rows:
            where = f"{location.uri}, line {line}"
            values = partial(_csv_values, cells, names=names, columns=found, separator=separator, where=where)
            yield make_record(values, place=(line, 0), where=where, keep_bad=keep_bad)


def csv_names(location: Location, *, separator: str = ",") -> Sequence[str]:
    """Returns the names of the columns of a CSV file.

    Raises:
        InputError: the file is empty, or its fields are separated by another character.
    """
    with open_lines(location) as lines:
        names = _header(_csv_rows(lines, separator=separator), path=lines.path)
        _require_separator(names, separator=separator, path=lines.path)
        return names


def _header(rows: Iterator[tuple[int, list[str]]], *, path: str) -> list[str]:
    for _, cells in rows:
        return cells
    raise InputError(f"{path} is empty; a CSV file needs a header row with the column names")


def _csv_rows(lines: ByteLines, *, separator: str) -> Iterator[tuple[int, list[str]]]:
    """The rows that are not blank, each with the line in which it begins, from 1."""
    csv.field_size_limit(sys.maxsize if lines.max_bytes is None else lines.max_bytes)
    line = lines.num_lines + 1
    try:
        for cells in csv.reader(lines, delimiter=separator, strict=True):
            if cells:
                yield line, cells
            line = lines.num_lines + 1
    except csv.Error as error:
        if "field limit" in str(error) and lines.max_bytes is not None:
            raise InputError(f"{lines.path}, line {line}: {too_long(lines.max_bytes)}") from error
        until = f" to {lines.num_lines}" if lines.num_lines > line else ""
        raise InputError(
            f"{lines.path}, line {line}{until}: malformed CSV ({error}); quote fields with double quotes and end rows "
            "with a line feed"
        ) from error


def _csv_column(column: FileColumn, names: Sequence[str], *, separator: str, path: str) -> FileColumn:
    if column.stored_as is not None and column.stored_as not in names:
        _require_separator(names, separator=separator, path=path)
    return column.found_in(names, where=path)


def _require_separator(header: Sequence[str], *, separator: str, path: str) -> None:
    """Refuses a table whose fields are separated by another character, which a header of one column shows."""
    others = [other for other in SEPARATORS if other != separator and len(header) == 1 and other in header[0]]
    for other in others[:1]:
        sep = "" if separator == "," else f", sep={separator!r}"
        raise InputError(
            f"{path}: its fields are separated by {other!r}; write them with {SEPARATORS[separator]} (in pandas: "
            f"read_csv(..., sep={other!r}).to_csv(...{sep}, index=False)), or the table as Parquet"
        )


def _csv_values(
    cells: Sequence[str], *, names: Sequence[str], columns: Sequence[FileColumn], separator: str, where: str
) -> tuple[Value, ...]:
    if len(cells) != len(names):
        raise InputError(
            f"{where} has {len(cells)} fields, the header {len(names)}; quote fields that hold {SEPARATORS[separator]}"
        )
    row = dict(zip(names, cells, strict=True))
    return tuple(column_value(_csv_value(row, each), column=each.column, where=where) for each in columns)


def _csv_value(row: Mapping[str, str], column: FileColumn) -> object:
    """A field's value. CSV has no null: an empty field is one in an optional column, and as a document's text.

    A JSON list may be a value.
    """
    value = column.constant if column.stored_as is None else row[column.stored_as]
    kind = column.column.kind
    if value == "" and column.column.presence is Presence.OPTIONAL:
        return None
    if value == "" and kind is ColumnKind.DOCUMENT and not column.column.is_part:
        return NO_TEXT
    if isinstance(value, str) and kind is ColumnKind.REFERENCES and value.startswith("["):
        try:
            return list(json.loads(value))
        except (ValueError, RecursionError):
            return value
    return value
