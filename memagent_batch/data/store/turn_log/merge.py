"""Writes files of the turn log again: merges the small ones into few large ones, and removes rows.

A merged file has rows of one writer, and its name says whose files it stands for: `RUN-WRITER-000001to000120.parquet`
stands for numbers 1 to 120. It appears whole, its keys after it, and only then do the small files go. As long as both
are there, a listing leaves the small ones out (`list_folder`): a process may be killed between any two steps, and the
next merge goes on.

Several attempts may merge at the same time. An attempt removes only files that stand in a merged file which was whole
before it asked for the claim; a newer attempt lists the log after its own claim, and finds the merged file. So nobody
removes a file that another has to read, and a range always gives way to a larger one.

A `memagent forget` takes rows out of all files that it finds. A merge that goes on meanwhile may have read them before,
so it asks for the claim after each merged file too, and takes this one back if the log was erased.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.files import (
    KEYS_FOLDER,
    LOG_SCHEMAS,
    LogName,
    MapTasks,
    base_name,
    covered_files,
    read_ahead,
    read_log_file,
    run_tasks,
    write_log_files,
)
from memagent_batch.errors import ErasedError, StorageError, SupersededError

MERGE_FROM = 64
"""Flushes that must be there: the log of a short run stays as it is."""
MERGED_BYTES = 64 * 1024 * 1024
"""Bytes of rows of a merged file, about, as Arrow: some 15 MiB as Parquet, which a store sends in one request."""
SELECTED_BY = ("document_hash", "fingerprint", "finished_at", "kind")
"""Columns that decide which rows `rewrite_log` leaves; `kind` only of turns."""


def merge_log(output: Location, *, require_claim: Callable[[], None], mapped: MapTasks = run_tasks) -> list[str]:
    """Merges the flushes of each writer, if there are many; returns the names of the merged files.

    Raises:
        SupersededError: a newer attempt owns the output; nothing was removed, but merged files if it was erased.
        StorageError: a file can't be read, written or removed.
    """
    keys = (output / KEYS_FOLDER).files()  # first: the files of a flush that has its keys are there
    covered = covered_files(keys, keys)
    flushes = [base_name(path) for path in keys if path not in covered]
    ranges = list(_ranges(flushes)) if len(flushes) >= MERGE_FROM else []
    if sum(map(len, ranges)) < MERGE_FROM:
        ranges = []
    if not (ranges or covered):
        return []
    start = len(output.path.rstrip("/")) + 1
    files = [path[start:] for folder in LOG_SCHEMAS for path in (output / folder).files() if path.endswith(".parquet")]
    files_of: dict[str, list[str]] = defaultdict(list)
    for path in files:
        files_of[base_name(path)].append(path)
    tasks = [pa.table({"file": pa.array([file for name in names for file in files_of[name]])}) for names in ranges]
    try:
        merge = partial(_merge, output=output, require_claim=require_claim)
        merged = [name for table in mapped(merge, tasks) for name in table["name"].to_pylist()]
    except StorageError:
        require_claim()  # else a newer attempt may have merged and removed the files meanwhile
        raise
    require_claim()
    for paths in (files, [path[start:] for path in keys]):  # a killed merge is taken up as long as there are keys
        output.delete_files([f"{output.path.rstrip('/')}/{path}" for path in covered_files(paths, [*merged, *keys])])
    return merged


def _ranges(flushes: Sequence[str]) -> Iterator[list[str]]:
    """Names of flushes, by number, that may be merged with one another: of one writer, and none left out between.

    A flush has its keys, or its writer has not ended it, or someone has removed them.
    """
    of_writer: dict[str, list[str]] = defaultdict(list)
    for name in sorted(flushes, key=lambda name: LogName.of(name).first):
        if not LogName.of(name).is_merged:
            of_writer[LogName.of(name).writer].append(name)
    for names in of_writer.values():
        for _, following in groupby(enumerate(names), key=lambda each: LogName.of(each[1]).first - each[0]):
            joined = [name for _, name in following]
            if len(joined) > 1:
                yield joined


def _merge(files: pa.Table, *, output: Location, require_claim: Callable[[], None]) -> Iterator[pa.Table]:
    """Merges the files of some flushes of one writer, in as many merged files as their bytes need; gives names."""
    tables: dict[str, list[pa.Table]] = defaultdict(list)
    numbers: list[LogName] = []
    num_bytes = 0
    paths = files["file"].to_pylist()
    for path, table in zip(paths, read_ahead(partial(_read_whole, output), paths), strict=True):
        name = LogName.of(path)
        if num_bytes >= MERGED_BYTES and name != numbers[-1] and numbers[-1] != numbers[0]:
            yield _write_merged(output, tables, numbers, require_claim)
            tables, numbers, num_bytes = defaultdict(list), [], 0
        tables[path.rpartition("/")[0]].append(table)
        numbers.append(name)
        num_bytes += table.nbytes
    if numbers and numbers[-1] != numbers[0]:
        yield _write_merged(output, tables, numbers, require_claim)


def _write_merged(
    output: Location, tables: dict[str, list[pa.Table]], numbers: Sequence[LogName], require_claim: Callable[[], None]
) -> pa.Table:
    name = f"{numbers[0].writer}-{numbers[0].first:06d}to{numbers[-1].last:06d}.parquet"
    order = [(column, "ascending") for column in ("document_hash", "question_hash", "sample")]
    sorted_tables = {folder: pa.concat_tables(each).sort_by(order) for folder, each in tables.items()}
    write_log_files(output, sorted_tables, name=name)
    try:
        require_claim()
    except ErasedError:
        output.delete_files([(output / f"{folder}/{name}").path for folder in (KEYS_FOLDER, *tables)])
        raise
    except SupersededError:  # a newer attempt may have found the file, and removed those that it stands for
        pass
    return pa.table({"name": [name]})


def _read_whole(output: Location, file: str) -> pa.Table:
    schema = LOG_SCHEMAS[file.rpartition("/")[0]]
    return read_log_file(output, (output / file).path, columns=schema.names).cast(schema)


def rewrite_log(output: Location, select: Callable[[pa.Table], pa.ChunkedArray]) -> int:
    """Removes rows from all files of the log, and files of which no row is left: to forget documents, or to prune.

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
            folders[base_name(path)].append(folder)
    num_removed = 0
    for name, of_name in folders.items():
        masks = {}
        for folder in of_name:
            columns = [column for column in SELECTED_BY if column in LOG_SCHEMAS[folder].names]
            masks[folder] = select(read_log_file(output, (output / f"{folder}/{name}").path, columns=columns))
        num_unwanted = sum(len(mask) - (pc.sum(mask).as_py() or 0) for mask in masks.values())
        if not num_unwanted:
            continue
        num_removed += num_unwanted
        tables = {folder: _read_whole(output, f"{folder}/{name}").filter(mask) for folder, mask in masks.items()}
        (output / f"{KEYS_FOLDER}/{name}").delete()
        output.delete_files([(output / f"{folder}/{name}").path for folder in tables if not tables[folder].num_rows])
        if tables := {folder: table for folder, table in tables.items() if table.num_rows}:
            write_log_files(output, tables, name=name)
    return num_removed
