"""Tasks that read data files (Parquet, JSONL, CSV, Arrow, tables of a lake, text): each row becomes a document."""

from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.config.storage import Options
from memagent_batch.data.documents.formats.formats import Format
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, Record
from memagent_batch.data.documents.indexing import TEXT_THREADS, document_records, text_column, why_unreadable
from memagent_batch.data.documents.lake.tables import documents_place
from memagent_batch.data.documents.shards import Shard
from memagent_batch.data.documents.slices import is_in_slice
from memagent_batch.data.ingest.columns import StoredColumn
from memagent_batch.data.ingest.report import SourceReport, TaskContext, TaskReport, read_old_rows
from memagent_batch.data.ingest.rows import BAD_FILE, DocumentValues, Origin, failed_row, text_row
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError

ROWS_VERSION = "1"
"""Raised with every change of the code that changes a document of a data file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowTask:
    """Data files of one task, or row groups of one file."""

    shards: tuple[Shard, ...]
    old_rows: bytes
    """The rows that the table has of these sources; see `pack_old_rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowSettings:
    """How the tasks of a run read data files."""

    input: InputConfig
    columns: tuple[StoredColumn, ...]
    storage_options: Options


PlacedRow = tuple[DocumentValues, int, int]
"""A document with the place of its row: row group and row, or first byte and the byte after its last."""


def read_rows(task: RowTask, *, context: TaskContext, settings: RowSettings) -> Iterator[pa.Table]:
    """Reads the files and writes their documents; yields the report.

    Raises:
        InputError: a file, column or value can't be read; with `on_bad_file: record` only if a store does not answer.
    """
    with TaskReport(context, old_rows=read_old_rows(task.old_rows)) as report:
        for shard in task.shards:
            documents = documents_place(shard.documents, settings.storage_options)
            for name, rows in _files_of(shard, documents, settings=settings):
                source = SourceReport(source=name, kind=shard.format.value, reader=rows_reader(shard.format))
                try:
                    _write_rows(rows, source=source, report=report)
                except InputUnreachableError as error:
                    require_vanished(error, shard=shard)
                    report.add_unfetched(name, reason=str(error), kind=source.kind, reader=source.reader)
                else:
                    report.add(source)
    yield from report.tables()


def require_vanished(error: InputUnreachableError, *, shard: Shard) -> None:
    """Returns if a file was removed after it was listed.

    Raises:
        InputUnreachableError: the error itself, if it has another reason, or the file belongs to a table of a lake.
    """
    if shard.table_files or not isinstance(error.__context__, FileNotFoundError):
        raise error


def rows_reader(format_: Format) -> str:
    """What reads a data file, with its version, as `sources.reader` has it."""
    return f"{format_.value} {ROWS_VERSION}"


def _write_rows(rows: Iterator[PlacedRow], *, source: SourceReport, report: TaskReport) -> None:
    for row, start, stop in rows:
        report.write(row, source=source, start=start, stop=stop)
        if row["error_type"] == BAD_FILE:
            source.add_failure(row["error"], place=row["document_id"].removeprefix(source.source).strip(", "))


def _files_of(shard: Shard, documents: Location, *, settings: RowSettings) -> Iterator[tuple[str, Iterator[PlacedRow]]]:
    """The files of a shard with their rows; text files of a store are read some at once: each takes a request."""
    read = partial(file_rows, documents, shard=shard, settings=settings)
    if documents.is_local or shard.format is not Format.TEXT:
        yield from ((name, read(path, name)) for path, name in zip(shard.paths, shard.names, strict=True))
        return
    threads = ThreadPoolExecutor(TEXT_THREADS)
    try:
        files = [*zip(shard.paths, shard.names, strict=True)]
        found = [threads.submit(lambda path, name: [*read(path, name)], path, name) for path, name in files]
        yield from ((name, _result(rows)) for (_, name), rows in zip(files, found, strict=True))
    finally:
        threads.shutdown(wait=False, cancel_futures=True)  # a run that is stopped does not wait for a store that hangs


def _result(rows: "Future[list[PlacedRow]]") -> Iterator[PlacedRow]:
    yield from rows.result()


def file_rows(documents: Location, path: str, name: str, *, shard: Shard, settings: RowSettings) -> Iterator[PlacedRow]:
    """The documents of one file. One whose text can't be read has an error; it concerns that document only."""
    origin = Origin(source=name)
    for record in file_records(
        documents, path, name, shard=shard, settings=settings, columns=row_columns(settings.input, settings.columns)
    ):
        if isinstance(record, BadRecord):
            row = failed_row(record.document_id, record.error, origin=origin, error_type=BAD_FILE)
            yield row, record.start, record.stop
        elif is_in_slice(settings.input, str(record.values[0])):
            yield _document(record, origin=origin, settings=settings), record.place.start, record.place.stop


def _document(record: Record, *, origin: Origin, settings: RowSettings) -> DocumentValues:
    document_id, text, *others = record.values
    columns = {column.stored: value for column, value in zip(settings.columns, others, strict=True)}
    reason = why_unreadable(text)
    if reason:
        return failed_row(str(document_id), f"{record.where}: {reason}", origin=origin, columns=columns)
    max_bytes = settings.input.max_document_bytes
    return text_row(str(document_id), text, origin=origin, columns=columns, max_bytes=max_bytes, where=record.where)


@dataclass(frozen=True, slots=True, kw_only=True)
class BadRecord:
    """A file, line or row that can't be read, in place of a document."""

    document_id: str
    error: str
    start: int = 0
    stop: int = 0


def file_records(
    documents: Location,
    path: str,
    name: str,
    *,
    shard: Shard,
    settings: RowSettings,
    columns: Sequence[InputColumn],
) -> Iterator[Record | BadRecord]:
    """The records of one file; with `on_bad_file: record` also what of it can't be read.

    Raises:
        InputError: a file, column or value can't be read, and bad files are not recorded.
    """
    place = documents.at(path)
    try:
        for record in document_records(place, name=name, shard=shard, settings=settings.input, columns=columns):
            if record.error is None:
                yield record
                continue
            in_file = record.where.removeprefix(place.uri).partition(" (")[0]
            yield BadRecord(
                document_id=f"{name}{in_file}",
                error=str(record.error),
                start=record.place.start,
                stop=record.place.stop,
            )
    except InputError as error:
        if settings.input.on_bad_file == OnBadFile.FAIL or isinstance(error, InputUnreachableError):
            raise
        groups = f", row groups {shard.groups[0]} to {shard.groups[1] - 1}" if shard.groups else ""
        yield BadRecord(document_id=f"{name}{groups}", error=str(error))


def row_columns(settings: InputConfig, columns: Sequence[StoredColumn]) -> list[InputColumn]:
    """The columns of a row that is a document: id, text, and what `documents` holds beside."""
    return [id_column(settings), text_column(settings), *(column.to_read() for column in columns)]


def id_column(settings: InputConfig) -> InputColumn:
    """The column with the id of a document."""
    return InputColumn(
        name=settings.document_id_column,
        kind=ColumnKind.IDENTIFIER,
        presence=Presence.EVERY,
        setting="input.document_id_column",
    )
