"""Tasks that read document files (PDF, Office, mail, HTML, archives, text): each file becomes documents."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import sha256
from pathlib import Path
from typing import Any

import pyarrow as pa

from memagent_batch.data.documents.listing import InputFile
from memagent_batch.data.documents.rows import RowText
from memagent_batch.data.ingest.files import KINDS_READER, ChosenConverter, FileConverter, unopened
from memagent_batch.data.ingest.losses import FilePart, describe_losses, find_losses, sum_up_losses
from memagent_batch.data.ingest.readers.converter import Part, PartStatus, ending_of
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from memagent_batch.data.ingest.report import SourceReport, TaskContext, TaskReport, read_old_rows
from memagent_batch.data.ingest.rows import DocumentValues, Origin, joined_row
from memagent_batch.data.ingest.tables import Severity
from memagent_batch.data.store.errors import LASTING_ERRORS, input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

COPY_BYTES = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFile:
    """A file to read, and what the last ingest knew of it."""

    file: InputFile
    content_hash: str | None = None
    """Hash of the content that was read by what would read it today; None if there is none."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns to carry: keys of its folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files of one task."""

    files: tuple[PendingFile, ...]
    old_rows: bytes
    """The rows that the table has of these sources; see `pack_old_rows`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileSettings:
    """How the tasks of a run read files."""

    documents: Location
    """A place on the file system of the files."""
    converters: Mapping[str, ChosenConverter]
    settings: Mapping[str, Any]
    """Settings that converters may be made with."""
    limits: Limits
    file_bytes: int
    """Size from which a file is skipped."""
    max_document_bytes: int | None
    search_path: tuple[str, ...]
    """Where the driver finds modules; a node that has these folders finds converters there too."""


def read_files(task: FileTask, *, context: TaskContext, settings: FileSettings) -> Iterator[pa.Table]:
    """Reads the files and writes their documents; yields the report."""
    with (
        ConverterServer(search_path=settings.search_path, settings=settings.settings) as server,
        TaskReport(context, old_rows=read_old_rows(task.old_rows)) as report,
    ):
        converter = FileConverter(server, converters=settings.converters, limits=settings.limits)
        for pending in task.files:
            _read_file(pending, converter, server, report=report, settings=settings)
            server.clear()
    yield from report.tables()


def _read_file(
    pending: PendingFile,
    converter: FileConverter,
    server: ConverterServer,
    *,
    report: TaskReport,
    settings: FileSettings,
) -> None:
    file, digest, readers = pending.file, None, [KINDS_READER]
    is_retried = False
    refusal = _unopened_part(file, file_bytes=settings.file_bytes)
    if refusal is None:
        try:
            copy = server.folder() / f"source{ending_of(file.name)}"
            digest = copy_file(settings.documents.at(file.path), copy)
        except InputError as error:
            if pending.content_hash is not None and not isinstance(error.__context__, LASTING_ERRORS):
                report.add_unfetched(file.name, content_hash=pending.content_hash, reason=str(error))
                return
            refusal, is_retried = Part(status=PartStatus.NOT_READ, reason=str(error)), True
    if digest is not None and digest == pending.content_hash:
        report.add_unchanged(file.name, content_hash=digest)
        return
    if refusal is not None:
        parts = unopened(file.name, refusal)
    else:
        parts = converter.convert(copy, name=file.name)
        readers = sorted(converter.readers) or readers
    documents = file_documents(parts, file=pending, digest=digest, max_bytes=settings.max_document_bytes)
    source = SourceReport(
        source=file.name,
        content_hash=digest,
        is_retried=is_retried,
        kind=ending_of(file.name).removeprefix(".") or "file",
        reader="; ".join(readers),
    )
    for row in documents:
        report.write(row, source=source)
    if all(row["text"] is None for row in documents):
        source.error = documents[0]["error"]
        source.has_text = False
    source.losses = sum_up_losses(
        loss for row in documents for loss in row["losses"] if loss["severity"] != Severity.FORMAT
    )
    report.add(source)


def _unopened_part(file: InputFile, *, file_bytes: int) -> Part | None:
    if file.left_out is not None:
        return Part(status=PartStatus.SKIPPED, reason=file.left_out)
    if file.size_bytes <= file_bytes:
        return None
    size, most = file.size_bytes >> 20, file_bytes >> 20
    reason = f"{size:,} MiB; files of more than {most:,} MiB are not read (--ingest.file-mib)"
    return Part(status=PartStatus.SKIPPED, reason=reason)


def copy_file(place: Location, copy: Path) -> str:
    """Copies a file, in one read; returns its SHA-256."""
    digest = sha256()
    with input_errors(place.uri), place.open() as source, copy.open("wb") as target:
        while block := source.read(COPY_BYTES):
            digest.update(block)
            target.write(block)
    return digest.hexdigest()


def file_documents(
    parts: Sequence[FilePart], *, file: PendingFile, digest: str | None, max_bytes: int | None
) -> list[DocumentValues]:
    """The documents of a file: itself, and each attachment."""
    documents: dict[str, list[FilePart]] = {}
    for part in parts:
        documents.setdefault(part.document_id, []).append(part)
    losses_of = find_losses(documents)
    rows = []
    for document_id, own in documents.items():
        losses, source_read = losses_of[document_id]
        rows.append(
            joined_row(
                document_id,
                [(_row_text(part), _part_row(part, file.file.name)) for part in own],
                origin=Origin(source=file.file.name, source_hash=digest, reader=own[0].reader),
                columns=file.columns,
                max_bytes=max_bytes,
                losses=losses,
                source_read=source_read,
                unread=describe_losses(losses),
            )
        )
    return rows


def _row_text(part: FilePart) -> RowText:
    text = part.text or ""
    return RowText(text=text if text.strip() else "", locator=part.locator)


def _part_row(part: FilePart, source: str) -> Any:
    return {"source": source, "locator": part.locator, "char_start": 0, "char_end": 0, "order": None, "carried": None}
