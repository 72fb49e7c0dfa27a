"""Scores of what was asked after the answer: the typed value, `not stated`, the evidence."""

from collections.abc import Iterable, Mapping, Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.closing.values import TypedValue, ValueStatus, is_same
from memagent_batch.domain.scoring.measures import Span, span_scores
from memagent_batch.evaluation.suites.schemas import GoldSpanRow
from memagent_batch.evaluation.suites.typed import says_not_stated, written_value
from memagent_batch.inputs.questions import value_type_of
from memagent_batch.log.index import Row
from memagent_batch.runs.evidence import How

EvidenceSpans = Mapping[tuple[str, str, int], Sequence[Span]]
"""Spans of the evidence by reading; a reading without any is left out."""


class ClosingScoresRow(TypedDict):
    """`CLOSING_SCORES` as a row."""

    value: str | None
    value_status: str | None
    confidence: float | None
    value_right: bool | None
    reference_value: str | None
    is_absent: bool
    abstained: bool
    num_evidence: int | None
    evidence_precision: float | None
    evidence_recall: float | None
    evidence_f1: float | None
    evidence_hit: bool | None


def evidence_spans(tables: Iterable[pa.Table]) -> EvidenceSpans:
    """The evidence in the files of a table `evidence`: the chosen sentences, not what was looked for of the answer."""
    spans: dict[tuple[str, str, int], list[Span]] = {}
    for table in tables:
        chosen = table.filter(pc.and_(pc.equal(table["how"], How.CHOSEN.value), pc.is_valid(table["char_start"])))
        for row in chosen.select(SPAN_COLUMNS).to_pylist():
            key = (row["document_id"], row["question_id"], row["sample"])
            spans.setdefault(key, []).append((row["char_start"], row["char_end"]))
    return spans


SPAN_COLUMNS = ["document_id", "question_id", "sample", "char_start", "char_end"]
"""Columns of `evidence` that are scored, beside `how`."""


def closing_scores(question: Row, answer: Row, *, evidence: Sequence[Span], has_values: bool) -> ClosingScoresRow:
    """Scores of what was asked after one answer.

    Args:
        question: A row of `SUITE_QUESTIONS`.
        answer: A row of `ANSWER_COLUMNS` of a reading that ended; empty for another one.
        evidence: Its evidence.
        has_values: Whether any row of the answers has a value; where none has, answers are read as values.
    """
    value, references = _value_and_references(question, answer, has_values=has_values)
    is_right = None if references is None else value is not None and any(is_same(value, each) for each in references)
    if value is not None:
        abstained = value.status is ValueStatus.NOT_STATED
    else:
        abstained = references is None and says_not_stated(answer.get("answer") or "")
    return ClosingScoresRow(
        value=None if value is None else value.value,
        value_status=None if value is None else value.status.value,
        confidence=answer.get("confidence"),
        value_right=is_right,
        reference_value=references[0].value if references else None,
        is_absent=question["is_absent"],
        abstained=abstained,
        **_evidence_scores(answer.get("num_evidence"), evidence, gold=question["gold_spans"]),
    )


class _EvidenceColumns(TypedDict):
    num_evidence: int | None
    evidence_precision: float | None
    evidence_recall: float | None
    evidence_f1: float | None
    evidence_hit: bool | None


def _value_and_references(
    question: Row, answer: Row, *, has_values: bool
) -> tuple[TypedValue | None, list[TypedValue] | None]:
    """The value of a reading, and the right ones; None where there is none, or none was asked for."""
    value_type = value_type_of(question)
    if value_type is None:
        return None, None
    references = [written_value(reference, value_type) for reference in question["references"]]
    if has_values:
        status = answer.get("value_status")
        value = TypedValue(status=ValueStatus(status), value=answer["value"]) if status else None
        return value, references
    try:
        return (written_value(answer["answer"], value_type) if answer.get("answer") else None), references
    except ValueError:
        return TypedValue(status=ValueStatus.INVALID), references


def _evidence_scores(
    num_evidence: int | None, evidence: Sequence[Span], *, gold: Sequence[GoldSpanRow] | None
) -> _EvidenceColumns:
    if num_evidence is None or not gold:
        return _EvidenceColumns(
            num_evidence=num_evidence,
            evidence_precision=None,
            evidence_recall=None,
            evidence_f1=None,
            evidence_hit=None,
        )
    scores = span_scores(evidence, [(span["char_start"], span["char_end"]) for span in gold])
    return _EvidenceColumns(
        num_evidence=num_evidence,
        evidence_precision=scores.precision,
        evidence_recall=scores.recall,
        evidence_f1=scores.f1,
        evidence_hit=scores.hit,
    )
