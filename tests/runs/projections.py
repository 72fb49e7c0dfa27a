"""Parts of plans and projections, for tests that make rows of a log."""

from typing import Any

import pyarrow as pa

from memagent_batch.config.agent import Extraction
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.run.parts import plan_parts
from memagent_batch.run.plan import Plan
from memagent_batch.run.projection import Projection
from memagent_batch.run.row_changes import row_changes


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
    with row_changes(plan, index, answers=answers, version=None, settings={}) as (_, database):
        return list(plan_parts(plan, database))
