"""The table of `memagent convert` as documents: the files that its manifest lists, once its run has ended."""

import json
import posixpath
from collections.abc import Sequence
from typing import Any

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location

CONVERTED_FORMAT = "memagent-convert/1"
"""Changes with every change of layout that an older version can't read."""
CONVERTED_FOLDER = "documents"
RUN_FILE, MANIFEST_FILE = "run.json", "manifest.json"


def listed_paths(location: Location, *, root: str, paths: Sequence[str]) -> Sequence[str]:
    """Of the paths of a folder or glob those that a manifest of `memagent convert` lists; all if there is none.

    Beside these files lie those of a run under way or killed, and those of the run before.

    Args:
        location: What was asked for.
        root: The folder in which the paths were found, up to its slash.
        paths: The paths.

    Raises:
        InputError: the run of `memagent convert` has not ended.
    """
    folder = posixpath.dirname(root.rstrip("/")) if posixpath.basename(root.rstrip("/")) == CONVERTED_FOLDER else None
    if f"{root}{RUN_FILE}" in paths:
        folder = root.rstrip("/")
    run = None if folder is None else _record(location.at(f"{folder}/{RUN_FILE}"))
    if run is None or run.get("format") != CONVERTED_FORMAT:
        return paths
    manifest = _record(location.at(f"{folder}/{MANIFEST_FILE}"))
    if manifest is None or manifest["run_id"] != run["run_id"]:
        raise InputError(
            f"{location.uri}: a run of `memagent convert` has not ended here, so the texts are not complete; wait for "
            "it, or run the same `memagent convert` again"
        )
    listed = {f"{folder}/{name}" for name in manifest["files"][CONVERTED_FOLDER]}
    return [path for path in paths if path in listed]


def _record(place: Location) -> dict[str, Any] | None:
    """A record of a run; None if there is none, or another file of this name."""
    data = place.read_bytes_if_there()
    try:
        value = json.loads(data or b"null")
    except ValueError:
        return None
    return value if isinstance(value, dict) else None
