"""Why a reading has another answer in one run than in another. Pure."""

from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.domain.closing.answer_types import ValueType


class AnswerChange(StrEnum):
    """How a row of `answers` differs between two runs."""

    ADDED = "added"
    """Only the later run asked for it."""
    CHANGED = "changed"
    """Both did, and answer, value, type or status differ."""
    REMOVED = "removed"
    """Only the earlier run asked for it."""


class Cause(StrEnum):
    """What differs between two readings; what is new or gone where there is only one."""

    DOCUMENT = "document"
    """The document's text; the document itself."""
    QUESTION = "question"
    """The question's text; the question itself."""
    LIMIT = "limit"
    """The limit, or the condition of a second pass, which leaves it out of one of the runs."""
    SAMPLE = "sample"
    """The number of samples."""
    READER = "reader"
    """The reader fingerprint: model, prompts, policy, sampling."""
    EXTRACTION = "extraction"
    """How answers are taken out of responses."""
    TYPE = "type"
    """The type that the question asks for."""
    CLOSING = "closing"
    """What is asked after the answer, of the same reader and type: its budgets and texts, evidence, support."""
    SAME_INPUTS = "same inputs"
    """None of these: a reading that failed or was not read was read again, or the engine gave another answer."""


DECIDE_CLOSING = (Cause.READER, Cause.EXTRACTION, Cause.TYPE)
"""What differs in the fingerprint of what is asked after an answer, beside what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReading:
    """A reading as one run asked for it."""

    document_hash: str | None
    """SHA-256 of the document's text; None where it can't be read."""
    question_hash: str
    """SHA-256 of the question's text."""
    reader_fingerprint: str
    """The reader."""
    extraction: str
    """How its answer is taken out of the response."""
    value_type: ValueType | None = None
    """The type that it asks for."""
    closing_fingerprint: str | None = None
    """What is asked after the answer; depends on reader, extraction and type."""


def change_between(*, asked_before: bool, asked_after: bool) -> AnswerChange:
    """How a reading differs that at least one of the two runs asked for."""
    if not asked_before:
        return AnswerChange.ADDED
    return AnswerChange.CHANGED if asked_after else AnswerChange.REMOVED


def causes_between(before: AskedReading, after: AskedReading) -> list[Cause]:
    """What differs between two readings of one document_id, question_id and sample; never empty."""
    differs = {
        Cause.DOCUMENT: before.document_hash != after.document_hash,
        Cause.QUESTION: before.question_hash != after.question_hash,
        Cause.READER: before.reader_fingerprint != after.reader_fingerprint,
        Cause.EXTRACTION: before.extraction != after.extraction,
        Cause.TYPE: before.value_type != after.value_type,
    }
    is_closed_alike = before.closing_fingerprint == after.closing_fingerprint
    differs[Cause.CLOSING] = not (is_closed_alike or any(differs[cause] for cause in DECIDE_CLOSING))
    return [cause for cause, different in differs.items() if different] or [Cause.SAME_INPUTS]


def causes_of_presence(*, document_there: bool, question_there: bool) -> list[Cause]:
    """Why only one of two runs asked for a reading.

    Args:
        document_there: Whether the other run found the document.
        question_there: Whether the other run asked the question (of this document, where it found it).
    """
    there = {Cause.DOCUMENT: document_there, Cause.QUESTION: question_there}
    return [cause for cause, is_there in there.items() if not is_there] or [Cause.SAMPLE]
