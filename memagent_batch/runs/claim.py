"""Decides which of several attempts owns an output, and replaces its tables without a gap.

The newest `run.json` is the claim. An attempt writes it once, asks every few seconds whether its claim still stands,
and leaves when a newer attempt has claimed the output.

A record (`manifest.json`, `rollouts.json`) names the files of its tables, and tables count only by their record. To
replace them, an attempt that holds the claim

1. writes new files beside the old ones: names carry the run's id, so that no attempt writes over another's;
2. takes the version of the record that is there, asks for the claim, and replaces that version by its own record in one
   conditional write (`Location.replace`). What was shown until then stays whole until then;
3. lists the files that its record does not name, asks for the claim again, and removes them.

A record never takes the place of a newer attempt's: that attempt has changed the version since, or holds the claim. No
file of a newer attempt is removed: it is written after that attempt's claim, and the listing comes before the question
for the claim. A newer attempt may take over files of the record that it finds after its claim: an older attempt that
may still remove files published that record, and spares them.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from itertools import chain
from typing import Any

from memagent_batch.errors import MemagentError, StorageError, SupersededError
from memagent_batch.files.errors import storage_errors
from memagent_batch.files.json_files import json_bytes, read_json
from memagent_batch.files.location import Location
from memagent_batch.runs.manifest import MANIFEST_FILE, RUN_FILE
from memagent_batch.runs.tables.tables import (
    ANSWERS_FOLDER,
    EVIDENCE_FOLDER,
    MEMORIES_FOLDER,
    REMOVED_FOLDER,
    RESULTS_FOLDER,
)

PUBLISH_TRIES = 5
"""Times that another attempt may replace the record between the look at it and the writing."""

_RESTLESS = "{} changes whenever it is looked at; look what else writes to the output"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Tables that are replaced together."""

    record: str
    """Name of the file that names their files, under `files`."""
    folders: tuple[str, ...]
    """Folders of their files."""


ANSWER_TABLES = TableSet(
    record=MANIFEST_FILE, folders=(ANSWERS_FOLDER, MEMORIES_FOLDER, EVIDENCE_FOLDER, RESULTS_FOLDER, REMOVED_FOLDER)
)


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


def remove_leftovers(output: Location, *, tables: TableSet, run_id: str) -> None:
    """Removes files that the record does not name, so that attempts that are killed again and again fill no disk.

    One of them may be of an older attempt that is about to publish. So the record is changed first, in a field that
    only says by whom: the older attempt's conditional write fails then. Without a record nothing is removed.

    Raises:
        SupersededError: a newer attempt holds the claim; nothing was removed.
    """
    place = output / tables.record
    for _ in range(PUBLISH_TRIES):
        version = place.version()
        record = read_json(place)
        strangers = stranger_files(output, record, tables=tables)
        require_claim(output, run_id=run_id)
        if record is None or not strangers:
            return
        sealed = json_bytes({**record, "claimed_by": run_id})
        if place.replace(sealed, version=version):
            output.delete_files(strangers)
            return
    raise StorageError(_RESTLESS.format(place.uri))


@contextmanager
def removed_on_failure(output: Location, *, tables: TableSet, run_id: str) -> Iterator[None]:
    """The block in which a run writes files of tables; where it fails, they are removed. The tables shown stay."""
    done = False
    try:
        yield
        done = True
    finally:
        if not done:
            with suppress(MemagentError):  # the block's own error is what counts; the next run removes the files
                remove_unpublished(output, tables=tables, run_id=run_id)


def publish(output: Location, record: Mapping[str, Any], *, tables: TableSet, run_id: str) -> None:
    """Shows the run's tables in the place of those before, by one write, and removes files that are not theirs.

    Args:
        output: the run's location.
        record: what the tables' record says; `files` names their files.
        tables: the tables.
        run_id: the run.

    Raises:
        SupersededError: a newer attempt holds the claim; the tables that were there are there still.
    """
    place = output / tables.record
    data = json_bytes(record)
    for _ in range(PUBLISH_TRIES):
        version = place.version()
        require_claim(output, run_id=run_id)
        if place.replace(data, version=version):
            break
    else:
        raise StorageError(_RESTLESS.format(place.uri))
    strangers = stranger_files(output, record, tables=tables)
    with suppress(SupersededError):  # the newer attempt removes them
        require_claim(output, run_id=run_id)
        output.delete_files(strangers)


def remove_unpublished(output: Location, *, tables: TableSet, run_id: str) -> None:
    """Removes the table files of one run that the record does not name, and nobody else's."""
    record = read_json(output / tables.record)
    own = [path for path in stranger_files(output, record, tables=tables) if run_id in path.rsplit("/", 1)[-1]]
    output.delete_files(own)


def named_files(record: Mapping[str, Any] | None) -> list[str]:
    """Names of all table files of a record, below the output."""
    files = record["files"] if record else []
    return list(chain.from_iterable(files.values())) if isinstance(files, dict) else list(files)


def stranger_files(output: Location, record: Mapping[str, Any] | None, *, tables: TableSet) -> list[str]:
    """Paths of the files in the tables' folders that the record does not name, half-written ones included."""
    named = {(output / name).path for name in named_files(record)}
    files = (path for folder in tables.folders for path in (output / folder).files(temporary=True))
    return [path for path in files if path not in named]
