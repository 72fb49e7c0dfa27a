"""Which readings a second reader reads again: a projection of the log, so that every resume chooses the same."""

from collections.abc import Collection, Iterator, Sequence

import pyarrow as pa

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.escalation import Doubt, Doubts, Verdicts
from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.log.files import LOG_THREADS, ReadingKey
from memagent_batch.log.index import TurnIndex, read_closings, read_outcomes
from memagent_batch.log.schemas import ClosingColumns
from memagent_batch.runs.planning.plan import Plan, PlannedReading
from memagent_batch.runs.planning.work import Work

OF_RESPONSES = frozenset({Doubt.FAILED, Doubt.ANSWER})
"""Reasons that the text of a response can give; closing turns give the others."""
CLOSING_COLUMNS = ("value_status", "value_bool", "confidence", "support", "evidence")
"""What doubts go by, of what closing turns brought."""
FILES_AT_ONCE = 4 * LOG_THREADS
"""Log files whose rows are held at once."""


def doubtful_readings(
    plan: Plan,
    index: TurnIndex,
    *,
    output: Location,
    doubts: Doubts,
    extraction: Extraction,
    not_read: pa.Table | None = None,
) -> dict[Work, Doubt]:
    """The readings whose logged results are doubtful, and why.

    Args:
        plan: The plan of the first reader.
        index: What the log holds of it.
        output: The run's location.
        doubts: What makes an answer doubtful.
        extraction: How answers are taken out of responses.
        not_read: Readings that could not be read or closed in this run, as rows of `OUTCOME_LOG`; they are not read
            again before they are.
    """
    of_values = _of_closings(output, index, doubts=doubts, of_bools=plan.asked.closings_of_bools())
    of_responses = _of_responses(output, index, doubts=doubts, extraction=extraction)
    unread = reading_keys(not_read)
    found: dict[Work, Doubt] = {}
    for reading in plan.addressed():
        key = reading.key
        if not has_ended(reading, index, is_unread=key in unread):
            continue
        reasons = {of_values.get((reading.closing or "", key)), of_responses.get(key)}
        if index.outcomes[key].status == Status.FAILED:
            question_hash = key[1] if plan.asked.is_bool(reading.work.question) else None
            reasons = {doubts.of(Status.FAILED, verdicts=Verdicts(), question_hash=question_hash)}
        doubt = next((each for each in Doubt if each in reasons), None)
        if doubt is not None:
            found[reading.work] = doubt
    return found


def open_readings(plan: Plan, index: TurnIndex, *, retry_failed: bool) -> set[Work]:
    """The readings that have still to be read or closed, and may turn out doubtful."""
    again = {None, Status.FAILED} if retry_failed else {None}
    found = set()
    for reading in plan.addressed():
        outcome = index.outcomes.get(reading.key)
        status = outcome.status if outcome else None
        if status in again or plan.is_open(reading.work.question, reading.key, index, retry_failed=retry_failed):
            found.add(reading.work)
    return found


def has_ended(reading: PlannedReading, index: TurnIndex, *, is_unread: bool) -> bool:
    """Whether the log says how a reading ended, so that a row of the tables shows that; see `HeldPart.look`.

    `is_unread`: whether this run could not read or close it.
    """
    outcome = index.outcomes.get(reading.key)
    if outcome is None:
        return False
    is_answered = outcome.status == Status.OK
    closed = index.closings.get(reading.closing, {}).get(reading.key) if reading.closing else None
    if is_answered and reading.closing and closed is None:
        return False
    return not is_unread or (is_answered and not (closed and closed.status is Status.FAILED))


def reading_keys(rows: pa.Table | None) -> frozenset[ReadingKey]:
    """The readings of rows of `OUTCOME_LOG`."""
    columns = [rows[name].to_pylist() for name in ("document_hash", "question_hash", "sample")] if rows else [[]] * 3
    return frozenset(zip(*columns, strict=True))


def effective_status(status: str, answer: str | None, *, doubts: Doubts) -> str:
    """The status of a reading as its doubts see it: without an answer it has failed, where that is a reason."""
    is_empty = status == Status.OK and answer is None
    return Status.FAILED if is_empty and Doubt.FAILED in doubts.when else status


def verdicts_of(closed: ClosingColumns, *, num_evidence: int | None) -> Verdicts:
    """What closing turns say of a reading."""
    return Verdicts(
        value_status=closed["value_status"],
        support=closed["support"],
        confidence=closed["confidence"],
        has_evidence=None if num_evidence is None else num_evidence > 0,
        value_bool=closed["value_bool"],
    )


def _of_closings(
    output: Location, index: TurnIndex, *, doubts: Doubts, of_bools: Collection[str]
) -> dict[tuple[str, ReadingKey], Doubt]:
    """Doubts that closing turns give, by their fingerprint and the reading; nothing is read where they can't.

    `of_bools`: fingerprints of what closes questions of yes or no.
    """
    if not set(doubts.when) - OF_RESPONSES:
        return {}
    found: dict[tuple[str, ReadingKey], Doubt] = {}
    standing = {(name, key): each.file for name, keys in index.closings.items() for key, each in keys.items()}
    for files in _batches(set(standing.values())):
        closed = read_closings(output, files, fingerprints=list(index.closings), columns=CLOSING_COLUMNS)
        for name, key, row in ((name, key, row) for name, rows in closed.items() for key, row in rows.items()):
            num_evidence = None if row["evidence"] is None else len(row["evidence"])
            verdicts = verdicts_of(row, num_evidence=num_evidence)
            doubt = doubts.of(Status.OK, verdicts=verdicts, question_hash=key[1] if name in of_bools else None)
            if doubt is not None and standing[name, key] in files:
                found[name, key] = doubt
    return found


def _of_responses(
    output: Location, index: TurnIndex, *, doubts: Doubts, extraction: Extraction
) -> dict[ReadingKey, Doubt]:
    """Readings whose answers are doubtful by their text, or that have none; nothing is read where neither counts."""
    if not set(doubts.when) & OF_RESPONSES:
        return {}
    found: dict[ReadingKey, Doubt] = {}
    standing = {key: outcome.file for key, outcome in index.outcomes.items() if outcome.status == Status.OK}
    for files in _batches(set(standing.values())):
        rows = read_outcomes(output, files, reader_fingerprint=index.reader_fingerprint, columns=["response"])
        for key, row in rows.items():
            answer = extract_answer(row["response"] or "", extraction=extraction)
            status = effective_status(Status.OK, answer, doubts=doubts)
            doubt = doubts.of(status, verdicts=Verdicts(), answer=answer)
            if doubt is not None and standing.get(key) in files:
                found[key] = doubt
    return found


def _batches(files: Collection[str]) -> Iterator[Sequence[str]]:
    """The files in order, so many at once that they are read side by side, and their rows fit into memory."""
    ordered = sorted(files)
    for start in range(0, len(ordered), FILES_AT_ONCE):
        yield ordered[start : start + FILES_AT_ONCE]
