"""Compares the answers of two finished runs, from their records and logs; of one output or of two."""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import islice
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.files.columns import column
from memagent_batch.inputs.document_index import is_there
from memagent_batch.inputs.questions import value_types
from memagent_batch.log.index import (
    LoggedOutcome,
    ReadingKey,
    StandingOutcome,
    read_closings,
    read_outcomes,
    scan_closings,
    scan_outcome_files,
)
from memagent_batch.log.question_list import CLOSING_FINGERPRINT
from memagent_batch.log.schemas import CLOSING_LOG, SAMPLE, STATUS, ClosingRow, OutcomeRow
from memagent_batch.runs.history import PastRun
from memagent_batch.runs.tables import DOCUMENT_ID, QUESTION, QUESTION_ID

ANSWER_GIVEN = [
    QUESTION,
    STATUS,
    column("answer", pa.string(), "the answer taken out of the response"),
    CLOSING_LOG.field("value"),
    CLOSING_LOG.field("value_status"),
    column("memory", pa.string(), "memory that the answer was given from"),
    column("error_message", pa.string(), "where and why it failed"),
    column("run_id", pa.string(), "the run that read it; null where none could or did"),
]
"""What a run has to say of a reading; all null where it did not ask for it."""
ClosedPlace = tuple[str, ReadingKey]
"""Where a log has what was asked after an answer: fingerprint and reading."""
COLUMNS = ("value", "value_status")
"""Columns of `CLOSING_LOG` that say what a value is."""
SIDE_COLUMNS = tuple(field.name for field in ANSWER_GIVEN)
"""Columns of `DIFFERENCES` that are there for each of the two runs."""
_Place = tuple[str, ReadingKey, str]
"""Where a log has an answer: reader, reading, and the run that read it."""
BATCH_READINGS = 10_000
"""Most readings whose texts are held at once, of each run."""


class AnswerChange(StrEnum):
    """How a row of `answers` differs between two runs."""

    ADDED = "added"
    """Only the later run asked for it."""
    CHANGED = "changed"
    """Both did, and answer, value, type or status differ."""
    REMOVED = "removed"
    """Only the earlier run asked for it."""


class Cause(StrEnum):
    """What differs between two readings; what is new or gone where there is only one."""

    DOCUMENT = "document"
    """The document's text; the document itself."""
    QUESTION = "question"
    """The question's text; the question itself."""
    LIMIT = "limit"
    """The limit, or the condition of a second pass, which leaves it out of one of the runs."""
    SAMPLE = "sample"
    """The number of samples."""
    READER = "reader"
    """The reader fingerprint: model, prompts, policy, sampling."""
    EXTRACTION = "extraction"
    """How answers are taken out of responses."""
    TYPE = "type"
    """The type that the question asks for."""
    CLOSING = "closing"
    """What is asked after the answer, of the same reader and type: its budgets and texts, evidence, support."""
    SAME_INPUTS = "same inputs"
    """None of these: a reading that failed or was not read was read again, or the engine gave another answer."""


DECIDE_CLOSING = (Cause.READER, Cause.EXTRACTION, Cause.TYPE)


"""What differs in the fingerprint of what is asked after an answer, beside what is asked."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AskedReading:
    """A reading as one run asked for it."""

    document_hash: str | None
    """SHA-256 of the document's text; None where it can't be read."""
    question_hash: str
    """SHA-256 of the question's text."""
    reader_fingerprint: str
    """The reader."""
    extraction: str
    """How its answer is taken out of the response."""
    value_type: ValueType | None = None
    """The type that it asks for."""
    closing_fingerprint: str | None = None
    """What is asked after the answer; depends on reader, extraction and type."""


def change_between(*, asked_before: bool, asked_after: bool) -> AnswerChange:
    """How a reading differs that at least one of the two runs asked for."""
    if not asked_before:
        return AnswerChange.ADDED
    return AnswerChange.CHANGED if asked_after else AnswerChange.REMOVED


def causes_between(before: AskedReading, after: AskedReading) -> list[Cause]:
    """What differs between two readings of one document_id, question_id and sample; never empty."""
    differs = {
        Cause.DOCUMENT: before.document_hash != after.document_hash,
        Cause.QUESTION: before.question_hash != after.question_hash,
        Cause.READER: before.reader_fingerprint != after.reader_fingerprint,
        Cause.EXTRACTION: before.extraction != after.extraction,
        Cause.TYPE: before.value_type != after.value_type,
    }
    is_closed_alike = before.closing_fingerprint == after.closing_fingerprint
    differs[Cause.CLOSING] = not (is_closed_alike or any(differs[cause] for cause in DECIDE_CLOSING))
    return [cause for cause, different in differs.items() if different] or [Cause.SAME_INPUTS]


def causes_of_presence(*, document_there: bool, question_there: bool) -> list[Cause]:
    """Why only one of two runs asked for a reading.

    Args:
        document_there: Whether the other run found the document.
        question_there: Whether the other run asked the question (of this document, where it found it).
    """
    there = {Cause.DOCUMENT: document_there, Cause.QUESTION: question_there}
    return [cause for cause, is_there in there.items() if not is_there] or [Cause.SAMPLE]


DIFFERENCES = pa.schema(
    [
        DOCUMENT_ID,
        QUESTION_ID,
        SAMPLE,
        column("change", pa.string(), "what became of the row of `answers`: " + ", ".join(AnswerChange)),
        column("why", pa.list_(pa.string()), "what is new, other or gone: " + ", ".join(Cause)),
        *[
            field.with_name(f"{field.name}_{side}").with_nullable(True)
            for field in ANSWER_GIVEN
            for side in ("before", "after")
        ],
    ]
)


"""One row for each reading that has another answer, value or status in one of two runs, or that only one asked for."""


class DifferenceRow(TypedDict):
    """A row of `DIFFERENCES`."""

    document_id: str
    question_id: str
    sample: int
    change: str
    why: list[str]
    question_before: str | None
    question_after: str | None
    status_before: str | None
    status_after: str | None
    answer_before: str | None
    answer_after: str | None
    value_before: str | None
    value_after: str | None
    value_status_before: str | None
    value_status_after: str | None
    memory_before: str | None
    memory_after: str | None
    error_message_before: str | None
    error_message_after: str | None
    run_id_before: str | None
    run_id_after: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenValue:
    """What `answers` shows of the value of a reading; empty where there is none."""

    value: str | None = None
    """The value as JSON."""
    value_status: str | None = None
    """What became of it."""


NO_VALUE = GivenValue()


class PastValues:
    """What was asked after the answers of a finished run, and the values that it brought up to that run."""

    def __init__(self, run: PastRun) -> None:
        """Takes the run; nothing of its log is read."""
        self._run = run
        has_closings = CLOSING_FINGERPRINT in run.questions.schema.names
        self.fingerprints: list[str | None] = (
            run.questions[CLOSING_FINGERPRINT].to_pylist() if has_closings else [None] * run.questions.num_rows
        )
        """The fingerprint of what closes the readings of each question; None if nothing does."""
        self._files: Mapping[str, Mapping[ReadingKey, LoggedOutcome]] = {}

    def index(self, fingerprints: Collection[str]) -> None:
        """Finds the log files that hold what was asked under these fingerprints."""
        if fingerprints:
            self._files = scan_closings(self._run.output, fingerprints=fingerprints, until=self._run.run_id)

    def closed_since(self, run_id: str) -> set[str]:
        """Hashes of documents with readings that were closed after that run, and up to this one."""
        every = {each for each in self.fingerprints if each}
        if not every:
            return set()
        found = scan_closings(self._run.output, fingerprints=every, after=run_id, until=self._run.run_id)
        return {key[0] for keys in found.values() for key in keys}

    def values(self, places: Iterable[ClosedPlace]) -> dict[ClosedPlace, GivenValue]:
        """The values at these places, where the log has what was asked there."""
        files: dict[str, list[ReadingKey]] = defaultdict(list)
        wanted: set[str] = set()
        for fingerprint, key in places:
            logged = self._files.get(fingerprint, {}).get(key)
            if logged is not None:
                files[logged.file].append(key)
                wanted.add(fingerprint)
        hashes = sorted({key[0] for keys in files.values() for key in keys})
        found = read_closings(
            self._run.output, sorted(files), fingerprints=wanted, document_hashes=hashes, columns=COLUMNS
        )
        return {(fingerprint, key): _given(row) for fingerprint, rows in found.items() for key, row in rows.items()}


def _given(row: ClosingRow) -> GivenValue:
    return GivenValue(value=row["value"], value_status=row["value_status"])


@dataclass(frozen=True, slots=True, kw_only=True)
class PastReading:
    """A reading in the plan of one run."""

    asked: AskedReading
    """What was asked."""
    question: str
    """Text of its question."""
    sample: int
    """Which sample."""
    run_id: str | None
    """The run that read it; None where the document can't be read, or the reading was not read."""
    error: str | None
    """Why the document can't be read."""

    @property
    def key(self) -> ReadingKey:
        """Its key in the log."""
        return (self.asked.document_hash or "", self.asked.question_hash, self.sample)

    @property
    def place(self) -> _Place:
        """Where the log has its answer."""
        return (self.asked.reader_fingerprint, self.key, self.run_id or "")

    @property
    def closed_place(self) -> ClosedPlace | None:
        """Where the log has what was asked after its answer; None where nothing was."""
        fingerprint = self.asked.closing_fingerprint
        return None if fingerprint is None else (fingerprint, self.key)


@dataclass(frozen=True, slots=True, kw_only=True)
class GivenAnswer:
    """What `answers` shows of a reading in one run, as `ANSWER_GIVEN`; empty where the run did not ask for it."""

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
        return {f"{name}_{side}": getattr(self, name) for name in SIDE_COLUMNS}


@dataclass(slots=True, kw_only=True)
class Sought:
    """What to look for in a log. Mutable: readings are added one after another."""

    run_ids: set[str] = field(default_factory=set)
    """Runs that read them."""
    closings: set[str] = field(default_factory=set)
    """Fingerprints of what closed them."""

    def add(self, reading: PastReading | None) -> None:
        """Takes a reading, where a run has read it."""
        if reading is None or reading.run_id is None:
            return
        self.run_ids.add(reading.run_id)
        if reading.asked.closing_fingerprint:
            self.closings.add(reading.asked.closing_fingerprint)


class PastReadings:
    """The readings of a finished run: finds them by document, and their answers in the log."""

    def __init__(self, run: PastRun) -> None:
        self.run = run
        self.question_ids = frozenset(run.questions["question_id"].to_pylist())
        self._rows = {name: row for row, name in enumerate(run.plan["document_id"].to_pylist())}
        self._missing = frozenset(run.plan.filter(pc.invert(is_there(run.plan)))["document_id"].to_pylist())
        self._records = run.plan.select(["document_hash", "error", "readings"]).to_struct_array().combine_chunks()
        self._questions = run.questions.select(["question_id", "question", "question_hash"]).to_pylist()
        self._values = PastValues(run)
        self._types = value_types(run.questions)
        self._reader = (run.manifest["reader_fingerprint"], run.manifest["settings"]["extraction"])
        self._is_sample = "sample" in run.manifest
        self._is_second_pass = "again" in run.manifest
        self._files: dict[_Place, list[str]] = {}

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
            (side._reader, side._questions, side._types, side._values.fingerprints) for side in (self, other)
        )
        return mine == others

    def closed_since(self, other: "PastReadings") -> set[str]:
        """Hashes of documents with readings that were closed after the other run and up to this one, in one log."""
        return self._values.closed_since(other.run.run_id)

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
                asked=AskedReading(
                    document_hash=document["document_hash"],
                    question_hash=question["question_hash"],
                    reader_fingerprint=fingerprint,
                    extraction=extraction,
                    value_type=self._types[reading["question"]],
                    closing_fingerprint=self._values.fingerprints[reading["question"]],
                ),
                question=question["question"],
                sample=reading["sample"],
                run_id=reading["run_id"],
                error=document["error"],
            )
        return readings

    def index(self, sought: Sought) -> None:
        """Finds the log files that hold it."""
        if sought.run_ids:
            fingerprint = self._reader[0]
            found = scan_outcome_files(self.run.output, reader_fingerprint=fingerprint, run_ids=sought.run_ids)
            self._files |= {(fingerprint, *place): files for place, files in found.items()}
        self._values.index(sought.closings)

    def answers(self, readings: Sequence[PastReading | None]) -> Iterator[GivenAnswer]:
        """What the run has to say of each reading."""
        read = [reading for reading in readings if reading and reading.run_id]
        outcomes = self._outcomes(read)
        values = self._values.values(place for each in read if (place := each.closed_place))
        for reading in readings:
            if reading is None:
                yield GivenAnswer()
            elif reading.run_id is None:
                status = Status.NOT_READ if reading.error is None else Status.FAILED
                yield GivenAnswer(question=reading.question, status=status, error_message=reading.error)
            else:
                outcome = outcomes.get(reading.place)
                if outcome is None:
                    raise OutputError(
                        f"the log of {self.run.output.uri} no longer holds what run {reading.run_id} read (document "
                        f"hash {reading.key[0][:12]}, question {reading.question!r}); restore its files in log/outcomes"
                    )
                value = values.get(reading.closed_place, NO_VALUE) if reading.closed_place else NO_VALUE
                yield _given_answer(reading, outcome, value)

    def _outcomes(self, readings: Sequence[PastReading]) -> dict[_Place, StandingOutcome]:
        by_run: dict[tuple[str, str], list[ReadingKey]] = defaultdict(list)
        for reading in readings:
            by_run[reading.asked.reader_fingerprint, str(reading.run_id)].append(reading.key)
        found: dict[_Place, StandingOutcome] = {}
        for (fingerprint, run_id), keys in by_run.items():
            rows = read_outcomes(
                self.run.output,
                sorted({file for key in keys for file in self._files.get((fingerprint, key, run_id), ())}),
                reader_fingerprint=fingerprint,
                document_hashes=sorted({key[0] for key in keys}),
            )
            found.update({(fingerprint, key, run_id): row for key, row in rows.items()})
        return found


def _given_answer(reading: PastReading, outcome: OutcomeRow, value: GivenValue) -> GivenAnswer:
    answer = None
    is_ok = outcome["status"] == Status.OK
    if is_ok:
        answer = extract_answer(outcome["response"] or "", extraction=Extraction(reading.asked.extraction))
    return GivenAnswer(
        question=reading.question,
        status=outcome["status"],
        answer=answer,
        memory=outcome["memory"],
        value=value.value if is_ok else None,
        value_status=value.value_status if is_ok else None,
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
    sought = (Sought(), Sought())
    for pair in _paired_readings(*sides, closed=closed):
        for of_side, reading in zip(sought, (pair.before, pair.after), strict=True):
            of_side.add(reading)
    for side, of_side in zip(sides, sought, strict=True):
        side.index(of_side)
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
    """Hashes of documents of one log whose values may differ though nothing else does: closing turns failed before."""
    if not _is_one_log(before, after):
        return set()
    earlier, later = sorted((before, after), key=lambda side: side.run.run_id)
    return later.closed_since(earlier)


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
                why = causes_between(reading.asked, again.asked)
            else:
                why = _why_alone(document_id, key[0], *((before, earlier) if reading is None else (after, later)))
            yield _Pair(
                document_id=document_id, question_id=key[0], sample=key[1], before=reading, after=again, why=why
            )


def _why_alone(
    document_id: str, question_id: str, other: PastReadings, readings: Mapping[tuple[str, int], PastReading]
) -> list[Cause]:
    """Why the other run, with these readings of the document, lacks one."""
    if other.leaves_out(document_id, question_id):
        return [Cause.LIMIT]
    if other.has_document(document_id):
        return causes_of_presence(document_there=True, question_there=(question_id, 0) in readings)
    return causes_of_presence(document_there=False, question_there=question_id in other.question_ids)


def _differs(pair: _Pair, before: GivenAnswer, after: GivenAnswer) -> bool:
    """Whether status, answer or value differ, or both runs ask for the same in another type."""
    return Cause.TYPE in pair.why or before.stands != after.stands


def _difference(pair: _Pair, before: GivenAnswer, after: GivenAnswer) -> dict[str, object]:
    return {
        "document_id": pair.document_id,
        "question_id": pair.question_id,
        "sample": pair.sample,
        "change": change_between(asked_before=pair.before is not None, asked_after=pair.after is not None),
        "why": pair.why,
        **before.columns("before"),
        **after.columns("after"),
    }
