"""Schemas of the turn log: one row for each finished turn, one for each reading that ended."""

from collections.abc import Sequence
from datetime import datetime
from typing import NotRequired, TypedDict

import pyarrow as pa

from memagent_batch.files.columns import TIMESTAMP, column

RUN_ID = column("run_id", pa.string(), "the run that made this row")
ADDRESS = [
    column("document_hash", pa.string(), "SHA-256 of the document's text in UTF-8, hex"),
    column(
        "question_hash",
        pa.string(),
        "SHA-256 of the question's text in UTF-8, hex",
    ),
    column("sample", pa.int32(), "which reading of this document and question, from 0"),
    column("reader_fingerprint", pa.string(), "hash of all else that decides the result, hex"),
]
DOCUMENT_HASH, QUESTION_HASH, SAMPLE, READER_FINGERPRINT = ADDRESS
SPAN = [
    column("chunk_index", pa.int32(), "position of the chunk that was shown, from 0", nullable=True),
    column("token_start", pa.int64(), "first token of that chunk in the document", unit="tokens", nullable=True),
    column("token_end", pa.int64(), "token after its last one", unit="tokens", nullable=True),
    column(
        "char_start",
        pa.int64(),
        "first character of that chunk in the text as stored, in which a CRLF is two",
        unit="code points",
        nullable=True,
    ),
    column("char_end", pa.int64(), "character after its last one", unit="code points", nullable=True),
]
KIND = column(
    "kind",
    pa.string(),
    "kind of turn: update, read, merge, answer, direct; after the answer value, evidence, support",
)
STATUS = column("status", pa.string(), "ok or failed; in `answers` also not_read: the next run reads it")
RESULT = [
    column("response", pa.string(), "text of the answer turn, without thoughts", nullable=True),
    column("memory", pa.string(), "memory that the answer was given from", nullable=True),
    column("finish_reason", pa.string(), "why the answer ended: stop, or length where it was cut", nullable=True),
    column(
        "memory_truncations",
        pa.int32(),
        "turns whose memory, note or sub-question was cut at its budget; replayed ones included",
        unit="turns",
    ),
    column("num_document_tokens", pa.int64(), "length of the document", unit="tokens", nullable=True),
    column("num_chunks", pa.int32(), "chunks of the document", unit="chunks", nullable=True),
    column(
        "num_turns",
        pa.int32(),
        "turns of the reading, replayed ones included",
        unit="turns",
    ),
    column("num_replayed_turns", pa.int32(), "of these, answered by the turn log", unit="turns"),
    column("num_prompt_tokens", pa.int64(), "prompt tokens of all turns", unit="tokens"),
    column("num_cached_prompt_tokens", pa.int64(), "of these, held by the prefix cache", unit="tokens"),
    column("num_completion_tokens", pa.int64(), "completion tokens of all turns", unit="tokens"),
    column(
        "num_markers",
        pa.int64(),
        "markers of chat templates in the prompts of all turns, which were made harmless before a chat API was sent "
        "them; null where the engine is sent token ids, and before they were counted",
        unit="markers",
        nullable=True,
    ),
    column("engine_seconds", pa.float64(), "time inside the engine, summed over turns", unit="seconds"),
    column("started_at", TIMESTAMP, "when the reading began, UTC", nullable=True),
    column("finished_at", TIMESTAMP, "when it ended, UTC"),
]
PROVENANCE = [
    column("model", pa.string(), "the model that read"),
    column(
        "error_type", pa.string(), "what went wrong; AnswerNotFound where the response has no answer", nullable=True
    ),
    column("error_message", pa.string(), "where and why, and what to do", nullable=True),
]

CLOSING = [
    column("value", pa.string(), "the answer as a value of the type that was asked for, as JSON", nullable=True),
    column("value_bool", pa.bool_(), "the value of type bool", nullable=True),
    column("value_number", pa.float64(), "the value of type number, in `value_unit`", nullable=True),
    column("value_label", pa.string(), "the value of type label", nullable=True),
    column(
        "value_status",
        pa.string(),
        "ok, not_stated, or invalid; null where the question asks for no type, or its closing turn failed",
        nullable=True,
    ),
    column(
        "confidence",
        pa.float64(),
        "probability of a value that was chosen from a menu, given the memory and not the document, 0 to 1",
        nullable=True,
    ),
    column(
        "support",
        pa.string(),
        "whether the chosen sentences bear the answer: supported, partly, contradicted, or not enough",
        nullable=True,
    ),
    column("support_probability", pa.float64(), "its probability over the menu, 0 to 1", nullable=True),
    column(
        "coverage",
        pa.float64(),
        "share of the document's tokens that turns showed, 0 to 1; null where nothing was asked after the answer",
        nullable=True,
    ),
    column(
        "closing_error", pa.string(), "why the value is invalid, or why a closing turn brought nothing", nullable=True
    ),
]
"""What the closing turns of a reading bring, but for its sentences."""

TURN_LOG = pa.schema(
    [
        RUN_ID,
        *ADDRESS,
        column("path", pa.string(), "address of the turn in its reading, such as update/12"),
        column(
            "turn",
            pa.int32(),
            "position of the turn in its reading, from 0, in the order in which the policy asked",
            nullable=True,
        ),
        KIND,
        column(
            "writes", pa.string(), "what the completion becomes: memory, note, or null for an answer", nullable=True
        ),
        *SPAN,
        column("prompt_hash", pa.string(), "hash of the prompt's token ids; a replay must show the same prompt"),
        column("token_ids", pa.list_(pa.int32()), "exactly the tokens that the engine returned"),
        column("text", pa.string(), "their text, without control tokens but for the tags of thoughts"),
        column("logprobs", pa.list_(pa.float32()), "log-probability of each token, if asked for", nullable=True),
        column("finish_reason", pa.string(), "why the completion ended: stop or length"),
        column("num_prompt_tokens", pa.int64(), "length of the prompt", unit="tokens"),
        column("num_cached_prompt_tokens", pa.int64(), "of these, held by the prefix cache", unit="tokens"),
        column("engine_seconds", pa.float64(), "time inside the engine", unit="seconds"),
        column("finished_at", TIMESTAMP, "when the turn ended, UTC"),
        column(
            "menu_logprobs",
            pa.list_(pa.float64()),
            "log-probability of each entry of the menu that a closing turn chose from",
            nullable=True,
        ),
        column(
            "held_from",
            pa.string(),
            "where an earlier version of the document had the same prompt: the hash of that version, whose row of this "
            "prompt and time has the completion, at this path or another; tokens, text and costs are empty here",
            nullable=True,
        ),
        column(
            "num_markers",
            pa.int64(),
            "markers of chat templates in the prompt that were made harmless; null where the engine is sent token ids",
            unit="markers",
            nullable=True,
        ),
        column(
            "num_billed_tokens",
            pa.int64(),
            "the completion by the count of an API, thoughts that it hides included; null where it gives none",
            unit="tokens",
            nullable=True,
        ),
        column(
            "memory_after",
            pa.string(),
            "the whole memory after the turn, of a policy whose memory is more than one completion; else null",
            nullable=True,
        ),
    ]
)
"""One row for each finished turn."""

OUTCOME_LOG = pa.schema([RUN_ID, *ADDRESS, STATUS, *RESULT, *PROVENANCE])
"""One row for each reading that ended."""

CLOSING_LOG = pa.schema(
    [
        RUN_ID,
        *[
            READER_FINGERPRINT.with_metadata(
                {"description": "hash of the reader and of what was asked after the answer, hex", "unit": ""}
            )
            if field is READER_FINGERPRINT
            else field
            for field in ADDRESS
        ],
        *CLOSING,
        column(
            "evidence",
            pa.list_(
                pa.struct(
                    [
                        pa.field("char_start", pa.int64(), nullable=False),
                        pa.field("char_end", pa.int64(), nullable=False),
                        pa.field("chunk_index", pa.int32()),
                    ]
                )
            ),
            "sentences that the answer rests on, the best first, as spans of code points; null where they were not "
            "asked for, or the turn failed",
            nullable=True,
        ),
        column("is_failed", pa.bool_(), "whether a closing turn failed; --retry-failed asks again"),
        column("num_turns", pa.int32(), "closing turns, replayed ones included", unit="turns"),
        column("num_prompt_tokens", pa.int64(), "prompt tokens of these turns", unit="tokens"),
        column("num_completion_tokens", pa.int64(), "completion tokens of these turns", unit="tokens"),
        column("finished_at", TIMESTAMP, "when the last one ended, UTC"),
    ]
)
"""One row for each answered reading whose closing turns have ended."""


class AddressRow(TypedDict):
    """`ADDRESS` as a row."""

    document_hash: str
    question_hash: str
    sample: int
    reader_fingerprint: str


class TurnRow(AddressRow):
    """A row of `TURN_LOG`. A table that is read without tokens has their number instead of tokens and `logprobs`."""

    run_id: str
    path: str
    turn: int | None
    kind: str
    writes: str | None
    chunk_index: int | None
    token_start: int | None
    token_end: int | None
    char_start: int | None
    char_end: int | None
    prompt_hash: str
    token_ids: Sequence[int]
    text: str
    logprobs: Sequence[float] | None
    finish_reason: str
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    engine_seconds: float
    finished_at: datetime
    menu_logprobs: Sequence[float] | None
    held_from: NotRequired[str | None]
    num_markers: NotRequired[int | None]
    num_billed_tokens: NotRequired[int | None]
    memory_after: NotRequired[str | None]
    num_tokens: NotRequired[int]


class ResultRow(TypedDict):
    """How a reading ended: a row of `OUTCOME_LOG` without run and address."""

    status: str
    response: str | None
    memory: str | None
    finish_reason: str | None
    memory_truncations: int
    num_document_tokens: int | None
    num_chunks: int | None
    num_turns: int
    num_replayed_turns: int
    num_prompt_tokens: int
    num_cached_prompt_tokens: int
    num_completion_tokens: int
    num_markers: int | None
    engine_seconds: float
    started_at: datetime | None
    finished_at: datetime
    model: str
    error_type: str | None
    error_message: str | None


class OutcomeRow(AddressRow, ResultRow):
    """A row of `OUTCOME_LOG`."""

    run_id: str


class ClosingColumns(TypedDict):
    """`CLOSING` as a row."""

    value: str | None
    value_bool: bool | None
    value_number: float | None
    value_label: str | None
    value_status: str | None
    confidence: float | None
    support: str | None
    support_probability: float | None
    coverage: float | None
    closing_error: str | None


class SpanRow(TypedDict):
    """A sentence of the document."""

    char_start: int
    char_end: int
    chunk_index: int | None


class ClosedRow(ClosingColumns):
    """What the closing turns of a reading brought: a row of `CLOSING_LOG` without run and address."""

    evidence: list[SpanRow] | None
    is_failed: bool
    num_turns: int
    num_prompt_tokens: int
    num_completion_tokens: int
    finished_at: datetime


class ClosingRow(AddressRow, ClosedRow):
    """A row of `CLOSING_LOG`."""

    run_id: str
