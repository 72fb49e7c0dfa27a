"""Parts: groups of documents whose rows become one file of each table. Rows that change are projected from the log into
new parts; other rows of the same files are copied.
"""

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.data.store.database import on_disk, query_to_disk
from memagent_batch.data.store.delta import TableFile
from memagent_batch.data.store.turn_log.question_list import with_asked
from memagent_batch.data.store.turn_log.rows import OUTCOME_LOG, OutcomeRow
from memagent_batch.run.plan import Plan
from memagent_batch.run.reading_state import DOCUMENT, add_files, log_files, rows_between, rows_of, struct_column
from memagent_batch.run.row_changes import RowChanges

if TYPE_CHECKING:
    import duckdb

PART_BYTES = 256 * 1024 * 1024
"""Text that the readings of one part file of the tables have read: some 13,000 turns of 5,000 tokens."""
PART_READINGS = 10_000
"""Most readings of a part, about."""
PART_COLUMN = "part"
"""Number of a part, from 0, in each of its rows: files of the tables are named by it."""
SMALL_ROWS = PART_READINGS // 8
"""Rows of `answers` below which a part is small."""
MANY_SMALL = 32
"""Small parts from which they are merged: a night with few changes adds one."""
ROWS_AT_ONCE = 1000
"""Readings that are not read and are written together: alone, each would take 30 KB of the driver's memory."""
_READINGS_TYPE = pa.list_(pa.struct([("question", pa.int32()), ("sample", pa.int32()), ("inputs_hash", pa.string())]))
_PARTS = """
with sized as (
    select document, coalesce(max(file), -1) as last_file,
           greatest(num_bytes * count(*) / $part_bytes, count(*) / $part_readings) as share
    from documents semi join changed using (document) join state using (document) group by document, num_bytes)
select document, floor(sum(share) over (order by last_file, document rows unbounded preceding) - share)::bigint as part
from sized order by part, document
"""
"""Documents whose readings ended at about the same time go together, so that few parts need one log file."""
_PART_READINGS = """
select part, document, question, sample, inputs_hash from wanted join parts using (document)
order by part, document, position, sample
"""
_PART_FILES = "select part, document, kind, file from files join parts using (document) order by part, document, file"
NOT_READ_COLUMN = "not_read"
"""Column of what a reader returns, and of a part of the plan."""


def plan_parts(plan: Plan, database: "duckdb.DuckDBPyConnection") -> Iterator[pa.Table]:
    """The documents that change, in groups whose readings make one part; in a group in input order.

    The readings are all that were asked for; columns name the log files that hold them (`FILE_COLUMNS`), `asked` has
    their questions, `part` the number of the group. `database` is that of `row_changes`.
    """
    parts = query_to_disk(database, _PARTS, part_bytes=PART_BYTES, part_readings=PART_READINGS)
    database.register("parts", parts)
    tables = parts, query_to_disk(database, _PART_READINGS), query_to_disk(database, _PART_FILES)
    names = log_files(database)
    num_parts = parts[PART_COLUMN][-1].as_py() + 1 if parts.num_rows else 0
    for number in range(num_parts):
        documents, readings, files = (rows_between(each, number, number + 1, of=PART_COLUMN) for each in tables)
        rows = documents[DOCUMENT].to_numpy()
        if not len(rows):
            continue
        part = rows_of(plan.documents, rows)
        part = part.append_column("readings", struct_column(readings, _READINGS_TYPE, documents=rows))
        part = add_files(part, files, rows=rows, names=names)
        part = part.append_column(PART_COLUMN, pa.array([number] * len(rows), pa.int64()))
        yield with_asked(part, plan.asked.hashed).combine_chunks()


@dataclass(frozen=True, slots=True, kw_only=True)
class CopiedPart:
    """Files of the tables that are replaced by ones with those of their rows that stay."""

    number: int
    files: Mapping[str, Sequence[TableFile]]
    """By table."""
    dropped: Sequence[str]
    """Documents whose rows don't stay."""


def copied_parts(
    changes: RowChanges, files: Mapping[str, Mapping[str, TableFile]], *, copies_all: bool
) -> tuple[list[CopiedPart], dict[str, list[TableFile]]]:
    """Decides which files are replaced.

    Args:
        changes: What a run changes.
        files: The files of each table, by path.
        copies_all: Whether all are replaced, since a table gets another schema.

    Returns:
        The parts to copy rows of, and the files of each table that are replaced; those of which no row stays are not
        copied.
    """
    of_stem: dict[str, dict[str, list[TableFile]]] = defaultdict(lambda: defaultdict(list))
    for table, of_table in files.items():
        for path, file in of_table.items():
            of_stem[path.rpartition("-")[0]][table].append(file)
    stems = changes.stems.to_pylist()
    left = {row["stem"]: row["num_rows"] - row["num_dropped"] for row in stems}
    small = [stem for stem, num_rows in left.items() if num_rows < SMALL_ROWS]
    changed = {row["stem"] for row in stems if row["num_dropped"]}
    replaced = {*left} if copies_all else changed | ({*small} if len(small) >= MANY_SMALL else set())
    dropped = _names_by_stem(changes.dropped, [stem for stem, num_rows in left.items() if num_rows])
    groups = _merged([stem for stem in sorted(replaced) if left[stem]], left)
    parts = [
        CopiedPart(
            number=number,
            files={table: [each for stem in stems for each in of_stem[stem][table]] for table in files},
            dropped=sorted({name for stem in stems for name in dropped[stem]}),
        )
        for number, stems in enumerate(groups)
    ]
    gone = {table: [each for stem in replaced for each in of_stem[stem][table]] for table in files}
    return parts, gone


def _names_by_stem(dropped: pa.Table, stems: Sequence[str]) -> dict[str, list[str]]:
    """Returns the dropped documents of each of these stems. Others keep no row, so that nobody asks for their names."""
    names: dict[str, list[str]] = defaultdict(list)
    wanted = pa.array(stems, dropped.schema.field("stem").type)
    for batch in dropped.to_batches():
        rows = batch.filter(pc.is_in(batch["stem"], value_set=wanted))
        for stem, name in zip(rows["stem"].to_pylist(), rows["document_id"].to_pylist(), strict=True):
            names[stem].append(name)
    return names


def _merged(stems: Sequence[str], num_rows: Mapping[str, int]) -> list[list[str]]:
    """Groups small parts up to the size of one."""
    groups: list[list[str]] = []
    room = 0
    for stem in stems:
        if num_rows[stem] > room or num_rows[stem] >= SMALL_ROWS:
            groups.append([])
            room = PART_READINGS if num_rows[stem] < SMALL_ROWS else 0
        groups[-1].append(stem)
        room -= num_rows[stem]
    return groups


class EndedRow(TypedDict):
    """What a reader returns of each reading."""

    document_id: str
    status: str
    not_read: OutcomeRow | None
    """What stands in for its outcome; None if the log holds the outcome."""


ENDED = arrow_schema(EndedRow)


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
