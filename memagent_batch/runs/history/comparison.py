"""Compares the answers of two finished runs, from their records and logs; of one output or of two."""

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.inputs.document_index import is_there
from memagent_batch.inputs.questions import value_types
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import StandingOutcome, read_outcomes, scan_outcome_files
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.runs.history.causes import AskedReading, Cause, causes_between, causes_of_presence, change_between
from memagent_batch.runs.history.history import PastRun
from memagent_batch.runs.history.schemas import ANSWER_GIVEN, DIFFERENCES

BATCH_READINGS = 10_000
"""Most readings whose texts are held at once, of each run."""

SIDE_COLUMNS = tuple(field.name for field in ANSWER_GIVEN)
"""Columns of `DIFFERENCES` that are there for each of the two runs."""


_Place = tuple[str, ReadingKey, str]
"""Where a log has an answer: reader, reading, and the run that read it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Reading:
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
        single = text_hash(self.question)  # as the second reader takes questions, whatever the first one does
        question_hash = self.asked.question_hash if self.asked.tier == 1 else single
        return (self.asked.document_hash or "", question_hash, self.sample)

    @property
    def place(self) -> _Place:
        """Where the log has its answer."""
        return (self.asked.reader_fingerprint, self.key, self.run_id or "")


@dataclass(frozen=True, slots=True, kw_only=True)
class _GivenAnswer:
    """What `answers` shows of a reading in one run, as `ANSWER_GIVEN`; empty where the run did not ask for it."""

    question: str | None = None
    status: str | None = None
    answer: str | None = None
    memory: str | None = None
    error_message: str | None = None
    run_id: str | None = None

    def columns(self, side: str) -> dict[str, str | None]:
        """Its columns of `DIFFERENCES`."""
        return {f"{name}_{side}": getattr(self, name) for name in SIDE_COLUMNS}


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pair:
    """A reading of the same ids in both runs, or in one of them."""

    document_id: str
    question_id: str
    sample: int
    before: _Reading | None
    after: _Reading | None
    why: list[Cause]


class _Side:
    """One of the two runs: finds its readings by document, and their answers in the log."""

    def __init__(self, run: PastRun) -> None:
        self.run = run
        self.question_ids = frozenset(run.questions["question_id"].to_pylist())
        self._rows = {name: row for row, name in enumerate(run.plan["document_id"].to_pylist())}
        self._missing = frozenset(run.plan.filter(pc.invert(is_there(run.plan)))["document_id"].to_pylist())
        self._records = run.plan.select(["document_hash", "error", "readings"]).to_struct_array().combine_chunks()
        self._questions = run.questions.select(["question_id", "question", "question_hash"]).to_pylist()
        self._types = value_types(run.questions)
        self._readers = _readers_of(run)
        self._is_sample = "sample" in run.manifest
        self._files: dict[_Place, list[str]] = {}

    def document_ids(self) -> Iterator[str]:
        """What it asked something of, in the order of its plan: its documents, and ones that were not there."""
        return iter(self._rows)

    def has_document(self, document_id: str) -> bool:
        """Whether the run found it."""
        return document_id in self._rows and document_id not in self._missing

    def leaves_out(self, document_id: str) -> bool:
        """Whether the run found it and a limit left it out: it then asks nothing of it."""
        record = self.record(document_id)
        return self._is_sample and record is not None and not record.as_py()["readings"]

    def reads_as(self, other: "_Side") -> bool:
        """Whether equal records of the two, in one log, mean equal answers."""
        mine, others = ((side._readers, side._questions, side._types) for side in (self, other))
        return mine == others

    def record(self, document_id: str) -> pa.StructScalar | None:
        """What the plan says of a document; None where the run asked nothing of it."""
        row = self._rows.get(document_id)
        return None if row is None else self._records[row]

    def readings(self, document_id: str) -> dict[tuple[str, int], _Reading]:
        """What was asked of a document, by question_id and sample."""
        record = self.record(document_id)
        if record is None:
            return {}
        document = record.as_py()
        readings = {}
        for reading in document["readings"]:
            question, tier = self._questions[reading["question"]], reading.get("tier") or 1
            fingerprint, extraction = self._readers[tier - 1]
            readings[question["question_id"], reading["sample"]] = _Reading(
                asked=AskedReading(
                    document_hash=document["document_hash"],
                    question_hash=question["question_hash"],
                    reader_fingerprint=fingerprint,
                    extraction=extraction,
                    value_type=self._types[reading["question"]],
                    tier=tier,
                ),
                question=question["question"],
                sample=reading["sample"],
                run_id=reading["run_id"],
                error=document["error"],
            )
        return readings

    def index(self, run_ids: set[str]) -> None:
        """Finds the log files that hold what these runs read."""
        for fingerprint, _ in self._readers if run_ids else ():
            found = scan_outcome_files(self.run.output, reader_fingerprint=fingerprint, run_ids=run_ids)
            self._files |= {(fingerprint, *place): files for place, files in found.items()}

    def answers(self, readings: Sequence[_Reading | None]) -> Iterator[_GivenAnswer]:
        """What the run has to say of each reading."""
        outcomes = self._outcomes([reading for reading in readings if reading and reading.run_id])
        for reading in readings:
            if reading is None:
                yield _GivenAnswer()
            elif reading.run_id is None:
                status = Status.NOT_READ if reading.error is None else Status.FAILED
                yield _GivenAnswer(question=reading.question, status=status, error_message=reading.error)
            else:
                outcome = outcomes.get(reading.place)
                if outcome is None:
                    raise OutputError(
                        f"the log of {self.run.output.uri} no longer holds what run {reading.run_id} read (document "
                        f"hash {reading.key[0][:12]}, question {reading.question!r}); restore its files in log/outcomes"
                    )
                yield _given_answer(reading, outcome)

    def _outcomes(self, readings: Sequence[_Reading]) -> dict[_Place, StandingOutcome]:
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


def _readers_of(run: PastRun) -> list[tuple[str, str]]:
    """Fingerprint and extraction of the readers of a run, by tier."""
    readers = [(run.manifest["reader_fingerprint"], run.manifest["settings"]["extraction"])]
    again = run.manifest.get("second_look")
    if again and again["reader_fingerprint"] and again["extraction"]:
        readers.append((again["reader_fingerprint"], again["extraction"]))
    return readers


def compare_runs(before: PastRun, after: PastRun) -> Iterator[pa.Table]:
    """Streams the rows whose answer, status, type or presence differs, as tables of `DIFFERENCES`.

    What both runs have from the same rows of one log is passed over without reading it.

    Raises:
        OutputError: the log no longer holds what a run read, or can't be read.
    """
    sides = (_Side(before), _Side(after))
    run_ids: tuple[set[str], set[str]] = (set(), set())
    for pair in _paired_readings(*sides):
        for found, reading in zip(run_ids, (pair.before, pair.after), strict=True):
            if reading and reading.run_id:
                found.add(reading.run_id)
    for side, found in zip(sides, run_ids, strict=True):
        side.index(found)
    pairs = _paired_readings(*sides)
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


def _paired_readings(before: _Side, after: _Side) -> Iterator[_Pair]:
    """Readings that may differ: documents of the later run in its order, then those that are gone."""
    gone = (name for name in before.document_ids() if after.record(name) is None)
    same_log = before.run.output.uri == after.run.output.uri
    same_reader = same_log and before.reads_as(after)
    for document_id in (*after.document_ids(), *gone):
        if same_reader and before.record(document_id) == after.record(document_id):
            continue
        earlier, later = before.readings(document_id), after.readings(document_id)
        for key in [*later, *(key for key in earlier if key not in later)]:
            reading, again = earlier.get(key), later.get(key)
            if same_log and reading == again:
                continue
            if reading and again:
                why = causes_between(reading.asked, again.asked)
            else:
                why = _why_alone(document_id, key[0], *((before, earlier) if reading is None else (after, later)))
            yield _Pair(
                document_id=document_id, question_id=key[0], sample=key[1], before=reading, after=again, why=why
            )


def _why_alone(
    document_id: str, question_id: str, other: _Side, readings: Mapping[tuple[str, int], _Reading]
) -> list[Cause]:
    """Why the other run, with these readings of the document, lacks one."""
    if other.leaves_out(document_id):
        return [Cause.LIMIT]
    if other.has_document(document_id):
        return causes_of_presence(document_there=True, question_there=(question_id, 0) in readings)
    return causes_of_presence(document_there=False, question_there=question_id in other.question_ids)


def _given_answer(reading: _Reading, outcome: OutcomeRow) -> _GivenAnswer:
    answer = None
    if outcome["status"] == Status.OK:
        answer = extract_answer(outcome["response"] or "", extraction=Extraction(reading.asked.extraction))
    return _GivenAnswer(
        question=reading.question,
        status=outcome["status"],
        answer=answer,
        memory=outcome["memory"],
        error_message=outcome["error_message"],
        run_id=reading.run_id,
    )


def _differs(pair: _Pair, before: _GivenAnswer, after: _GivenAnswer) -> bool:
    """Whether answer or status differ, or both runs ask for the same in another type."""
    return Cause.TYPE in pair.why or (before.status, before.answer) != (after.status, after.answer)


def _difference(pair: _Pair, before: _GivenAnswer, after: _GivenAnswer) -> dict[str, object]:
    return {
        "document_id": pair.document_id,
        "question_id": pair.question_id,
        "sample": pair.sample,
        "change": change_between(asked_before=pair.before is not None, asked_after=pair.after is not None),
        "why": pair.why,
        **before.columns("before"),
        **after.columns("after"),
    }
