"""Compares the answers of two finished runs, from their records and logs; of one output or of two."""

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass
from itertools import islice

import pyarrow as pa

from memagent_batch.runs.history.causes import Cause, causes_between, causes_of_presence, change_between
from memagent_batch.runs.history.history import PastRun
from memagent_batch.runs.history.past_readings import GivenAnswer, PastReading, PastReadings, Sought
from memagent_batch.runs.history.schemas import DIFFERENCES

BATCH_READINGS = 10_000
"""Most readings whose texts are held at once, of each run."""


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
