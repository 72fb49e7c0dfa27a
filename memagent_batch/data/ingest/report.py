"""What a task of ingest reports: the sources that it read, their documents, and the files that it wrote."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from types import TracebackType
from typing import Any, Self

import numpy as np
import pyarrow as pa

from memagent_batch.data.documents.data_files import DataFile
from memagent_batch.data.ingest.document_files import FILES, DocumentWriter, files_table
from memagent_batch.data.ingest.readers.converter import PartStatus, Severity
from memagent_batch.data.ingest.rows import BAD_FILE, DocumentValues
from memagent_batch.data.ingest.tables import SOURCES, LossRow
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputUnreachableError

OLD_ROWS = pa.schema([pa.field("document_id", pa.large_string()), pa.field("row_hash", pa.int64())])
MAX_LOSSES = 100
"""Lines and rows of a data file that can't be read, of which `sources` has the reason."""
REPORTED_DOCUMENT = pa.schema(
    [
        pa.field("document_id", pa.large_string(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
        pa.field("is_bad", pa.bool_()),
        pa.field("is_written", pa.bool_()),
    ]
)
"""A document that a task has read: its place in its source, and whether its row has changed and was written."""
_NO_DOCUMENTS = pa.array([], pa.struct(REPORTED_DOCUMENT))
PACKED_ROWS = 65_536
"""Documents of a source from which they are packed: as Python objects, a document takes 300 bytes, packed some 50."""
REPORTS = pa.schema(
    [
        *SOURCES,
        pa.field("is_unchanged", pa.bool_(), nullable=False),
        pa.field("is_retried", pa.bool_(), nullable=False),
        pa.field("documents", pa.large_list(pa.struct(REPORTED_DOCUMENT))),
        pa.field("files", pa.list_(pa.struct(FILES))),
    ]
)
"""Rows of `sources` without version and size, with what else the driver needs.

The first row of a task has the files that it wrote.
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskContext:
    """What every task of a run needs to know."""

    folder: Location
    """Where files of `documents` go."""
    schema: pa.Schema
    run_id: str
    scope: str | None
    settings_hash: str


class ReportedDocuments:
    """The documents of a source, `REPORTED_DOCUMENT`. Most are packed: a source may have millions."""

    def __init__(self) -> None:
        """Without any document."""
        self._packed = [_NO_DOCUMENTS]
        self._rows = list[tuple[str, int, int, bool, bool]]()
        self.num_readable = 0
        """Those that are not bad."""

    def append(self, document_id: str, start: int, stop: int, *, is_bad: bool, is_written: bool) -> None:
        """Adds a document."""
        self._rows.append((document_id, start, stop, is_bad, is_written))
        self.num_readable += not is_bad
        if len(self._rows) == PACKED_ROWS:
            self._pack()

    def array(self) -> pa.StructArray:
        """All of them."""
        self._pack()
        return pa.concat_arrays(self._packed)

    def _pack(self) -> None:
        columns = zip(*self._rows, strict=True) if self._rows else [()] * len(REPORTED_DOCUMENT)
        arrays = [pa.array(values, each.type) for values, each in zip(columns, REPORTED_DOCUMENT, strict=True)]
        self._packed.append(pa.StructArray.from_arrays(arrays, fields=[*REPORTED_DOCUMENT]))
        self._rows.clear()


@dataclass(slots=True, kw_only=True)
class SourceReport:
    """What became of a source."""

    source: str
    content_hash: str | None = None
    kind: str
    reader: str
    losses: list[LossRow] = field(default_factory=list)
    error: str | None = None
    """Why something of it could not be read: the first reason."""
    has_text: bool = True
    """Whether some of its documents have a text."""
    documents: ReportedDocuments = field(default_factory=ReportedDocuments)
    is_unchanged: bool = False
    """Whether its documents stay: its content is that of the last ingest, or can't be fetched now."""
    is_retried: bool = False
    """Whether the next ingest reads it again, even if its version is the same: it could not be fetched now."""

    def add_failure(self, error: str, *, document_id: str) -> None:
        """Keeps that a line or row, or all of the source, can't be read; `document_id` stands for it."""
        place = document_id.removeprefix(self.source).strip(", ")
        self.error = self.error or error
        if len(self.losses) < MAX_LOSSES:
            loss: LossRow = {
                "kind": PartStatus.FAILED,
                "severity": Severity.UNREAD,
                "place": place or None,
                "detail": error,
            }
            self.losses.append(loss)


class TaskReport:
    """Writes the documents of a task, and keeps what it will report."""

    def __init__(self, context: TaskContext, *, old_rows: Mapping[str, int] | None = None) -> None:
        """Starts without any row.

        `old_rows` are the hashes of rows that the table has already, by document id.
        """
        self._context = context
        self._old = old_rows or {}
        self._writer = DocumentWriter(context.folder, schema=context.schema, stem=context.run_id)
        self._sources: list[SourceReport] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._writer.__exit__(kind, error, trace)

    def write(self, row: DocumentValues, *, source: SourceReport, place: tuple[int, int] = (0, 0)) -> None:
        """Adds a document to those of a source, and writes it unless the table has the same row already."""
        is_new = self._old.get(row["document_id"]) != row["row_hash"]
        if is_new:
            self._writer.write({**row, "run_id": self._context.run_id})
        is_bad = row["error_type"] == BAD_FILE
        source.documents.append(row["document_id"], *place, is_bad=is_bad, is_written=is_new)

    def add(self, source: SourceReport) -> None:
        """Reports a source."""
        self._sources.append(source)

    def add_unchanged(self, source: str, *, content_hash: str) -> None:
        """Reports a source whose content is that of the last ingest."""
        self.add(SourceReport(source=source, content_hash=content_hash, kind="", reader="", is_unchanged=True))

    def add_unfetched(
        self, source: str, *, reason: str, content_hash: str | None = None, kind: str = "", reader: str = ""
    ) -> None:
        """Reports a source that can't be fetched now: its documents stay, and the next ingest reads it.

        `kind` and `reader` are for a source that was never read.
        """
        loss: LossRow = {"kind": PartStatus.NOT_READ, "severity": Severity.UNREAD, "place": None, "detail": reason}
        self.add(
            SourceReport(
                source=source,
                content_hash=content_hash,
                kind=kind,
                reader=reader,
                losses=[loss],
                error=reason,
                is_unchanged=True,
                is_retried=True,
            )
        )

    def add_vanished(self, source: SourceReport, error: InputUnreachableError, *, file: DataFile) -> None:
        """Reports a data file that was removed after it was listed.

        Raises:
            InputUnreachableError: the error itself, if it has another reason, or the file is one of a lake's table.
        """
        if file.lake_file is not None or not isinstance(error.__context__, FileNotFoundError):
            raise error
        self.add_unfetched(source.source, reason=str(error), kind=source.kind, reader=source.reader)

    def tables(self) -> Iterator[pa.Table]:
        """The report, once all files are complete; rows of `REPORTS`."""
        rows = [self._row(source, now=datetime.now(UTC)) for source in self._sources]
        if rows:
            rows[0]["files"] = files_table(self._writer.files).to_pylist()
        documents = [source.documents.array() for source in self._sources]
        starts = np.cumsum([0, *map(len, documents)])
        values = pa.concat_arrays([_NO_DOCUMENTS, *documents])
        lists = pa.LargeListArray.from_arrays(pa.array(starts, pa.int64()), values)
        place = REPORTS.get_field_index("documents")
        report = pa.Table.from_pylist(rows, schema=REPORTS.remove(place))
        yield report.add_column(place, REPORTS.field(place), lists)

    def _row(self, source: SourceReport, *, now: datetime) -> dict[str, Any]:
        num_documents = source.documents.num_readable
        return {
            "source": source.source,
            "scope": self._context.scope,
            "version": None,
            "content_hash": source.content_hash,
            "num_bytes": 0,
            "kind": source.kind,
            "reader": source.reader,
            "settings_hash": self._context.settings_hash,
            "num_documents": num_documents,
            "status": "ok" if source.error is None or (num_documents and source.has_text) else "failed",
            "error": source.error,
            "losses": source.losses,
            "run_id": self._context.run_id,
            "ingested_at": now,
            "is_unchanged": source.is_unchanged,
            "is_retried": source.is_retried,
            "files": [],
        }


def pack_rows(rows: pa.Table) -> bytes:
    """Packs a small table that a task takes along; `unpack_rows` reads it."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(rows)
    return bytes(sink.getvalue())


def unpack_rows(packed: bytes) -> pa.Table:
    """Returns the table that `pack_rows` packed."""
    return pa.ipc.open_stream(packed).read_all()


def read_old_rows(packed: bytes) -> dict[str, int]:
    """Row hashes of packed `OLD_ROWS`, by document id."""
    if not packed:
        return {}
    rows = unpack_rows(packed)
    return dict(zip(rows["document_id"].to_pylist(), rows["row_hash"].to_pylist(), strict=True))
