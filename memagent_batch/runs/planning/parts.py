"""The parts of a plan: documents whose readings make one part file of each table."""

from collections.abc import Iterator
from typing import TypedDict

import pyarrow as pa

from memagent_batch.log.index import TurnIndex
from memagent_batch.log.question_list import with_asked
from memagent_batch.runs.planning.plan import IndexedText, Plan
from memagent_batch.runs.planning.work import WORK_COLUMNS

PART_BYTES = 256 * 1024 * 1024
"""Text that the readings of one part file of the tables have read: some 13,000 turns of 5,000 tokens."""
PART_READINGS = 10_000
"""Most readings in one part file of the tables."""
PART_COLUMN = "part"
"""Number of a part, from 0, in each of its rows: files of the tables are named by it."""
_PART_COLUMNS = pa.schema(
    [
        WORK_COLUMNS.field("readings"),
        pa.field("outcome_files", pa.list_(pa.string())),
        WORK_COLUMNS.field("turn_files"),
        pa.field("closing_files", pa.list_(pa.string())),
    ]
)


class _PlannedRow(TypedDict):
    """What a part adds to a document's row of the index."""

    readings: list[dict[str, int]]
    outcome_files: list[str]
    turn_files: list[str]
    closing_files: list[str]


def plan_parts(plan: Plan, index: TurnIndex) -> Iterator[pa.Table]:
    """All documents, in groups whose readings make one part file of each table; in a group in input order.

    Documents whose readings ended at about the same time go together, so that a log file is read for one group or
    two, and not for all. The readings are all that were asked for; `outcome_files` and `turn_files` name the log
    files that hold them, `asked` holds their questions (`question_list.py`), `part` the number of the group.
    """
    ended_in = [_ended_in(plan, document, index) for document in plan.texts()]
    order = sorted(range(len(ended_in)), key=ended_in.__getitem__)
    group: dict[int, _PlannedRow] = {}
    number = num_bytes = num_readings = 0
    for row, document in zip(order, plan.texts(order), strict=True):
        group[row] = _planned_row(plan, document, index)
        num_bytes += document["num_bytes"] * len(group[row]["readings"])
        num_readings += len(group[row]["readings"])
        if num_bytes >= PART_BYTES or num_readings >= PART_READINGS:
            yield _part_table(plan, group, number=number)
            group, number, num_bytes, num_readings = {}, number + 1, 0, 0
    if group:
        yield _part_table(plan, group, number=number)


def _planned_row(plan: Plan, document: IndexedText, index: TurnIndex) -> _PlannedRow:
    readings = plan.readings_of(document)
    outcomes = [index.outcomes.get(plan.key_of(document, row, sample)) for row, sample in readings]
    return {
        "readings": [{"question": row, "sample": sample} for row, sample in readings],
        "outcome_files": sorted({outcome.file for outcome in outcomes if outcome}),
        "turn_files": plan.turn_files(document["document_hash"], [row for row, _ in readings], index),
        "closing_files": _files_of_closings(plan, document, index),
    }


def _files_of_closings(plan: Plan, document: IndexedText, index: TurnIndex) -> list[str]:
    """The log files that hold what was asked after the answers to a document's questions."""
    closed = [
        index.closings.get(plan.asked.closing_of(row) or "", {}).get(plan.key_of(document, row, sample))
        for row, sample in (plan.readings_of(document) if plan.asked.are_closed else ())
    ]
    return sorted({each.file for each in closed if each})


def _ended_in(plan: Plan, document: IndexedText, index: TurnIndex) -> str:
    """The last log file that holds an outcome of the document; empty where none does."""
    outcomes = [index.outcomes.get(plan.key_of(document, row, sample)) for row, sample in plan.readings_of(document)]
    return max((outcome.file for outcome in outcomes if outcome), default="")


def _part_table(plan: Plan, group: dict[int, _PlannedRow], *, number: int) -> pa.Table:
    rows = sorted(group)
    documents = plan.documents.take(pa.array(rows, pa.int64()))
    added = pa.Table.from_pylist([group[row] for row in rows], schema=_PART_COLUMNS)
    for column in _PART_COLUMNS:
        documents = documents.append_column(column, added[column.name])
    documents = documents.append_column(PART_COLUMN, pa.array([number] * len(rows), pa.int64()))
    asked = [[reading["question"] for reading in group[row]["readings"]] for row in rows]
    return with_asked(documents, asked, questions=plan.asked.hashed).combine_chunks()
