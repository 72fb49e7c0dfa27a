"""Whose an output is: of several attempts at one output, the one whose `run.json` is there, which is the newest.

An attempt claims the output by writing `run.json`. It asks whether the claim still stands before it shows anything, and
every few seconds while it reads. What it must not do after it lost the claim, it can't do to the winner's files: table
files carry the run's id, only files that were there before the claim was asked for are removed, and a manifest never
replaces another one.
"""

import json
from collections.abc import Collection, Mapping
from typing import Any

from memagent_batch.errors import StorageError, SupersededError
from memagent_batch.storage.location import Location, storage_errors
from memagent_batch.storage.manifest import MANIFEST_FILE, RUN_FILE, read_json
from memagent_batch.storage.tables import ANSWERS_FOLDER, MEMORIES_FOLDER, REMOVED_FOLDER

TABLE_FOLDERS = (ANSWERS_FOLDER, MEMORIES_FOLDER, REMOVED_FOLDER)

MANIFEST_TRIES = 5
"""Manifests of older attempts, written in the moment in which they lost the claim, that are cleared away."""


def require_claim(output: Location, *, run_id: str) -> None:
    """Returns where the run holds the claim.

    Raises:
        SupersededError: a newer attempt does; names it.
        StorageError: nobody can tell: the store does not answer.
    """
    place = output / RUN_FILE
    with storage_errors(place.uri):
        record = read_json(place)
    if record is None:
        raise SupersededError(f"{place.uri} was removed while run {run_id} went on; this run leaves the output alone")
    if record["run_id"] != run_id:
        raise SupersededError(
            f"output: {output.uri} was claimed by a newer attempt, run {record['run_id']}; this one, run {run_id}, "
            "leaves and shows nothing. What it has read is in the log, and is not read again"
        )


def clear_tables(output: Location, *, run_id: str) -> None:
    """Removes manifest and tables of the runs before; what they say is in the log. Without a manifest they don't count.

    Raises:
        SupersededError: a newer attempt holds the claim; nothing was removed.
    """
    clear(output, run_id=run_id, record=MANIFEST_FILE, folders=TABLE_FOLDERS)


def clear(output: Location, *, run_id: str, record: str, folders: Collection[str]) -> None:
    """Removes what lies in some folders, and first the record without which it does not count.

    The files are listed before the claim is asked for, so that those of a newer attempt are not among them.

    Raises:
        SupersededError: a newer attempt holds the claim; nothing was removed.
    """
    files = _files(output, folders)
    require_claim(output, run_id=run_id)
    (output / record).delete()
    _delete(output, files)


def publish_manifest(output: Location, manifest: Mapping[str, Any], *, run_id: str, files: Collection[str]) -> None:
    """Writes the manifest, with which the tables begin to count, and removes what is not among its files.

    Args:
        output: the run's location.
        manifest: what it says.
        run_id: the run.
        files: the run's table files, as the manifest names them.

    Raises:
        SupersededError: a newer attempt holds the claim; what this one wrote does not count.
    """
    place = output / MANIFEST_FILE
    data = json.dumps(manifest, indent=2, ensure_ascii=False).encode()
    for _ in range(MANIFEST_TRIES):
        require_claim(output, run_id=run_id)
        if place.create(data):
            break
        require_claim(output, run_id=run_id)  # else the manifest that is there may be the newer attempt's
        place.delete()  # an older attempt's: it was written after this one had cleared the tables
    else:
        raise StorageError(f"{place.uri} comes back whenever it is removed; look what else writes to the output")
    own = {(output / name).path for name in files}
    strangers = [path for path in table_files(output) if path not in own]
    require_claim(output, run_id=run_id)
    _delete(output, strangers)


def remove_tables(output: Location, *, run_id: str) -> None:
    """Removes manifest and table files of one run, whose attempt lost the claim, and nobody else's."""
    place = output / MANIFEST_FILE
    with storage_errors(place.uri):
        manifest = read_json(place)
    if manifest and manifest["run_id"] == run_id:
        place.delete()
    _delete(output, [path for path in table_files(output) if run_id in path.rsplit("/", 1)[-1]])


def table_files(output: Location) -> list[str]:
    """Paths of all files of the tables."""
    return _files(output, TABLE_FOLDERS)


def _files(output: Location, folders: Collection[str]) -> list[str]:
    with storage_errors(output.uri):
        return [path for folder in folders for path in (output / folder).files()]


def _delete(output: Location, paths: Collection[str]) -> None:
    for path in paths:
        output.at(path).delete()
