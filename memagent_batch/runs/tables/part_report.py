"""What a written part of the tables reports, and the manifest keeps."""

from collections.abc import Iterable
from typing import NotRequired, TypedDict

import pyarrow as pa

from memagent_batch.domain.reasons import Reason

_REASONS = pa.list_(
    pa.struct([("error_type", pa.string()), ("error_message", pa.string()), ("num_readings", pa.int64())])
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


class FileHash(TypedDict):
    """The hash of a file that a task has written."""

    file: str
    sha256: str


class ReasonRow(TypedDict):
    """A `Reason` as reports and manifests write it."""

    error_type: str
    error_message: str
    num_readings: int


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
