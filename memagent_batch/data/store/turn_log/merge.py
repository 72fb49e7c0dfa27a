"""Merges the small files of the turn log into few large ones, once a run has read.

A merged file has rows of one writer, and its name says whose files it stands for: `RUN-WRITER-000001to000120.parquet`
stands for numbers 1 to 120. It appears whole, its keys after it, and only then do the small files go. As long as both
are there, a listing leaves the small ones out (`list_folder`): a process may be killed between any two steps, and the
next merge goes on.

Several attempts may merge at the same time. An attempt removes only files that stand in a merged file which was whole
before it asked for the claim; a newer attempt lists the log after its own claim, and finds the merged file. So nobody
removes a file that another has to read, and a range always gives way to a larger one.
"""

from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import groupby

import pyarrow as pa

from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.keys import (
    KEYS_FOLDER,
    LOG_SCHEMAS,
    LogName,
    MapFiles,
    merged_away,
    read_ahead,
    read_log_file,
    run_tasks,
    without_merged,
    write_log_files,
)
from memagent_batch.errors import StorageError

MERGE_FROM = 64
"""Flushes that must be there: the log of a short run stays as it is."""
MERGED_BYTES = 64 * 1024 * 1024
"""Bytes of rows of a merged file, about, as Arrow: some 15 MiB as Parquet, which a store sends in one request."""


def merge_log(
    output: Location,
    *,
    require_claim: Callable[[], None],
    mapped: MapFiles = run_tasks,
) -> list[str]:
    """Merges the flushes of each writer, if there are many; returns the names of the merged files.

    Raises:
        SupersededError: a newer attempt owns the output; nothing was removed.
        StorageError: a file can't be read, written or removed.
    """
    keys = (output / KEYS_FOLDER).files()  # first: the files of a flush that has its keys are there
    flushes = [path.rpartition("/")[2] for path in without_merged(keys)]
    ranges = list(_ranges(flushes)) if len(flushes) >= MERGE_FROM else []
    if sum(map(len, ranges)) < MERGE_FROM:
        ranges = []
    if not ranges and len(flushes) == len(keys):
        return []
    paths = [*(path for folder in LOG_SCHEMAS for path in (output / folder).files()), *keys]
    start = len(output.path.rstrip("/")) + 1
    below = [path[start:] for path in paths if path.endswith(".parquet")]
    files_of: dict[str, list[str]] = defaultdict(list)
    for path in below:
        if not path.startswith(KEYS_FOLDER):
            files_of[path.rpartition("/")[2]].append(path)
    files = ([file for name in names for file in files_of[name]] for names in ranges)
    tasks = [pa.table({"file": pa.array(each, pa.string())}) for each in files]
    try:
        merge = partial(_merge, output=output)
        merged = [name for table in mapped(merge, tasks) for name in table["name"].to_pylist()]
    except StorageError:
        require_claim()  # else a newer attempt may have merged and removed the files meanwhile
        raise
    require_claim()
    whole = [*merged, *keys]  # what a merge that was killed has left goes too
    away = list(merged_away(below, whole))
    for of_keys in (False, True):  # the keys last: while they are there, the next merge takes up what a killed one left
        names = [name for name in away if name.startswith(KEYS_FOLDER) == of_keys]
        output.delete_files([output.path.rstrip("/") + "/" + name for name in names])
    return merged


def _ranges(flushes: Sequence[str]) -> Iterator[list[str]]:
    """Names of flushes, by number, that may be merged with one another: of one writer, and none left out between.

    A flush has its keys, or its writer has not ended it, or someone has removed them.
    """
    of_line: dict[str, list[str]] = defaultdict(list)
    for name in sorted(flushes, key=lambda each: LogName.of(each).first):
        of_line[LogName.of(name).line].append(name)
    for names in of_line.values():
        small = [name for name in names if not LogName.of(name).is_merged]
        for _, following in groupby(enumerate(small), key=lambda each: LogName.of(each[1]).first - each[0]):
            joined = [name for _, name in following]
            yield from [joined] if len(joined) > 1 else []


def _merge(files: pa.Table, *, output: Location) -> Iterator[pa.Table]:
    """Merges the files of some flushes of one writer, in as many merged files as their bytes need; gives names."""
    rows: dict[str, list[pa.Table]] = defaultdict(list)
    numbers: list[LogName] = []
    num_bytes = 0
    small = files["file"].to_pylist()
    for file, table in zip(small, read_ahead(partial(_read_whole, output), small), strict=True):
        name = LogName.of(file)
        if num_bytes >= MERGED_BYTES and name != numbers[-1] and numbers[-1] != numbers[0]:
            yield _write_merged(output, rows, first=numbers[0], last=numbers[-1])
            rows, numbers, num_bytes = defaultdict(list), [], 0
        rows[file.rpartition("/")[0]].append(table)
        numbers.append(name)
        num_bytes += table.nbytes
    if numbers and numbers[-1] != numbers[0]:
        yield _write_merged(output, rows, first=numbers[0], last=numbers[-1])


def _read_whole(output: Location, file: str) -> pa.Table:
    schema = LOG_SCHEMAS[file.rpartition("/")[0]]
    return read_log_file(output, (output / file).path, columns=schema.names).cast(schema)


def _write_merged(output: Location, rows: dict[str, list[pa.Table]], *, first: LogName, last: LogName) -> pa.Table:
    name = f"{first.line}-{first.first:06d}to{last.last:06d}.parquet"
    order = [(column, "ascending") for column in ("document_hash", "question_hash", "sample")]
    write_log_files(
        output, {folder: pa.concat_tables(tables).sort_by(order) for folder, tables in rows.items()}, name=name
    )
    return pa.table({"name": [name]})
