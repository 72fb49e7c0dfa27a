"""Which of two readers' answers stands in the tables, and what both have cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.readings import Status
from memagent_batch.errors import ClosingError
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.escalation.doubtful import effective_status, verdicts_of
from memagent_batch.runs.rows.looks import HeldPart, Look, PartDocument, hold_part
from memagent_batch.runs.rows.projection import Projection, SecondProjection
from memagent_batch.runs.schemas import AnswerRow

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
    again: SecondProjection | None
    """Which readings are doubtful; None where none is read again."""

    def standing(self, document: PartDocument, question: AskedQuestion, sample: int) -> Look | None:
        """The look that stands; None where the log lacks what ought to be there."""
        look = self.first.look(document, question, sample)
        if look is None or self.second is None or self.again is None or document["error"] is not None:
            return look
        answer = look.answer
        verdicts = verdicts_of(answer, num_evidence=answer["num_evidence"])
        status = effective_status(answer["status"], answer=answer["answer"], doubts=self.again.doubts)
        doubt = self.again.doubts.of(status, verdicts=verdicts, answer=answer["answer"])
        if doubt is None:
            return look
        closing = self.again.closings.get(question.get("closing_fingerprint") or "")
        second = self.second.look(document, _asked_singly(question, closing=closing), sample)
        return None if second is None else _chosen(look, second, doubt)


def hold_looks(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow]) -> PartLooks:
    """Reads the log files that a part names; see `hold_part`."""
    again = projection.second
    return PartLooks(
        first=hold_part(part, projection=projection, not_read=not_read),
        second=hold_part(part, projection=again.projection, not_read=not_read) if again else None,
        again=again,
    )


def _asked_singly(question: AskedQuestion, *, closing: str | None) -> AskedQuestion:
    """A question as the second reader takes it: by itself, whatever the first one does with lists."""
    return {
        **question,
        "question_hash": text_hash(question["question"]),
        "list_hash": "",
        "closing_fingerprint": closing,
    }


def _chosen(first: Look, second: Look, doubt: Doubt) -> Look:
    """The second look where its answer can be used, else the first; both have cost what the row says."""
    problem, status = _problem(second.answer, before=first.answer), Status(second.answer["status"])
    stands, rows = second if problem is None else first, (first.answer, second.answer)
    answer = {
        **stands.answer,
        **{name: sum(row[name] for row in rows) for name in SUMMED},  # type: ignore[literal-required]
        "question_hash": first.answer["question_hash"],
        "escalated_because": doubt.value,
        "escalation_error": problem,
    }
    ended = Status.FAILED if problem and status is Status.OK else status
    return replace(stands, answer=cast("AnswerRow", answer), second_status=ended)


def _problem(answer: AnswerRow, *, before: AnswerRow) -> str | None:
    """Why the second reader's answer can't stand in the place of the one before; None where it can."""
    if answer["status"] != Status.OK or answer["answer"] is None:
        return f"{answer['error_type']}: {answer['error_message']}"
    if before["value_status"] in VALID and answer["value_status"] not in VALID:
        return f"{ClosingError.__name__}: {answer['closing_error']}"
    return None
