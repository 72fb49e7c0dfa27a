"""Parts of a plan: each becomes one file of each table. Which of them are written again, and what was not read.

A run takes over the files of a part from the run before where it would write the same rows.

A row of a table follows from the plan, the log files that hold its reading, and a few settings. Their
hash is the key of a part; a run that plans a part of a key that the manifest has names the files that are there.

The log does not hold readings that were not read, so that the next run reads them. A reader returns a row of each, as
an outcome would be, and the rows go to the table `answers` with their part.
"""

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator
from hashlib import sha256
from itertools import islice
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.document_index import CARRY_PREFIX
from memagent_batch.runs.manifest import PartReport, read_manifest
from memagent_batch.runs.plan import WORK_COLUMNS, Plan
from memagent_batch.runs.projection import Projection, row_rules
from memagent_batch.runs.reading_state import (
    DOCUMENT,
    FILE_COLUMNS,
    add_files,
    log_files,
    rows_between,
    rows_of,
    struct_column,
)
from memagent_batch.store.columns import arrow_schema
from memagent_batch.store.database import on_disk, query_to_disk
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT, asked_in, with_asked
from memagent_batch.store.turn_log.rows import OUTCOME_LOG, OutcomeRow

PART_BYTES = 256 * 1024 * 1024
"""Text that the readings of one part file of the tables have read: some 13,000 turns of 5,000 tokens."""
PART_READINGS = 10_000
"""Most readings of a part, about; a document that is asked nothing counts as one."""
LOT_PARTS = 4
"""Parts of a lot, about: if one of its documents changes, up to all of them are written again. Fewer would make more
small parts, since the last one of a lot is not full."""
PART_COLUMN = "part"
"""Number of a part, from 0, in each of its rows: files of the tables are named by it."""
ROWS_AT_ONCE = 1000
"""Readings that are not read and are written together: alone, each would take 30 KB of the driver's memory."""
_READINGS_FIELD = WORK_COLUMNS.field("readings")
_PARTS = """
with ended as (
    select document, coalesce(max(file), -1) as last_file,
           greatest(num_bytes * count(question) * $part_readings, greatest(count(question), 1) * $part_bytes) as size
    from documents left join state using (document) group by document, num_bytes),
lots as (
    select last_file, (sum(sum(size)) over (order by last_file) - sum(size)) // $lot_size as lot
    from ended group by last_file),
placed as (
    select document, lot,
           sum(size) over (partition by lot order by last_file, document rows unbounded preceding) - size as place
    from ended join lots using (last_file))
select document, dense_rank() over (order by lot, place // $part_size) - 1 as part
from placed order by part, document
"""
"""A size is in units in which a part is as full by its bytes as by its readings. A lot begins with a log file, so that
a document less, or more, moves only the documents of its lot from part to part."""
_PART_READINGS = """
select part, document, question, sample from state join parts using (document) order by part, document, place, sample
"""
_PART_FILES = "select part, document, kind, file from files join parts using (document) order by part, document, file"
NOT_READ_COLUMN = "not_read"
"""Column of what a reader returns, and of a part of the plan."""


def plan_parts(plan: Plan, index: LogIndex) -> Iterator[pa.Table]:
    """All documents, in groups whose readings make one part file of each table; in a group in input order.

    Documents whose readings ended at about the same time go together, so that a log file is read for one group or
    two, and not for all. The readings are all that were asked for; `FILE_COLUMNS` name the log files that hold them,
    `asked` holds their questions (`question_list.py`), `part` the number of the group.
    """
    with plan.state(index) as database:
        size = PART_BYTES * PART_READINGS
        limits = {"part_bytes": PART_BYTES, "part_readings": PART_READINGS, "part_size": size}
        parts = query_to_disk(database, _PARTS, lot_size=LOT_PARTS * size, **limits)
        database.register("parts", parts)
        tables = parts, query_to_disk(database, _PART_READINGS), query_to_disk(database, _PART_FILES)
        names = log_files(database)
    num_parts = parts[PART_COLUMN][-1].as_py() + 1 if parts.num_rows else 0
    for number in range(num_parts):
        documents, readings, files = (rows_between(each, number, number + 1, of=PART_COLUMN) for each in tables)
        rows = documents[DOCUMENT].to_numpy()
        column = struct_column(readings, _READINGS_FIELD.type, documents=rows)
        part = rows_of(plan.documents, rows).append_column(_READINGS_FIELD, column)
        part = add_files(part, files, rows=rows, names=names)
        part = part.append_column(PART_COLUMN, pa.array([number] * len(rows), pa.int64()))
        yield with_asked(part, plan.asked.hashed).combine_chunks()


class EndedRow(TypedDict):
    """What a reader returns of each reading."""

    document_id: str
    status: str
    not_read: OutcomeRow | None
    """What stands in for its outcome; None if the log holds the outcome."""


ENDED = arrow_schema(EndedRow)


_PLAN_COLUMNS = ("document_id", "document_hash", "error", "error_type", "readings", *FILE_COLUMNS)
_PART_QUESTIONS = ("question_id", "document_id", "question", "question_hash", FOLLOW_UP_FINGERPRINT)


def part_key(part: pa.Table, *, projection: Projection) -> str:
    """Hash of all that decides the rows of a part of the plan (a table of `plan_parts`), hex."""
    carried = sorted(name for name in part.schema.names if name.startswith(CARRY_PREFIX))
    made_of = {
        "code": row_rules(),
        "settings": projection.rules(),
        "documents": part.select([*_PLAN_COLUMNS, *carried]).to_pylist(),
        "questions": {
            row: {name: value for name, value in question.items() if name in _PART_QUESTIONS}
            for row, question in asked_in(part).items()
        },
    }
    return sha256(json.dumps(made_of, sort_keys=True, default=str).encode()).hexdigest()


def kept_parts(output: Location) -> dict[str, PartReport]:
    """Reports of the parts that the manifest names, by key."""
    manifest = read_manifest(output)
    return {part["key"]: part for part in (manifest["parts"] if manifest else ()) if part["key"]}


def collect_not_read(batches: Iterable[pa.Table]) -> pa.Table:
    """The readings in a run's tables of `ENDED` that were not read, as rows of `OUTCOME_LOG` in a temporary file."""
    rows = (row for batch in batches for row in batch[NOT_READ_COLUMN].drop_null().to_pylist())
    groups = iter(lambda: list(islice(rows, ROWS_AT_ONCE)), [])
    return on_disk((pa.Table.from_pylist(group, schema=OUTCOME_LOG) for group in groups), schema=OUTCOME_LOG)


def attach_not_read(parts: Iterable[pa.Table], not_read: pa.Table) -> Iterator[pa.Table]:
    """The parts of a plan with a column `not_read`: of each document, its rows of `OUTCOME_LOG`."""
    kind = pa.list_(ENDED.field(NOT_READ_COLUMN).type)
    for part in parts:
        of_part = not_read.filter(pc.is_in(not_read["document_hash"], value_set=part["document_hash"].combine_chunks()))
        by_hash: dict[str, list[OutcomeRow]] = defaultdict(list)
        for row in of_part.to_pylist():
            by_hash[row["document_hash"]].append(row)
        values = [by_hash[each] for each in part["document_hash"].to_pylist()] if by_hash else [[]] * part.num_rows
        yield part.append_column(NOT_READ_COLUMN, pa.array(values, kind))


def detach_not_read(part: pa.Table) -> tuple[pa.Table, list[OutcomeRow]]:
    """A part of a plan without the column, and what stood in it."""
    return part.drop_columns([NOT_READ_COLUMN]), pc.list_flatten(part[NOT_READ_COLUMN]).to_pylist()
