"""The tables of a run: projections of plan and turn log, and of the texts that evidence is cut from."""

import io
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from operator import itemgetter
from typing import TypedDict, cast

import pyarrow as pa
import pyarrow.ipc
import pyarrow.parquet as pq

from memagent_batch.config import InputConfig, TableFormat
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.escalation import Doubt, Doubts
from memagent_batch.domain.prompts import new_memory
from memagent_batch.domain.readings import Status
from memagent_batch.domain.turns import DIRECT, FinishReason, Writes
from memagent_batch.errors import DocumentError
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import parquet_bytes
from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.closings import read_closings
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import read_outcomes, read_turns_of
from memagent_batch.log.question_list import AskedQuestion, asked_in
from memagent_batch.log.schemas import ClosedRow, ClosingColumns, OutcomeRow, ResultRow, SpanRow, TurnRow
from memagent_batch.runs.escalation import verdicts_of
from memagent_batch.runs.evidence import Answered, evidence_of_part
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
    """The documents, where texts are fetched from for evidence."""
    input: InputConfig = InputConfig()  # noqa: RUF009 - a frozen value
    """Where texts stand in them."""
    doubts: Doubts | None = None
    """What makes an answer doubtful; None where nothing is read again."""
    second: "Projection | None" = None
    """What turns readings of the second reader into rows."""
    second_closings: Mapping[str, str] = field(default_factory=dict)
    """Fingerprints in its `closings`, by those in `closings` of questions of the same type."""

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
    """Whether each text that evidence is cut from was there; else the next run writes the part again."""
    missing: list[str]
    """Readings asked for that the log has no outcome of, though no reader reported it as not read."""


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartTables:
    """The rows of a part of the plan (a table of `Plan.parts`), from the log files that the part names.

    `not_read`: what stands in for the outcomes of readings that were not read, as rows of `OUTCOME_LOG`.
    """
    first = _held_of_part(part, projection=projection, not_read=not_read)
    second = _held_of_part(part, projection=projection.second, not_read=not_read) if projection.second else None
    answers: list[AnswerRow] = []
    answered: list[Answered] = []
    memories: list[MemoryRow] = []
    missing: list[str] = []
    for row, document, question, sample in _readings(part):
        look = first.look(document, question, sample)
        if look is not None and second is not None:
            look = _looked_again(look, second, document, question, projection=projection)
        if look is None:
            names = f"document {document['document_id']!r}, question {question['question_id']!r}"
            missing.append(f"{names}, sample {sample}")
            continue
        answers.append(look.answer)
        answered.append(Answered(row=row, answer=look.answer, sentences=look.sentences))
        memories.extend(look.memories)
    rows = part.take(pa.array([each.row for each in answered], pa.int64()))
    carried = {name: rows[CARRY_PREFIX + name].to_pylist() for name in carried_columns(part.schema)}
    answers = with_votes(answers)
    evidence, is_whole = _evidence(part, answered, projection=projection)
    return PartTables(
        answers=answers_table(answers, carried=carried),
        memories=pa.Table.from_pylist(memories, schema=MEMORIES),
        evidence=evidence,
        results=results_table(part["document_id"].to_pylist(), answers, questions=projection.results)
        if projection.results
        else None,
        is_whole=is_whole,
        missing=missing,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Look:
    """What one reader has to say of a reading."""

    answer: AnswerRow
    """Its row of `answers`."""
    sentences: Sequence[SpanRow]
    """Sentences that the answer rests on."""
    memories: Sequence[MemoryRow]
    """Its rows of `memories`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _HeldPart:
    """What the log holds of the readings of a part, by one reader."""

    projection: Projection
    """What turns them into rows."""
    outcomes: Mapping[ReadingKey, OutcomeRow]
    """How they ended; what could not be read now is among them."""
    closed: Mapping[str, Mapping[ReadingKey, ClosedRow]]
    """What closing turns brought, by fingerprint."""
    turns: Mapping[str, Mapping[ReadingKey, Mapping[str, TurnRow]]]
    """Turns, by fingerprint and path."""

    def look(self, document: PartDocument, question: AskedQuestion, sample: int) -> _Look | None:
        """What the reader has to say; None where the log has no outcome that ought to be there."""
        key = (document["document_hash"] or "", question["question_hash"], sample)
        outcome, closing = self.outcomes.get(key), question.get("closing_fingerprint") or ""
        closed = self.closed.get(closing, {}).get(key)
        is_open = closed is None and bool(closing)
        if document["error"] is None and (outcome is None or (is_open and outcome["status"] == Status.OK)):
            return None
        origin, turns = self.projection.origin, self._turns_of(question, key)
        return _Look(
            answer=answer_row(document, question, outcome, sample=sample, origin=origin, closed=closed),
            sentences=(closed["evidence"] if closed else None) or (),
            memories=list(_memory_rows(turns, document, question, sample=sample, projection=self.projection)),
        )

    def _turns_of(self, question: AskedQuestion, key: ReadingKey) -> dict[str, TurnRow]:
        """The turns of a reading by path: of its question list, its own, and its closing turns."""
        own = self.turns[self.projection.reader_fingerprint]
        found = {**own.get((key[0], question.get("list_hash", ""), key[2]), {}), **own.get(key, {})}
        for fingerprint in self.projection.closings.get(question.get("closing_fingerprint") or "", ()):
            found |= self.turns[fingerprint].get(key, {})
        return found


def _held_of_part(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow]) -> _HeldPart:
    """Reads the log files that a part names."""
    files = {
        name: sorted({file for files in part[name].to_pylist() for file in files})
        for name in ("outcome_files", "turn_files", "closing_files")
    }
    reader, output = projection.reader_fingerprint, projection.output
    outcomes = read_outcomes(output, files["outcome_files"], reader_fingerprint=reader)
    closing_turns = {each for fingerprints in projection.closings.values() for each in fingerprints}
    unread = {
        (row["document_hash"], row["question_hash"], row["sample"]): row
        for row in not_read
        if row["reader_fingerprint"] == reader
    }
    return _HeldPart(
        projection=projection,
        outcomes={**outcomes, **unread},
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


def _looked_again(
    first: _Look, second: _HeldPart, document: PartDocument, question: AskedQuestion, *, projection: Projection
) -> _Look | None:
    """The look that stands: the second one where the first is doubtful and the second has an answer."""
    answer, doubts = first.answer, projection.doubts
    verdicts = verdicts_of(answer, num_evidence=answer["num_evidence"])
    doubt = doubts.of(answer["status"], verdicts=verdicts, answer=answer["answer"]) if doubts else None
    if document["error"] is not None or doubt is None:
        return replace(first, answer={**answer, "tier": 1})
    closing = projection.second_closings.get(question.get("closing_fingerprint") or "")
    single: AskedQuestion = {
        **question,
        "question_hash": text_hash(question["question"]),
        "list_hash": "",
        "closing_fingerprint": closing,
    }
    look = second.look(document, single, answer["sample"])
    return None if look is None else _standing(first, look, doubt)


def _standing(first: _Look, second: _Look, doubt: Doubt) -> _Look:
    """The second look where it is `ok`, else the first; both have cost what the row says."""
    stands = second if second.answer["status"] == Status.OK else first
    answer = {**stands.answer, **_both_costs(first.answer, second.answer), "tier": 2 if stands is second else 1}
    if stands is first:
        answer["escalation_error"] = f"{second.answer['error_type']}: {second.answer['error_message']}"
    answer["escalated_because"] = doubt.value
    return replace(stands, answer=cast("AnswerRow", answer))


def _both_costs(first: AnswerRow, second: AnswerRow) -> dict[str, float]:
    return {
        "num_turns": first["num_turns"] + second["num_turns"],
        "num_replayed_turns": first["num_replayed_turns"] + second["num_replayed_turns"],
        "num_prompt_tokens": first["num_prompt_tokens"] + second["num_prompt_tokens"],
        "num_cached_prompt_tokens": first["num_cached_prompt_tokens"] + second["num_cached_prompt_tokens"],
        "num_completion_tokens": first["num_completion_tokens"] + second["num_completion_tokens"],
        "engine_seconds": first["engine_seconds"] + second["engine_seconds"],
    }


def _evidence(part: pa.Table, answered: Sequence[Answered], *, projection: Projection) -> tuple[pa.Table | None, bool]:
    """The rows of `evidence`, and whether all their texts were there."""
    if not projection.has_evidence or projection.documents is None:
        return None, True
    rows, is_whole = evidence_of_part(part, answered, documents=projection.documents, settings=projection.input)
    return pa.Table.from_pylist(rows, schema=EVIDENCE), is_whole


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
        "tier": None,
        "escalated_because": None,
        "escalation_error": None,
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
            "memory": shown,
            "changed": changed,
        }
