"""Reads the objects of a JSON file one after another, be it one array or one object a line; holds one at a time."""

import io
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import ijson

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.lines import json_object, open_lines
from memagent_batch.inputs.records import BOM

_BLOCK_BYTES = 1024 * 1024
"""Most of a line that is parsed at once. A text is scanned again with each of its blocks, so they are large."""

_PARSER = ijson.get_backend("python")
"""The exact one: those in C read half of a surrogate pair as `?`, and refuse integers of more than 64 bits."""

_OPENING = frozenset({"start_map", "start_array"})
_CLOSING = frozenset({"end_map", "end_array"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object of a file."""

    number: int
    """Its place among the objects of the file, from 0."""
    where: str
    """The same for a person: file, record, line."""
    value: dict[str, Any]


def read_objects(location: Location) -> Iterator[JsonObject]:
    """Streams the objects of a file.

    Raises:
        InputError: the file can't be read, or is malformed; names file, line and record.
    """
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        start = stream.read(_BLOCK_BYTES).removeprefix(BOM).lstrip()
    if start.startswith(b"["):
        yield from _array_objects(location)
        return
    with open_lines(location) as lines:
        number = 0
        for line in lines:
            if line.strip():
                where = f"{location.uri}, line {lines.num_lines}"
                yield JsonObject(number=number, where=where, value=json_object(line, where=where))
                number += 1


def _array_objects(location: Location) -> Iterator[JsonObject]:
    """The objects of a file that is one array."""
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        lines = _Lines(io.BufferedReader(stream))
        values = _array_values(lines)
        number = 0
        while True:
            record = f"{location.uri}, record {number + 1}"
            try:
                line, value = next(values)
            except StopIteration:
                return
            except (ijson.JSONError, ValueError) as error:
                where = f"{record}, line {lines.num_lines}"
                raise InputError(f"{where}: malformed JSON ({error}); write an array of objects") from error
            where = f"{record}, line {line}"
            if not isinstance(value, dict):
                raise InputError(f"{where} holds {type(value).__name__}, not an object; write an array of objects")
            yield JsonObject(number=number, where=where, value=value)
            number += 1


def _array_values(lines: "_Lines") -> Iterator[tuple[int, Any]]:
    """Each value of the array with the line in which it begins, from 1."""
    builder, first_line, depth = ijson.ObjectBuilder(), 1, 0
    for event, value in _PARSER.basic_parse(lines, buf_size=_BLOCK_BYTES, use_float=True):
        depth -= event in _CLOSING
        if depth:
            if depth == 1 and event not in _CLOSING:
                builder, first_line = ijson.ObjectBuilder(), lines.num_lines
            builder.event(event, value)
            if depth == 1 and event not in _OPENING:
                yield first_line, builder.value
        depth += event in _OPENING


class _Lines:
    """A file that is read line by line, so that the parser's events are of the line that was read last."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._starts_line = False
        if stream.peek(len(BOM)).startswith(BOM):
            stream.read(len(BOM))
        self.num_lines = 1
        """Line that was read last, from 1."""

    def read(self, num_bytes: int) -> bytes:
        """The rest of the line, or that much of it."""
        self.num_lines += self._starts_line
        line = self._stream.readline(num_bytes)
        self._starts_line = line.endswith(b"\n")
        return line
