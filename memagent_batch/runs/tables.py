"""The tables `answers` and `memories`: projections of plan and turn log, and of nothing else."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config import TableFormat
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.prompts import new_memory
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import DIRECT, UPDATE, FinishReason
from memagent_batch.errors import DocumentError
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.index import Row, read_outcomes, read_turns
from memagent_batch.log.question_list import ASKED_COLUMN, LIST_HASH, asked_in
from memagent_batch.runs.schemas import ANSWERS, MEMORIES

ANSWERS_FOLDER = "answers"
MEMORIES_FOLDER = "memories"
REMOVED_FOLDER = "removed"
SUMS = ("num_document_tokens", "num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens")
"""Columns of `answers` whose totals the manifest gives."""

_ANSWERS_COLUMNS = frozenset(ANSWERS.names)
_MEMORIES_COLUMNS = frozenset(MEMORIES.names)


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a row of `answers` says of who made it, and how."""

    run_id: str
    """The run, for rows of readings that no run has read."""
    reader_fingerprint: str
    """The reader."""
    model: str
    """Name of the model, for rows of readings that never reached it."""
    extraction: Extraction
    """How answers are taken out of responses."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection:
    """What turns a part of the plan into rows."""

    output: Location
    """The run's location."""
    run_id: str
    """The run; rows of older readings keep the id of the run that read them."""
    reader_fingerprint: str
    """Whose turns and outcomes are taken."""
    model: str
    """Name of the model, for rows of readings that never reached it."""
    first_memory: str
    """The memory before the first chunk."""
    keep_word: str
    """What the model writes to keep its memory; empty where it always writes a new one."""
    extraction: Extraction
    """How answers are taken out of responses."""
    table_format: TableFormat
    """File format."""
    opens_thought: bool = False
    """Whether each prompt ended inside a thought."""

    @property
    def origin(self) -> Origin:
        """What each row of `answers` says of the run."""
        return Origin(
            run_id=self.run_id,
            reader_fingerprint=self.reader_fingerprint,
            model=self.model,
            extraction=self.extraction,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of one part of the plan."""

    answers: pa.Table
    """`ANSWERS` and the carried columns."""
    memories: pa.Table
    """`MEMORIES`."""
    missing: list[str]
    """Readings asked for that the log has no outcome of, though no reader reported it as not read."""


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[Row] = ()) -> PartTables:
    """The rows of a part of the plan (a table of `Plan.parts`), from the log files that the part names.

    `not_read`: what stands in for the outcomes of readings that were not read, as rows of `OUTCOME_LOG`.
    """
    fingerprint = projection.reader_fingerprint
    outcome_files = sorted({file for files in part["outcome_files"].to_pylist() for file in files})
    turn_files = sorted({file for files in part["turn_files"].to_pylist() for file in files})
    hashes = [value for value in part["document_hash"].to_pylist() if value is not None]
    outcomes = read_outcomes(projection.output, outcome_files, reader_fingerprint=fingerprint)
    turns = read_turns(
        projection.output,
        turn_files,
        reader_fingerprint=fingerprint,
        document_hashes=hashes,
        ended_by={key: row["line"] for key, row in outcomes.items()},
        with_tokens=False,
    )
    unread = {(row["document_hash"], row["question_hash"], row["sample"]): row for row in not_read}
    answers: list[Row] = []
    memories: list[Row] = []
    missing: list[str] = []
    for document, question, sample in _readings(part):
        key = (document["document_hash"], question["question_hash"], sample)
        names = {"document_id": document["document_id"], "question_id": question["question_id"], "sample": sample}
        outcome = unread.get(key) or outcomes.get(key)
        answer = answer_row(document, question, sample, outcome, origin=projection.origin)
        if answer is None:
            missing.append(f"document {names['document_id']!r}, question {names['question_id']!r}, sample {sample}")
            continue
        answers.append(answer)
        shared = turns.get((key[0], question.get(LIST_HASH, ""), sample), {})
        memories.extend(_memories({**shared, **turns.get(key, {})}, names=names, projection=projection))
    return PartTables(
        answers=pa.Table.from_pylist(answers, schema=answers_schema(carried_columns(part.schema))),
        memories=pa.Table.from_pylist(memories, schema=MEMORIES),
        missing=missing,
    )


def answer_row(document: Row, question: Row, sample: int, outcome: Row | None, *, origin: Origin) -> Row | None:
    """The row of `answers` of one reading; None where nothing says how it ended.

    Args:
        document: Its id, hash, and `error` and `error_type` where its text can't be read; carried columns.
        question: Its id, text and hash.
        sample: Which of several draws.
        outcome: How the reading ended, as a row of `OUTCOME_LOG`; None where it did not.
        origin: Who answers.
    """
    answer = _answer(document, outcome, origin=origin)
    if answer is None:
        return None
    return {
        **answer,
        "document_id": document["document_id"],
        **{name: question[name] for name in ("question_id", "question", "question_hash")},
        "sample": sample,
        **_carried(document),
    }


def answers_schema(carried: Sequence[str]) -> pa.Schema:
    """`ANSWERS`, and the carried columns behind it."""
    return pa.schema([*ANSWERS, *[pa.field(name, pa.string()) for name in carried]])


def carried_columns(schema: pa.Schema) -> list[str]:
    """Names of the carried input columns of a document index."""
    return [name.removeprefix(CARRY_PREFIX) for name in schema.names if name.startswith(CARRY_PREFIX)]


def table_bytes(table: pa.Table, *, table_format: TableFormat) -> bytes:
    """The table as one file, zstd."""
    if table_format == TableFormat.PARQUET:
        return parquet_bytes(table)
    sink = io.BytesIO()
    with pa.ipc.new_file(sink, table.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
        writer.write_table(table)
    return sink.getvalue()


def count_rows(place: Location) -> int | None:
    """Rows that a table file really holds, by its own footer; None where it is gone."""
    try:
        with place.open() as stream:
            if place.path.endswith(".parquet"):
                return int(pq.ParquetFile(stream).metadata.num_rows)
            reader = pa.ipc.open_file(stream)
            return sum(int(reader.get_batch(number).num_rows) for number in range(reader.num_record_batches))
    except FileNotFoundError:
        return None


def _readings(part: pa.Table) -> Iterator[tuple[Row, Row, int]]:
    asked = asked_in(part)
    for document in part.drop_columns(["outcome_files", "turn_files", ASKED_COLUMN]).to_pylist():
        for reading in document["readings"]:
            yield document, asked[reading["question"]], reading["sample"]


def _answer(document: Row, outcome: Row | None, *, origin: Origin) -> Row | None:
    if document["error"] is not None:
        error = {"error_type": document["error_type"] or DocumentError.__name__, "error_message": document["error"]}
        return {**_unread(origin), "document_hash": document["document_hash"], **error}
    if outcome is None:
        return None
    row: Row = {name: value for name, value in outcome.items() if name in _ANSWERS_COLUMNS}
    if row["status"] == Status.OK:
        row["answer"] = extract_answer(row["response"], extraction=origin.extraction)
        if row["answer"] is None:
            row["error_type"] = "AnswerNotFound"
            cut = "; it was cut at policy.answer_tokens" if row["finish_reason"] == FinishReason.LENGTH else ""
            row["error_message"] = f"the response holds no answer in the form {origin.extraction.value!r}{cut}"
    return row


def _unread(origin: Origin) -> Row:
    """The row of a document that never reached a reader."""
    zeros = [field.name for field in ANSWERS if field.name.startswith("num_") and not field.nullable]
    return {
        **dict.fromkeys(zeros, 0),
        "run_id": origin.run_id,
        "status": Status.FAILED,
        "memory_truncations": 0,
        "engine_seconds": 0.0,
        "finished_at": datetime.now(UTC),
        "reader_fingerprint": origin.reader_fingerprint,
        "model": origin.model,
    }


def _carried(document: Row) -> Row:
    return {name.removeprefix(CARRY_PREFIX): value for name, value in document.items() if name.startswith(CARRY_PREFIX)}


def _memories(turns: Mapping[str, Row], *, names: Mapping[str, Any], projection: Projection) -> Iterator[Row]:
    """The audit trail of one reading: turns in the order in which its policy asked for them."""
    memory = projection.first_memory
    for number, row in enumerate(sorted(turns.values(), key=itemgetter("turn", "finished_at", "path"))):
        before = memory = "" if row["kind"] == DIRECT else memory
        if row["kind"] == UPDATE:
            written = new_memory(row["text"], keep_word=projection.keep_word, opens_thought=projection.opens_thought)
            memory = memory if written is None else written
        kept = {name: value for name, value in row.items() if name in _MEMORIES_COLUMNS}
        yield {
            **kept,
            **names,
            "turn": number,
            "memory": memory,
            "changed": memory != before,
        }
