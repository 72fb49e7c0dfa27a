"""Writes files of the turn log again without some of their rows: for erasure, and where the log is pruned."""

from collections import defaultdict
from collections.abc import Callable

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.keys import KEYS_FOLDER, LOG_SCHEMAS, read_log_file, write_log_files

SELECTED_BY = ("document_hash", "fingerprint", "finished_at", "kind")
"""Columns that decide which rows stay; `kind` only of turns."""


def rewrite_log(output: Location, select: Callable[[pa.Table], pa.ChunkedArray]) -> int:
    """Removes rows from all files of the log, and files of which no row is left.

    The keys of a file go first and come last. If the process is killed in between, a scan reads the file itself.

    Args:
        output: The output.
        select: Takes rows with the columns `SELECTED_BY` and returns a mask of those that stay.

    Returns:
        The number of rows that were removed.

    Raises:
        OutputError: a file is damaged.
        StorageError: a file can't be read, written or removed.
    """
    folders: dict[str, list[str]] = defaultdict(list)
    for folder in LOG_SCHEMAS:
        for path in (output / folder).files():  # also those that a merged file stands for
            folders[path.rpartition("/")[2]].append(folder)
    return sum(_rewrite(output, name, of_name, select) for name, of_name in folders.items())


def _rewrite(output: Location, name: str, folders: list[str], select: Callable[[pa.Table], pa.ChunkedArray]) -> int:
    places = {folder: output / f"{folder}/{name}" for folder in folders}
    masks = {}
    for folder, place in places.items():
        columns = [column for column in SELECTED_BY if column in LOG_SCHEMAS[folder].names]
        masks[folder] = select(read_log_file(output, place.path, columns=columns))
    num_removed = sum(len(mask) - (pc.sum(mask).as_py() or 0) for mask in masks.values())
    if not num_removed:
        return 0
    left = {
        folder: read_log_file(output, place.path, columns=LOG_SCHEMAS[folder].names)
        .cast(LOG_SCHEMAS[folder])
        .filter(masks[folder])
        for folder, place in places.items()
    }
    (output / f"{KEYS_FOLDER}/{name}").delete()
    output.delete_files([places[folder].path for folder, rows in left.items() if not rows.num_rows])
    left = {folder: rows for folder, rows in left.items() if rows.num_rows}
    if left:
        write_log_files(output, left, name=name)
    return num_removed
