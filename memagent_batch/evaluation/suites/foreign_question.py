"""One question of a suite that others made, with its document."""

from dataclasses import dataclass

from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.scoring.scores import Metric
from memagent_batch.evaluation.suites.ruler import Separation
from memagent_batch.evaluation.suites.schemas import ConvertedQuestion
from memagent_batch.evaluation.suites.typed import span_rows
from memagent_batch.inputs.questions import type_fields


@dataclass(frozen=True, slots=True, kw_only=True)
class ForeignQuestion:
    """One question."""

    document_id: str
    """Id of its document: the file's path below what was named, `:`, and the record's number. Questions of one document
    follow each other."""
    question_id: str
    """Id of the question: the same where a record is one question."""
    document: str
    """Text of the document."""
    question: str
    """The question."""
    references: list[str]
    """Right answers."""
    task: str
    """Name of the task."""
    length_tokens: int | None
    """Requested length, tokens; None where the record does not state it."""
    metric: Metric
    """How the task is scored."""
    split: Separation
    """How document and question were separated."""
    value_type: ValueType | None = None
    """Type that its answer is asked for as."""
    gold: tuple[tuple[int, int], ...] | None = None
    """Places that bear the answer, as spans of code points; none where the document does not state it, None where the
    suite does not say."""


def question_row(question: ForeignQuestion) -> ConvertedQuestion:
    """The question as a row of `CONVERTED_QUESTIONS`."""
    gold = question.gold
    return ConvertedQuestion(
        question_id=question.question_id,
        document_id=question.document_id,
        question=question.question,
        references=question.references,
        task=question.task,
        length_tokens=question.length_tokens,
        depth=gold[0][0] / len(question.document) if gold and len(gold) == 1 else None,
        metric=question.metric.value,
        **type_fields(question.value_type),
        is_absent=gold == (),
        spread=(gold[-1][0] - gold[0][0]) / len(question.document) if gold and len(gold) > 1 else None,
        gold_spans=span_rows(gold),
        split=question.split.value,
    )
