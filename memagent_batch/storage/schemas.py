"""Schemas of the turn log and of the tables, with the unit and meaning of every column in its field metadata."""

import pyarrow as pa

from memagent_batch.domain.differences import Cause, Change

TIMESTAMP = pa.timestamp("us", tz="UTC")


def column(name: str, kind: pa.DataType, meaning: str, *, unit: str = "", nullable: bool = False) -> pa.Field:
    """A documented column; `unit` is empty where the value has none."""
    return pa.field(name, kind, nullable=nullable, metadata={"description": meaning, "unit": unit})


RUN_ID = column("run_id", pa.string(), "the run that made this row")
DOCUMENT_ID = column("document_id", pa.string(), "unique id of the document")
QUESTION_ID = column("question_id", pa.string(), "id of the question")
QUESTION = column("question", pa.string(), "text of the question")
ADDRESS = [
    column("document_hash", pa.string(), "SHA-256 of the document's text in UTF-8, hex"),
    column(
        "question_hash",
        pa.string(),
        "SHA-256 of the question's text in UTF-8, hex; policy `shared`: of its list's hash and its own",
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
KIND = column("kind", pa.string(), "kind of turn: update, answer, or direct")
RESULT = [
    column("status", pa.string(), "ok or failed; in `answers` also not_read: the next run reads it"),
    column("response", pa.string(), "text of the answer turn, without thoughts", nullable=True),
    column("memory", pa.string(), "memory that the answer was given from", nullable=True),
    column("finish_reason", pa.string(), "why the answer ended: stop, or length where it was cut", nullable=True),
    column("memory_truncations", pa.int32(), "update turns whose memory was cut at its budget", unit="turns"),
    column("num_document_tokens", pa.int64(), "length of the document", unit="tokens", nullable=True),
    column("num_chunks", pa.int32(), "chunks of the document", unit="chunks", nullable=True),
    column(
        "num_turns",
        pa.int32(),
        "turns of the reading, replayed ones included; shared ones in the row of the list's first question alone, as "
        "all that follows",
        unit="turns",
    ),
    column("num_replayed_turns", pa.int32(), "of these, answered by the turn log", unit="turns"),
    column("num_prompt_tokens", pa.int64(), "prompt tokens of all turns", unit="tokens"),
    column("num_cached_prompt_tokens", pa.int64(), "of these, held by the prefix cache", unit="tokens"),
    column("num_completion_tokens", pa.int64(), "completion tokens of all turns", unit="tokens"),
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

TURN_LOG = pa.schema(
    [
        RUN_ID,
        *ADDRESS,
        column("path", pa.string(), "address of the turn in its reading, such as update/12"),
        column(
            "turn",
            pa.int32(),
            "position of the turn in its reading, from 0, in the order in which the policy asked; null in files of "
            "earlier versions",
            nullable=True,
        ),
        KIND,
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
    ]
)
"""One row for each finished turn."""

OUTCOME_LOG = pa.schema([RUN_ID, *ADDRESS, *RESULT, *PROVENANCE])
"""One row for each reading that ended."""

ANSWERS = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        QUESTION,
        RESULT[0],
        column("answer", pa.string(), "the answer taken out of the response", nullable=True),
        *RESULT[1:],
        DOCUMENT_HASH.with_nullable(True),
        QUESTION_HASH,
        READER_FINGERPRINT,
        *PROVENANCE,
    ]
)
"""One row for each reading that was asked for; carried input columns follow."""

MEMORIES = pa.schema(
    [
        RUN_ID,
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("turn", pa.int32(), "position of the turn in its reading, from 0, in the order of reading"),
        KIND,
        *SPAN,
        column("memory", pa.string(), "the memory after this turn, as the next prompt shows it"),
        column("changed", pa.bool_(), "whether this turn changed the memory; a gated policy keeps it by a word"),
        column("num_tokens", pa.int32(), "completion of the turn", unit="tokens"),
        column("finish_reason", pa.string(), "why the completion ended: stop or length"),
        DOCUMENT_HASH,
        QUESTION_HASH,
        READER_FINGERPRINT,
    ]
)
"""One row for each turn of each reading: which span of the document put what into the memory."""

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
                    ]
                )
            ),
            "what was asked of it: row of the question list, sample, and the run that read it, if one did",
        ),
    ]
)
"""One row for each document of a run; carried input columns follow, named `carry:<name>`."""

ANSWER_GIVEN = [
    QUESTION,
    RESULT[0],
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
        column("change", pa.string(), "what became of the row of `answers`: " + ", ".join(Change)),
        column("why", pa.list_(pa.string()), "what is new, other or gone: " + ", ".join(Cause)),
        *[
            field.with_name(f"{field.name}_{side}").with_nullable(True)
            for field in ANSWER_GIVEN
            for side in ("before", "after")
        ],
    ]
)
"""One row for each reading whose answer or status two runs give otherwise, or that one of them did not ask for."""
