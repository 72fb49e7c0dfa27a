"""Reads records from JSONL files."""

import json
from collections.abc import Iterator, Mapping, Sequence
from functools import partial

from pydantic import JsonValue

from memagent_batch.documents.formats.byte_lines import ByteLines, fetch_lines, open_lines
from memagent_batch.documents.formats.records import (
    Columns,
    InputColumn,
    Place,
    Presence,
    Record,
    Value,
    column_value,
    make_record,
    raise_missing_column,
    text_bound,
)
from memagent_batch.errors import InputError
from memagent_batch.store.location import Location


class JsonlReader:
    """Reads JSONL: one JSON object a line; blank lines are skipped."""

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`. A place is (first byte, byte after the last). A key that is absent counts as null,
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
                raise_missing_column(column, there=tuple(there), where=location.uri)

    def fetch(self, location: Location, *, columns: Columns, places: Sequence[Place]) -> Iterator[Record]:
        """See `RecordReader`."""
        for place, lines in fetch_lines(location, places=places):
            values = partial(_line_values, lines, columns=columns)
            yield make_record(values, place=place, where=location.uri, keep_bad=True)


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
    """Refuses a file that is one JSON value over many lines, of which no line is a record."""
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
            raise_missing_column(column, there=tuple(item), where=where)
    return _item_values(item, columns=columns, where=where)


def _item_values(item: Mapping[str, JsonValue], *, columns: Columns, where: str) -> tuple[Value, ...]:
    return tuple(column_value(_item_value(item, column), column=column, where=where) for column in columns)


def _item_value(item: Mapping[str, JsonValue], column: InputColumn) -> JsonValue:
    return column.substitute if column.is_partition else item.get(column.name, column.substitute)


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


def _line_values(lines: ByteLines, *, columns: Columns) -> tuple[Value, ...]:
    """The values of the one line that is left."""
    return _item_values(json_object(next(lines, ""), where="its line"), columns=columns, where="its line")
