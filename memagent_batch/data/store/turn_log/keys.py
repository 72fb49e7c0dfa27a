"""The keys of the turn log: which readings its files are about, without their texts.

Beside the files of a flush lies one small file of keys, `log/keys/NAME`, under the name that they share. A scan of the
log reads the key files alone. A key file is written after the files that it is about, and is of use only as long as
these are there: a row whose file is not there is left out, and a log file without keys is read itself.
"""

import re
from collections import defaultdict, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from itertools import chain
from typing import Annotated

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.database import BATCH_ROWS, on_disk
from memagent_batch.data.store.errors import storage_errors, table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.data.store.turn_log.rows import FOLLOW_UP_LOG, OUTCOME_LOG, TURN_LOG, AddressRow, RunId
from memagent_batch.errors import OutputError, StorageError, StorageOutageError

TURNS_FOLDER = "log/turns"
OUTCOMES_FOLDER = "log/outcomes"
FOLLOW_UPS_FOLDER = "log/follow_ups"
KEYS_FOLDER = "log/keys"
LOG_SCHEMAS = {TURNS_FOLDER: TURN_LOG, OUTCOMES_FOLDER: OUTCOME_LOG, FOLLOW_UPS_FOLDER: FOLLOW_UP_LOG}
"""In the order in which they are written: an outcome is never there without its turns, nor follow-ups alone."""
LOG_THREADS = 16
"""Log files read at once, in a request each: enough to keep a core busy where a store answers in 50 ms."""
GROUP_ROWS = 512
"""Rows of a row group, which is read alone if it has a wanted document: some MiB of turns."""
SCAN_TRIES = 3
"""Times that a scan lists the log again since a file that it had listed was merged meanwhile."""
TASK_FILES = 2000
"""Files that one task of a scan reads: 2.5 s of a store that answers in 20 ms."""
_LOG_NAME = re.compile(r"(.+)-(\d+)(?:to(\d+))?\.parquet")
_REMEDY = "restore it, or delete it to read its turns again"

FileTask = Callable[[pa.Table], Iterator[pa.Table]]
MapFiles = Callable[[FileTask, Iterable[pa.Table]], Iterator[pa.Table]]


def run_tasks(task: FileTask, tasks: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Runs them here, one after the other."""
    return chain.from_iterable(map(task, tasks))


class KeyRow(AddressRow):
    """One row for each reading and log file that holds something of it."""

    run_id: RunId
    file: Annotated[str, Column("the log file, below the output")]
    status: Annotated[
        str | None, Column("how the reading or its follow-up questions ended: ok or failed; of turns null")
    ]
    finished_at: Annotated[datetime, Column("when that was, or the last of the turns, UTC")]
    document_id: Annotated[str | None, Column("of turns: the document as which this version was read")]
    num_turns: Annotated[int, Column("turns that the row stands for, 0 of others", "turns")]
    num_copies: Annotated[int, Column("of these, taken from the log, mostly from another version", "turns")]


LOG_KEYS = arrow_schema(KeyRow)
_ADDRESS = ["document_hash", "question_hash", "sample", "fingerprint", "run_id"]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogName:
    """What the name of a log file says: `RUN-WRITER-000001.parquet`, or `RUN-WRITER-000001to000120.parquet`, merged."""

    line: str
    """Run and writer."""
    first: int
    """Number of the flush, or of the first one of a merged file."""
    last: int

    @classmethod
    def of(cls, path: str) -> "LogName":
        """The parts of a name; a file of another name has the number 0."""
        name = path.rpartition("/")[2]
        match = _LOG_NAME.fullmatch(name)
        if match is None:
            return cls(line=name.removesuffix(".parquet").rpartition("-")[0], first=0, last=0)
        return cls(line=match[1], first=int(match[2]), last=int(match[3] or match[2]))

    @property
    def is_merged(self) -> bool:
        """Whether the file stands for those of several flushes."""
        return self.last > self.first

    def covers(self, other: "LogName") -> bool:
        """Whether this is a merged file that stands for the other one."""
        is_larger = self.last - self.first > other.last - other.first
        return self.line == other.line and is_larger and self.first <= other.first and other.last <= self.last


def list_folder(folder: Location, *, begins: str = "") -> list[str]:
    """Paths of the files of one folder of the log; without those that a merged file stands for.

    `begins`: a run's id, and a writer's after it, of the files that are wanted.
    """
    return without_merged(path for path in folder.files(begins=begins) if _base_name(path).startswith(begins))


def without_merged(paths: Iterable[str]) -> list[str]:
    """The log files among these paths of one folder, without those that a merged file stands for."""
    files = [path for path in paths if path.endswith(".parquet")]
    away = set(merged_away(files, files))
    return [path for path in files if path not in away]


def merged_away(files: Sequence[str], whole: Sequence[str]) -> Iterator[str]:
    """The files that a merged one of these stands for."""
    of_line: dict[str, list[LogName]] = defaultdict(list)
    for each in map(LogName.of, whole):
        if each.is_merged:
            of_line[each.line].append(each)
    for file in files:
        name = LogName.of(file)
        if any(each.covers(name) for each in of_line[name.line]):
            yield file


def merged_file(output: Location, path: str) -> str | None:
    """The merged file that stands for a log file, if there is one."""
    name = LogName.of(path)
    files = output.at(path.rpartition("/")[0]).files(begins=f"{name.line}-")
    return next((file for file in files if LogName.of(file).covers(name)), None)


def make_keys(tables: Mapping[str, pa.Table], *, name: str) -> pa.Table:
    """The keys of log tables, by folder, whose files have this name."""
    keys = [LOG_KEYS.empty_table()]
    for folder, table in tables.items():
        keys.append(_turn_keys(table) if folder == TURNS_FOLDER else _ended_keys(table))
        file = pa.array([f"{folder}/{name}"], pa.string()).take(pa.array([0] * keys[-1].num_rows, pa.int64()))
        keys[-1] = keys[-1].append_column("file", file).select(LOG_KEYS.names).cast(LOG_KEYS)
    return pa.concat_tables(keys).combine_chunks()


def _turn_keys(turns: pa.Table) -> pa.Table:
    by = [*_ADDRESS, "document_id"]
    turns = turns.select([*by, "finished_at"]).append_column("is_copy", turns["is_copy"].cast(pa.int64()))
    sums = [("is_copy", "count"), ("is_copy", "sum"), ("finished_at", "max")]
    keys = turns.group_by(by, use_threads=False).aggregate(sums)
    keys = keys.rename_columns([*by, "num_turns", "num_copies", "finished_at"])
    return keys.append_column("status", pa.nulls(keys.num_rows, pa.string()))


def _ended_keys(ended: pa.Table) -> pa.Table:
    is_outcome = "status" in ended.schema.names
    zeros = pa.array([0] * ended.num_rows, pa.int64())
    return pa.table(
        {
            **{name: ended[name] for name in _ADDRESS},
            "status": ended["status"] if is_outcome else pc.if_else(ended["is_failed"], "failed", "ok"),
            "finished_at": ended["finished_at"],
            "document_id": pa.nulls(ended.num_rows, pa.string()),
            "num_turns": zeros,
            "num_copies": zeros,
        }
    )


def write_log_files(output: Location, tables: Mapping[str, pa.Table], *, name: str) -> int:
    """Writes tables of the log, by folder, and their keys last; returns the bytes of the files.

    Raises:
        StorageError: a file can't be written. Those before it are there.
    """
    written = 0
    for folder in LOG_SCHEMAS:
        if folder in tables:
            written += _write_log_file(output / f"{folder}/{name}", tables[folder])
    return written + _write_log_file(output / f"{KEYS_FOLDER}/{name}", make_keys(tables, name=name))


def _write_log_file(place: Location, table: pa.Table) -> int:
    data = parquet_bytes(table, group_rows=GROUP_ROWS)
    place.write_bytes(data)
    return len(data)


def read_keys(
    output: Location,
    *,
    fingerprints: Collection[str],
    folders: Collection[str] = tuple(LOG_SCHEMAS),
    begins: str = "",
    mapped: MapFiles = run_tasks,
) -> pa.Table:
    """The keys of these fingerprints: a table of `LOG_KEYS`, in no order, where `file` is the path of a log file.

    Names of wanted files begin with a run's id, and a writer's after it. `mapped` runs the tasks of a large scan; see
    `Executor.map`.

    Raises:
        OutputError: a file can't be read; names it.
        StorageError: the store does not answer.
    """
    for tries_left in reversed(range(SCAN_TRIES)):
        read = _listed(output, folders=folders, begins=begins)
        task = partial(_read_task, output=output, fingerprints=tuple(fingerprints))
        tasks = [read.slice(first, TASK_FILES).combine_chunks() for first in range(0, read.num_rows, TASK_FILES)]
        try:
            return on_disk((run_tasks if len(tasks) <= 1 else mapped)(task, tasks), schema=LOG_KEYS)
        except StorageError as error:  # a run that merges files meanwhile may have removed one; Ray loses the cause
            if not tries_left or isinstance(error, StorageOutageError):
                raise
    raise AssertionError("unreachable")


def _listed(output: Location, *, folders: Collection[str], begins: str) -> pa.Table:
    """The files to read for their keys, key files and log files without one, and the log files that each is about."""
    keyed = {_base_name(path): path for path in list_folder(output / KEYS_FOLDER, begins=begins)}
    read: dict[str, list[str]] = defaultdict(list)
    for folder in reversed(LOG_SCHEMAS):  # turns last: if a run goes on, none of an outcome is missing
        for path in list_folder(output / folder, begins=begins) if folder in folders else ():
            read[keyed.get(_base_name(path), path)].append(path)
    return pa.table({"path": pa.array([*read], pa.string()), "files": pa.array(read.values(), pa.list_(pa.string()))})


def _base_name(path: str) -> str:
    return path.rpartition("/")[2]


def _read_task(files: pa.Table, *, output: Location, fingerprints: Collection[str]) -> Iterator[pa.Table]:
    rows, num_rows, wanted = [LOG_KEYS.empty_table()], 0, pa.array(fingerprints, pa.string())
    read = read_ahead(partial(_read_keys_of, output), files["path"].to_pylist())
    for keys, of_files in zip(read, files["files"], strict=True):
        file = pc.binary_join_element_wise(output.path.rstrip("/"), keys["file"], "/")
        keys = keys.set_column(LOG_KEYS.get_field_index("file"), LOG_KEYS.field("file"), file)
        is_wanted = pc.is_in(keys["fingerprint"], wanted)
        rows.append(keys.filter(pc.and_(is_wanted, pc.is_in(keys["file"], of_files.values))))
        num_rows += rows[-1].num_rows
        if num_rows >= BATCH_ROWS:
            yield pa.concat_tables(rows).combine_chunks()
            rows, num_rows = [LOG_KEYS.empty_table()], 0
    yield pa.concat_tables(rows).combine_chunks()


def read_ahead(
    read: Callable[[str], pa.Table], paths: Iterable[str], *, num_threads: int = LOG_THREADS
) -> Iterator[pa.Table]:
    """Tables of files, in order; few wait at a time: of merged files, which have many rows, one or two."""
    waiting, ahead = deque[Future[pa.Table]](), 1
    with ThreadPoolExecutor(num_threads) as threads:
        for path in paths:
            waiting.append(threads.submit(read, path))
            while len(waiting) > ahead:
                table = waiting.popleft().result()
                ahead = min(num_threads, 1 + BATCH_ROWS // (1 + table.num_rows))
                yield table
        yield from (each.result() for each in waiting)


def _read_keys_of(output: Location, path: str) -> pa.Table:
    name = path[len(output.path.rstrip("/")) + 1 :]
    folder, _, file = name.rpartition("/")
    if folder == KEYS_FOLDER:
        return read_log_file(output, path, columns=LOG_KEYS.names).cast(LOG_KEYS)
    ended = ["finished_at", "is_failed" if folder == FOLLOW_UPS_FOLDER else "status"]
    rest = ["finished_at", "document_id", "is_copy"] if folder == TURNS_FOLDER else ended
    return make_keys({folder: read_log_file(output, path, columns=[*_ADDRESS, *rest])}, name=file)


def read_log_file(
    output: Location,
    path: str,
    *,
    columns: list[str],
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
            wanted = pa.array(document_hashes, pa.string())
            groups = _row_groups(file, wanted, document_id=document_id)
            table = file.read_row_groups(groups, columns=columns, use_threads=False)
            return table.filter(_is_of_documents(table, wanted, document_id=document_id))


def _row_groups(file: pq.ParquetFile, document_hashes: pa.Array, *, document_id: str | None) -> list[int]:
    """Numbers of the row groups that have a row of these documents: a merged file has many, and few are decoded."""
    if file.num_row_groups <= 1:
        return [*range(file.num_row_groups)]
    names = ["document_hash"] + ["document_id"] * (document_id is not None)
    is_wanted = _is_of_documents(file.read(columns=names, use_threads=False), document_hashes, document_id=document_id)
    ends = np.cumsum([file.metadata.row_group(number).num_rows for number in range(file.num_row_groups)])
    rows = np.flatnonzero(is_wanted.to_numpy())
    return [*map(int, np.unique(np.searchsorted(ends, rows, side="right")))]


def _is_of_documents(table: pa.Table, document_hashes: pa.Array, *, document_id: str | None) -> pa.ChunkedArray:
    is_wanted = pc.is_in(table["document_hash"], document_hashes)
    return is_wanted if document_id is None else pc.or_(is_wanted, pc.equal(table["document_id"], document_id))
