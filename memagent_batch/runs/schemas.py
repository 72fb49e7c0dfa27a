"""Schemas of the tables and of the record of a run."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

import pyarrow as pa

from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.reasons import Reason
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
from memagent_batch.runs.causes import AnswerChange, Cause
from memagent_batch.runs.record.seal import FileHash

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
            "share of the samples of this document and question that have the same value, 0 to 1; null where there is "
            "one sample, or no valid value",
            nullable=True,
        ),
        column(
            "num_evidence",
            pa.int32(),
            "rows of `evidence` that are chosen sentences; null where they were not asked for, or the turn failed",
            unit="rows",
            nullable=True,
        ),
        column(
            "tier",
            pa.int32(),
            "whose answer this is: 1 for the reader of all, 2 for the second one; null where `escalate` is off",
            nullable=True,
        ),
        column(
            "escalated_because",
            pa.string(),
            "why the first reader's answer was doubtful, so that it is looked at again: " + ", ".join(Doubt),
            nullable=True,
        ),
        column(
            "escalation_error",
            pa.string(),
            "why the second reader has no answer that can be used, so that the first one's stands",
            nullable=True,
        ),
        column(
            "first_value",
            pa.string(),
            "`value` of the first reader, where the answer is the second one's",
            nullable=True,
        ),
        column("first_confidence", pa.float64(), "`confidence` of the same", nullable=True),
        column(
            "needs_review",
            pa.bool_(),
            "whether the answer is doubtful and no reader is left, so that a person must look; null where `escalate` "
            "is off",
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
        column("num_tokens", pa.int32(), "completion of the turn", unit="tokens"),
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
    tier: int | None
    escalated_because: str | None
    escalation_error: str | None
    first_value: str | None
    first_confidence: float | None
    needs_review: bool | None


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


REMOVED = pa.schema(
    [
        DOCUMENT_ID,
        DOCUMENT_HASH.with_nullable(True),
        column("last_run_id", pa.string(), "the last finished run that found it"),
        column("removed_run_id", pa.string(), "the first finished run that did not"),
    ]
)
"""One row for each document that an earlier run found in the input and the latest did not."""

RUN_PLAN = pa.schema(
    [
        DOCUMENT_ID,
        DOCUMENT_HASH.with_nullable(True),
        column("error", pa.string(), "why its text can't be read", nullable=True),
        column("error_type", pa.string(), "kind of that error; null for a `DocumentError`", nullable=True),
        column(
            "readings",
            pa.list_(
                pa.struct(
                    [
                        pa.field("question", pa.int32(), nullable=False),
                        pa.field("sample", pa.int32(), nullable=False),
                        pa.field("run_id", pa.string()),
                        pa.field("tier", pa.int32()),
                    ]
                )
            ),
            "what was asked of it: row of the question list, sample, the run that read it, if one did, and the tier of "
            "its answer; null where `escalate` was off",
        ),
    ]
)
"""One row for each document of a run; carried input columns follow, named `carry:<name>`."""

ANSWER_GIVEN = [
    QUESTION,
    STATUS,
    column("answer", pa.string(), "the answer taken out of the response"),
    column("memory", pa.string(), "memory that the answer was given from"),
    column("error_message", pa.string(), "where and why it failed"),
    column("run_id", pa.string(), "the run that read it; null where none could or did"),
]
"""What a run has to say of a reading; all null where it did not ask for it."""

DIFFERENCES = pa.schema(
    [
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("change", pa.string(), "what became of the row of `answers`: " + ", ".join(AnswerChange)),
        column("why", pa.list_(pa.string()), "what is new, other or gone: " + ", ".join(Cause)),
        *[
            field.with_name(f"{field.name}_{side}").with_nullable(True)
            for field in ANSWER_GIVEN
            for side in ("before", "after")
        ],
    ]
)
"""One row for each reading that has another answer or status in one of two runs, or that only one of them asked for."""


class DifferenceRow(TypedDict):
    """A row of `DIFFERENCES`."""

    document_id: str
    question_id: str
    sample: int
    change: str
    why: list[str]
    question_before: str | None
    question_after: str | None
    status_before: str | None
    status_after: str | None
    answer_before: str | None
    answer_after: str | None
    memory_before: str | None
    memory_after: str | None
    error_message_before: str | None
    error_message_after: str | None
    run_id_before: str | None
    run_id_after: str | None


_REASONS = pa.list_(
    pa.struct([("error_type", pa.string()), ("error_message", pa.string()), ("num_readings", pa.int64())])
)

_ESCALATED = pa.list_(
    pa.struct(
        [
            ("because", pa.string()),
            ("num_readings", pa.int64()),
            ("num_answered", pa.int64()),
            ("num_failed", pa.int64()),
            ("num_not_read", pa.int64()),
            ("num_to_review", pa.int64()),
        ]
    )
)

PART_REPORT = pa.schema(
    [
        pa.field("key", pa.string()),
        pa.field("answers_file", pa.string()),
        pa.field("memories_file", pa.string()),
        pa.field("evidence_file", pa.string()),
        pa.field("results_file", pa.string()),
        pa.field("num_answers", pa.int64()),
        pa.field("num_ok", pa.int64()),
        pa.field("num_not_read", pa.int64()),
        pa.field("num_unusable", pa.int64()),
        pa.field("num_memories", pa.int64()),
        pa.field("num_evidence", pa.int64()),
        pa.field("num_results", pa.int64()),
        pa.field("failed_reasons", _REASONS),
        pa.field("not_read_reasons", _REASONS),
        pa.field("escalated", _ESCALATED),
        pa.field("missing", pa.list_(pa.string())),
        pa.field("hashes", pa.list_(pa.struct([("file", pa.string()), ("sha256", pa.string())]))),
        pa.field("num_document_tokens", pa.int64()),
        pa.field("num_turns", pa.int64()),
        pa.field("num_prompt_tokens", pa.int64()),
        pa.field("num_cached_prompt_tokens", pa.int64()),
        pa.field("num_completion_tokens", pa.int64()),
        pa.field("num_markers", pa.int64()),
        pa.field("num_marked_documents", pa.int64()),
    ]
)
"""What a written part of the tables reports. The manifest keeps all of it but `missing` and `hashes`."""


class ReasonRow(TypedDict):
    """A `Reason` as reports and manifests write it."""

    error_type: str
    error_message: str
    num_readings: int


class EscalatedRow(TypedDict):
    """Readings of a part that were doubtful for one reason."""

    because: str
    num_readings: int
    num_answered: int
    """Of these, those that the second reader answered."""
    num_failed: int
    """Those that it failed at."""
    num_not_read: int
    """Those that it could not read now."""
    num_to_review: int
    """Those that a person must look at."""


class AnswerSums(TypedDict):
    """Columns of `answers`, summed up."""

    num_document_tokens: int
    num_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int


class PartReport(AnswerSums):
    """A row of `PART_REPORT`."""

    key: str | None
    """Hash of all that decides its rows; None where the next run may write other ones."""
    answers_file: str
    memories_file: str
    evidence_file: str | None
    """None where the run has no such table, as of `results_file`."""
    results_file: str | None
    num_answers: int
    num_ok: int
    num_not_read: int
    num_unusable: int
    """Answered readings without an answer, or with a value that is not of its type."""
    num_memories: int
    num_evidence: int
    num_results: int
    failed_reasons: list[ReasonRow]
    not_read_reasons: list[ReasonRow]
    escalated: list[EscalatedRow]
    num_markers: int | None
    """Markers of chat templates that were made harmless; None where none were counted, as of the next one."""
    num_marked_documents: int | None
    """Documents that have readings with such markers."""
    missing: NotRequired[list[str]]
    """Readings that the log has no outcome of; a manifest keeps none."""
    hashes: NotRequired[list[FileHash]]
    """Hashes of the files that were written; a manifest keeps them with those of all files."""


def rows_of_files(report: PartReport) -> dict[str, int]:
    """The files that a part wrote, and the rows of each."""
    rows = {
        report["answers_file"]: report["num_answers"],
        report["memories_file"]: report["num_memories"],
        report["evidence_file"]: report["num_evidence"],
        report["results_file"]: report["num_results"],
    }
    return {file: num_rows for file, num_rows in rows.items() if file is not None}


def reason_rows(reasons: Iterable[Reason]) -> list[ReasonRow]:
    """Reasons as they are written."""
    return [
        {
            "error_type": reason.error_type,
            "error_message": reason.error_message,
            "num_readings": reason.num_readings,
        }
        for reason in reasons
    ]
