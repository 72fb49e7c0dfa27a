"""Which readings a second reader reads again: a projection of the log, so that every resume chooses the same."""

from collections import defaultdict
from collections.abc import Iterable, Mapping

import pyarrow as pa

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.escalation import Doubt, Doubts, Verdicts
from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.log.closings import read_closings
from memagent_batch.log.files import ReadingKey
from memagent_batch.log.index import TurnIndex, read_outcomes
from memagent_batch.log.schemas import ClosingColumns
from memagent_batch.runs.plan import Plan, PlannedReading, Work


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
    of_values = _of_closings(output, index, doubts=doubts)
    of_answers = _of_answers(output, index, doubts=doubts, extraction=extraction)
    unread = reading_keys(not_read)
    found: dict[Work, Doubt] = {}
    for reading in plan.addressed():
        key = reading.key
        if not has_ended(reading, index, is_unread=key in unread):
            continue
        reasons = {of_values.get((reading.closing or "", key)), of_answers.get(key)}
        if index.outcomes[key].status == Status.FAILED:
            reasons = {doubts.of(Status.FAILED, verdicts=Verdicts(), question_hash=key[1])}
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
    return not is_unread or (is_answered and not (closed and closed.is_failed))


def reading_keys(rows: pa.Table | None) -> frozenset[ReadingKey]:
    """The readings of rows of `OUTCOME_LOG`."""
    columns = [rows[name].to_pylist() for name in ("document_hash", "question_hash", "sample")] if rows else [[]] * 3
    return frozenset(zip(*columns, strict=True))


def verdicts_of(closed: ClosingColumns, *, num_evidence: int | None) -> Verdicts:
    """What closing turns say of a reading."""
    return Verdicts(
        value_status=closed["value_status"],
        support=closed["support"],
        confidence=closed["confidence"],
        has_evidence=None if num_evidence is None else num_evidence > 0,
        value_bool=closed["value_bool"],
    )


def _of_closings(output: Location, index: TurnIndex, *, doubts: Doubts) -> dict[tuple[str, ReadingKey], Doubt]:
    """Doubts that closing turns give, by their fingerprint and the reading; one log file at a time."""
    found: dict[tuple[str, ReadingKey], Doubt] = {}
    standing = {(name, key): each.file for name, keys in index.closings.items() for key, each in keys.items()}
    for file in sorted(set(standing.values())):
        for name, rows in read_closings(output, [file], fingerprints=list(index.closings)).items():
            for key, row in rows.items():
                num_evidence = None if row["evidence"] is None else len(row["evidence"])
                verdicts = verdicts_of(row, num_evidence=num_evidence)
                doubt = doubts.of(Status.OK, verdicts=verdicts, question_hash=key[1])
                if doubt is not None and standing[name, key] == file:
                    found[name, key] = doubt
    return found


def _of_answers(
    output: Location, index: TurnIndex, *, doubts: Doubts, extraction: Extraction
) -> dict[ReadingKey, Doubt]:
    """Readings whose answers are doubtful by their text; one log file at a time, and none where no text is."""
    found: dict[ReadingKey, Doubt] = {}
    for file, keys in _by_file(index).items() if doubts.answers else ():
        rows = read_outcomes(output, [file], reader_fingerprint=index.reader_fingerprint)
        for key in keys:
            if doubts.names(extract_answer(rows[key]["response"] or "", extraction=extraction)):
                found[key] = Doubt.ANSWER
    return found


def _by_file(index: TurnIndex) -> Mapping[str, Iterable[ReadingKey]]:
    """The readings that were answered, by the log file that holds them."""
    files: dict[str, list[ReadingKey]] = defaultdict(list)
    for key, outcome in index.outcomes.items():
        if outcome.status == Status.OK:
            files[outcome.file].append(key)
    return dict(sorted(files.items()))
