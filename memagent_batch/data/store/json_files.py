"""JSON files of the project: objects that are written whole or not at all, and read back with a remedy.

Each folder of ours holds one with a `format`, its record: a folder without it must be empty to be written, and is not
whole to be read.
"""

import json
from collections.abc import Mapping
from typing import Any

from memagent_batch.data.store.errors import input_errors, output_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, StorageError


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


def read_owner_record(
    output: Location, name: str, *, layout: str, remedy: str = "choose an empty folder"
) -> dict[str, Any] | None:
    """The record of a folder that may be written; None where it is empty, or not there.

    The remedy says what to do where it holds other files.

    Raises:
        OutputError: it holds other files, or the record of another layout, or can't be reached.
    """
    with output_errors(output.uri):
        record = read_json(output / name)
        files = output.files() if record is None else []
    if files:
        raise OutputError(
            f"output: {output.uri} holds other files ({files[0]}, {len(files)} in all) and no {name}; {remedy}"
        )
    if record is not None and record.get("format") != layout:
        raise OutputError(
            f"output: {output.uri} has the layout {record.get('format')!r}, this version writes {layout!r}; keep it to "
            "look at with the version that wrote it, and choose an empty folder"
        )
    return record


def require_complete(folder: Location, name: str, *, layout: str, missing: str, remedy: str) -> dict[str, Any]:
    """The record, written last, of a folder that is read as an input.

    `missing` says what to do if there is none, the remedy where it is of another layout.

    Raises:
        InputError: the folder is not whole, or of another layout, or can't be read.
    """
    try:
        with input_errors(folder.uri):
            record = read_json(folder / name)
            is_there = record is not None or folder.exists()
    except (OutputError, StorageError) as error:
        raise InputError(str(error)) from error
    if not is_there:
        raise InputError(f"{folder.uri}: no such file or folder; check the path")
    if record is None:
        raise InputError(f"{folder.uri}: there is no {name}, so it is not whole; {missing}")
    if record.get("format") != layout:
        raise InputError(
            f"{folder.uri}: {name} has the layout {record.get('format')!r}, this version reads {layout!r}; {remedy}"
        )
    return record
