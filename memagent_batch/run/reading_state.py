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

from memagent_batch.data.store.database import BATCH_ROWS, open_database
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT

if TYPE_CHECKING:
    import duckdb

DOCUMENT, QUESTION = "document", "question"
"""Columns with the row of a document in its table, and of a question in its list."""
FILE_COLUMNS = ("outcome_files", "turn_files", "follow_up_files")
Rows = npt.NDArray[np.int64]
_LOGGED = """
select md5_number(document_hash) as hash_number, question_number, sample, status = 'ok' as is_ok, number as file,
       document_id
from {name} join log_files using (file, run_id)
join (select distinct question_hash, follow_up_fingerprint, question_number from question_numbers) using (question_hash)
where '{name}' <> 'closed' or fingerprint = follow_up_fingerprint
"""
_STATE_TABLES = {
    # the documents, with their hashes as 128-bit numbers
    "view hashed_documents": """
        select *, md5_number(document_hash) as hash_number, error is not null as is_unreadable from documents""",
    # each reading that is asked for
    "view asked": "{asked}",
    # the files of the log, numbered
    "table log_files": """
        select *, (row_number() over (order by file, run_id) - 1)::int as number
        from (select file, run_id from outcomes union select file, run_id from closed
              union select file, run_id from turns)""",
    # the rows of the question list; equal questions with equal follow-up questions have one number
    "table question_numbers": """
        select *, dense_rank() over (order by question_hash, follow_up_fingerprint)::int as question_number
        from questions""",
    # what the log holds of these questions
    **{f"view logged_{name}": _LOGGED.format(name=name) for name in ("outcomes", "closed", "turns")},
    # each reading, with what the log holds of it
    "table state": """
        select document, position, asked.question, asked.sample, hash_number, question_number, is_unreadable,
               outcomes.is_ok, outcomes.file, closed.is_ok as is_closed_ok, closed.file as closed_file,
               coalesce(outcomes.is_ok and follow_up_fingerprint is not null and closed.is_ok is null, false) as is_open
        from asked join question_numbers using (question)
        left join logged_outcomes outcomes using (hash_number, question_number, sample)
        left join logged_closed closed using (hash_number, question_number, sample)""",
    # the files of the log that hold something of a document
    "view files": """
        select distinct document, 0 as kind, file from state where file is not null
        union all
        select distinct document, 1, logged_turns.file
        from state join logged_turns using (hash_number, question_number)
        union all
        select distinct document, 2, closed_file from state where closed_file is not null""",
}
"""The tables and views of a state, in the order in which they are created."""


@contextmanager
def open_state(
    documents: pa.Table,
    questions: pa.Table,
    index: LogIndex,
    *,
    asked: str,
    tables: Mapping[str, pa.Table] | None = None,
) -> Iterator["duckdb.DuckDBPyConnection"]:
    """A database with the tables `state` and `files`.

    `state` has a row for each reading: rows of document and question, sample, the `position` of the question among
    those of its document, and how it ended. `is_open`: it has an answer, and more is asked after it than the log holds.
    `files` has a row for each document and log file with something of it; `kind` is the index in `FILE_COLUMNS`.

    Rows are narrow, so that ten million readings are joined in memory: `hash_number` is 128 bits made of a document's
    hash, `question_number` that of a question with its follow-up questions, and `file` a number in `log_files`.

    Args:
        documents: Columns document_hash and error, and what `asked` uses.
        questions: `PlannedQuestions.hashed`.
        index: What the log holds.
        asked: The query of what is asked, of `hashed_documents` and `tables`: document, hash_number, is_unreadable,
            question, position, sample.
        tables: Further tables, by name.
    """
    if FOLLOW_UP_FINGERPRINT not in questions.schema.names:
        questions = questions.append_column(FOLLOW_UP_FINGERPRINT, pa.nulls(questions.num_rows, pa.string()))
    hashed = with_rows(questions.select(["question_hash", FOLLOW_UP_FINGERPRINT]), QUESTION)
    logged = {"outcomes": index.outcomes, "closed": index.closed, "turns": index.turns}
    named = {"documents": with_rows(documents, DOCUMENT), "questions": hashed, **logged, **(tables or {})}
    with open_database(named) as database:
        for name, query in _STATE_TABLES.items():
            database.execute(f"create temp {name} as {query.format(asked=asked)}")
        yield database


def log_files(database: "duckdb.DuckDBPyConnection") -> pa.Array:
    """The paths of the log files of a state, by their numbers."""
    return database.sql("select file from log_files order by number").to_arrow_table()["file"].combine_chunks()


def with_rows(table: pa.Table, name: str) -> pa.Table:
    """A table with the numbers of its rows."""
    return table.append_column(name, pa.array(np.arange(table.num_rows)))


def in_blocks(documents: Rows, *tables: pa.Table) -> Iterator[tuple[Rows, list[pa.Table]]]:
    """Documents some at a time, with their rows of tables; all are in the order of `document`."""
    for start in range(0, len(documents), BATCH_ROWS):
        block = documents[start : start + BATCH_ROWS]
        yield block, [rows_between(table, block[0], block[-1] + 1, of=DOCUMENT) for table in tables]


def rows_between(table: pa.Table, start: int, stop: int, *, of: str) -> pa.Table:
    """The rows from a number up to another in a column by which the table is in order."""
    found = [np.searchsorted(chunk.to_numpy(), [start, stop]) for chunk in table[of].chunks]
    first, end = np.sum(found, axis=0) if found else (0, 0)
    return table.slice(first, end - first)


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


def add_files(documents: pa.Table, files: pa.Table, *, rows: Rows, names: pa.Array) -> pa.Table:
    """Documents with the columns of `FILE_COLUMNS`, from rows of `files` that are theirs alone; `rows` are theirs.

    The files are in order of document and number; `names` are the paths by number.
    """
    for kind, name in enumerate(FILE_COLUMNS):
        of_kind = files.filter(pc.equal(files["kind"], kind))
        column = list_column(of_kind, names.take(of_kind["file"].combine_chunks()), documents=rows)
        documents = documents.append_column(name, column)
    return documents
