"""The tables of a run: projections of plan and turn log, and of the texts that their spans lie in."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypedDict

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config import InputConfig, TableFormat
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.prompts import new_memory
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import DIRECT, FinishReason, Writes
from memagent_batch.errors import DocumentError
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.closings import read_closings
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import read_outcomes
from memagent_batch.log.question_list import AskedQuestion, asked_in
from memagent_batch.log.schemas import ClosedRow, ClosingColumns, OutcomeRow, ResultRow, TurnRow
from memagent_batch.log.turns import read_turns_of
from memagent_batch.runs.evidence import Answered, PartSpans, spans_of_part
from memagent_batch.runs.results import ResultQuestion, results_table
from memagent_batch.runs.schemas import ANSWERS, EVIDENCE, MEMORIES, AnswerRow, MemoryRow
from memagent_batch.runs.votes import with_votes

ANSWERS_FOLDER = "answers"
MEMORIES_FOLDER = "memories"
REMOVED_FOLDER = "removed"
EVIDENCE_FOLDER = "evidence"
RESULTS_FOLDER = "results"
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
    closings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Fingerprints of closing turns, by that under which the log keeps what they brought together."""
    has_evidence: bool = False
    """Whether there is a table `evidence`."""
    results: Mapping[str, ResultQuestion] = field(default_factory=dict)
    """Questions of the table `results` by question_id; without one there is no such table."""
    documents: Location | None = None
    """The documents, where texts are fetched from for evidence and locators."""
    input: InputConfig = InputConfig()  # noqa: RUF009 - a frozen value
    """Where texts stand in them."""

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
    evidence: pa.Table | None
    """`EVIDENCE`; None where it was not asked for."""
    results: pa.Table | None
    """`results_schema`; None where no question asks for a type."""
    is_whole: bool
    """Whether each text that was needed was there; else the next run writes the part again."""
    missing: list[str]
    """Readings asked for that the log has no outcome of, though no reader reported it as not read."""


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartTables:
    """The rows of a part of the plan (a table of `Plan.parts`), from the log files that the part names.

    `not_read`: what stands in for the outcomes of readings that were not read, as rows of `OUTCOME_LOG`. They don't say
    which type was asked for: a question with the same words and another type may have its answer and value.
    """
    held = _held_of_part(part, projection=projection)
    unread = {(row["document_hash"], row["question_hash"], row["sample"]): row for row in not_read}
    answers: list[AnswerRow] = []
    answered: list[Answered] = []
    missing: list[str] = []
    for row, document, question, sample in _readings(part):
        key = (document["document_hash"] or "", question["question_hash"], sample)
        outcome, closed = held.outcomes.get(key), held.closed_of(question, key)
        outcome = outcome if held.is_finished(question, key) else unread.get(key, outcome)
        is_open = closed is None and bool(question.get("closing_fingerprint"))
        if document["error"] is None and (outcome is None or (is_open and outcome["status"] == Status.OK)):
            names = f"document {document['document_id']!r}, question {question['question_id']!r}"
            missing.append(f"{names}, sample {sample}")
            continue
        answer = answer_row(document, question, outcome, sample=sample, origin=projection.origin, closed=closed)
        answers.append(answer)
        turns = held.turns_of(question, key)
        answered.append(
            Answered(
                row=row,
                answer=answer,
                sentences=(closed["evidence"] if closed else None) or (),
                turns=list(_memory_rows(turns, document, question, sample=sample, projection=projection)),
            )
        )
    rows = part.take(pa.array([each.row for each in answered], pa.int64()))
    carried = {name: rows[CARRY_PREFIX + name].to_pylist() for name in carried_columns(part.schema)}
    answers = with_votes(answers)
    spans = _spans(part, answered, projection=projection)
    return PartTables(
        answers=answers_table(answers, carried=carried),
        memories=pa.Table.from_pylist(spans.memories, schema=MEMORIES),
        evidence=pa.Table.from_pylist(spans.evidence, schema=EVIDENCE) if spans.evidence is not None else None,
        results=results_table(part["document_id"].to_pylist(), answers, questions=projection.results)
        if projection.results
        else None,
        is_whole=spans.is_whole,
        missing=missing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldPart:
    """What the log holds of the readings of a part."""

    reader_fingerprint: str
    """The reader."""
    closings: Mapping[str, Sequence[str]]
    """`Projection.closings`."""
    outcomes: Mapping[ReadingKey, OutcomeRow]
    """How they ended."""
    closed: Mapping[str, Mapping[ReadingKey, ClosedRow]]
    """What closing turns brought, by fingerprint."""
    turns: Mapping[str, Mapping[ReadingKey, Mapping[str, TurnRow]]]
    """Turns, by fingerprint and path."""

    def closed_of(self, question: AskedQuestion, key: ReadingKey) -> ClosedRow | None:
        """What was asked after the answer to a question brought; None where nothing was."""
        return self.closed.get(question.get("closing_fingerprint") or "", {}).get(key)

    def is_finished(self, question: AskedQuestion, key: ReadingKey) -> bool:
        """Whether the log holds an answer to a question, and all that was asked after it."""
        outcome, closed = self.outcomes.get(key), self.closed_of(question, key)
        if outcome is None or outcome["status"] != Status.OK:
            return False
        return not question.get("closing_fingerprint") or (closed is not None and not closed["is_failed"])

    def turns_of(self, question: AskedQuestion, key: ReadingKey) -> dict[str, TurnRow]:
        """The turns of a reading by path: of its question list, its own, and its closing turns."""
        own = self.turns[self.reader_fingerprint]
        found = {**own.get((key[0], question.get("list_hash", ""), key[2]), {}), **own.get(key, {})}
        for fingerprint in self.closings.get(question.get("closing_fingerprint") or "", ()):
            found |= self.turns[fingerprint].get(key, {})
        return found


def _held_of_part(part: pa.Table, *, projection: Projection) -> _HeldPart:
    """Reads the log files that a part names."""
    files = {
        name: sorted({file for files in part[name].to_pylist() for file in files})
        for name in ("outcome_files", "turn_files", "closing_files")
    }
    reader, output = projection.reader_fingerprint, projection.output
    outcomes = read_outcomes(output, files["outcome_files"], reader_fingerprint=reader)
    closing_turns = {each for fingerprints in projection.closings.values() for each in fingerprints}
    return _HeldPart(
        reader_fingerprint=reader,
        closings=projection.closings,
        outcomes=outcomes,
        closed=read_closings(output, files["closing_files"], fingerprints=list(projection.closings)),
        turns=read_turns_of(
            output,
            files["turn_files"],
            fingerprints=[reader, *sorted(closing_turns)],
            document_hashes=[value for value in part["document_hash"].to_pylist() if value is not None],
            ended_by={(reader, key): row["line"] for key, row in outcomes.items()},
            with_tokens=False,
        ),
    )


def _spans(part: pa.Table, answered: Sequence[Answered], *, projection: Projection) -> PartSpans:
    """The rows that have spans, with what the documents' texts say of them."""
    if projection.documents is None:
        return PartSpans(evidence=None, memories=[turn for each in answered for turn in each.turns], is_whole=True)
    return spans_of_part(
        part,
        answered,
        documents=projection.documents,
        settings=projection.input,
        has_evidence=projection.has_evidence,
    )


def answer_row(
    document: PartDocument,
    question: AskedQuestion,
    outcome: OutcomeRow | None,
    *,
    sample: int,
    origin: Origin,
    closed: ClosedRow | None = None,
) -> AnswerRow:
    """The row of `answers` of a reading.

    Args:
        document: The document.
        question: The question.
        outcome: How the reading ended; None where the document can't be read, which ends it.
        sample: Which of several draws.
        origin: Who answers.
        closed: What was asked after the answer; None where nothing was.
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
        **(closing_columns(closed) if closed else NOT_CLOSED),
        "answer_type": question.get("answer_type"),
        "value_unit": question.get("unit"),
        "votes": None,
        "num_evidence": len(closed["evidence"]) if closed and closed["evidence"] is not None else None,
    }
    if row["status"] == Status.OK:
        row["answer"] = extract_answer(row["response"] or "", extraction=origin.extraction)
        if row["answer"] is None:
            row["error_type"] = "AnswerNotFound"
            cut = "; it was cut at policy.answer_tokens" if row["finish_reason"] == FinishReason.LENGTH else ""
            row["error_message"] = f"the response holds no answer in the form {origin.extraction.value!r}{cut}"
    return row


def closing_columns(closed: ClosedRow) -> ClosingColumns:
    """What closing turns brought, as `answers` has it."""
    return {
        "value": closed["value"],
        "value_bool": closed["value_bool"],
        "value_number": closed["value_number"],
        "value_label": closed["value_label"],
        "value_status": closed["value_status"],
        "confidence": closed["confidence"],
        "support": closed["support"],
        "support_probability": closed["support_probability"],
        "coverage": closed["coverage"],
        "closing_error": closed["closing_error"],
    }


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
            "locator": None,
            "memory": shown,
            "changed": changed,
        }
