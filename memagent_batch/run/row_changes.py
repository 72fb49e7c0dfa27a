"""Which rows of the tables a run must write: it compares what is asked now with the rows of `answers`.

A document is written again if one of its rows would differ, if a reading is new or gone, or if the log holds a newer
outcome. All other rows stay in their files. Documents that this run leaves out (a limit, a slice, a condition) keep
their rows; those that are no longer there lose them.
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import sha256
from typing import TYPE_CHECKING, TypedDict

import pyarrow as pa

from memagent_batch.data.documents.document_index import BAD_FILE, CARRY_PREFIX, MISSING_DOCUMENT
from memagent_batch.data.documents.questions import NO_TYPE
from memagent_batch.data.store.database import BATCH_ROWS, on_disk, query_to_disk
from memagent_batch.data.store.delta import OutputTable
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.turn_log.index import LogIndex
from memagent_batch.data.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT
from memagent_batch.data.store.turn_log.rows import OUTCOME_LOG
from memagent_batch.run.plan import Plan
from memagent_batch.run.reading_state import DOCUMENT, QUESTION, with_rows

if TYPE_CHECKING:
    import duckdb

_STORED_COLUMNS = [
    *("document_id", "question_id", "sample", "document_hash", "inputs_hash"),
    *("status", "read_run_id", "error_type"),
]
_FILE_NAME = "__filename"
"""Column of Arrow datasets with the file of a row."""
_STORED = f"""
create temp table stored as
select * exclude ({_FILE_NAME}), regexp_extract({_FILE_NAME}, '([^/]+)-[^-]+$', 1) as stem from stored_rows
"""
"""Rows of `answers`. Files of one stem hold the rows of the same documents in each table."""
_INPUTS = """
create temp view {name}_inputs as select {name}, md5(to_json({{{fields}}})::varchar) as hash from planned_{name}s
"""
"""Hash of all that decides the rows of a document, or of a question."""
_WANTED = """
create temp table wanted as
select state.document, document_id, state.question, question_id, sample, position,
       md5(concat($settings_hash::varchar, document_inputs.hash, question_inputs.hash)) as inputs_hash,
       greatest(outcome_files.run_id, closed_files.run_id) as newest_run_id
from state join planned_documents using (document) join planned_questions on planned_questions.question = state.question
join document_inputs using (document) join question_inputs on question_inputs.question = state.question
left join log_files outcome_files on outcome_files.number = state.file
left join log_files closed_files on closed_files.number = state.closed_file
"""
"""One row for each reading that is asked for."""
_GONE = """
create temp table gone as
select distinct document_id from stored
anti join planned_documents using (document_id) anti join outside using (document_id)
"""
_CHANGED = """
create temp table changed as
select document from planned_documents join (
    select coalesce(wanted.document_id, stored.document_id) as document_id
    from wanted full join (from stored semi join planned_documents using (document_id)) stored
        using (document_id, question_id, sample)
    where stored.inputs_hash is distinct from wanted.inputs_hash or stored.status = 'not_read'
          or wanted.newest_run_id > stored.read_run_id) using (document_id)
union
select document from planned_documents semi join not_read using (document_hash)
"""
_DROPPED = """
create temp table dropped as
select document_id from gone union select document_id from changed join planned_documents using (document)
"""
_STEMS = """
select stem, count(*) as num_rows, count(*) filter (document_id in (from dropped)) as num_dropped
from stored group by stem order by stem
"""
_DROPPED_OF_STEMS = """
select distinct stem, document_id from stored semi join dropped using (document_id) order by stem, document_id
"""
_DOCUMENT_CHANGES = f"""
with before as (
    select document_id, any_value(document_hash) as document_hash from stored
    where error_type is null or error_type not in ('{MISSING_DOCUMENT}', '{BAD_FILE}') group by document_id),
after as (
    select document_id, document_hash from planned_documents semi join wanted using (document)
    where error_type is null or error_type not in ('{MISSING_DOCUMENT}', '{BAD_FILE}'))
select count(*) filter (before.document_id is null) as added,
       count(*) filter (before.document_id is not null and after.document_id is not null
                        and before.document_hash is distinct from after.document_hash) as changed,
       count(*) filter (after.document_id is null and (document_id in (from gone) or document_id in (
           select document_id from planned_documents
           where error_type in ('{MISSING_DOCUMENT}', '{BAD_FILE}')))) as removed,
       count(*) filter (before.document_id is not null and after.document_id is not null
                        and before.document_hash is not distinct from after.document_hash) as unchanged
from before full join after using (document_id)
"""


class DocumentChanges(TypedDict):
    """How many documents are new, have another text, are gone, and have the same text."""

    added: int
    changed: int
    removed: int
    unchanged: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RowChanges:
    """What a run changes in the tables."""

    documents: DocumentChanges
    num_changed: int
    """Documents whose rows are written."""
    stems: pa.Table
    """Of each stem of table files: `num_rows`, and `num_dropped`, those that are gone or written again."""
    dropped: pa.Table
    """`stem` and `document_id` of the documents whose rows in these files are gone or written again."""
    has_rows_outside: bool
    """Whether `answers` has rows of documents that the run leaves out."""

    @property
    def is_empty(self) -> bool:
        """Whether all rows stay as they are."""
        return not self.num_changed and not self.dropped.num_rows


@contextmanager
def row_changes(
    plan: Plan,
    index: LogIndex,
    *,
    answers: OutputTable,
    version: int | None,
    settings: Mapping[str, object],
    not_read: pa.Table | None = None,
) -> Iterator[tuple[RowChanges, "duckdb.DuckDBPyConnection"]]:
    """Compares what a plan asks for with the rows of `answers`.

    Args:
        plan: What is asked for.
        index: What the log holds of it.
        answers: The table `answers`.
        version: Its version that is compared with; None if there is none yet.
        settings: What else decides rows: settings and code that turn what was read into rows.
        not_read: Readings that could not be read now, as rows of `OUTCOME_LOG`.

    Yields:
        The changes, and the database in which `wanted` has the readings with their `inputs_hash`, `changed` the
        documents to write, and `state` what the log holds.
    """
    with plan.state(index) as database:
        _register(database, plan)
        batches = _stored_rows(answers, version)
        database.register("stored_rows", batches)
        hashes = pa.schema([OUTCOME_LOG.field("document_hash")]).empty_table() if not_read is None else not_read
        database.register("not_read", hashes.select(["document_hash"]))
        database.execute(_STORED)
        digest = sha256(json.dumps(settings, sort_keys=True, default=str).encode()).hexdigest()
        database.execute(_WANTED, {"settings_hash": digest})
        for sql in (_GONE, _CHANGED, _DROPPED):
            database.execute(sql)
        (documents,) = database.sql(_DOCUMENT_CHANGES).to_arrow_table().to_pylist()
        ((num_changed,),) = database.sql("select count(*) from changed").fetchall()
        outside = database.sql(
            "from stored anti join planned_documents using (document_id) anti join gone using (document_id) limit 1"
        )
        yield (
            RowChanges(
                documents=documents,
                num_changed=num_changed,
                stems=database.sql(_STEMS).to_arrow_table(),
                dropped=query_to_disk(database, _DROPPED_OF_STEMS),
                has_rows_outside=bool(outside.fetchall()),
            ),
            database,
        )


def _register(database: "duckdb.DuckDBPyConnection", plan: Plan) -> None:
    """Adds the documents, with all that decides their rows, the questions, and the documents that are left out."""
    carried = [name for name in plan.documents.schema.names if name.startswith(CARRY_PREFIX)]
    documents = plan.documents.select(["document_id", "document_hash", "error", "error_type", "parts_hash", *carried])
    database.register("planned_documents", with_rows(documents, DOCUMENT))
    questions = plan.asked.hashed
    if FOLLOW_UP_FINGERPRINT not in questions.schema.names:
        questions = questions.append_column(FOLLOW_UP_FINGERPRINT, pa.nulls(questions.num_rows, pa.string()))
    questions = questions.select(["question_id", "question", *NO_TYPE, FOLLOW_UP_FINGERPRINT])
    questions = questions.rename_columns({"question": "question_text"})
    database.register("planned_questions", with_rows(questions, QUESTION))
    outside = plan.documents.slice(0, 0) if plan.outside is None else plan.outside
    database.register("outside", outside.select(["document_id"]))
    for name, table in ((DOCUMENT, documents), (QUESTION, questions)):
        fields = ", ".join(
            f"'{column.replace(chr(39), chr(39) * 2)}': \"{column.replace(chr(34), chr(34) * 2)}\""
            for column in table.schema.names
        )
        database.execute(_INPUTS.format(name=name, fields=fields))


def _stored_rows(answers: OutputTable, version: int | None) -> pa.Table:
    """The narrow columns of `answers`, with the file of each row, in a temporary file."""
    schema = pa.schema([(name, pa.string()) for name in (*_STORED_COLUMNS, _FILE_NAME)])
    schema = schema.set(2, pa.field("sample", pa.int32()))
    if version is None:
        return schema.empty_table()
    with table_errors(answers.place.uri, remedy="restore the file, or choose another output"):
        scanner = answers.dataset(version).scanner(columns=[*_STORED_COLUMNS, _FILE_NAME], batch_size=BATCH_ROWS)
        return on_disk((batch.cast(schema) for batch in scanner.to_batches()), schema=schema)
