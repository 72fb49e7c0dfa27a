"""The index of the documents: what a plan needs of each document of an output, without its text.

It is read of the table `documents` (`stored.py`), and is checked and sampled here.
"""

import logging
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, TypedDict, cast

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.ingest.losses import describe_losses
from memagent_batch.data.ingest.readers.converter import Severity
from memagent_batch.data.store.columns import Column, arrow_schema, column
from memagent_batch.data.store.database import filter_to_disk, run_query
from memagent_batch.errors import BadFileError, DocumentMissingError, InputError, SourceUnreadError
from memagent_batch.logs import EventKind
from memagent_batch.loop.texts.shares import quantity

log = logging.getLogger(__name__)

CARRY_PREFIX = "carry:"
"""Goes before the names of carried columns in the index, so that they can't collide with its own."""
_TEXT = pa.large_string()
"""A column of all documents may hold more than 2 GiB, which other strings can't."""
MISSING_DOCUMENT = DocumentMissingError.__name__
"""`error_type` of rows that stand for documents which are not there."""
BAD_FILE = BadFileError.__name__
"""`error_type` of rows that stand for files or records which can't be read."""
UNREAD_SOURCE = SourceUnreadError.__name__
"""`error_type` of documents whose source has no part that could be read."""
_MISSING_ERROR = (
    "a question is bound to this document_id, and no document has it; correct the id, put the document back, or take "
    "the question off the list"
)
_SAMPLED = """
select row from documents order by sha256($seed || '|' || coalesce(document_hash, document_id)), document_id
limit $limit
"""
"""By `permanent_number`."""
_SHOWN_NAMES = 5
_LEFT_OUT = (
    "a text file beside Parquet, JSONL, CSV or Arrow files is read only where `documents` names it, by its path or a "
    "glob such as '**/*.txt', or with input.format text; a file whose name begins with ., _ or ~$ never"
)
SOURCE_READ, SOURCE_UNREAD = "source_read", "source_unread"
SOURCE_NOTES, SOURCE_REVIEW = "source_notes", "source_review"
SOURCE_COLUMNS = pa.schema(
    [
        column(
            "source",
            pa.string(),
            "file of the document, or the first of several; null for a row of a table",
            nullable=True,
        ),
        column("source_hash", pa.string(), "SHA-256 of its bytes; null for a row of a table", nullable=True),
        column(SOURCE_READ, pa.float64(), "share of its parts and attachments that were read", unit="0 to 1"),
        column(
            SOURCE_UNREAD,
            pa.string(),
            "what of it was not read, or may be wrong, and why; else null",
            nullable=True,
        ),
        column(SOURCE_NOTES, pa.string(), "notes on its text; else null", nullable=True),
        column(
            SOURCE_REVIEW,
            pa.string(),
            "the part of `source_unread` that was read but may be wrong; else null",
            nullable=True,
        ),
    ]
)
"""Columns of `answers` behind its own, before the carried ones."""
UNREAD_JOIN = "; "
_SEVERITIES: Mapping[str, Collection[str]] = {
    SOURCE_UNREAD: (Severity.UNREAD, Severity.UNCERTAIN),
    SOURCE_NOTES: (Severity.FORMAT,),
    SOURCE_REVIEW: (Severity.UNCERTAIN,),
}


class IndexRow(TypedDict):
    """One row for each document. Columns of its source and carried columns follow, named `carry:<name>`."""

    document_id: Annotated[str, _TEXT, Column("unique id of the document")]
    document_hash: Annotated[str | None, _TEXT, Column("SHA-256 of the text, null on error")]
    num_bytes: Annotated[int, Column("size of the text in UTF-8, bytes; 0 on error")]
    error: Annotated[str | None, _TEXT, Column("why the text can't be read")]
    error_type: Annotated[str | None, _TEXT, Column("kind of that error; null for a `DocumentError`")]
    parts_hash: Annotated[int | None, Column("hash of the spans and locators of its parts; null for a missing one")]
    file: Annotated[str | None, _TEXT, Column("file of the table `documents`; null for a document that is missing")]
    row_group: Annotated[int | None, pa.int32(), Column("row group of the file, from 0")]
    row: Annotated[int | None, pa.int32(), Column("row of the row group, from 0")]


INDEX_SCHEMA = arrow_schema(IndexRow)


def source_columns(documents: pa.Table) -> pa.Table:
    """Returns the columns of `answers` for rows of `documents`, with the names that they have in an index.

    Args:
        documents: The columns source, source_hash, reader, source_read and losses.
    """
    columns = {name: documents[name] for name in ("source_hash", SOURCE_READ)}
    # the data file of a row is no property of the document: a table that is compacted has other files
    columns["source"] = pc.if_else(pc.is_valid(documents["reader"]), documents["source"], None)
    rows = pc.indices_nonzero(pc.greater(pc.list_value_length(documents["losses"]), 0))
    losses = dict(zip(rows.to_pylist(), documents["losses"].take(rows).to_pylist(), strict=True))
    for name, severities in _SEVERITIES.items():
        words: list[str | None] = [None] * documents.num_rows
        for row, of_row in losses.items():
            words[row] = describe_losses(of_row, severities=severities)
        columns[name] = pa.array(words, pa.string())
    return pa.table({CARRY_PREFIX + name: columns[name] for name in SOURCE_COLUMNS.names})


def index_row(document_id: str, **values: Any) -> IndexRow:
    """A row with the values of some columns; without any others it stands for no text."""
    return cast("IndexRow", {"document_id": document_id, "num_bytes": 0, **values})


def with_missing(index: pa.Table, document_ids: Sequence[str]) -> pa.Table:
    """The index with a row for each document that questions are bound to and that is not there."""
    rows = [index_row(name, error=_MISSING_ERROR, error_type=MISSING_DOCUMENT) for name in document_ids]
    return pa.concat_tables([index, pa.Table.from_pylist(rows, schema=index.schema)])


def is_there(table: pa.Table) -> pa.ChunkedArray:
    """Which rows of an index, or of a plan made of it, stand for what was found: all but documents that are missing."""
    return pc.not_equal(pc.fill_null(table["error_type"], ""), MISSING_DOCUMENT)


def is_document(table: pa.Table) -> pa.ChunkedArray:
    """Which rows stand for documents: not for missing ones, nor for files that can't be read."""
    return pc.invert(pc.is_in(table["error_type"], pa.array([MISSING_DOCUMENT, BAD_FILE])))


def require_readable(index: pa.Table) -> None:
    """Refuses an index in which no file could be read: more likely a wrong column or format than a broken lake.

    Raises:
        InputError: says why the first one can't be.
    """
    bad = pc.equal(index["error_type"], BAD_FILE)
    if pc.sum(bad).as_py() == index.num_rows:
        raise InputError(f"documents: none of the {index.num_rows} files or rows can be read: {index['error'][0]}")


def require_carry_columns(settings: InputConfig, *, reserved: Collection[str]) -> None:
    """Refuses columns to carry that can't stand in `answers`.

    Raises:
        InputError: a name is taken, or given twice, or is the text's.
    """
    for name in settings.carried.values():
        if name in reserved:
            raise InputError(
                f"input.carry_columns: `answers` has a column {name!r} of its own; rename yours with input.carry"
            )
        if settings.carry_columns.count(name) > 1:
            raise InputError(f"input.carry_columns names {name!r} twice; once is enough")
        if name == settings.text_column:
            raise InputError(f"input.carry_columns: {name!r} is the text itself, which is not carried; leave it out")


@dataclass(frozen=True, slots=True, kw_only=True)
class SampledDocuments:
    """An index of documents in two: both are tables of an index, in the order of the whole."""

    taken: pa.Table
    outside: pa.Table | None
    """The documents that were not taken; None if the run takes all."""


def documents_named(index: pa.Table, document_ids: pa.Array) -> SampledDocuments:
    """The documents of these ids, for a second pass."""
    is_named = pc.is_in(index["document_id"], document_ids.cast(index.schema.field("document_id").type))
    return split_documents(index, is_named)


def split_documents(index: pa.Table, is_taken: pa.ChunkedArray) -> SampledDocuments:
    """The documents for which a mask is true, and the others."""
    return SampledDocuments(taken=filter_to_disk(index, is_taken), outside=filter_to_disk(index, pc.invert(is_taken)))


def sample_documents(index: pa.Table, *, limit: int | None, seed: int) -> SampledDocuments:
    """The documents with the smallest permanent random numbers, of seed and document hash.

    A text that can't be read has no hash; its document_id stands for it. Of equal texts the first ids are taken.
    """
    if limit is None:
        return SampledDocuments(taken=index, outside=None)
    documents = index.select(["document_id", "document_hash"]).append_column("row", pa.array(np.arange(index.num_rows)))
    rows = run_query(_SAMPLED, {"documents": documents}, seed=str(seed), limit=limit)["row"].to_numpy()
    is_taken = np.zeros(index.num_rows, bool)
    is_taken[rows] = True
    return split_documents(index, pa.chunked_array([is_taken]))


def log_documents(index: pa.Table, *, num_sources: int, left_out: Sequence[str]) -> None:
    """Logs how many documents there are, of how many files, and which files were left out."""
    num_documents = int(pc.sum(is_document(index), min_count=0).as_py())
    fields = {
        "num_documents": num_documents,
        "num_files": num_sources,
        "left_out": list(left_out[:_SHOWN_NAMES]),
        "num_left_out": len(left_out),
    }
    line = f"{quantity(num_documents, 'document')} from {quantity(num_sources, 'file')}"
    if left_out:
        line += f"; left out: {_quoted(left_out)} ({_LEFT_OUT})"
    log.info(line, extra={"event": EventKind.DOCUMENTS_FOUND, **fields})


def warn_of_bad_files(index: pa.Table) -> None:
    """Names the first files and records that can't be read."""
    bad = index.filter(pc.equal(index["error_type"], BAD_FILE))["document_id"].to_pylist()
    if not bad:
        return
    message = f"files, lines or rows that can't be read: {_quoted(bad)}; each has a failed row for each question that "
    fields = {"num_files": len(bad), "names": bad[:_SHOWN_NAMES]}
    log.warning(f"{message}is asked of every document", extra={"event": EventKind.FILES_UNREADABLE, **fields})


def warn_of_missing(document_ids: Sequence[str]) -> None:
    """Names the first documents that questions are bound to and that are not there."""
    if not document_ids:
        return
    message = f"documents that questions are bound to and that are not there: {_quoted(document_ids)}; their rows are "
    fields = {"num_documents": len(document_ids), "document_ids": list(document_ids[:_SHOWN_NAMES])}
    log.warning(f"{message}failed", extra={"event": EventKind.DOCUMENTS_MISSING, **fields})


def _quoted(names: Sequence[str]) -> str:
    shown = ", ".join(repr(name) for name in names[:_SHOWN_NAMES])
    return shown if len(names) <= _SHOWN_NAMES else f"{shown} and {len(names) - _SHOWN_NAMES:,} more"
