"""Replaces the table of converted files without a gap, and decides which of several attempts may."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from itertools import chain
from typing import Any

from memagent_batch.documents.listing import RUN_FILE
from memagent_batch.errors import MemagentError, StorageError, SupersededError
from memagent_batch.store.claims import replace_shown
from memagent_batch.store.errors import storage_errors
from memagent_batch.store.json_files import json_bytes, read_json
from memagent_batch.store.location import Location

PUBLISH_TRIES = 5
"""Times that another attempt may replace the record between the look at it and the writing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableSet:
    """Tables that are replaced together."""

    record: str
    """Name of the file that names their files, under `files`."""
    folders: tuple[str, ...]


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


@contextmanager
def claimed_files(output: Location, *, run_id: str) -> Iterator[list[str]]:
    """The block in which a task of a run writes files, and adds their names to the list.

    Raises:
        SupersededError: a newer attempt holds the claim, before or after; none of the files is left.
    """
    require_claim(output, run_id=run_id)
    names = list[str]()
    yield names
    try:
        require_claim(output, run_id=run_id)
    except SupersededError:
        for name in names:
            (output / name).delete()
        raise


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
        strangers = unreferenced_files(output, record, tables=tables)
        require_claim(output, run_id=run_id)
        if record is None or not strangers:
            return
        sealed = json_bytes({**record, "claimed_by": run_id})
        if place.replace(sealed, version=version):
            output.delete_files(strangers)
            return
    raise StorageError(f"{place.uri} changes whenever it is looked at; see what else writes to the output")


@contextmanager
def removed_on_failure(output: Location, *, tables: TableSet, run_id: str) -> Iterator[None]:
    """The block in which a run writes files of tables; where it fails, they are removed, and nobody else's."""
    try:
        yield
    except BaseException:
        with suppress(MemagentError):  # the block's own error is what counts; the next run removes the files
            strangers = unreferenced_files(output, read_json(output / tables.record), tables=tables)
            output.delete_files([path for path in strangers if run_id in path.rsplit("/", 1)[-1]])
        raise


def publish(output: Location, record: Mapping[str, Any], *, tables: TableSet, run_id: str) -> None:
    """Shows the run's tables in place of those before, by one write, and removes files that are not theirs.

    Raises:
        SupersededError: a newer attempt holds the claim; the tables that were there are there still.
    """
    require = partial(require_claim, output, run_id=run_id)
    replace_shown(output / tables.record, json_bytes(record), require=require)
    strangers = unreferenced_files(output, record, tables=tables)
    with suppress(SupersededError):  # the newer attempt removes them
        require()
        output.delete_files(strangers)


def named_files(record: Mapping[str, Any] | None) -> list[str]:
    """Names of all table files of a record, below the output."""
    files = record["files"] if record else []
    return list(chain.from_iterable(files.values())) if isinstance(files, dict) else list(files)


def unreferenced_files(output: Location, record: Mapping[str, Any] | None, *, tables: TableSet) -> list[str]:
    """Paths of the files in the tables' folders that the record does not name at all, half-written ones included."""
    replaced = record.get("replaced", []) if record else []
    named = {(output / name).path for name in chain(named_files(record), *(night["files"] for night in replaced))}
    files = (path for folder in tables.folders for path in (output / folder).files(temporary=True))
    return [path for path in files if path not in named]
