"""Reads the objects of a JSON file one after another, be it one array or one object a line; holds one at a time."""

import io
import math
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from functools import partial
from typing import Any

import ijson
import ijson.backends.python as exact
import ijson.utils
from pydantic import JsonValue

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.byte_lines import open_lines
from memagent_batch.inputs.formats.jsonl import json_object
from memagent_batch.inputs.formats.records import BOM

_PARSED_BYTES = 1024 * 1024
"""Most of a line that is parsed at once, where no text is longer."""

_CONSTANTS = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
"""Numbers that JSON does not have, that Python and pandas write, and that the reader of JSON lines takes."""

_OPENING = frozenset({"start_map", "start_array"})
_CLOSING = frozenset({"end_map", "end_array"})


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object of a file."""

    number: int
    """Its place among the objects of the file, from 0."""
    where: str
    """The same for a person: file, record, line."""
    value: dict[str, JsonValue]


def read_objects(location: Location) -> Iterator[JsonObject]:
    """Streams the objects of a file.

    Raises:
        InputError: the file can't be read, or is malformed; names file, line and record.
    """
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        start = stream.read(_PARSED_BYTES).removeprefix(BOM).lstrip()
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
    for event, value in _events(lines):
        lines.num_waiting_bytes = 0
        depth -= event in _CLOSING
        if depth:
            if depth == 1 and event not in _CLOSING:
                builder, first_line = ijson.ObjectBuilder(), lines.num_lines
            builder.event(event, float(value) if isinstance(value, Decimal) else value)
            if depth == 1 and event not in _OPENING:
                yield first_line, builder.value
        depth += event in _OPENING


def _events(lines: "_Lines") -> Iterator[tuple[str, Any]]:
    """The events of ijson's parser in Python.

    It is exact: those in C read half of a surrogate pair as `?`, and refuse integers of more than 64 bits.
    """
    pipeline: list[tuple[Any, ...]] = [(stage, (), {}) for stage in (_Lexemes, exact.Lexer, exact.utf8_encoder)]
    yield from ijson.utils.coros2gen(_parser_blocks(lines), *pipeline)


def _parser_blocks(lines: "_Lines") -> Iterator[bytes]:
    """The file in blocks, then an empty one, which ends the parser."""
    yield from iter(partial(lines.read, _PARSED_BYTES), b"")
    yield b""


class _Lexemes:
    """Hands the lexemes on to ijson's parser; the constants, which ijson cuts into pieces and refuses, as numbers."""

    def __init__(self, events: list[tuple[str, Any]]) -> None:
        """Takes the list to which the parser adds its events."""
        self._events = events
        self._parser = exact.parse_value(events, multivalue=False, use_float=False)  # a float refuses 1e400
        self._word, self._position = "", 0

    def send(self, lexeme: tuple[int, str | None]) -> None:
        """Takes a lexeme with its position; None at the end of the file."""
        position, symbol = lexeme
        if not self._word and symbol not in {"N", "I", "-"}:
            self._parser.send(lexeme)
            return
        if not self._word:
            self._position = position
        is_adjacent = position == self._position + len(self._word)
        word = f"{self._word}{symbol}"
        if not is_adjacent or not any(name.startswith(word) for name in _CONSTANTS):
            self._parser.send((self._position, self._word))  # which refuses it
        self._word = word
        if word in _CONSTANTS:
            self._word = ""
            self._parser.send((self._position, "0"))
            self._events[-1] = ("number", _CONSTANTS[word])


class _Lines:
    """A file that is read line by line, so that the parser's events are of the line that was read last."""

    def __init__(self, stream: io.BufferedReader) -> None:
        self._stream = stream
        self._starts_line = False
        if stream.peek(len(BOM)).startswith(BOM):
            stream.read(len(BOM))
        self.num_lines = 1
        """Line that was read last, from 1."""
        self.num_waiting_bytes = 0
        """Bytes that were read and have given the parser no event yet: the part of a long text."""

    def read(self, num_bytes: int) -> bytes:
        """The rest of the line, or that much of it.

        At least as much as is waiting: the parser joins and scans a text again with each of its blocks.
        """
        self.num_lines += self._starts_line
        line = self._stream.readline(max(num_bytes, self.num_waiting_bytes))
        self.num_waiting_bytes += len(line)
        self._starts_line = line.endswith(b"\n")
        return line
