"""Reads the objects of a JSON file one after another, be it one array or one object a line; holds one at a time."""

import io
import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import IO, Any

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.lines import json_object, open_lines
from memagent_batch.inputs.records import BOM

_BLOCK_CHARS = 1024 * 1024
"""What is read at first, characters, and again with each step of a long object, doubled."""

_END_CHARS = 16
"""An error this near to what was read last, characters, may only mean that more is to come."""

_SPACE = " \t\r\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object of a file."""

    number: int
    """Its place among the objects of the file, from 0."""
    where: str
    """The same for a person: file, record, line."""
    value: dict[str, Any]
    """The object."""


def read_objects(location: Location) -> Iterator[JsonObject]:
    """Streams the objects of a file.

    Raises:
        InputError: the file can't be read, or is malformed; names file, line and record.
    """
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        start = stream.read(_BLOCK_CHARS).removeprefix(BOM).lstrip()
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
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        characters = io.TextIOWrapper(io.BufferedReader(stream), encoding="utf-8-sig")
        text = _Text(stream=characters, path=location.uri)
        text.take("[")
        number = 0
        while text.next() != "]":
            if number:
                text.take(",")
            where = f"{location.uri}, record {number + 1}, line {text.line()}"
            value = text.value(where=where)
            if not isinstance(value, dict):
                raise InputError(f"{where} holds {type(value).__name__}, not an object; write an array of objects")
            yield JsonObject(number=number, where=where, value=value)
            number += 1


@dataclass(slots=True, kw_only=True)
class _Text:
    """The text of a file, of which a part has been read."""

    stream: IO[str]
    """What is still to be read."""
    path: str
    """The file, for messages."""
    buffer: str = ""
    """What has been read and is kept."""
    position: int = 0
    """First character of the buffer that is not used yet."""
    num_lines: int = 1
    """Line of the file in which the buffer begins, from 1."""

    def line(self) -> int:
        """Line of the next value."""
        self.next()
        return self.num_lines + self.buffer.count("\n", 0, self.position)

    def next(self) -> str:
        """The next character that is not white space; it stays. Empty at the end of the file."""
        while True:
            while self.position < len(self.buffer) and self.buffer[self.position] in _SPACE:
                self.position += 1
            if self.position < len(self.buffer) or not self._read_on(_BLOCK_CHARS):
                return self.buffer[self.position : self.position + 1]

    def take(self, character: str) -> None:
        """Uses the next character, which must be this one.

        Raises:
            InputError: it is another.
        """
        there = self.next()
        if there != character:
            found = repr(there) if there else "the end of the file"
            raise InputError(
                f"{self.path}, line {self.line()}: malformed JSON, {found} where {character!r} should be; "
                "write one array of objects, or one object a line"
            )
        self.position += 1

    def value(self, *, where: str) -> Any:
        """Uses the next value, reading on as long as it is not whole.

        Raises:
            InputError: it is malformed.
        """
        self.next()
        block = _BLOCK_CHARS
        while True:
            try:
                value, self.position = json.JSONDecoder().raw_decode(self.buffer, self.position)
            except (json.JSONDecodeError, RecursionError) as error:
                if not (self._may_go_on(error) and self._read_on(block)):
                    fault = error.msg if isinstance(error, json.JSONDecodeError) else error
                    raise InputError(f"{where}: malformed JSON ({fault}); write an array of objects") from error
                block *= 2
            else:
                return value

    def _may_go_on(self, error: Exception) -> bool:
        if not isinstance(error, json.JSONDecodeError):
            return False
        return error.msg.startswith("Unterminated string") or error.pos >= len(self.buffer) - _END_CHARS

    def _read_on(self, num_chars: int) -> bool:
        """Drops what is used and reads more; False where there is no more."""
        more = self.stream.read(num_chars)
        self.num_lines += self.buffer.count("\n", 0, self.position)
        self.buffer, self.position = self.buffer[self.position :] + more, 0
        return bool(more)
