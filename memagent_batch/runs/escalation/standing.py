"""Which of two readers' answers stands in the tables, and what both have cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.answer_types import AnswerType
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import sum_counted
from memagent_batch.errors import ClosingError
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.escalation.doubtful import effective_status, verdicts_of
from memagent_batch.runs.rows.looks import HeldPart, Look, PartDocument, hold_part
from memagent_batch.runs.rows.projection import Projection
from memagent_batch.runs.tables.schemas import AnswerRow

SUMMED = (
    "num_turns",
    "num_replayed_turns",
    "num_prompt_tokens",
    "num_cached_prompt_tokens",
    "num_completion_tokens",
    "engine_seconds",
)
"""Columns of `answers` that are sums over both readers, so that sums over rows are the cost of the run."""
VALID = frozenset({ValueStatus.OK, ValueStatus.NOT_STATED})
"""What is said of a value that fits its type."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLooks:
    """What the readers of a run have to say of the readings of a part."""

    first: HeldPart
    """The reader of all."""
    second: HeldPart | None
    """The reader of doubtful readings; None where there is none."""
    projection: Projection
    """Which readings are doubtful."""

    def standing(self, document: PartDocument, question: AskedQuestion, sample: int) -> Look | None:
        """The look that stands; None where the log lacks what ought to be there."""
        look, doubts = self.first.look(document, question, sample), self.projection.doubts
        if look is None or doubts is None or document["error"] is not None:
            return look
        answer = look.answer
        verdicts = verdicts_of(answer, num_evidence=answer["num_evidence"])
        hash_ = question["question_hash"] if question.get("answer_type") == AnswerType.BOOL else None
        status = effective_status(answer["status"], answer["answer"], doubts=doubts)
        doubt = doubts.of(status, verdicts=verdicts, answer=answer["answer"], question_hash=hash_)
        if doubt is None:
            return look
        if self.second is None or self.projection.second is None:
            return _with_columns(look, escalated_because=doubt.value, needs_review=True)
        closing = self.projection.second.closings.get(question.get("closing_fingerprint") or "")
        second = self.second.look(document, _asked_singly(question, closing=closing), sample)
        return None if second is None else _chosen(look, second, doubt)


def hold_looks(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow]) -> PartLooks:
    """Reads the log files that a part names; see `hold_part`."""
    again = projection.second
    return PartLooks(
        first=hold_part(part, projection=projection, not_read=not_read),
        second=hold_part(part, projection=again.projection, not_read=not_read) if again else None,
        projection=projection,
    )


def _asked_singly(question: AskedQuestion, *, closing: str | None) -> AskedQuestion:
    """A question as the second reader takes it."""
    return {
        **question,
        "question_hash": text_hash(question["question"]),
        "closing_fingerprint": closing,
    }


def _chosen(first: Look, second: Look, doubt: Doubt) -> Look:
    """The second look where its answer can be used, else the first; both have cost what the row says."""
    rows, status, problem = (first.answer, second.answer), Status(second.answer["status"]), _problem(first, second)
    columns = {
        **{name: sum(row[name] for row in rows) for name in SUMMED},  # type: ignore[literal-required]
        "num_markers": sum_counted(row["num_markers"] for row in rows),
        "question_hash": first.answer["question_hash"],
        "escalated_because": doubt.value,
        "escalation_error": problem,
    }
    if problem is None:
        look = _with_columns(second, **columns, **_first_columns(first.answer))
    else:
        look = _with_columns(first, **columns, needs_review=status is not Status.NOT_READ)
        status = Status.FAILED if status is Status.OK else status
    return replace(look, second_status=status)


def _problem(first: Look, second: Look) -> str | None:
    """Why the second look can't stand in the place of the first; None where it can."""
    answer = second.answer
    if answer["status"] != Status.OK or answer["answer"] is None:
        return f"{answer['error_type']}: {answer['error_message']}"
    if first.answer["value_status"] in VALID and answer["value_status"] not in VALID:
        return f"{ClosingError.__name__}: {answer['closing_error']}"
    return None


def _first_columns(answer: AnswerRow) -> dict[str, object]:
    """What the first reader said, where it had a valid value or said that nothing is stated."""
    is_valid = answer["value_status"] in VALID
    names = {"first_value": "value", "first_confidence": "confidence"}
    return {name: answer[column] if is_valid else None for name, column in names.items()}  # type: ignore[literal-required]


def _with_columns(look: Look, **columns: object) -> Look:
    """The look with these columns of `answers`."""
    return replace(look, answer=cast("AnswerRow", {**look.answer, **columns}))
