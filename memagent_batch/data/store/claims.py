"""Decides whether a folder may be written, or read as one of a kind: by the record that every folder of ours holds.

A record is a JSON file with a `format`. A folder without one must be empty to be written, and is not whole to be read.
"""

from datetime import timedelta
from typing import Any

from memagent_batch.data.store.errors import input_errors, output_errors
from memagent_batch.data.store.json_files import read_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, StorageError

ABANDONED_AFTER = timedelta(days=1)
"""Age of files that are not shown, and that nobody can be writing any more."""


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


def require_complete(
    folder: Location, name: str, *, layout: str, missing: str, remedy: str, whole: str = "it"
) -> dict[str, Any]:
    """The record, written last, of a folder that is read as an input; `whole` is what is not whole without it.

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
        raise InputError(f"{folder.uri}: there is no {name}, so {whole} is not whole; {missing}")
    if record.get("format") != layout:
        raise InputError(
            f"{folder.uri}: {name} has the layout {record.get('format')!r}, this version reads {layout!r}; {remedy}"
        )
    return record
