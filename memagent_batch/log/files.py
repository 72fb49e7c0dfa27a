"""The files of the turn log: some columns of all of them, or of those that are named."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.domain.turns import UPDATE, Writes
from memagent_batch.files.errors import storage_errors, table_errors
from memagent_batch.files.location import Location
from memagent_batch.log.schemas import TURN_LOG

LATER_COLUMNS = frozenset({"writes", "menu_logprobs", "held_from", "num_markers", "num_billed_tokens", "memory_after"})
"""Columns of `TURN_LOG`, and of `OUTCOME_LOG` by the same type, that files of earlier versions lack."""

LOG_THREADS = 16
"""Log files read at once, in a request each: enough to keep a core busy where a store answers in 50 ms."""

ReadingKey = tuple[str, str, int]
"""Document hash, question hash, sample: an address under one reader fingerprint."""


def log_line(file: str) -> str:
    """Run and writer of a log file: its name without the number."""
    return file.rpartition("/")[2].rpartition("-")[0]


def read_log(
    folder: Location, *, columns: list[str], fingerprints: Collection[str], begins: Collection[str] = ("",)
) -> Iterator[tuple[str, pa.Table]]:
    """The log files of a folder whose names begin with one of these: a run's id, and a writer's after it."""
    with storage_errors(folder.uri):
        paths = folder.files(begins=next(iter(begins)) if len(begins) == 1 else "")
    files = [path for path in paths if path.endswith(".parquet") and path.rsplit("/", 1)[-1].startswith(tuple(begins))]
    yield from zip(files, read_log_files(folder, files, columns=columns, fingerprints=fingerprints), strict=True)


def read_log_files(
    folder: Location,
    files: Iterable[str],
    *,
    columns: list[str],
    fingerprints: Collection[str],
    document_hashes: pa.Array | None = None,
) -> Iterator[pa.Table]:
    """Rows of these fingerprints, and of these documents, in files of the log; a table for each file.

    Raises:
        OutputError: a log file can't be read; names it.
    """
    read = partial(
        _read_log_file,
        folder,
        columns=columns,
        fingerprints=fingerprints,
        document_hashes=document_hashes,
    )
    with ThreadPoolExecutor(LOG_THREADS) as threads:
        yield from threads.map(read, files)


def _read_log_file(
    folder: Location, path: str, *, columns: list[str], fingerprints: Collection[str], document_hashes: pa.Array | None
) -> pa.Table:
    wanted = list(dict.fromkeys([*columns, "reader_fingerprint"]))
    remedy = "restore it, or delete it to read its turns again"
    with storage_errors(path), table_errors(f"log file {path}", remedy=remedy, of_store=False):
        # a store is asked once for the whole file: it is small, and its footer alone would cost several requests
        source = path if folder.is_local else pa.BufferReader(folder.fs.cat_file(path))
        with pq.ParquetFile(source, pre_buffer=False) as file:
            table = file.read(columns=wanted, use_threads=False)
        table = _with_later_columns(table, names=wanted)
        if missing := sorted(set(wanted) - set(table.schema.names)):
            raise pa.ArrowInvalid(f"it has no column {missing[0]!r}")
    table = table.filter(pc.is_in(table["reader_fingerprint"], pa.array(list(fingerprints), pa.string())))
    return table if document_hashes is None else table.filter(pc.is_in(table["document_hash"], document_hashes))


def _with_later_columns(table: pa.Table, *, names: Sequence[str]) -> pa.Table:
    """With the columns that files of earlier versions lack, where they are among these names."""
    for name in LATER_COLUMNS & set(names) - set(table.schema.names):
        column = pa.nulls(table.num_rows, TURN_LOG.field(name).type)
        if name == "writes":  # only `update` turns wrote anything but answers then
            column = pc.if_else(pc.equal(table["kind"], UPDATE), Writes.MEMORY.value, column)
        table = table.append_column(name, column)
    return table
