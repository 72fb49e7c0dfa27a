"""Parts of plans and projections, for tests that make rows of a log."""

from typing import Any

import pyarrow as pa

from memagent_batch.documents.stored import StoredDocuments
from memagent_batch.domain.answers import Extraction
from memagent_batch.runs.parts import plan_parts
from memagent_batch.runs.plan import Plan
from memagent_batch.runs.projection import Projection
from memagent_batch.runs.row_changes import row_changes
from memagent_batch.store.delta import OutputTable
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex


def projection_at(output: Location, **fields: Any) -> Projection:
    """The plainest projection of an output's log by the reader `f`, with these fields in place of its own."""
    plain: dict[str, Any] = {
        "run_id": "run",
        "fingerprint": "f",
        "model": "m",
        "first_memory": "",
        "keep_word": "",
        "extraction": Extraction.AUTO,
        "documents": StoredDocuments(output=output),
    }
    return Projection(output=output, **(plain | fields))


def parts_of(plan: Plan, index: LogIndex) -> list[pa.Table]:
    """The parts of a plan whose every row is new."""
    answers = OutputTable(output=plan.stored.output, name="answers")
    with row_changes(plan, index, answers=answers, version=None, rules=None) as (_, database):
        return list(plan_parts(plan, database))
