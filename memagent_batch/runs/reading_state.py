"""The state of a run in the database: one row for each reading that is asked for, with what the log holds of it.

Each question to it is a query: counts, pending readings, the recorded plan, the log files of a part of the tables.
"""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.store.database import BATCH_ROWS, on_disk, open_database, query_to_disk
from memagent_batch.store.turn_log.index import TURN_FILES, LogIndex
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT

if TYPE_CHECKING:
    import duckdb

DOCUMENT, QUESTION = "document", "question"
"""Columns with the row of a document in its table, and of a question in its list."""
FILE_COLUMNS = ("outcome_files", "turn_files", "follow_up_files")
"""Columns that name the log files of a document's readings."""
Rows = npt.NDArray[np.int64]
_QUESTION_COLUMNS = ("question_id", "document_id", "question_hash", FOLLOW_UP_FINGERPRINT)
_STATE = """
select asked.document, asked.place, asked.question, asked.sample, documents.document_hash, questions.question_hash,
       follow_up_fingerprint, error is not null as is_unreadable,
       outcomes.status, outcomes.file, outcomes.run_id, closed.status as closed_status, closed.file as closed_file,
       coalesce(outcomes.status = 'ok' and follow_up_fingerprint is not null and closed.status is null, false)
           as is_open
from asked join documents using (document) join questions using (question)
left join outcomes on outcomes.document_hash = documents.document_hash
    and outcomes.question_hash = questions.question_hash and outcomes.sample = asked.sample
left join closed on closed.document_hash = documents.document_hash
    and closed.question_hash = questions.question_hash and closed.sample = asked.sample
    and closed.fingerprint = follow_up_fingerprint
"""
_FILES = f"""
select document, 'outcome_files' as kind, file from state where file is not null
union
select document, 'follow_up_files', closed_file from state where closed_file is not null
union
select document, 'turn_files', turn_files.file from state join ({TURN_FILES}) turn_files
    using (document_hash, question_hash)
"""
_RECORDED = """
select document, reading.question, reading.sample, 0 as place
from (select document, unnest(readings) as reading from documents)
"""


@contextmanager
def open_state(
    documents: pa.Table,
    questions: pa.Table,
    index: LogIndex,
    *,
    asked: str,
    tables: Mapping[str, pa.Table] | None = None,
) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A database with the views `state` and `files`.

    `state` has a row for each reading: rows of document and question, sample, the `place` of the question among those
    of its document, and how it ended. `is_open`: it has an answer, and more is asked after it than the log holds.
    `files` has a row for each document and log file with something of it; `kind` is one of `FILE_COLUMNS`.

    Args:
        documents: Columns document_hash and error, and what `asked` uses.
        questions: `PlannedQuestions.hashed`.
        index: What the log holds.
        asked: The query of what is asked, of `documents`, `questions` and `tables`: document, question, place, sample.
        tables: Further tables, by name.
    """
    hashed = questions.select([name for name in _QUESTION_COLUMNS if name in questions.schema.names])
    if FOLLOW_UP_FINGERPRINT not in hashed.schema.names:
        hashed = hashed.append_column(FOLLOW_UP_FINGERPRINT, pa.nulls(hashed.num_rows, pa.string()))
    numbered = {"documents": _with_rows(documents, DOCUMENT), "questions": _with_rows(hashed, QUESTION)}
    logged = {"outcomes": index.outcomes, "closed": index.closed, "turns": index.turns}
    with open_database({**numbered, **logged, **(tables or {})}) as database:
        for name, query in (("asked", asked), ("state", _STATE), ("files", _FILES)):
            database.execute(f"create temp view {name} as {query}")
        yield database


def _with_rows(table: pa.Table, name: str) -> pa.Table:
    return table.append_column(name, pa.array(np.arange(table.num_rows)))


def in_blocks(documents: Rows, *tables: pa.Table) -> Iterator[tuple[Rows, list[pa.Table]]]:
    """Documents some at a time, with their rows of tables; all are in the order of `document`."""
    for start in range(0, len(documents), BATCH_ROWS):
        block = documents[start : start + BATCH_ROWS]
        yield block, [rows_between(table, block[0], block[-1] + 1, of=DOCUMENT) for table in tables]


def rows_between(table: pa.Table, start: int, stop: int, *, of: str) -> pa.Table:
    """The rows from a number up to another in a column by which the table is in order."""
    first, end = _first_row(table[of], start), _first_row(table[of], stop)
    return table.slice(first, end - first)


def _first_row(numbers: pa.ChunkedArray, least: int) -> int:
    """The first row of this number or of a larger one; one of the batches is looked at."""
    start = 0
    for chunk in numbers.chunks:
        if len(chunk) and chunk[-1].as_py() >= least:
            return start + int(np.searchsorted(chunk.to_numpy(), least))
        start += len(chunk)
    return start


def rows_of(table: pa.Table, rows: Rows) -> pa.Table:
    """Some rows of a table, by their numbers in order; `take` would first copy the whole column into one."""
    if not len(rows):
        return table.slice(0, 0)
    batches = table.to_batches()
    starts = np.cumsum([0, *(batch.num_rows for batch in batches)])
    numbers, firsts = np.unique(np.searchsorted(starts, rows, side="right") - 1, return_index=True)
    parts = zip(numbers, np.split(rows, firsts[1:]), strict=True)
    taken = [batches[number].take(pa.array(part - starts[number])) for number, part in parts]
    return pa.Table.from_batches(taken, schema=table.schema)


def list_column(rows: pa.Table, values: pa.Array, *, documents: Rows) -> pa.ListArray:
    """A list of values for each of these documents.

    `rows` are theirs alone, one for each value, in the order of `document`; `documents` are in that order too.
    """
    starts = np.searchsorted(rows[DOCUMENT].to_numpy(), documents)
    return pa.ListArray.from_arrays(pa.array(np.append(starts, rows.num_rows), pa.int32()), values)


def struct_column(rows: pa.Table, kind: pa.ListType, *, documents: Rows) -> pa.ListArray:
    """Lists of structs of the columns of `rows` that a list type names; see `list_column`."""
    fields = list(kind.value_type)
    values = [rows[field.name].combine_chunks().cast(field.type) for field in fields]
    return list_column(rows, pa.StructArray.from_arrays(values, fields=fields), documents=documents).cast(kind)


def with_log_files(plan: pa.Table, questions: pa.Table, index: LogIndex) -> pa.Table:
    """Rows of a recorded plan (`RUN_PLAN`) with the columns that name log files."""
    asked = plan.select(["document_hash", "error", "readings"])
    with open_state(asked, questions, index, asked=_RECORDED) as database:
        files = query_to_disk(database, "from files order by document, file")
    schema = add_files(plan.slice(0, 0), files.slice(0, 0), rows=np.arange(0)).schema
    blocks = in_blocks(np.arange(plan.num_rows), files)
    return on_disk((add_files(rows_of(plan, block), found, rows=block) for block, (found,) in blocks), schema=schema)


def add_files(documents: pa.Table, files: pa.Table, *, rows: Rows) -> pa.Table:
    """Documents with the columns of `FILE_COLUMNS`, from rows of `files` that are theirs alone; `rows` are theirs.

    The files are in order of document and name.
    """
    for kind in FILE_COLUMNS:
        of_kind = files.filter(pc.equal(files["kind"], kind))
        column = list_column(of_kind, of_kind["file"].combine_chunks(), documents=rows)
        documents = documents.append_column(kind, column)
    return documents
