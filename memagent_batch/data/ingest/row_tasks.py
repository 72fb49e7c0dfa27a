"""Tasks that read data files (Parquet, JSONL, CSV, Arrow, tables of a lake, text): each row becomes a document."""

from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import partial
from operator import attrgetter, itemgetter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.data_files import (
    DataFile,
    id_column,
    read_records,
    text_column,
    why_unreadable,
)
from memagent_batch.data.documents.formats.columnar import open_grouped
from memagent_batch.data.documents.formats.formats import GROUPED, Format
from memagent_batch.data.documents.formats.records import InputColumn, Record
from memagent_batch.data.documents.lake.table import LakeFile
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.scope import is_in_slice
from memagent_batch.data.documents.source_listing import SourceListing, SourcePlace, into_batches
from memagent_batch.data.documents.where import Condition
from memagent_batch.data.ingest.columns import FOUND_COLUMNS, StoredColumn, file_columns
from memagent_batch.data.ingest.report import (
    SourceReport,
    TaskContext,
    TaskReport,
    pack_rows,
    read_old_rows,
    unpack_rows,
)
from memagent_batch.data.ingest.rows import BAD_FILE, DocumentValues, Origin, failed_row, text_row
from memagent_batch.data.store.database import BATCH_ROWS, filter_to_disk
from memagent_batch.errors import InputError, InputUnreachableError

ROWS_VERSION = "1"
"""Raised with every change of the code that changes a document of a data file."""
TASK_BYTES = 128 * 1024 * 1024
"""Size of the files of a task, about, bytes: a second or two of reading and hashing."""
MAX_TASK_FILES = 8192
"""Most data files of a task: text files of a store take a request each."""
MIN_TASK_FILES = 256
TASKS_PER_CPU = 4
"""Tasks that a small input is cut into for each CPU, so that all have something to do until the end."""
TEXT_THREADS = 16
"""Text files of a store that are read at once."""
FOOTER_THREADS = 16
HELD_FILES = 256
"""Text files of a store whose texts a task holds."""
_TASK_COLUMNS = ["path", "source", "num_bytes", "format"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTask:
    """Data files of one task, or row groups of one file."""

    sources: bytes
    """Path, source, num_bytes and format of each; see `pack_rows`."""
    lake_files: Mapping[str, LakeFile] = field(default_factory=dict)
    """What the table of a lake says of the files, by path."""
    groups: tuple[int, int] | None = None
    """The first row group of the one file, and the one after the last; None for whole files."""
    old_rows: bytes = b""
    """The rows that the table has of these sources, as `OLD_ROWS`; see `pack_rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """How the tasks of a run read data files."""

    input: InputConfig
    columns: tuple[StoredColumn, ...]
    place: SourcePlace
    storage_options: Options


def plan_row_tasks(
    listing: SourceListing,
    is_read: npt.NDArray[np.bool_],
    *,
    settings: InputConfig,
    storage_options: Options,
    num_cpus: int,
) -> list[RowTask]:
    """Divides the sources that are read among tasks: small files together, large ones by their row groups.

    Raises:
        InputError: a large file can't be opened; with `on_bad_file: record` only if its store does not answer.
    """
    sources = filter_to_disk(listing.sources.select(_TASK_COLUMNS), pa.chunked_array([pa.array(is_read)]))
    max_files = max(MIN_TASK_FILES, min(MAX_TASK_FILES, sources.num_rows // (TASKS_PER_CPU * num_cpus)))
    sizes = enumerate(size for batch in sources.to_batches(BATCH_ROWS) for size in batch["num_bytes"].to_pylist())
    tasks = []
    for batch in into_batches(sizes, size=itemgetter(1), max_size=TASK_BYTES, max_items=max_files):
        rows = sources.slice(batch[0][0], len(batch))
        paths = rows["path"].to_pylist() if listing.lake_files else []
        lake_files = {path: listing.lake_files[path] for path in paths}
        tasks.append((RowTask(sources=pack_rows(rows), lake_files=lake_files), sum(size for _, size in batch)))
    group_bytes = partial(_group_bytes, listing.place, settings=settings, storage_options=storage_options)
    with ThreadPoolExecutor(FOOTER_THREADS) as threads:
        sizes_of_groups = threads.map(lambda each: group_bytes(each[0]) if each[1] > TASK_BYTES else (), tasks)
        return [each for (task, _), sizes in zip(tasks, sizes_of_groups, strict=True) for each in _split(task, sizes)]


def _group_bytes(
    place: SourcePlace, task: RowTask, *, settings: InputConfig, storage_options: Options
) -> tuple[int, ...]:
    """Size of each row group of a large file, bytes; none for one that is damaged: the task finds and records it."""
    (row,) = unpack_rows(task.sources).to_pylist()
    if row["format"] not in GROUPED:
        return ()
    try:
        with open_grouped(documents_place(place.uri, storage_options).at(row["path"])) as grouped:
            return grouped.group_bytes()
    except InputError as error:
        if settings.on_bad_file == OnBadFile.FAIL or isinstance(error, InputUnreachableError):
            raise
        return ()


def _split(task: RowTask, sizes: Sequence[int]) -> Iterator[RowTask]:
    """Tasks for a large file, of as many row groups as come to `TASK_BYTES`; the task itself without sizes."""
    groups = list(into_batches(enumerate(sizes), size=itemgetter(1), max_size=TASK_BYTES))
    if len(groups) < 2:
        yield task
        return
    for batch in groups:
        yield replace(task, groups=(batch[0][0], batch[-1][0] + 1))


def task_files(task: RowTask, *, settings: RowSettings) -> list[DataFile]:
    """Returns the files of a task."""
    documents = documents_place(settings.place.uri, settings.storage_options)
    return [
        settings.place.data_file(row, documents, lake_file=task.lake_files.get(row["path"]), groups=task.groups)
        for row in unpack_rows(task.sources).to_pylist()
    ]


def search_columns(task: RowTask, *, names: Sequence[str], settings: RowSettings) -> pa.Table:
    """Looks for columns in each file of a task; returns rows of `FOUND_COLUMNS`.

    Raises:
        InputError: a file can't be read; with `on_bad_file: record` only if a store does not answer.
    """
    rows = []
    for file in task_files(task, settings=settings):
        found = file_columns(file, names, settings=settings.input, reads_all=True)
        for name, type_ in found.carried.items() if found else ():
            schema = pa.schema([pa.field(name, type_ or pa.null())])
            rows.append({"source": file.name, "name": name, "type": schema.serialize().to_pybytes()})
    return pa.Table.from_pylist(rows, schema=FOUND_COLUMNS)


def rows_reader(format_: Format) -> str:
    """What reads a data file, with its version, as `sources.reader` has it."""
    return f"{format_.value} {ROWS_VERSION}"


def new_report(file: DataFile) -> SourceReport:
    """A report of a data file of which nothing was read yet."""
    return SourceReport(source=file.name, kind=file.format.value, reader=rows_reader(file.format))


PlacedRow = tuple[DocumentValues, tuple[int, int]]
"""A document with the place of its row; see `Record.place`."""


def read_rows(task: RowTask, *, context: TaskContext, settings: RowSettings) -> Iterator[pa.Table]:
    """Reads the files and writes their documents; yields the report.

    Raises:
        InputError: a file, column or value can't be read; with `on_bad_file: record` only if a store does not answer.
    """
    with TaskReport(context, old_rows=read_old_rows(task.old_rows)) as report:
        for file, rows in _read_files(task_files(task, settings=settings), settings=settings):
            source = new_report(file)
            try:
                for row, place in rows:
                    report.write(row, source=source, place=place)
                    if row["error_type"] == BAD_FILE:
                        source.add_failure(row["error"], document_id=row["document_id"])
            except InputUnreachableError as error:
                report.add_vanished(source, error, file=file)
            else:
                report.add(source)
    yield from report.tables()


def _read_files(files: Sequence[DataFile], *, settings: RowSettings) -> Iterator[tuple[DataFile, Iterator[PlacedRow]]]:
    """The files with their rows; text files of a store are read some at once: each takes a request."""
    read = partial(file_rows, settings=settings)
    for batch in into_batches(files, size=attrgetter("num_bytes"), max_size=TASK_BYTES, max_items=HELD_FILES):
        if batch[0].location.is_local or batch[0].format is not Format.TEXT:
            yield from ((file, read(file)) for file in batch)
            continue
        threads = ThreadPoolExecutor(TEXT_THREADS)
        try:
            found = [threads.submit(lambda file: [*read(file)], file) for file in batch]
            yield from ((file, _result(rows)) for file, rows in zip(batch, found, strict=True))
        finally:
            threads.shutdown(wait=False, cancel_futures=True)  # a run that is stopped waits for no store that hangs


def _result(rows: "Future[list[PlacedRow]]") -> Iterator[PlacedRow]:
    yield from rows.result()


def file_rows(file: DataFile, *, settings: RowSettings) -> Iterator[PlacedRow]:
    """The documents of one file. One whose text can't be read has an error; it concerns that document only."""
    columns = [id_column(settings.input), text_column(settings.input), *(each.to_read() for each in settings.columns)]
    origin = Origin(source=file.name)
    for record in file_records(file, settings=settings.input, columns=columns):
        if record.error is not None:
            yield failed_row(bad_id(record, file), record.error, origin=origin, error_type=BAD_FILE), record.place
        elif is_in_slice(settings.input, str(record.values[0])):
            yield _document(record, origin=origin, settings=settings), record.place


def _document(record: Record, *, origin: Origin, settings: RowSettings) -> DocumentValues:
    document_id, text, *others = record.values
    columns = {column.stored: value for column, value in zip(settings.columns, others, strict=True)}
    reason = why_unreadable(text)
    if reason:
        return failed_row(str(document_id), f"{record.where}: {reason}", origin=origin, columns=columns)
    max_bytes = settings.input.max_document_bytes
    return text_row(str(document_id), text, origin=origin, columns=columns, max_bytes=max_bytes, where=record.where)


def file_records(file: DataFile, *, settings: InputConfig, columns: Sequence[InputColumn]) -> Iterator[Record]:
    """The records of one file; with `on_bad_file: record` also those that can't be read, or one for the whole file.

    Raises:
        InputError: a file, column or value can't be read, and bad files are not recorded.
    """
    where = None if settings.where is None else Condition(text=settings.where)
    keep_bad = settings.on_bad_file == OnBadFile.RECORD
    try:
        yield from read_records(file, columns=columns, where=where, keep_bad=keep_bad)
    except InputError as error:
        if not keep_bad or isinstance(error, InputUnreachableError):
            raise
        groups = f", row groups {file.groups[0]} to {file.groups[1] - 1}" if file.groups else ""
        yield Record(place=(0, 0), where=f"{file.location.uri}{groups}", values=(), error=str(error))


def bad_id(record: Record, file: DataFile) -> str:
    """Returns the id of what stands for a file, line or row that can't be read."""
    return file.name + record.where.removeprefix(file.location.uri).partition(" (")[0]
