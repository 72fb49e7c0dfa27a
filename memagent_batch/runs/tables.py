"""The tables `answers` and `memories`: projections of plan and turn log, and of nothing else."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypedDict

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config import TableFormat
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.prompts import new_memory
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import DIRECT, FinishReason, Writes
from memagent_batch.errors import DocumentError
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.index import read_outcomes, read_turns
from memagent_batch.log.question_list import AskedQuestion, asked_in
from memagent_batch.log.schemas import ClosingColumns, OutcomeRow, ResultRow, TurnRow
from memagent_batch.runs.schemas import ANSWERS, MEMORIES, AnswerRow, MemoryRow

ANSWERS_FOLDER = "answers"
MEMORIES_FOLDER = "memories"
REMOVED_FOLDER = "removed"
NOT_CLOSED: ClosingColumns = {
    "value": None,
    "value_bool": None,
    "value_number": None,
    "value_label": None,
    "value_status": None,
    "confidence": None,
    "support": None,
    "support_probability": None,
    "coverage": None,
    "closing_error": None,
}
"""Of a reading of which nothing was asked after its answer."""


class PartDocument(TypedDict):
    """A document of a part of the plan, as its readings need it."""

    document_id: str
    document_hash: str | None
    error: str | None
    error_type: str | None
    readings: list[dict[str, int]]


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
    """The reader that turns and outcomes are of."""
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


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartTables:
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
    answers: list[AnswerRow] = []
    answered: list[int] = []
    memories: list[MemoryRow] = []
    missing: list[str] = []
    for row, document, question, sample in _readings(part):
        key = (document["document_hash"] or "", question["question_hash"], sample)
        outcome = unread.get(key) or outcomes.get(key)
        if outcome is None and document["error"] is None:
            names = f"document {document['document_id']!r}, question {question['question_id']!r}"
            missing.append(f"{names}, sample {sample}")
            continue
        answers.append(answer_row(document, question, outcome, sample=sample, origin=projection.origin))
        answered.append(row)
        shared = turns.get((key[0], question.get("list_hash", ""), sample), {})
        both = {**shared, **turns.get(key, {})}
        memories.extend(_memory_rows(both, document, question, sample=sample, projection=projection))
    rows = part.take(pa.array(answered, pa.int64()))
    carried = {name: rows[CARRY_PREFIX + name].to_pylist() for name in carried_columns(part.schema)}
    return PartTables(
        answers=answers_table(answers, carried=carried),
        memories=pa.Table.from_pylist(memories, schema=MEMORIES),
        missing=missing,
    )


def answer_row(
    document: PartDocument,
    question: AskedQuestion,
    outcome: OutcomeRow | None,
    *,
    sample: int,
    origin: Origin,
) -> AnswerRow:
    """The row of `answers` of a reading.

    Args:
        document: The document.
        question: The question.
        outcome: How the reading ended; None where the document can't be read, which ends it.
        sample: Which of several draws.
        origin: Who answers.
    """
    if document["error"] is not None or outcome is None:
        result, run_id = _unreadable_result(document, origin=origin), origin.run_id
    else:
        result, run_id = outcome, outcome["run_id"]
    row: AnswerRow = {
        **result,
        "run_id": run_id,
        "document_id": document["document_id"],
        "question_id": question["question_id"],
        "sample": sample,
        "question": question["question"],
        "answer": None,
        "document_hash": document["document_hash"],
        "question_hash": question["question_hash"],
        "reader_fingerprint": origin.reader_fingerprint,
        **NOT_CLOSED,
        "answer_type": None,
        "value_unit": None,
        "votes": None,
        "num_evidence": None,
    }
    if row["status"] == Status.OK:
        row["answer"] = extract_answer(row["response"] or "", extraction=origin.extraction)
        if row["answer"] is None:
            row["error_type"] = "AnswerNotFound"
            cut = "; it was cut at policy.answer_tokens" if row["finish_reason"] == FinishReason.LENGTH else ""
            row["error_message"] = f"the response holds no answer in the form {origin.extraction.value!r}{cut}"
    return row


def answers_table(rows: Sequence[AnswerRow], *, carried: Mapping[str, Sequence[str | None]]) -> pa.Table:
    """Rows of `ANSWERS`, and behind them the carried columns: a value for each row."""
    table = pa.Table.from_pylist(list(rows), schema=ANSWERS)
    for name, values in carried.items():
        table = table.append_column(pa.field(name, pa.string()), pa.array(values, pa.string()))
    return table


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


def _readings(part: pa.Table) -> Iterator[tuple[int, PartDocument, AskedQuestion, int]]:
    """Row of the part, document, question and sample of each reading."""
    asked = asked_in(part)
    documents = part.select(["document_id", "document_hash", "error", "error_type", "readings"]).to_pylist()
    for row, document in enumerate(documents):
        for reading in document["readings"]:
            yield row, document, asked[reading["question"]], reading["sample"]


def _unreadable_result(document: PartDocument, *, origin: Origin) -> ResultRow:
    """How the readings of a document end that never reached a reader."""
    return {
        "status": Status.FAILED,
        "response": None,
        "memory": None,
        "finish_reason": None,
        "memory_truncations": 0,
        "num_document_tokens": None,
        "num_chunks": None,
        "num_turns": 0,
        "num_replayed_turns": 0,
        "num_prompt_tokens": 0,
        "num_cached_prompt_tokens": 0,
        "num_completion_tokens": 0,
        "engine_seconds": 0.0,
        "started_at": None,
        "finished_at": datetime.now(UTC),
        "model": origin.model,
        "error_type": document["error_type"] or DocumentError.__name__,
        "error_message": document["error"],
    }


def _memory_rows(
    turns: Mapping[str, TurnRow],
    document: PartDocument,
    question: AskedQuestion,
    *,
    sample: int,
    projection: Projection,
) -> Iterator[MemoryRow]:
    """The audit trail of one reading: turns in the order in which its policy asked for them."""
    memory = projection.first_memory
    for number, turn in enumerate(sorted(turns.values(), key=itemgetter("turn", "finished_at", "path"))):
        before = memory = "" if turn["kind"] == DIRECT else memory
        shown, changed = memory, False
        if turn["writes"] is not None:
            written = new_memory(turn["text"], keep_word=projection.keep_word, opens_thought=projection.opens_thought)
            shown = (memory if turn["writes"] == Writes.MEMORY else "") if written is None else written
            changed = written is not None and shown != before
        if turn["writes"] == Writes.MEMORY:
            memory = shown
        yield {
            **turn,
            "document_id": document["document_id"],
            "question_id": question["question_id"],
            "sample": sample,
            "turn": number,
            "memory": shown,
            "changed": changed,
        }
