"""How the rows of a run's tables follow from plan and turn log, and from the texts that their spans lie in."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import UTC, datetime
from operator import itemgetter
from typing import Any, NotRequired, TypedDict, cast

import pyarrow as pa

from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.document_index import CARRY_PREFIX, SOURCE_READ, SOURCE_UNREAD, UNREAD_SOURCE
from memagent_batch.data.documents.questions import value_type_of
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.data.store.columns import column_types
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import ReadingKey, read_follow_ups, read_outcomes
from memagent_batch.data.store.turn_log.question_list import AskedQuestion, asked_in
from memagent_batch.data.store.turn_log.rows import (
    ClosedRow,
    EndedTurns,
    FollowUpColumns,
    OutcomeRow,
    ResultRow,
    TurnRow,
    turn_memory,
)
from memagent_batch.data.store.turn_log.turns import LoggedTurns, read_turns
from memagent_batch.errors import DocumentError
from memagent_batch.loop.completions import extract_answer, is_refusal
from memagent_batch.loop.follow_ups.doubts import Doubt
from memagent_batch.loop.follow_ups.values import ValueStatus, stated
from memagent_batch.run.evidence import AnsweredReading, spans_of_part
from memagent_batch.run.plan import Plan
from memagent_batch.run.results import (
    ResultQuestion,
    chosen_texts,
    result_questions,
    results_schema,
    results_table,
    with_doubts,
    with_votes,
)
from memagent_batch.run.tables import (
    ANSWERS,
    ANSWERS_TABLE,
    EVIDENCE,
    EVIDENCE_TABLE,
    MEMORIES,
    MEMORIES_TABLE,
    RESULTS_TABLE,
    AnswerRow,
    MemoryRow,
)
from memagent_batch.run.wiring import ReaderIdentity, files_of, make_prompt_tokens, model_name
from memagent_batch.types import FinishReason, Status

RUN_ID = ANSWERS.field("run_id")
NOT_CLOSED = cast("FollowUpColumns", dict.fromkeys(FollowUpColumns.__annotations__))
"""Of a reading that was asked nothing after its answer."""
PROJECTION = 8
"""Raised with every change of the code that changes a value in a table: the next run then writes all rows again, from
the log. A column that is new, gone or of another type does so by itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Origin:
    """What a row of `answers` says of who made it, and how."""

    run_id: str
    fingerprint: str
    model: str
    """Name of the model, for rows of readings that never reached it."""
    extraction: Extraction


@dataclass(frozen=True, slots=True, kw_only=True)
class Projection(Origin):
    """What turns a part of the plan into rows. Rows of older readings keep the id of the run that read them."""

    output: Location
    first_memory: str
    keep_word: str
    """What the model writes to keep its memory; empty where it always writes a new one."""
    opens_thought: bool = False
    """Whether each prompt ended inside a thought."""
    follow_up_readings: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Fingerprints of follow-up questions, by that under which the log keeps what they brought together."""
    has_evidence: bool = False
    results: Mapping[str, ResultQuestion] = field(default_factory=dict)
    """Questions of the table `results` by question_id; without one there is no such table."""
    documents: StoredDocuments
    """The documents, for evidence and locators."""

    def rules(self) -> dict[str, Any]:
        """What decides rows, as JSON values: all but the run, and the places of output and documents."""
        places = {"output", "run_id", "documents"}
        settings = {each.name: getattr(self, each.name) for each in fields(self) if each.name not in places}
        return {"code": [PROJECTION, *map(column_types, (ANSWERS, MEMORIES, EVIDENCE))], "settings": settings}


def make_projection(output: Location, job: JobConfig, *, run_id: str, reader: ReaderIdentity, plan: Plan) -> Projection:
    """How rows are made of what one reader logged of a plan."""
    files = files_of(job.agent, fingerprint=reader.fingerprint)
    return Projection(
        output=output,
        run_id=run_id,
        fingerprint=reader.fingerprint,
        model=model_name(job.agent),
        first_memory=files.prompt_set.first_memory,
        keep_word=files.prompt_set.keep_word,
        extraction=job.agent.extraction,
        opens_thought=make_prompt_tokens(job.agent, files).opens_thought,
        follow_up_readings=plan.asked.turns_by_follow_up(),
        has_evidence=plan.asked.follow_ups is not None and plan.asked.follow_ups.config.evidence,
        results=result_questions(plan.asked.table) if plan.asked.follow_ups is not None else {},
        documents=plan.stored,
    )


class PartDocument(TypedDict):
    """A document of a part of the plan, as its readings need it."""

    document_id: str
    document_hash: str | None
    error: str | None
    error_type: str | None
    readings: list[dict[str, Any]]
    source_read: NotRequired[float]
    """Share of its source that was read."""
    source_unread: NotRequired[str | None]
    """What of its source was not read; None if all was."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PartLog:
    """What the log holds of the readings of a part, by one reader."""

    projection: Projection
    outcomes: Mapping[ReadingKey, OutcomeRow]
    unread: Mapping[ReadingKey, OutcomeRow]
    """What stands in for the outcomes of those that could not be read now."""
    closed: Mapping[str, Mapping[ReadingKey, ClosedRow]]
    """What follow-up questions brought, by fingerprint."""
    turns: Mapping[str, Mapping[ReadingKey, LoggedTurns]]

    def reading(
        self, row: int, document: PartDocument, question: AskedQuestion, sample: int, *, inputs_hash: str
    ) -> AnsweredReading | None:
        """The rows of a reading of the document in this row of the part; None if the log lacks its end."""
        key = (document["document_hash"] or "", question["question_hash"], sample)
        follow_ups = question.get("follow_up_fingerprint") or ""
        outcome, closed = self.outcomes.get(key), self.closed.get(follow_ups, {}).get(key)
        is_closed = not follow_ups or (closed is not None and not closed["is_failed"])
        if outcome is None or outcome["status"] != Status.OK or not is_closed:
            outcome = self.unread.get(key, outcome)
        is_open = bool(follow_ups) and closed is None
        if document["error"] is None and (outcome is None or (is_open and outcome["status"] == Status.OK)):
            return None
        turns = self._turns_of(follow_ups, key, outcome)
        return AnsweredReading(
            row=row,
            answer=answer_row(
                document,
                question,
                outcome,
                sample=sample,
                origin=self.projection,
                closed=closed,
                inputs_hash=inputs_hash,
            ),
            sentences=(closed["evidence"] if closed else None) or (),
            turns=list(_memory_rows(turns, document, question, sample=sample, projection=self.projection)),
        )

    def _turns_of(self, follow_ups: str, key: ReadingKey, outcome: OutcomeRow | None) -> Mapping[str, TurnRow]:
        """The turns of a reading by path, its follow-up questions of this fingerprint among them."""
        turns = self.turns[self.projection.fingerprint].get(key, LoggedTurns())
        if outcome is not None and outcome["status"] != Status.NOT_READ:
            turns = turns.of_outcome(outcome)
        found = turns.by_path()
        for fingerprint in self.projection.follow_up_readings.get(follow_ups, ()):
            found |= self.turns[fingerprint].get(key, LoggedTurns()).by_path()
        return found


def load_part_log(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartLog:
    """Reads the log files that a part (a table of `plan_parts`) names.

    `not_read`: what stands in for the outcomes of readings that were not read, of all readers. They don't say which
    type was asked for: a question with the same words and another type may have its answer and value.
    """
    files = {
        name: sorted({file for files in part[name].to_pylist() for file in files})
        for name in ("outcome_files", "turn_files", "follow_up_files")
    }
    reader, output = projection.fingerprint, projection.output
    outcomes = read_outcomes(output, files["outcome_files"], fingerprint=reader)
    follow_up_turns = {each for fingerprints in projection.follow_up_readings.values() for each in fingerprints}
    return PartLog(
        projection=projection,
        outcomes=outcomes,
        unread={
            (row["document_hash"], row["question_hash"], row["sample"]): row
            for row in not_read
            if row["fingerprint"] == reader
        },
        closed=read_follow_ups(output, files["follow_up_files"], fingerprints=list(projection.follow_up_readings)),
        turns=read_turns(
            output,
            files["turn_files"],
            fingerprints=[reader, *sorted(follow_up_turns)],
            document_hashes=[value for value in part["document_hash"].to_pylist() if value is not None],
            with_tokens=False,
        ),
    )


def answer_row(
    document: PartDocument,
    question: AskedQuestion,
    outcome: OutcomeRow | None,
    *,
    sample: int,
    origin: Origin,
    closed: ClosedRow | None = None,
    inputs_hash: str = "",
) -> AnswerRow:
    """The row of `answers` of a reading.

    Without an `outcome` the document can't be read, which ends it; `closed` is None where nothing was asked after it.
    """
    if document["error"] is not None or outcome is None:
        result, read_run_id = _unreadable_result(document, origin=origin), origin.run_id
    else:
        closed_run_id = cast("str", closed.get("run_id", "")) if closed else ""
        result, read_run_id = outcome, max(outcome["run_id"], closed_run_id)
    row: AnswerRow = {
        **_without_turns(result),
        "run_id": origin.run_id,
        "read_run_id": read_run_id,
        "document_id": document["document_id"],
        "question_id": question["question_id"],
        "sample": sample,
        "question": question["question"],
        "answer": None,
        "document_hash": document["document_hash"],
        "question_hash": question["question_hash"],
        "fingerprint": origin.fingerprint,
        **(_follow_up_columns(closed) if closed else NOT_CLOSED),
        "answer_type": question.get("answer_type"),
        "value_unit": question.get("unit"),
        "votes": None,
        "value_doubt": None,
        "num_evidence": len(closed["evidence"]) if closed and closed["evidence"] is not None else None,
        "inputs_hash": inputs_hash,
    }
    row = _with_source(row, document)
    return _with_answer(row, extraction=origin.extraction) if row["status"] == Status.OK else row


def _without_turns(result: ResultRow) -> ResultRow:
    return cast("ResultRow", {name: value for name, value in result.items() if name not in EndedTurns.__annotations__})


def _with_source(row: AnswerRow, document: PartDocument) -> AnswerRow:
    """The row as what was read allows: nothing is "not stated" unless the model was shown all of the source."""
    row, unread, coverage = row.copy(), document.get("source_unread"), row["coverage"]
    row["value_status"] = stated(row["value_status"], coverage=coverage, unread=unread)
    if unread is not None and document["error_type"] == UNREAD_SOURCE:
        row["value_status"] = ValueStatus.NOT_READ.value
    if unread is not None and coverage is not None:
        row["coverage"] = coverage * document["source_read"]
    return row


def _with_answer(row: AnswerRow, *, extraction: Extraction) -> AnswerRow:
    """The row with the answer that its response holds, or with why it holds none."""
    row = row.copy()
    row["answer"] = extract_answer(row["response"] or "", extraction=extraction)
    if is_refusal(row["answer"] or row["response"] or ""):
        row["value_doubt"] = Doubt.REFUSED.value
        if row["value_status"] is not None:
            row["value_status"], row["follow_up_error"] = ValueStatus.INVALID.value, Doubt.REFUSED.value
            row["value"] = row["value_bool"] = row["value_number"] = row["value_label"] = None
    if row["answer"] is None:
        row["error_type"] = "AnswerNotFound"
        cut = "; it was cut at policy.answer_tokens" if row["finish_reason"] == FinishReason.LENGTH else ""
        row["error_message"] = f"the response holds no answer in the form {extraction.value!r}{cut}"
    return row


def _follow_up_columns(closed: ClosedRow) -> FollowUpColumns:
    names = FollowUpColumns.__annotations__
    return cast("FollowUpColumns", {name: value for name, value in closed.items() if name in names})


def _unreadable_result(document: PartDocument, *, origin: Origin) -> ResultRow:
    """How the readings of a document end that never reached a reader."""
    counts = ("num_turns", "num_replayed_turns", "num_prompt_tokens", "num_cached_prompt_tokens")
    result = {
        **dict.fromkeys(ResultRow.__annotations__),
        **dict.fromkeys((*counts, "num_completion_tokens", "memory_truncations"), 0),
        "status": Status.FAILED,
        "engine_seconds": 0.0,
        "finished_at": datetime.now(UTC),
        "model": origin.model,
        "error_type": document["error_type"] or DocumentError.__name__,
        "error_message": document["error"],
    }
    return cast("ResultRow", result)


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
        after = turn_memory(turn, memory, keep_word=projection.keep_word, opens_thought=projection.opens_thought)
        memory = after.memory
        row: Any = {  # more of the turn than the table has
            **turn,
            "run_id": projection.run_id,
            "read_run_id": turn["run_id"],
            "document_id": document["document_id"],
            "question_id": question["question_id"],
            "sample": sample,
            "turn": number,
            "locator": None,
            "memory": after.shown,
            "changed": after.changed,
        }
        yield row


@dataclass(frozen=True, slots=True, kw_only=True)
class PartTables:
    """The rows of one part of the plan."""

    answers: pa.Table
    memories: pa.Table
    evidence: pa.Table | None
    results: pa.Table | None
    """`results_schema`; None where no question asks for a type."""
    missing: list[str]
    """Readings asked for that the log has no outcome of, though no reader reported it as not read."""


def project(part: pa.Table, *, projection: Projection, not_read: Sequence[OutcomeRow] = ()) -> PartTables:
    """The rows of a part of the plan (a table of `plan_parts`), from the log files that the part names.

    `not_read`: what stands in for the outcomes of readings that were not read, as rows of `OUTCOME_LOG`.
    """
    held = load_part_log(part, projection=projection, not_read=not_read)
    answered: list[AnsweredReading] = []
    questions: list[AskedQuestion] = []
    missing: list[str] = []
    for row, document, question, reading_row in part_readings(part):
        sample = reading_row["sample"]
        reading = held.reading(row, document, question, sample, inputs_hash=reading_row["inputs_hash"])
        if reading is None:
            names = f"document {document['document_id']!r}, question {question['question_id']!r}"
            missing.append(f"{names}, sample {sample}")
        else:
            answered.append(reading)
            questions.append(question)
    rows = part.take(pa.array([each.row for each in answered], pa.int64()))
    spans = spans_of_part(part, answered, documents=projection.documents, has_evidence=projection.has_evidence)
    answers = with_votes([each.answer for each in answered])
    chosen = None if spans.evidence is None else chosen_texts(spans.evidence)
    answers = with_doubts(answers, questions, chosen=chosen)
    return PartTables(
        answers=answers_table(answers, carried=carried_columns(rows)),
        memories=pa.Table.from_pylist(spans.memories, schema=MEMORIES),
        evidence=pa.Table.from_pylist(spans.evidence, schema=EVIDENCE) if spans.evidence is not None else None,
        results=_results(part, answers, projection=projection) if projection.results else None,
        missing=missing,
    )


def _results(part: pa.Table, answers: Sequence[AnswerRow], *, projection: Projection) -> pa.Table:
    table = results_table(part["document_id"].to_pylist(), answers, questions=projection.results)
    table = table.append_column(RUN_ID, pa.repeat(projection.run_id, table.num_rows))
    return _with_columns(table, carried_columns(part))


def table_schemas(projection: Projection, documents: pa.Schema) -> dict[str, pa.Schema]:
    """The schemas of the tables that a run has; `documents` is that of the documents of its plan."""
    carried = carried_fields(documents)
    schemas = {ANSWERS_TABLE: pa.schema([*ANSWERS, *carried]), MEMORIES_TABLE: MEMORIES}
    if projection.has_evidence:
        schemas[EVIDENCE_TABLE] = EVIDENCE
    if projection.results:
        types = {name: value_type_of(question) for name, question in projection.results.items()}
        columns = results_schema({name: (projection.results[name]["question"], types[name]) for name in types})
        schemas[RESULTS_TABLE] = pa.schema([*columns, RUN_ID, *carried])
    return schemas


def carried_fields(documents: pa.Schema) -> list[pa.Field]:
    """The columns of the source and the carried columns of an index, as `answers` and `results` have them."""
    carried = [field for field in documents if field.name.startswith(CARRY_PREFIX)]
    return [field.with_name(field.name.removeprefix(CARRY_PREFIX)) for field in carried]


def carried_columns(documents: pa.Table) -> pa.Table:
    """The same columns of some documents."""
    carried = carried_fields(documents.schema)
    return pa.table([documents[CARRY_PREFIX + each.name] for each in carried], schema=pa.schema(carried))


def answers_table(rows: Sequence[AnswerRow], *, carried: pa.Table) -> pa.Table:
    """Rows of `ANSWERS`, and behind them the carried columns, which have a value for each row."""
    return _with_columns(pa.Table.from_pylist(list(rows), schema=ANSWERS), carried)


def _with_columns(table: pa.Table, others: pa.Table) -> pa.Table:
    for each in others.schema:
        table = table.append_column(each, others[each.name])
    return table


def part_readings(part: pa.Table) -> Iterator[tuple[int, PartDocument, AskedQuestion, Mapping[str, Any]]]:
    """Row of the part, document and question of each reading, and its row in `readings`."""
    asked = asked_in(part)
    documents = part.select(["document_id", "document_hash", "error", "error_type", "readings"])
    for name in (SOURCE_READ, SOURCE_UNREAD):
        if CARRY_PREFIX + name in part.schema.names:
            documents = documents.append_column(name, part[CARRY_PREFIX + name])
    for row, document in enumerate(documents.to_pylist()):
        for reading in document["readings"]:
            yield row, document, asked[reading["question"]], reading
