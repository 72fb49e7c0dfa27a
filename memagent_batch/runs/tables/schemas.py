"""Schemas of the tables `answers`, `evidence` and `memories`, and their rows."""

from typing import TypedDict

import pyarrow as pa

from memagent_batch.files.columns import column
from memagent_batch.log.schemas import (
    CLOSING,
    DOCUMENT_HASH,
    KIND,
    PROVENANCE,
    QUESTION_HASH,
    READER_FINGERPRINT,
    RESULT,
    RUN_ID,
    SAMPLE,
    SPAN,
    STATUS,
    ClosingColumns,
    ResultRow,
    TurnRow,
)

DOCUMENT_ID = column("document_id", pa.string(), "unique id of the document")
QUESTION_ID = column("question_id", pa.string(), "id of the question")
QUESTION = column("question", pa.string(), "text of the question")
ANSWERS = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        QUESTION,
        STATUS,
        column("answer", pa.string(), "the answer taken out of the response", nullable=True),
        *RESULT,
        DOCUMENT_HASH.with_nullable(True),
        QUESTION_HASH,
        READER_FINGERPRINT,
        *PROVENANCE,
        column(
            "answer_type",
            pa.string(),
            "type that the question asks for: text, bool, label, labels, number, date, json; null where for none",
            nullable=True,
        ),
        column("value_unit", pa.string(), "unit that `value_number` is asked for in", nullable=True),
        *CLOSING,
        column(
            "votes",
            pa.float64(),
            "share of all samples of this document and question, failed ones included, that have the same value, 0 to "
            "1; null where there is one sample, or no valid value",
            nullable=True,
        ),
        column(
            "num_evidence",
            pa.int32(),
            "rows of `evidence` that are chosen sentences; null where they were not asked for, or the turn failed",
            unit="rows",
            nullable=True,
        ),
    ]
)
"""One row for each reading that was asked for; carried input columns follow."""
LOCATOR = column(
    "locator",
    pa.string(),
    "where the span stood in its source, by `input.locator`: page 3, or page 3 to page 4; null where there is no "
    "locator, or the text could not be fetched",
    nullable=True,
)
EVIDENCE = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column(
            "how",
            pa.string(),
            "chosen: a sentence that the model pointed at by its number; aligned: a string of the answer that was "
            "looked for in the text",
        ),
        column("rank", pa.int32(), "position among the rows of the same `how`, from 1; the best first where chosen"),
        column(
            "char_start",
            pa.int64(),
            "first character of the span in the text as stored, in which a CRLF is two; null where an aligned string "
            "is nowhere",
            unit="code points",
            nullable=True,
        ),
        column("char_end", pa.int64(), "character after its last one", unit="code points", nullable=True),
        column("text", pa.string(), "the span's text, character for character", nullable=True),
        column(
            "chunk_index",
            pa.int32(),
            "the first chunk that shows the sentence, from 0; null for policies without chunks, and where aligned",
            nullable=True,
        ),
        LOCATOR,
        column(
            "alignment",
            pa.string(),
            "how the string equals the span: exact, folded (but for case, width, white space), fuzzy, or none; a "
            "chosen sentence is exact",
        ),
        column("quote", pa.string(), "the string as the answer has it; null for a chosen sentence", nullable=True),
        DOCUMENT_HASH,
        QUESTION_HASH,
        READER_FINGERPRINT,
    ]
)
"""One row for each sentence that an answer rests on, and for each string of the answer that was looked for."""
MEMORIES = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("turn", pa.int32(), "position of the turn in its reading, from 0, in the order of reading"),
        KIND,
        *SPAN,
        LOCATOR,
        column(
            "memory",
            pa.string(),
            "the memory after this turn, as the next prompt shows it; for a turn that writes a note, the note",
        ),
        column(
            "changed",
            pa.bool_(),
            "whether this turn changed the memory, or its note has news; a gated policy keeps the memory by a word",
        ),
        column("num_tokens", pa.int32(), "completion of the turn, without thoughts that an API hides", unit="tokens"),
        column("finish_reason", pa.string(), "why the completion ended: stop or length"),
        DOCUMENT_HASH,
        QUESTION_HASH,
        READER_FINGERPRINT,
    ]
)
"""One row for each turn of each reading: which span of the document put what into the memory."""


class AnswerRow(ResultRow, ClosingColumns):
    """A row of `ANSWERS`."""

    run_id: str
    document_id: str
    question_id: str
    sample: int
    question: str
    answer: str | None
    document_hash: str | None
    question_hash: str
    reader_fingerprint: str
    answer_type: str | None
    value_unit: str | None
    votes: float | None
    num_evidence: int | None


class EvidenceRow(TypedDict):
    """A row of `EVIDENCE`."""

    run_id: str
    document_id: str
    question_id: str
    sample: int
    how: str
    rank: int
    char_start: int | None
    char_end: int | None
    text: str | None
    chunk_index: int | None
    locator: str | None
    alignment: str
    quote: str | None
    document_hash: str
    question_hash: str
    reader_fingerprint: str


class MemoryRow(TurnRow):
    """A row of `MEMORIES`, with what else its turn has in the log."""

    document_id: str
    question_id: str
    locator: str | None
    memory: str
    changed: bool
