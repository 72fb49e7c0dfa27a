"""The tables `sources` and `documents` of an output: what ingest writes, and all that a run reads of its input."""

from datetime import datetime
from typing import Annotated, TypedDict

import pyarrow as pa

from memagent_batch.data.ingest.readers.converter import NOTE, PartStatus
from memagent_batch.data.store.columns import Column, arrow_schema

SOURCES_TABLE, DOCUMENTS_TABLE = "sources", "documents"
LOSS_KINDS = f"{', '.join(status for status in PartStatus if status is not PartStatus.OK)} or {NOTE}"


class LossRow(TypedDict):
    """Something of a source that is not in the text, or not as it should be."""

    kind: Annotated[str, Column(LOSS_KINDS)]
    severity: Annotated[str, Column("unread, uncertain or format")]
    place: Annotated[str | None, Column("place in the source, such as page 3; null for all of it")]
    detail: Annotated[str, Column("why, and what to do")]


class PartRow(TypedDict):
    """A page, message, section or row of a document."""

    source: Annotated[str, Column("its source, as in `sources.source`")]
    locator: Annotated[str | None, Column("place in the source: page 3, or by `input.locator`")]
    char_start: Annotated[int, Column("its first character in the text", "code points")]
    char_end: Annotated[int, Column("the character after its last", "code points")]
    order: Annotated[str | None, Column("values of `input.order_columns`, as JSON")]
    carried: Annotated[str | None, Column("carried columns of its row that differ from the document's, as JSON")]


class MetadataRow(TypedDict):
    """What the file of a document says of itself, and the family that it belongs to."""

    family_id: Annotated[str | None, Column("id of the outermost file that contains it, else its own id")]
    content_hash: Annotated[str | None, Column("SHA-256 of its bytes; null if not all were read")]
    author: Annotated[str | None, Column("who wrote it; of mail, the sender")]
    created_at: Annotated[datetime | None, Column("when it was made, UTC; of mail, when it was sent")]
    modified_at: Annotated[datetime | None, Column("when it was last changed, UTC")]
    message_id: Annotated[str | None, Column("of mail: Message-ID, without brackets")]
    answers_id: Annotated[str | None, Column("of mail: In-Reply-To")]
    thread_id: Annotated[str | None, Column("of mail: first of References, else In-Reply-To, else Message-ID")]


class SourceRow(TypedDict):
    """One row for each source file, or data file of a lake table, and each scope that it was read with."""

    source: Annotated[str, Column("path below the folder of the documents, or URI")]
    scope: Annotated[str | None, Column("`input.where` and `input.slice` of the job; null for all documents")]
    version: Annotated[str | None, Column("ETag, or size and times; null if the store has neither")]
    content_hash: Annotated[str | None, Column("SHA-256 of its bytes; null if not all were read")]
    num_bytes: Annotated[int, Column("size", "bytes")]
    kind: Annotated[str, Column("parquet, jsonl, csv, pdf, docx, email, ...")]
    reader: Annotated[str, Column("converters and their versions; a new version reads it again")]
    settings_hash: Annotated[str, Column("hash of the settings that determine what is read")]
    num_documents: Annotated[int, Column("documents with a part of it", "documents")]
    status: Annotated[str, Column("ok, or failed if nothing could be read")]
    error: Annotated[str | None, Column("why it could not be read")]
    losses: Annotated[list[LossRow], Column("what the text of its documents lacks, or may have wrong")]
    run_id: Annotated[str, Column("ingest that wrote this row")]
    ingested_at: Annotated[datetime, Column("when it did")]


class DocumentRow(TypedDict):
    """One row for each document. Carried columns follow, with their own types."""

    document_id: Annotated[str, Column("unique id of the document")]
    text: Annotated[str | None, pa.large_string(), Column("the text; null if it can't be read")]
    text_hash: Annotated[str | None, Column("SHA-256 of the text in UTF-8, hex; null if there is none")]
    num_bytes: Annotated[int, Column("size of the text in UTF-8; 0 without a text", "bytes")]
    parts: Annotated[list[PartRow], Column("pages, messages, sections or rows of the text, in order")]
    losses: Annotated[list[LossRow], Column("what the text lacks of its sources, or may have wrong")]
    source: Annotated[str, Column("the source, or the first of several")]
    source_hash: Annotated[str | None, Column("SHA-256 of that source")]
    reader: Annotated[str | None, Column("converter of the source")]
    source_read: Annotated[
        float, Column("share of its parts and attachments that was read, times that of its words", "0 to 1")
    ]
    error: Annotated[str | None, Column("why there is no text")]
    error_type: Annotated[str | None, Column("DocumentError, BadFileError or SourceUnreadError")]
    metadata: Annotated[MetadataRow | None, Column("author, dates and family of its file")]
    run_id: Annotated[str, Column("ingest that wrote this row")]
    parts_hash: Annotated[int, Column("hash of the spans and locators of its parts")]
    row_hash: Annotated[int, Column("hash of the row without `reader` and `run_id`")]


SOURCES = arrow_schema(SourceRow)
DOCUMENTS = arrow_schema(DocumentRow)
