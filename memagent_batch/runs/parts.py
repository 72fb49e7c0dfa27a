"""Parts of a plan: each becomes one file of each table. Which of them are written again, and what was not read.

A run takes over the files of a part from the run before where it would write the same rows.

A row of a table follows from the plan, the log files that hold its reading, and a few settings. Their
hash is the key of a part; a run that plans a part of a key that the manifest has names the files that are there.

The log does not hold readings that were not read, so that the next run reads them. A reader returns a row of each, as
an outcome would be, and the rows go to the table `answers` with their part.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from hashlib import sha256
from typing import Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.document_index import CARRY_PREFIX
from memagent_batch.runs.manifest import PartReport, read_manifest
from memagent_batch.runs.plan import WORK_COLUMNS, IndexedText, Plan
from memagent_batch.runs.projection import Projection, row_rules
from memagent_batch.store.columns import arrow_schema
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import TurnIndex
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, asked_in, with_asked
from memagent_batch.store.turn_log.rows import OUTCOME_LOG, OutcomeRow

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
        pa.field("follow_up_files", pa.list_(pa.string())),
    ]
)
AskedKey = tuple[str, str | None]
"""Hash of a question, and the fingerprint of what is asked after its answers."""
NOT_READ_COLUMN = "not_read"
"""Column of what a reader returns, and of a part of the plan."""


def plan_parts(plan: Plan, index: TurnIndex) -> Iterator[pa.Table]:
    """All documents, in groups whose readings make one part file of each table; in a group in input order.

    Documents whose readings ended at about the same time go together, so that a log file is read for one group or
    two, and not for all. The readings are all that were asked for; `outcome_files` and `turn_files` name the log
    files that hold them, `asked` holds their questions (`question_list.py`), `part` the number of the group.
    """
    asked = [(hash_, plan.asked.follow_ups_of(row)) for row, hash_ in enumerate(plan.asked.hashes)]
    ended_in = [_ended_in(plan, document, index) for document in plan.texts()]
    order = sorted(range(len(ended_in)), key=ended_in.__getitem__)
    group: dict[int, dict[str, Any]] = {}
    number = num_bytes = num_readings = 0
    for row, document in zip(order, plan.texts(order), strict=True):
        readings = plan.readings_of(document)
        group[row] = {
            "readings": [{"question": question, "sample": sample} for question, sample in readings],
            **_log_files(document["document_hash"], readings, asked=asked, index=index),
        }
        num_bytes += document["num_bytes"] * len(group[row]["readings"])
        num_readings += len(group[row]["readings"])
        if num_bytes >= PART_BYTES or num_readings >= PART_READINGS:
            yield _part_table(plan, group, number=number)
            group, number, num_bytes, num_readings = {}, number + 1, 0, 0
    if group:
        yield _part_table(plan, group, number=number)


def asked_keys(questions: pa.Table) -> list[AskedKey]:
    """The keys of a question list (`PlannedQuestions.hashed`), by its rows."""
    has_follow_ups = FOLLOW_UP_FINGERPRINT in questions.schema.names
    follow_up_readings = questions[FOLLOW_UP_FINGERPRINT].to_pylist() if has_follow_ups else [None] * questions.num_rows
    return list(zip(questions["question_hash"].to_pylist(), follow_up_readings, strict=True))


def with_log_files(plan: pa.Table, asked: Sequence[AskedKey], index: TurnIndex) -> pa.Table:
    """Rows of a recorded plan (`RUN_PLAN`) with the columns that name log files, as `plan_parts` adds them."""
    rows = []
    for document in plan.select(["document_hash", "readings"]).to_pylist():
        readings = [(reading["question"], reading["sample"]) for reading in document["readings"]]
        rows.append(_log_files(document["document_hash"], readings, asked=asked, index=index))
    added = pa.Table.from_pylist(rows, schema=pa.schema(list(_PART_COLUMNS)[1:]))
    for name in added.schema.names:
        plan = plan.append_column(_PART_COLUMNS.field(name), added[name])
    return plan


def _log_files(
    document_hash: str | None, readings: Iterable[tuple[int, int]], *, asked: Sequence[AskedKey], index: TurnIndex
) -> dict[str, list[str]]:
    """The files that hold a document's readings: rows of the question list and samples."""
    files: dict[str, set[str]] = {"outcome_files": set(), "turn_files": set(), "follow_up_files": set()}
    for row, sample in readings:
        question_hash, fingerprint = asked[row]
        key = (document_hash or "", question_hash, sample)
        closed = index.follow_up_readings.get(fingerprint or "", {}).get(key)
        for name, logged in (("outcome_files", index.outcomes.get(key)), ("follow_up_files", closed)):
            files[name].update([logged.file] if logged else [])
        files["turn_files"].update(index.files_of((key[0], question_hash)))
    return {name: sorted(found) for name, found in files.items()}


def _ended_in(plan: Plan, document: IndexedText, index: TurnIndex) -> str:
    """The last log file that holds an outcome of the document; empty where none does."""
    outcomes = [index.outcomes.get(plan.key_of(document, row, sample)) for row, sample in plan.readings_of(document)]
    return max((outcome.file for outcome in outcomes if outcome), default="")


def _part_table(plan: Plan, group: dict[int, dict[str, Any]], *, number: int) -> pa.Table:
    rows = sorted(group)
    documents = plan.documents.take(pa.array(rows, pa.int64()))
    added = pa.Table.from_pylist([group[row] for row in rows], schema=_PART_COLUMNS)
    for column in _PART_COLUMNS:
        documents = documents.append_column(column, added[column.name])
    documents = documents.append_column(PART_COLUMN, pa.array([number] * len(rows), pa.int64()))
    asked = [[reading["question"] for reading in group[row]["readings"]] for row in rows]
    return with_asked(documents, asked, questions=plan.asked.hashed).combine_chunks()


class EndedRow(TypedDict):
    """What a reader returns of each reading."""

    document_id: str
    status: str
    not_read: OutcomeRow | None
    """What stands in for its outcome; None if the log holds the outcome."""


ENDED = arrow_schema(EndedRow)


_PLAN_COLUMNS = (
    "document_id",
    "document_hash",
    "error",
    "error_type",
    "readings",
    "outcome_files",
    "turn_files",
    "follow_up_files",
)


_QUESTION_COLUMNS = ("question_id", "document_id", "question", "question_hash", FOLLOW_UP_FINGERPRINT)


def part_key(part: pa.Table, *, projection: Projection) -> str:
    """Hash of all that decides the rows of a part of the plan (a table of `plan_parts`), hex."""
    carried = sorted(name for name in part.schema.names if name.startswith(CARRY_PREFIX))
    made_of = {
        "code": row_rules(),
        "settings": projection.rules(),
        "documents": part.select([*_PLAN_COLUMNS, *carried]).to_pylist(),
        "questions": {
            row: {name: value for name, value in question.items() if name in _QUESTION_COLUMNS}
            for row, question in asked_in(part).items()
        },
    }
    return sha256(json.dumps(made_of, sort_keys=True).encode()).hexdigest()


def kept_parts(output: Location) -> dict[str, PartReport]:
    """Reports of the parts that the manifest names, by key."""
    manifest = read_manifest(output)
    return {part["key"]: part for part in (manifest["parts"] if manifest else ()) if part["key"]}


def collect_not_read(batches: Iterable[pa.Table]) -> pa.Table:
    """The readings in a run's tables of `ENDED` that were not read, as rows of `OUTCOME_LOG`."""
    found = [chunk for batch in batches for chunk in batch[NOT_READ_COLUMN].drop_null().chunks if len(chunk)]
    return pa.concat_tables(
        [OUTCOME_LOG.empty_table(), *[pa.Table.from_struct_array(chunk).cast(OUTCOME_LOG) for chunk in found]]
    ).combine_chunks()


def attach_not_read(parts: Iterable[pa.Table], not_read: pa.Table) -> Iterator[pa.Table]:
    """The parts of a plan with a column `not_read`: of each document, its rows of `OUTCOME_LOG`."""
    rows_of: dict[str, list[int]] = defaultdict(list)
    for row, document_hash in enumerate(not_read["document_hash"].to_pylist()):
        rows_of[document_hash].append(row)
    for part in parts:
        rows = [rows_of.get(document_hash, []) for document_hash in part["document_hash"].to_pylist()]
        values = [not_read.take(pa.array(numbers)).to_pylist() if numbers else [] for numbers in rows]
        yield part.append_column(NOT_READ_COLUMN, pa.array(values, pa.list_(ENDED.field(NOT_READ_COLUMN).type)))


def detach_not_read(part: pa.Table) -> tuple[pa.Table, list[OutcomeRow]]:
    """A part of a plan without the column, and what stood in it."""
    return part.drop_columns([NOT_READ_COLUMN]), pc.list_flatten(part[NOT_READ_COLUMN]).to_pylist()
