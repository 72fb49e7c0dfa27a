"""What stands in for the outcomes of readings that were not read when the run closed: no log has them."""

from typing import cast

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.readings import Status
from memagent_batch.log.schemas import OUTCOME_LOG, OutcomeRow
from memagent_batch.runs.rows.projection import Projection


def stand_ins(answers: pa.Table, *, projection: Projection) -> list[OutcomeRow]:
    """The outcomes, as rows of `answers` tell them: those of the first reader, then those of the second.

    What the second reader's own turns took is not told: the row has the sum over both.
    """
    not_read = answers.filter(pc.equal(answers["status"], Status.NOT_READ)).select(OUTCOME_LOG.names)
    outcomes: list[OutcomeRow] = not_read.to_pylist()
    for row in unread_again(answers, projection=projection).to_pylist():
        kind, _, message = row["escalation_error"].partition(": ")
        own = {
            "status": Status.NOT_READ.value,
            "question_hash": text_hash(row["question"]),
            "reader_fingerprint": projection.second.projection.reader_fingerprint if projection.second else "",
            "error_type": kind,
            "error_message": message,
        }
        outcomes.append(cast("OutcomeRow", {name: (row | own)[name] for name in OUTCOME_LOG.names}))
    return outcomes


def unread_again(answers: pa.Table, *, projection: Projection) -> pa.Table:
    """Rows of readings that the second reader was to read, and could not: it left the doubt to the next run."""
    if projection.second is None or not {"escalation_error", "needs_review"} <= set(answers.schema.names):
        return answers.slice(0, 0)
    is_left = pc.and_(pc.is_valid(answers["escalation_error"]), pc.invert(pc.fill_null(answers["needs_review"], False)))
    return answers.filter(is_left)
