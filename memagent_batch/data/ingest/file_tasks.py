"""Tasks that read document files (PDF, Office, mail, HTML, archives, text): each file becomes documents."""

import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, cast

import pyarrow as pa

from memagent_batch.config.ingest import OCR_SECONDS, SECONDS, IngestConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.data.documents.source_listing import SourceListing, into_batches
from memagent_batch.data.ingest.columns import StoredColumn, folder_values
from memagent_batch.data.ingest.fetch import FileCopy, copy_files
from memagent_batch.data.ingest.files import KINDS_READER, ChosenConverter, FileConverter, unopened
from memagent_batch.data.ingest.losses import FileDocument, FilePart, describe_losses, find_losses, sum_up_losses
from memagent_batch.data.ingest.readers.converter import Part, PartStatus, Severity, ending_of, make_converter
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.data.ingest.readers.metadata_values import TEXTS, TIMES, clean_text, parse_time
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from memagent_batch.data.ingest.report import SourceReport, TaskContext, TaskReport, read_old_rows
from memagent_batch.data.ingest.row_tasks import TASKS_PER_CPU
from memagent_batch.data.ingest.rows import DocumentValues, Origin, joined_row
from memagent_batch.data.ingest.sources import SourceChanges
from memagent_batch.data.ingest.tables import MetadataRow
from memagent_batch.data.store.database import run_query
from memagent_batch.data.store.errors import LASTING_ERRORS
from memagent_batch.data.store.location import Location
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import CONVERTERS

TASK_FILES = 256
"""Most document files of a task."""
TASK_BYTES = 64 << 20
"""Bytes of document files from which a task takes no more."""
MIN_TASK_FILES = 8
"""Fewest document files of a task: to start one takes longer than to read so few."""
CONTENT_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingFile:
    """A file to read, and what the last ingest knew of it."""

    path: str
    """On the file system of the files."""
    name: str
    """Path below the folder that was asked for; the id of its document."""
    num_bytes: int
    left_out: str | None = None
    """Why it can't be read."""
    content_hash: str | None = None
    """Hash of the content that was read by what would read it today; None if there is none."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Columns to carry: keys of its folders."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileTask:
    """Files of one task."""

    files: tuple[PendingFile, ...]
    old_rows: bytes = b""
    """The rows that the table has of these sources; as `OLD_ROWS`; see `pack_rows`."""


def plan_file_batches(
    listing: SourceListing, changes: SourceChanges, columns: Sequence[StoredColumn], *, num_cpus: int
) -> list[list[PendingFile]]:
    """Returns the new and changed files of a listing, divided into the files of each task.

    Args:
        listing: The files.
        changes: Which of them are new or changed.
        columns: The columns to carry.
        num_cpus: CPUs that read at once.
    """
    changed = listing.sources.filter(pa.array(changes.is_changed))
    sql = "select source, content_hash from known semi join changed using (source)"
    known = run_query(sql, {"known": changes.known, "changed": changed})
    hashes = dict(zip(known["source"].to_pylist(), known["content_hash"].to_pylist(), strict=True))
    files = [
        PendingFile(
            path=row["path"],
            name=row["source"],
            num_bytes=row["num_bytes"],
            left_out=row["left_out"],
            content_hash=hashes.get(row["source"]),
            columns=folder_values(row["path"], columns, root=listing.place.root),
        )
        for row in changed.to_pylist()
    ]
    max_files = len(files) // (TASKS_PER_CPU * max(1, num_cpus))
    max_files = max(MIN_TASK_FILES, min(TASK_FILES, max_files))
    return [*into_batches(files, size=attrgetter("num_bytes"), max_size=TASK_BYTES, max_items=max_files)]


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

    @classmethod
    def of(
        cls, config: SourceConfig, *, documents: Location, converters: Mapping[str, ChosenConverter]
    ) -> "FileSettings":
        """The settings of a job."""
        ingest = config.ingest
        return cls(
            documents=documents,
            converters=converters,
            settings=_converter_settings(ingest),
            limits=Limits(
                seconds=ingest.seconds or (OCR_SECONDS if ingest.ocr else SECONDS),
                memory_bytes=ingest.memory_mib << 20,
                output_bytes=ingest.output_mib << 20,
            ),
            file_bytes=ingest.file_mib << 20,
            max_document_bytes=config.input.max_document_bytes,
            search_path=tuple(sys.path),
        )


def choose_converters(config: IngestConfig) -> dict[str, ChosenConverter]:
    """The converter of each kind or ending.

    Raises:
        SettingsError: a kind or converter is unknown, or not installed.
    """
    for kind in config.converters:
        if kind not in list(FileKind) and not kind.startswith("."):
            raise SettingsError(
                f"ingest.converter: {kind!r} is not one of {', '.join(FileKind)}, and no ending such as .dat"
            )
    names = {kind.value: kind.value for kind in FileKind} | {**config.converters}
    settings = _converter_settings(config)
    return {
        kind: ChosenConverter(
            name=name,
            path=CONVERTERS.path(name),
            version=make_converter(CONVERTERS.find(name), settings).version(),
        )
        for kind, name in names.items()
    }


def _converter_settings(config: IngestConfig) -> dict[str, Any]:
    """Settings that converters may be made with."""
    return {"ocr": config.ocr, "ocr_min_confidence": config.ocr_min_confidence}


def read_files(task: FileTask, *, context: TaskContext, settings: FileSettings) -> Iterator[pa.Table]:
    """Reads the files and writes their documents; yields the report."""
    with (
        ConverterServer(search_path=settings.search_path, settings=settings.settings) as server,
        TaskReport(context, old_rows=read_old_rows(task.old_rows)) as report,
    ):
        converter = FileConverter(server, converters=settings.converters, limits=settings.limits)
        refusals = [_unopened_part(file, file_bytes=settings.file_bytes) for file in task.files]
        to_open = [file for file, refusal in zip(task.files, refusals, strict=True) if refusal is None]
        places = [settings.documents.at(file.path) for file in to_open]
        endings, folder = [ending_of(file.name) for file in to_open], server.folder()
        with closing(copy_files(places, endings=endings, folder=folder)) as copies:
            for file, refusal in zip(task.files, refusals, strict=True):
                opened = next(copies) if refusal is None else refusal
                _read_file(file, opened, converter, report=report, settings=settings)
                server.clear(but=folder)
    yield from report.tables()


def _read_file(
    file: PendingFile,
    opened: FileCopy | Part,
    converter: FileConverter,
    *,
    report: TaskReport,
    settings: FileSettings,
) -> None:
    """Reads a file from its copy; `opened` is a part that says why if there is none."""
    digest, readers, is_retried = None, [KINDS_READER], False
    if isinstance(opened, FileCopy) and opened.error is not None:
        reason = str(opened.error)
        if file.content_hash is not None and not isinstance(opened.error.__context__, LASTING_ERRORS):
            report.add_unfetched(file.name, content_hash=file.content_hash, reason=reason)
            return
        opened, is_retried = Part(status=PartStatus.NOT_READ, reason=reason), True
    if isinstance(opened, Part):
        converted = unopened(file.name, opened)
    elif opened.digest == file.content_hash:
        report.add_unchanged(file.name, content_hash=opened.digest)
        return
    else:
        digest = opened.digest
        converted = converter.convert(opened.path, name=file.name)
        readers = sorted(converter.readers) or readers
    documents = file_documents(converted, file=file, digest=digest, max_bytes=settings.max_document_bytes)
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


def _unopened_part(file: PendingFile, *, file_bytes: int) -> Part | None:
    if file.left_out is not None:
        return Part(status=PartStatus.SKIPPED, reason=file.left_out)
    if file.num_bytes <= file_bytes:
        return None
    size, most = file.num_bytes >> 20, file_bytes >> 20
    reason = f"{size:,} MiB; files of more than {most:,} MiB are not read (--ingest.file-mib)"
    return Part(status=PartStatus.SKIPPED, reason=reason)


def file_documents(
    documents: Sequence[FileDocument], *, file: PendingFile, digest: str | None, max_bytes: int | None
) -> list[DocumentValues]:
    """The rows of the documents of a file: itself, and each attachment."""
    losses_of = find_losses(documents)
    rows = []
    for document in documents:
        losses, source_read = losses_of[document.document_id]
        parts = document.parts
        rows.append(
            joined_row(
                document.document_id,
                [
                    (_filled(part.text), _part_row(part, file.name))
                    for part in parts
                    if part.status is not PartStatus.MISSED
                ],
                origin=Origin(
                    source=file.name,
                    source_hash=digest,
                    reader=parts[0].reader,
                    metadata=_metadata_row(document, file.name, digest=digest),
                ),
                columns=file.columns,
                max_bytes=max_bytes,
                losses=losses,
                source_read=source_read,
                unread=describe_losses(losses),
            )
        )
    return rows


def _metadata_row(document: FileDocument, source: str, *, digest: str | None) -> MetadataRow:
    """Returns the metadata of a document of a file. A hostile file may have made up what its process says."""
    content_hash = digest if document.document_id == source else document.content_hash
    return cast(
        "MetadataRow",
        {
            "family_id": source,
            "content_hash": content_hash if CONTENT_HASH.fullmatch(content_hash or "") else None,
            **{name: clean_text(document.metadata.get(name)) for name in TEXTS},
            **{name: parse_time(document.metadata.get(name)) for name in TIMES},
        },
    )


def _filled(text: str | None) -> str:
    return text if text and text.strip() else ""


def _part_row(part: FilePart, source: str) -> Any:
    return {"source": source, "locator": part.locator, "char_start": 0, "char_end": 0, "order": None, "carried": None}
