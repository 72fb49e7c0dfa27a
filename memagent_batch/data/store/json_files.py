"""JSON files of the project: objects that are written whole or not at all, and read back with a remedy."""

import json
from collections.abc import Mapping
from typing import Any

from memagent_batch.data.store.errors import storage_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError


def json_bytes(value: Mapping[str, Any]) -> bytes:
    """A JSON file as it is written everywhere."""
    return json.dumps(value, indent=2, ensure_ascii=False).encode()


def write_json(place: Location, value: Mapping[str, Any]) -> None:
    """Writes a JSON file, whole or not at all."""
    place.write_bytes(json_bytes(value))


def json_object(data: bytes | None) -> dict[str, Any] | None:
    """The object that a JSON file holds; None if it is not JSON, or not an object."""
    try:
        value = json.loads(data or b"")
    except (ValueError, RecursionError):  # the second: nested too deeply
        return None
    return value if isinstance(value, dict) else None


def read_json(place: Location) -> dict[str, Any] | None:
    """A JSON file's object; None if there is no file.

    Raises:
        OutputError: the file is not JSON.
        StorageError: it can't be read.
    """
    with storage_errors(place.uri):
        data = place.read_bytes_if_there()
    if data is None:
        return None
    try:
        value = json.loads(data)
    except (ValueError, RecursionError) as error:  # the second: nested too deeply
        raise OutputError(f"{place.uri} is not valid JSON: {error}; restore it or choose another output") from error
    if not isinstance(value, dict):
        raise OutputError(f"{place.uri} is not a JSON object; restore it or choose another output")
    return value
