"""Documents of many rows (`input.order_columns`): pages or messages, which may lie in several sources.

Tasks of a first kind read the sources and write the rows to temporary files, in row groups for each bucket of document
ids. Tasks of a second kind join the rows of one bucket, with those parts of stored documents whose sources have not
changed.
"""

import json
import zlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Self
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.data.documents.data_files import (
    DataFile,
    id_column,
    shown_columns,
    template_columns,
    text_column,
    why_unreadable,
)
from memagent_batch.data.documents.formats.records import ColumnKind, InputColumn, Presence, Record, Value
from memagent_batch.data.documents.scope import is_in_slice
from memagent_batch.data.ingest.changes import place_of
from memagent_batch.data.ingest.columns import StoredColumn
from memagent_batch.data.ingest.document_files import read_row_groups
from memagent_batch.data.ingest.part_order import order_rows
from memagent_batch.data.ingest.report import REPORTS, SourceReport, TaskContext, TaskReport
from memagent_batch.data.ingest.row_tasks import RowSettings, RowTask, bad_id, file_records, new_report, task_files
from memagent_batch.data.ingest.rows import BAD_FILE, DocumentValues, Origin, failed_row, joined_row
from memagent_batch.data.ingest.tables import PartRow
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.masking import mask_urls

HELD_CHARS = 64 << 20
"""Text that a task holds until it writes it to its temporary file, characters."""
_TEXT = pa.large_string()
PART_ROWS = pa.schema(
    [
        pa.field("document_id", _TEXT, nullable=False),
        pa.field("source", _TEXT, nullable=False),
        pa.field("kind", pa.string(), nullable=False),
        pa.field("start", pa.int64()),
        pa.field("stop", pa.int64()),
        pa.field("text", _TEXT),
        pa.field("locator", _TEXT),
        pa.field("order", pa.list_(_TEXT)),
        pa.field("error", _TEXT),
        pa.field("is_bad", pa.bool_(), nullable=False),
    ]
)
"""Rows of documents, as they were read; the columns of the input that `documents` holds follow."""


PART_GROUPS = pa.schema(
    [pa.field("path", pa.string()), pa.field("bucket", pa.int64()), pa.field("row_group", pa.int64())]
)
"""The row groups of temporary files, and the bucket that each has rows of."""
READ_PARTS = pa.schema([*REPORTS, pa.field("groups", pa.list_(pa.struct(PART_GROUPS)))])
"""Reports of tasks that read parts; `documents` are those that have rows in the source, without files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinTask:
    """The documents of one bucket."""

    groups: tuple[tuple[str, int], ...]
    """Temporary files, and row groups of them."""
    stored: tuple[tuple[str, tuple[str, ...]], ...]
    """Files of `documents`, and the ids of those of their documents of which something has changed."""
    changed_sources: frozenset[str]
    """Sources whose parts in these stored documents count no more: they were read again, or are gone."""


def bucket_of(document_id: str, num_buckets: int) -> int:
    """The bucket of a document, the same on every machine."""
    return zlib.crc32(document_id.encode("utf-8", "surrogatepass")) % num_buckets


def read_parts(
    task: RowTask, *, context: TaskContext, settings: RowSettings, folder: Location, num_buckets: int
) -> Iterator[pa.Table]:
    """Reads the rows of data files and writes them to a temporary file in `folder`; yields the report, `READ_PARTS`."""
    report = TaskReport(context)
    schema = pa.schema([*PART_ROWS, *(pa.field(each.stored, each.type) for each in settings.columns)])
    with PartWriter(folder, schema=schema, num_buckets=num_buckets) as writer:
        for file in task_files(task, settings=settings):
            source, ids = new_report(file), dict[str, bool]()
            try:
                for row in _file_parts(file, settings=settings):
                    ids[row["document_id"]] = row["is_bad"]
                    if row["is_bad"]:
                        source.add_failure(row["error"], document_id=row["document_id"])
                    writer.write(row)
            except InputUnreachableError as error:
                report.add_vanished(source, error, file=file)
                continue
            for document_id, is_bad in ids.items():
                source.documents.append(document_id, 0, 0, is_bad=is_bad, is_written=False)
            report.add(source)
    for rows in report.tables():
        first = [writer.groups] + [[]] * (rows.num_rows - 1)
        yield rows.append_column("groups", pa.array(first, READ_PARTS.field("groups").type)).cast(READ_PARTS)


def _file_parts(file: DataFile, *, settings: RowSettings) -> Iterator[dict[str, Any]]:
    for record in file_records(file, settings=settings.input, columns=_part_columns(settings)):
        start, stop = record.place
        row = {"source": file.name, "kind": file.format.value, "start": start, "stop": stop}
        if record.error is not None:
            yield {**row, "document_id": bad_id(record, file), "error": mask_urls(record.error), "is_bad": True}
        elif is_in_slice(settings.input, str(record.values[0])):
            yield {**row, **_part(record, settings)}


def _part(record: Record, settings: RowSettings) -> dict[str, Any]:
    num_columns, num_order = len(settings.columns), len(settings.input.order_columns)
    document_id, text, *others = record.values
    columns, others = others[:num_columns], others[num_columns:]
    order, shown = others[:num_order], others[num_order:]
    header, locator = _shown_texts(shown, settings.input)
    reason = "" if isinstance(text, str) else why_unreadable(text)
    return {
        "document_id": str(document_id),
        "text": None if reason else f"{header}\n{text}" if settings.input.header else text,
        "locator": locator or None,
        "order": [*map(str, order)],
        "error": mask_urls(f"{record.where}: {reason}") if reason else None,
        "is_bad": False,
        **{column.stored: value for column, value in zip(settings.columns, columns, strict=True)},
    }


def _shown_texts(shown: Sequence[Value], settings: InputConfig) -> tuple[str, str]:
    """Header and locator of a row, filled with the values of `shown_columns`."""
    templates = settings.header or "", settings.locator or ""
    names = [name for template in templates for name in template_columns(template)]
    values = dict(zip(names, (value if isinstance(value, str) else "" for value in shown), strict=True))
    header, locator = (template.format_map(values) for template in templates)
    return header, locator


def _part_columns(settings: RowSettings) -> list[InputColumn]:
    """The columns of a row that is a part of a document."""
    order = [
        InputColumn(name=name, kind=ColumnKind.ORDER, presence=Presence.EVERY, setting="input.order_columns")
        for name in settings.input.order_columns
    ]
    stored = [column.to_read() for column in settings.columns]
    return [id_column(settings.input), text_column(settings.input), *stored, *order, *shown_columns(settings.input)]


class PartWriter:
    """Writes rows of documents to one temporary file: each row group has rows of one bucket."""

    def __init__(self, folder: Location, *, schema: pa.Schema, num_buckets: int) -> None:
        self.groups: list[dict[str, Any]] = []
        """`PART_GROUPS`."""
        self._folder, self._schema, self._num_buckets = folder, schema, num_buckets
        self._name = f"{uuid4().hex}.parquet"
        self._rows: dict[int, list[dict[str, Any]]] = {}
        self._num_chars = 0

    def __enter__(self) -> Self:
        self._file = NamedTemporaryFile(prefix="memagent-", suffix=".parquet")
        self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: object) -> None:
        self._flush()
        self._writer.close()
        with self._file:
            self._file.flush()
            if kind is None and self.groups:
                (self._folder / self._name).write_file(Path(self._file.name))

    def write(self, row: dict[str, Any]) -> None:
        """Adds a row."""
        self._rows.setdefault(bucket_of(row["document_id"], self._num_buckets), []).append(row)
        self._num_chars += len(row.get("text") or "")
        if self._num_chars > HELD_CHARS:
            self._flush()

    def _flush(self) -> None:
        for bucket, rows in sorted(self._rows.items()):
            self.groups.append({"path": self._name, "bucket": bucket, "row_group": len(self.groups)})
            self._writer.write_table(pa.Table.from_pylist(rows, schema=self._schema), row_group_size=len(rows))
        self._rows, self._num_chars = {}, 0


def join_parts(
    task: JoinTask, *, context: TaskContext, settings: RowSettings, folder: Location, root: Location
) -> Iterator[pa.Table]:
    """Joins the rows of the documents of one bucket and writes these; yields a report, whose one row is no source.

    Raises:
        InputError: the rows of a document can't be put in order, and bad files are not recorded.
    """
    rows = _new_parts(task, folder)
    old_hashes = dict[str, int]()
    for stored in _stored_documents(task, context.folder):
        old_hashes[stored["document_id"]] = stored["row_hash"]
        kept = _stored_parts(stored, without=task.changed_sources, columns=settings.columns)
        if kept:
            rows.setdefault(stored["document_id"], []).extend(kept)
    source = SourceReport(source="", kind="", reader="")
    with TaskReport(context, old_rows=old_hashes) as report:
        for document_id in sorted(rows):
            for row in _joined(document_id, rows.pop(document_id), settings=settings, root=root):
                report.write(row, source=source)
        report.add(source)
    yield from report.tables()


def _new_parts(task: JoinTask, folder: Location) -> dict[str, list[dict[str, Any]]]:
    """The rows of temporary files, by document."""
    found: dict[str, list[dict[str, Any]]] = {}
    for path, groups in groupby(sorted(task.groups), key=itemgetter(0)):
        for rows in read_row_groups(folder / path, groups=[group for _, group in groups]):
            for row in rows.to_pylist():
                found.setdefault(row["document_id"], []).append(row)
    return found


def _stored_documents(task: JoinTask, folder: Location) -> Iterator[dict[str, Any]]:
    """The rows of `documents` that are joined with new rows."""
    for path, ids in task.stored:
        wanted = pa.array(ids, _TEXT)
        for rows in read_row_groups(folder / path):
            names = rows["document_id"]
            yield from rows.filter(pc.is_in(names, value_set=wanted.cast(names.type))).to_pylist()


def _stored_parts(
    stored: Mapping[str, Any], *, without: frozenset[str], columns: Sequence[StoredColumn]
) -> list[dict[str, Any]]:
    """The parts of a stored document whose sources have not changed, as rows that are read have them.

    Those of a document without a text have its error: its other sources are outside the part that the job covers.
    """
    own = {column.stored: stored.get(column.stored) for column in columns}
    return [
        {
            "document_id": stored["document_id"],
            "source": part["source"],
            "kind": "",
            "start": None,
            "stop": None,
            "text": (stored["text"] or "")[part["char_start"] : part["char_end"]],
            "locator": part["locator"],
            "order": json.loads(part["order"] or "[]"),
            "error": stored["error"],
            "is_bad": False,
            **(own if part["carried"] is None else _unpacked(part["carried"], columns)),
        }
        for part in stored["parts"]
        if part["source"] not in without
    ]


def _joined(
    document_id: str, rows: list[dict[str, Any]], *, settings: RowSettings, root: Location
) -> Iterator[DocumentValues]:
    """The document of some rows of one id; files and lines that can't be read stand for themselves."""
    for row in rows:
        if row["is_bad"]:
            part = _part_row(row, carried=None)
            origin = Origin(source=row["source"])
            yield failed_row(document_id, row["error"], origin=origin, error_type=BAD_FILE, parts=[part])
    rows = [row for row in rows if not row["is_bad"]]
    if not rows:
        return
    error = None
    rows.sort(key=lambda row: (row["source"], row["start"] or 0, row["stop"] or 0))
    try:
        order = order_rows(
            [row["order"] for row in rows],
            names=settings.input.order_columns,
            document_id=document_id,
            place_of=lambda number: place_of(rows[number], root=root),
        )
        rows = [rows[number] for number in order]
    except InputError as fault:
        if settings.input.on_bad_file == OnBadFile.FAIL:
            raise
        error = str(fault)
    error = error or next((row["error"] for row in rows if row["error"] is not None), None)
    first = {column.stored: rows[0][column.stored] for column in settings.columns}
    parts = [_part_row(row, carried=_packed(row, first)) for row in rows]
    origin = Origin(source=rows[0]["source"])
    if error is not None:
        yield failed_row(document_id, error, origin=origin, columns=first, parts=parts)
        return
    texts = [row["text"] for row in rows]
    max_bytes = settings.input.max_document_bytes
    yield joined_row(document_id, [*zip(texts, parts, strict=True)], origin=origin, columns=first, max_bytes=max_bytes)


def _part_row(row: Mapping[str, Any], *, carried: str | None) -> PartRow:
    return {
        "source": row["source"],
        "locator": row["locator"],
        "char_start": 0,
        "char_end": 0,
        "order": json.dumps(row["order"], ensure_ascii=False) if row["order"] else None,
        "carried": carried,
    }


def _packed(row: Mapping[str, Any], first: Mapping[str, Any]) -> str | None:
    """The columns of a row as JSON; None if they are those of the first row."""
    values = {name: row[name] for name in first}
    return None if values == first else json.dumps(values, default=str, ensure_ascii=False)


def _unpacked(packed: str, columns: Sequence[StoredColumn]) -> dict[str, Any]:
    values = json.loads(packed)
    return {column.stored: _typed(values.get(column.stored), column.type) for column in columns}


def _typed(value: Any, type_: pa.DataType) -> Any:
    is_text = isinstance(value, str) and not pa.types.is_string(type_)
    return pa.scalar(value).cast(type_).as_py() if is_text else value
