"""The readings of a finished run, and what it had to say of each, from its record and log."""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.inputs.document_index import is_there
from memagent_batch.inputs.questions import value_types
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import StandingOutcome, read_outcomes, scan_outcome_files
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.history.causes import AskedReading
from memagent_batch.runs.history.history import PastRun
from memagent_batch.runs.history.past_values import NO_VALUE, ClosedPlace, GivenValue, PastValues
from memagent_batch.runs.history.schemas import ANSWER_GIVEN

SIDE_COLUMNS = tuple(field.name for field in ANSWER_GIVEN)
"""Columns of `DIFFERENCES` that are there for each of the two runs."""

_Place = tuple[str, ReadingKey, str]
"""Where a log has an answer: reader, reading, and the run that read it."""


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
