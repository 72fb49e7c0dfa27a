"""Compares the answers of two finished runs, from their records and logs; of one output or of two."""

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, fields
from enum import StrEnum
from itertools import islice
from typing import Annotated, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.documents.converted import SOURCE_UNREAD
from memagent_batch.documents.document_index import CARRY_PREFIX, is_there
from memagent_batch.documents.questions import value_types
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.follow_ups.answer_types import ValueType
from memagent_batch.domain.follow_ups.values import ValueStatus, stated
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.tables import DocumentId, QuestionId
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.turn_log.index import (
    CurrentOutcome,
    LoggedOutcome,
    ReadingKey,
    read_follow_ups,
    read_outcomes,
    scan_follow_ups,
    scan_outcome_files,
)
from memagent_batch.store.turn_log.question_list import FOLLOW_UP_FINGERPRINT
from memagent_batch.store.turn_log.rows import (
    ENDED_STATUS,
    FollowUpRow,
    OutcomeRow,
    SampleNumber,
    TypedJson,
    TypedStatus,
)

BATCH_READINGS = 10_000
"""Most readings whose texts are held at once, of each run."""


_Question = Annotated[str | None, Column("text of the question")]
_Status = Annotated[str | None, ENDED_STATUS]
_Answer = Annotated[str | None, Column("the answer taken out of the response")]
_Memory = Annotated[str | None, Column("memory that the answer was given from")]
_Message = Annotated[str | None, Column("where and why it failed")]
_ReadBy = Annotated[str | None, Column("the run that read it; null where none could or did")]


class AnswerChange(StrEnum):
    """How a row of `answers` differs between two runs."""

    ADDED = "added"
    """Only the later run asked for it."""
    CHANGED = "changed"
    """Both did, and answer, value, type or status differ."""
    REMOVED = "removed"
    """Only the earlier run asked for it."""


class Cause(StrEnum):
    """What differs between two readings; what is new or gone if there is only one."""

    DOCUMENT = "document"
    """The document's text; the document itself."""
    QUESTION = "question"
    """The question's text; the question itself."""
    LIMIT = "limit"
    """The limit, or the condition of a second pass, which leaves it out of one of the runs."""
    SAMPLE = "sample"
    """The number of samples."""
    READER = "reader"
    """The fingerprint: model, prompts, policy, sampling."""
    EXTRACTION = "extraction"
    """How answers are taken out of responses."""
    TYPE = "type"
    """The type that the question asks for."""
    FOLLOW_UPS = "follow_ups"
    """What is asked after the answer, of the same reader and type: its budgets and texts, evidence, support."""
    SAME_INPUTS = "same inputs"
    """None of these: a reading that failed or was not read was read again, or the engine gave another answer."""


class DifferenceRow(TypedDict):
    """One row for each reading with another answer, value or status in one of two runs, or that only one asked for.

    What a run has to say of a reading is null if it did not ask for it.
    """

    document_id: DocumentId
    question_id: QuestionId
    sample: SampleNumber
    change: Annotated[str, Column("what became of the row of `answers`: " + ", ".join(AnswerChange))]
    why: Annotated[list[str], Column("what is new, other or gone: " + ", ".join(Cause))]
    question_before: _Question
    question_after: _Question
    status_before: _Status
    status_after: _Status
    answer_before: _Answer
    answer_after: _Answer
    value_before: TypedJson
    value_after: TypedJson
    value_status_before: TypedStatus
    value_status_after: TypedStatus
    memory_before: _Memory
    memory_after: _Memory
    error_message_before: _Message
    error_message_after: _Message
    run_id_before: _ReadBy
    run_id_after: _ReadBy


DIFFERENCES = arrow_schema(DifferenceRow)


@dataclass(frozen=True, slots=True, kw_only=True)
class PastReading:
    """A reading in the plan of one run."""

    document_hash: str | None
    """SHA-256 of the document's text; None where it can't be read."""
    question_hash: str
    question: str
    sample: int
    fingerprint: str
    extraction: str
    value_type: ValueType | None
    follow_up_fingerprint: str | None
    """What is asked after the answer; depends on reader, extraction and type."""
    run_id: str | None
    """The run that read it; None where the document can't be read, or the reading was not read."""
    error: str | None
    """Why the document can't be read."""
    unread: str | None
    """What of its source was not read."""

    @property
    def key(self) -> ReadingKey:
        """Its key in the log."""
        return (self.document_hash or "", self.question_hash, self.sample)


def causes_between(before: PastReading, after: PastReading) -> list[Cause]:
    """What differs between two readings of one document_id, question_id and sample; never empty."""
    differs = {
        Cause.DOCUMENT: before.document_hash != after.document_hash,
        Cause.QUESTION: before.question_hash != after.question_hash,
        Cause.READER: before.fingerprint != after.fingerprint,
        Cause.EXTRACTION: before.extraction != after.extraction,
        Cause.TYPE: before.value_type != after.value_type,
    }
    decides_follow_ups = differs[Cause.READER] or differs[Cause.EXTRACTION] or differs[Cause.TYPE]
    differs[Cause.FOLLOW_UPS] = before.follow_up_fingerprint != after.follow_up_fingerprint and not decides_follow_ups
    return [cause for cause, different in differs.items() if different] or [Cause.SAME_INPUTS]


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """What `answers` shows of a reading in one run; empty where the run did not ask for it."""

    question: str | None = None
    status: str | None = None
    answer: str | None = None
    memory: str | None = None
    value: str | None = None
    value_status: str | None = None
    error_message: str | None = None
    run_id: str | None = None

    @property
    def stands(self) -> tuple[str | None, ...]:
        """What is compared with another run's."""
        return self.status, self.answer, self.value_status, self.value

    def columns(self, side: str) -> dict[str, str | None]:
        """Its columns of `DIFFERENCES`."""
        return {f"{each.name}_{side}": getattr(self, each.name) for each in fields(self)}


class PastReadings:
    """The readings of a finished run: finds them by document, and their answers in the log."""

    def __init__(self, run: PastRun) -> None:
        self.run = run
        self.question_ids = frozenset(run.questions["question_id"].to_pylist())
        self._rows = {name: row for row, name in enumerate(run.plan["document_id"].to_pylist())}
        self._missing = frozenset(run.plan.filter(pc.invert(is_there(run.plan)))["document_id"].to_pylist())
        columns = ["document_hash", "error", "readings", CARRY_PREFIX + SOURCE_UNREAD]
        shown = run.plan.select([name for name in columns if name in run.plan.schema.names])
        self._records = shown.to_struct_array().combine_chunks()
        self._questions = run.questions.select(["question_id", "question", "question_hash"]).to_pylist()
        self._types = value_types(run.questions)
        has_follow_ups = FOLLOW_UP_FINGERPRINT in run.questions.schema.names
        self._follow_up_fingerprints: list[str | None] = (
            run.questions[FOLLOW_UP_FINGERPRINT].to_pylist() if has_follow_ups else [None] * run.questions.num_rows
        )
        self._reader = (run.manifest["fingerprint"], run.manifest["settings"]["extraction"])
        self._is_sample = "sample" in run.manifest
        self._is_second_pass = "again" in run.manifest
        self._wanted_runs: set[str] = set()
        self._wanted_follow_ups: set[str] = set()
        self._outcome_files: Mapping[tuple[ReadingKey, str], list[str]] = {}
        self._closed: Mapping[str, Mapping[ReadingKey, LoggedOutcome]] = {}

    def document_ids(self) -> Iterator[str]:
        """What it asked something of, in the order of its plan: its documents, and ones that were not there."""
        return iter(self._rows)

    def has_document(self, document_id: str) -> bool:
        """Whether the run found it."""
        return document_id in self._rows and document_id not in self._missing

    def leaves_out(self, document_id: str, question_id: str) -> bool:
        """Whether the run found the document and left a reading out: by a limit, or as a second pass does."""
        record = self.record(document_id)
        if record is None or document_id in self._missing:
            return False
        if self._is_second_pass:
            return question_id in self.question_ids
        return self._is_sample and not record.as_py()["readings"]

    def reads_as(self, other: "PastReadings") -> bool:
        """Whether equal records of the two, in one log, mean equal answers."""
        mine, others = (
            (side._reader, side._questions, side._types, side._follow_up_fingerprints) for side in (self, other)
        )
        return mine == others

    def closed_since(self, run_id: str) -> set[str]:
        """Hashes of documents with readings that were closed after that run and up to this one."""
        fingerprints = {each for each in self._follow_up_fingerprints if each}
        if not fingerprints:
            return set()
        found = scan_follow_ups(self.run.output, fingerprints=fingerprints, after=run_id, until=self.run.run_id)
        return {key[0] for keys in found.values() for key in keys}

    def record(self, document_id: str) -> pa.StructScalar | None:
        """What the plan says of a document; None where the run asked nothing of it."""
        row = self._rows.get(document_id)
        return None if row is None else self._records[row]

    def document_hash(self, document_id: str) -> str | None:
        """Hash of its text; None where it can't be read, or the run asked nothing of it."""
        record = self.record(document_id)
        return None if record is None else record["document_hash"].as_py()

    def readings(self, document_id: str) -> dict[tuple[str, int], PastReading]:
        """What was asked of a document, by question_id and sample."""
        record = self.record(document_id)
        if record is None:
            return {}
        document = record.as_py()
        readings = {}
        for reading in document["readings"]:
            question = self._questions[reading["question"]]
            fingerprint, extraction = self._reader
            readings[question["question_id"], reading["sample"]] = PastReading(
                document_hash=document["document_hash"],
                question_hash=question["question_hash"],
                question=question["question"],
                sample=reading["sample"],
                fingerprint=fingerprint,
                extraction=extraction,
                value_type=self._types[reading["question"]],
                follow_up_fingerprint=self._follow_up_fingerprints[reading["question"]],
                run_id=reading["run_id"],
                error=document["error"],
                unread=document.get(CARRY_PREFIX + SOURCE_UNREAD),
            )
        return readings

    def want(self, reading: PastReading | None) -> None:
        """Notes that the answer of a reading will be asked for; `index` then finds those of all."""
        if reading is None or reading.run_id is None:
            return
        self._wanted_runs.add(reading.run_id)
        if reading.follow_up_fingerprint:
            self._wanted_follow_ups.add(reading.follow_up_fingerprint)

    def index(self) -> None:
        """Finds the log files that hold the answers that are wanted."""
        output, run_ids, follow_up_readings = self.run.output, self._wanted_runs, self._wanted_follow_ups
        if run_ids:
            self._outcome_files = scan_outcome_files(output, fingerprint=self._reader[0], run_ids=run_ids)
        if follow_up_readings:
            self._closed = scan_follow_ups(output, fingerprints=follow_up_readings, until=self.run.run_id)

    def answers(self, readings: Sequence[PastReading | None]) -> Iterator[GivenAnswer]:
        """What the run has to say of each reading."""
        read = [reading for reading in readings if reading and reading.run_id]
        outcomes, closed = self._outcomes(read), self._follow_ups_of(read)
        for reading in readings:
            if reading is None:
                yield GivenAnswer()
            elif reading.run_id is None:
                status = Status.NOT_READ if reading.error is None else Status.FAILED
                value = ValueStatus.NOT_READ.value if reading.error and reading.unread else None
                yield GivenAnswer(
                    question=reading.question, status=status, value_status=value, error_message=reading.error
                )
            else:
                outcome = outcomes.get((reading.key, reading.run_id))
                if outcome is None:
                    raise OutputError(
                        f"the log of {self.run.output.uri} no longer holds what run {reading.run_id} read (document "
                        f"hash {reading.key[0][:12]}, question {reading.question!r}); restore its files in log/outcomes"
                    )
                fingerprint = reading.follow_up_fingerprint or ""
                yield _given_answer(reading, outcome, closed.get(fingerprint, {}).get(reading.key))

    def _outcomes(self, readings: Sequence[PastReading]) -> dict[tuple[ReadingKey, str], CurrentOutcome]:
        by_run: dict[str, list[ReadingKey]] = defaultdict(list)
        for reading in readings:
            by_run[str(reading.run_id)].append(reading.key)
        found: dict[tuple[ReadingKey, str], CurrentOutcome] = {}
        for run_id, keys in by_run.items():
            rows = read_outcomes(
                self.run.output,
                sorted({file for key in keys for file in self._outcome_files.get((key, run_id), ())}),
                fingerprint=self._reader[0],
                document_hashes=sorted({key[0] for key in keys}),
            )
            found.update({(key, run_id): row for key, row in rows.items()})
        return found

    def _follow_ups_of(self, readings: Sequence[PastReading]) -> Mapping[str, Mapping[ReadingKey, FollowUpRow]]:
        """What closed the readings, by fingerprint and key, where the log has it."""
        files: set[str] = set()
        hashes: set[str] = set()
        for reading in readings:
            closed = self._closed.get(reading.follow_up_fingerprint or "", {}).get(reading.key)
            if closed is not None:
                files.add(closed.file)
                hashes.add(reading.key[0])
        return read_follow_ups(
            self.run.output,
            sorted(files),
            fingerprints=list(self._closed),
            document_hashes=sorted(hashes),
            columns=("value", "value_status"),
        )


def _given_answer(reading: PastReading, outcome: OutcomeRow, closed: FollowUpRow | None) -> GivenAnswer:
    is_ok = outcome["status"] == Status.OK
    extraction = Extraction(reading.extraction)
    return GivenAnswer(
        question=reading.question,
        status=outcome["status"],
        answer=extract_answer(outcome["response"] or "", extraction=extraction) if is_ok else None,
        memory=outcome["memory"],
        value=closed["value"] if closed and is_ok else None,
        value_status=stated(closed["value_status"], unread=reading.unread) if closed and is_ok else None,
        error_message=outcome["error_message"],
        run_id=reading.run_id,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A reading of the same ids in both runs, or in one of them."""

    document_id: str
    question_id: str
    sample: int
    before: PastReading | None
    after: PastReading | None
    why: list[Cause]


def compare_runs(before: PastRun, after: PastRun) -> Iterator[pa.Table]:
    """Streams the rows whose answer, value, status, type or presence differs, as tables of `DIFFERENCES`.

    What both runs have from the same rows of one log is passed over without reading it.

    Raises:
        OutputError: the log no longer holds what a run read, or can't be read.
    """
    sides = (PastReadings(before), PastReadings(after))
    closed = _closed_between(*sides)
    for pair in _paired_readings(*sides, closed=closed):
        sides[0].want(pair.before)
        sides[1].want(pair.after)
    for side in sides:
        side.index()
    pairs = _paired_readings(*sides, closed=closed)
    while batch := list(islice(pairs, BATCH_READINGS)):
        earlier = sides[0].answers([pair.before for pair in batch])
        later = sides[1].answers([pair.after for pair in batch])
        rows = [
            _difference(pair, *answers)
            for pair, *answers in zip(batch, earlier, later, strict=True)
            if _differs(pair, *answers)
        ]
        if rows:
            yield pa.Table.from_pylist(rows, schema=DIFFERENCES)


def _is_one_log(before: PastReadings, after: PastReadings) -> bool:
    return before.run.output.uri == after.run.output.uri


def _closed_between(before: PastReadings, after: PastReadings) -> set[str]:
    """Hashes of documents of one log whose values may differ though nothing else does: follow-up questions failed
    before.
    """
    if not _is_one_log(before, after):
        return set()
    earlier, later = sorted((before, after), key=lambda side: side.run.run_id)
    return later.closed_since(earlier.run.run_id)


def _paired_readings(before: PastReadings, after: PastReadings, *, closed: Collection[str]) -> Iterator[_Pair]:
    """Readings that may differ: documents of the later run in its order, then those that are gone.

    `closed`: hashes of documents whose values may differ though nothing else does.
    """
    gone = (name for name in before.document_ids() if after.record(name) is None)
    same_log = _is_one_log(before, after)
    same_reader = same_log and before.reads_as(after)
    for document_id in (*after.document_ids(), *gone):
        is_same = same_log and not (closed and after.document_hash(document_id) in closed)
        if is_same and same_reader and before.record(document_id) == after.record(document_id):
            continue
        earlier, later = before.readings(document_id), after.readings(document_id)
        for key in [*later, *(key for key in earlier if key not in later)]:
            reading, again = earlier.get(key), later.get(key)
            if is_same and reading == again:
                continue
            if reading and again:
                why = causes_between(reading, again)
            else:
                why = _reason_only_in_one_run(
                    document_id, key[0], *((before, earlier) if reading is None else (after, later))
                )
            yield _Pair(
                document_id=document_id, question_id=key[0], sample=key[1], before=reading, after=again, why=why
            )


def _reason_only_in_one_run(
    document_id: str, question_id: str, other: PastReadings, readings: Mapping[tuple[str, int], PastReading]
) -> list[Cause]:
    """Why the other run, with these readings of the document, lacks one."""
    if other.leaves_out(document_id, question_id):
        return [Cause.LIMIT]
    is_found = other.has_document(document_id)
    is_asked = (question_id, 0) in readings if is_found else question_id in other.question_ids
    causes = {Cause.DOCUMENT: not is_found, Cause.QUESTION: not is_asked}
    return [cause for cause, applies in causes.items() if applies] or [Cause.SAMPLE]


def _differs(pair: _Pair, before: GivenAnswer, after: GivenAnswer) -> bool:
    """Whether status, answer or value differ, or both runs ask for the same in another type."""
    return Cause.TYPE in pair.why or before.stands != after.stands


def _difference(pair: _Pair, before: GivenAnswer, after: GivenAnswer) -> dict[str, object]:
    change = AnswerChange.CHANGED if pair.after else AnswerChange.REMOVED
    return {
        "document_id": pair.document_id,
        "question_id": pair.question_id,
        "sample": pair.sample,
        "change": change if pair.before else AnswerChange.ADDED,
        "why": pair.why,
        **before.columns("before"),
        **after.columns("after"),
    }
