"""The files of the turn log: how they are named, listed, written with their keys, and read.

Beside the files of a flush lies one small file of keys, `log/keys/NAME`, under the name that they share: which readings
the files are about, without their texts. A scan of the log reads the key files alone. A key file is written after the
files that it is about, and counts only as long as they are there; the keys of a log file without one are made of it.
"""

import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from datetime import datetime
from itertools import chain
from typing import Annotated, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.database import BATCH_ROWS
from memagent_batch.data.store.errors import storage_errors, table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, TURN_LOG, AddressRow, RunId
from memagent_batch.errors import OutputError, StorageError

TURNS_FOLDER = "log/turns"
OUTCOMES_FOLDER = "log/outcomes"
FOLLOW_UPS_FOLDER = "log/follow_ups"
KEYS_FOLDER = "log/keys"
BATCHES_FOLDER = "log/batches"
"""Records of an engine that collects its turns in batches: those whose turns may not be in the log yet."""
LOG_SCHEMAS = {TURNS_FOLDER: TURN_LOG, OUTCOMES_FOLDER: OUTCOME_LOG, FOLLOW_UPS_FOLDER: FOLLOW_UP_LOG}
"""In the order in which they are written: an outcome is never there without its turns, nor follow-ups alone."""
LOG_THREADS = 16
"""Number of log files that are read at the same time: enough to keep a core busy if a request takes 50 ms."""
GROUP_ROWS = 512
"""Rows of a row group, which is read alone if it has a wanted document: some MiB of turns."""
_NAME = re.compile(r"(.+)-(\d+)(?:to(\d+))?\.parquet")
_REMEDY = "restore it, or delete it to read its turns again"
_ADDRESS = ["document_hash", "question_hash", "sample", "fingerprint", "run_id"]

LogTask = Callable[[pa.Table], Iterator[pa.Table]]
MapTasks = Callable[[LogTask, Iterable[pa.Table]], Iterator[pa.Table]]


def run_tasks(task: LogTask, tasks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Runs tasks here, one after the other; `Executor.map` runs them on a cluster."""
    return chain.from_iterable(map(task, tasks))


class KeyRow(AddressRow):
    """One row for each reading and log file that holds something of it."""

    run_id: RunId
    file: Annotated[str, Column("the log file, below the output")]
    status: Annotated[
        str | None, Column("how the reading or its follow-up questions ended: ok or failed; of turns null")
    ]
    finished_at: Annotated[datetime, Column("when that was, or the last of the turns")]
    document_id: Annotated[str | None, Column("of turns: the document as which this version was read")]
    num_turns: Annotated[int, Column("turns that the row stands for, 0 of others", "turns")]
    num_copies: Annotated[int, Column("of these, copies of turns with the same prompt", "turns")]


LOG_KEYS = arrow_schema(KeyRow)


class LogName(NamedTuple):
    """What the name of a log file says: `RUN-WRITER-000001.parquet`, or `RUN-WRITER-000001to000120.parquet`, merged."""

    writer: str
    """Run and writer."""
    first: int
    """Number of the flush, or of the first one of a merged file."""
    last: int

    @classmethod
    def of(cls, path: str) -> "LogName":
        """The parts of a name; a file of another name has the number 0."""
        name = base_name(path)
        match = _NAME.fullmatch(name)
        if match is None:
            return cls(writer=name.removesuffix(".parquet").rpartition("-")[0], first=0, last=0)
        return cls(writer=match[1], first=int(match[2]), last=int(match[3] or match[2]))

    @property
    def is_merged(self) -> bool:
        """Whether the file stands for those of several flushes."""
        return self.last > self.first

    def covers(self, other: "LogName") -> bool:
        """Whether this is a merged file that stands for the other one."""
        is_larger = self.last - self.first > other.last - other.first
        return self.writer == other.writer and is_larger and self.first <= other.first and other.last <= self.last


def base_name(path: str) -> str:
    """The name of a file without its folder."""
    return path.rpartition("/")[2]


def list_folder(folder: Location, *, begins: str = "") -> list[str]:
    """Paths of the files of one folder of the log, without those that a merged file stands for.

    The names of wanted files begin with `begins`: a run's id, and a writer's after it.
    """
    paths = folder.files(begins=begins)
    files = [path for path in paths if path.endswith(".parquet") and base_name(path).startswith(begins)]
    covered = covered_files(files, files)
    return [path for path in files if path not in covered]


def covered_files(files: Iterable[str], others: Iterable[str]) -> set[str]:
    """The files for which a merged one of the others stands."""
    merged: dict[str, list[LogName]] = defaultdict(list)
    for name in map(LogName.of, others):
        if name.is_merged:
            merged[name.writer].append(name)
    named = [(file, LogName.of(file)) for file in files]
    return {file for file, name in named if any(each.covers(name) for each in merged[name.writer])}


def write_log_files(output: Location, tables: Mapping[str, pa.Table], *, name: str) -> int:
    """Writes tables of the log, by folder, and their keys last; returns the bytes of the files.

    Raises:
        StorageError: a file can't be written. Those before it are there.
    """
    num_bytes = 0
    ordered = {folder: tables[folder] for folder in LOG_SCHEMAS if folder in tables}
    for folder, table in (*ordered.items(), (KEYS_FOLDER, make_keys(tables, name=name))):
        data = parquet_bytes(table, group_rows=GROUP_ROWS)
        (output / f"{folder}/{name}").write_bytes(data)
        num_bytes += len(data)
    return num_bytes


def make_keys(tables: Mapping[str, pa.Table], *, name: str) -> pa.Table:
    """The keys of log tables, by folder, whose files have this name."""
    keys = [LOG_KEYS.empty_table()]
    for folder, table in tables.items():
        of_folder = _turn_keys(table) if folder == TURNS_FOLDER else _ended_keys(table)
        file = pa.repeat(pa.scalar(f"{folder}/{name}"), of_folder.num_rows)
        keys.append(of_folder.append_column("file", file).select(LOG_KEYS.names).cast(LOG_KEYS))
    return pa.concat_tables(keys).combine_chunks()


def _turn_keys(turns: pa.Table) -> pa.Table:
    by = [*_ADDRESS, "document_id"]
    turns = turns.select([*by, "finished_at"]).append_column("is_copy", turns["is_copy"].cast(pa.int64()))
    sums = [("is_copy", "count"), ("is_copy", "sum"), ("finished_at", "max")]
    keys = turns.group_by(by, use_threads=False).aggregate(sums)
    keys = keys.rename_columns([*by, "num_turns", "num_copies", "finished_at"])
    return keys.append_column("status", pa.nulls(keys.num_rows, pa.string()))


def _ended_keys(ended: pa.Table) -> pa.Table:
    if "status" not in ended.schema.names:  # of follow-up questions
        ended = ended.append_column("status", pc.if_else(ended["is_failed"], "failed", "ok"))
    zeros = pa.repeat(0, ended.num_rows)
    keys = ended.select([*_ADDRESS, "status", "finished_at"])
    keys = keys.append_column("document_id", pa.nulls(ended.num_rows, pa.string()))
    return keys.append_column("num_turns", zeros).append_column("num_copies", zeros)


def read_file_keys(output: Location, path: str) -> pa.Table:
    """The keys in a key file, or of a log file without one."""
    folder, _, name = path[len(output.path.rstrip("/")) + 1 :].rpartition("/")
    if folder == KEYS_FOLDER:
        return read_log_file(output, path, columns=LOG_KEYS.names).cast(LOG_KEYS)
    ended = ["finished_at", "is_failed" if folder == FOLLOW_UPS_FOLDER else "status"]
    columns = [*_ADDRESS, *(["finished_at", "document_id", "is_copy"] if folder == TURNS_FOLDER else ended)]
    return make_keys({folder: read_log_file(output, path, columns=columns)}, name=name)


def read_ahead(
    read: Callable[[str], pa.Table], paths: Iterable[str], *, num_threads: int = LOG_THREADS
) -> Iterator[pa.Table]:
    """Tables of files, in order; few wait at a time: of merged files, which have many rows, one or two."""
    waiting, num_ahead = deque[Future[pa.Table]](), 1
    with ThreadPoolExecutor(num_threads) as threads:
        for path in paths:
            waiting.append(threads.submit(read, path))
            while len(waiting) > num_ahead:
                table = waiting.popleft().result()
                num_ahead = min(num_threads, 1 + BATCH_ROWS // (1 + table.num_rows))
                yield table
        yield from (each.result() for each in waiting)


def read_log_files(
    output: Location,
    files: Iterable[str],
    *,
    columns: Sequence[str],
    fingerprints: Collection[str],
    document_hashes: Sequence[str] | None = None,
    document_id: str | None = None,
    num_threads: int = LOG_THREADS,
) -> Iterator[pa.Table]:
    """Rows of these fingerprints, and of these texts or of the document, in files of the log; a table for each file.

    Raises:
        OutputError: a file can't be read; names it.
        StorageError: the store does not answer, or a file is gone.
    """
    names, wanted = list(dict.fromkeys([*columns, "fingerprint"])), pa.array([*fingerprints], pa.string())

    def read(path: str) -> pa.Table:
        try:
            table = read_log_file(output, path, columns=names, document_hashes=document_hashes, document_id=document_id)
        except StorageError:
            name = LogName.of(path)
            others = output.at(path.rpartition("/")[0]).files(begins=f"{name.writer}-")
            merged = next((other for other in others if LogName.of(other).covers(name)), None)
            if merged is None:
                raise
            return read(merged)  # merged since it was listed
        return table.filter(pc.is_in(table["fingerprint"], wanted))

    return read_ahead(read, files, num_threads=num_threads)


def read_log_file(
    output: Location,
    path: str,
    *,
    columns: Sequence[str],
    document_hashes: Sequence[str] | None = None,
    document_id: str | None = None,
) -> pa.Table:
    """Columns of a file of the log; with hashes, the rows of these texts and of the document alone.

    Raises:
        OutputError: it is not whole, or has not these columns; names it and what to do.
        StorageError: the store does not answer, or the file is gone.
    """
    finds = [] if document_hashes is None else ["document_hash"] + ["document_id"] * (document_id is not None)
    columns = list(dict.fromkeys([*columns, *finds]))
    with storage_errors(path), table_errors(f"log file {path}", remedy=_REMEDY, of_store=False):
        # a store is asked once for the whole file: it is small, and its footer alone would cost several requests
        source = path if output.is_local else pa.BufferReader(output.fs.cat_file(path))
        with pq.ParquetFile(source, pre_buffer=False) as file:
            if missing := sorted(set(columns) - set(file.schema_arrow.names)):
                raise OutputError(
                    f"log file {path} has no column {missing[0]!r}: another version wrote it; choose an empty output"
                )
            if document_hashes is None:
                return file.read(columns=columns, use_threads=False)
            hashes = pa.array(document_hashes, pa.string())

            def is_wanted(table: pa.Table) -> pa.ChunkedArray:
                is_of_text = pc.is_in(table["document_hash"], hashes)
                return (
                    is_of_text
                    if document_id is None
                    else pc.or_(is_of_text, pc.equal(table["document_id"], document_id))
                )

            # a merged file has many row groups, of which few are decoded
            rows = np.flatnonzero(is_wanted(file.read(columns=finds, use_threads=False)).to_numpy())
            ends = np.cumsum([file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)])
            groups = np.unique(np.searchsorted(ends, rows, side="right")).tolist()
            table = file.read_row_groups(groups, columns=columns, use_threads=False)
            return table.filter(is_wanted(table))
