"""Schemas of the record of a run, and of what differs between two runs."""

from typing import TypedDict

import pyarrow as pa

from memagent_batch.files.columns import column
from memagent_batch.log.schemas import CLOSING_LOG, DOCUMENT_HASH, SAMPLE, STATUS
from memagent_batch.runs.history.causes import AnswerChange, Cause
from memagent_batch.runs.tables.schemas import DOCUMENT_ID, QUESTION, QUESTION_ID

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
    STATUS,
    column("answer", pa.string(), "the answer taken out of the response"),
    CLOSING_LOG.field("value"),
    CLOSING_LOG.field("value_status"),
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
"""One row for each reading that has another answer, value or status in one of two runs, or that only one asked for."""


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
    value_before: str | None
    value_after: str | None
    value_status_before: str | None
    value_status_after: str | None
    memory_before: str | None
    memory_after: str | None
    error_message_before: str | None
    error_message_after: str | None
    run_id_before: str | None
    run_id_after: str | None
