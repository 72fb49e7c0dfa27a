"""Reads the objects of a JSON file one after another, be it one array or one object a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass

from pydantic import JsonValue

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.byte_lines import open_lines
from memagent_batch.inputs.formats.jsonl import json_object
from memagent_batch.inputs.formats.records import BOM

MAX_ARRAY_BYTES = 1 << 30
"""Largest file of one array, which is read whole."""
_HEAD_BYTES = 1 << 16
"""Bytes of a file among which its first character is looked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JsonObject:
    """An object of a file."""

    number: int
    """Its place among the objects of the file, from 0."""
    where: str
    """The same for a person: file, and record or line."""
    value: dict[str, JsonValue]


def read_objects(location: Location) -> Iterator[JsonObject]:
    """Streams the objects of a file.

    Raises:
        InputError: the file can't be read, is malformed, or is one array of more than `MAX_ARRAY_BYTES`; names the
            line or record.
    """
    with input_errors(location.uri), location.fs.open(location.path, "rb") as stream:
        data = stream.read(_HEAD_BYTES)
        is_array = data.removeprefix(BOM).lstrip().startswith(b"[")
        data += stream.read(MAX_ARRAY_BYTES + 1 - len(data)) if is_array else b""
    if is_array:
        yield from _array_objects(location, data)
        return
    with open_lines(location) as lines:
        number = 0
        for line in lines:
            if line.strip():
                where = f"{location.uri}, line {lines.num_lines}"
                yield JsonObject(number=number, where=where, value=json_object(line, where=where))
                number += 1


def _array_objects(location: Location, data: bytes) -> Iterator[JsonObject]:
    if len(data) > MAX_ARRAY_BYTES:
        raise InputError(
            f"{location.uri} is a JSON array of more than {MAX_ARRAY_BYTES >> 20:,} MiB; write one JSON object a line "
            "(jq -c '.[]' FILE)"
        )
    try:
        values = json.loads(data.decode("utf-8-sig"))
    except (ValueError, RecursionError) as error:
        raise InputError(f"{location.uri}: malformed JSON ({error}); write an array of objects") from error
    for number, value in enumerate(values):
        where = f"{location.uri}, record {number + 1}"
        if not isinstance(value, dict):
            raise InputError(f"{where} holds {type(value).__name__}, not an object; write an array of objects")
        yield JsonObject(number=number, where=where, value=value)
