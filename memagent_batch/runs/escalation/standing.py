"""Which of two readers' answers stands in the tables, and what both have cost."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import cast

import pyarrow as pa

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.readings import Status
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.escalation.doubtful import verdicts_of
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
        doubt = self.again.doubts.of(answer["status"], verdicts=verdicts, answer=answer["answer"])
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
    """The second look where it is `ok`, else the first; both have cost what the row says."""
    status = Status(second.answer["status"])
    is_answered = status is Status.OK
    stands, rows = second if is_answered else first, (first.answer, second.answer)
    error = None if is_answered else f"{second.answer['error_type']}: {second.answer['error_message']}"
    answer = {
        **stands.answer,
        **{name: sum(row[name] for row in rows) for name in SUMMED},  # type: ignore[literal-required]
        "escalated_because": doubt.value,
        "escalation_error": error,
    }
    return replace(stands, answer=cast("AnswerRow", answer), second_status=status)
