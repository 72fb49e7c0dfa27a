"""What kills did to a run: its rows beside those of a run that was left alone, its log, and the calls it made."""

import json
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.killed_job import Role
from memagent_batch.domain.readings import Status

STRAGGLER_SECONDS = 2.0
"""A turn that ends so soon after a kill was still the old engine's."""
ADDRESS = ["document_hash", "question_hash", "sample", "reader_fingerprint", "path"]


Key = tuple[str, str, int]
"""Document, question, sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """What an output holds."""

    rows: dict[Key, list[tuple[Any, ...]]]
    """Status, answer, response and memory of each row, by reading."""
    counts: dict[str, int]
    """The manifest's."""
    logged: Counter[tuple[Any, ...]]
    """How often each turn address is in the log."""
    finished_at: list[float]
    """When each logged turn ended, seconds, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kill:
    """One `kill -9`."""

    moment: str
    """What the run was doing."""
    at: float
    """When, seconds since the epoch."""
    seconds_to_end: float
    """Time that the processes which should end with the killed one outlived it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    """What the kills of one kind did."""

    fault: Role
    """What was killed."""
    moments: list[str]
    """When."""
    asked: int
    """Readings asked for."""
    ok: int
    """Rows with an answer."""
    failed: int
    """Rows that say why there is none; those of the unreadable document are expected."""
    rows_lost: int
    """Readings without a row."""
    rows_doubled: int
    """Rows beyond one for a reading."""
    rows_changed: int
    """Rows that differ from the undisturbed run's."""
    counts: dict[str, int]
    """The manifest's."""
    turns: int
    """Turns of the whole job."""
    turns_logged_twice: int
    """Log rows beyond one for a turn."""
    calls_repeated: int
    """Model calls begun beyond one for a turn; those that were under way at a kill are in it."""
    calls_bound: int
    """What the promise allows: for each kill among turns, those of one flush interval, and those under way."""
    seconds_to_recover: list[float | None]
    """From each kill to the next turn that ends; none where no turn was left. Further kills before it are in it."""
    seconds_to_end: float
    """Longest time that processes which should end with a killed one outlived it."""
    processes_left: list[str]
    """Titles of those that did so for too long."""


def make_report(
    results: Results,
    *,
    reference: Results,
    fault: Role,
    kills: Sequence[Kill],
    num_calls: int,
    calls_bound: int,
    processes_left: list[str],
) -> FaultReport:
    """Compares what a killed run left with what an undisturbed one did."""
    statuses = [row[0] for rows in results.rows.values() for row in rows]
    return FaultReport(
        fault=fault,
        moments=[kill.moment for kill in kills],
        asked=reference.counts["asked"],
        ok=statuses.count(Status.OK),
        failed=statuses.count(Status.FAILED),
        rows_lost=len(reference.rows.keys() - results.rows.keys()),
        rows_doubled=len(statuses) - len(results.rows),
        rows_changed=sum(rows != results.rows.get(key) for key, rows in reference.rows.items()),
        counts=results.counts,
        turns=len(results.logged),
        turns_logged_twice=results.logged.total() - len(results.logged),
        calls_repeated=num_calls - len(results.logged),
        calls_bound=calls_bound,
        seconds_to_recover=[_seconds_to_recover(kill, results.finished_at) for kill in kills],
        seconds_to_end=max(kill.seconds_to_end for kill in kills),
        processes_left=processes_left,
    )


def read_results(output: Path) -> Results:
    """Rows, counts and log of an output whose run has closed."""
    rows: dict[Key, list[tuple[Any, ...]]] = {}
    for row in pq.read_table(output / "answers").to_pylist():
        key = (row["document_id"], row["question_id"], row["sample"])
        rows.setdefault(key, []).append(tuple(row[name] for name in ("status", "answer", "response", "memory")))
    log = pq.read_table(output / "log" / "turns", columns=[*ADDRESS, "finished_at"])
    return Results(
        rows=rows,
        counts=json.loads((output / "manifest.json").read_text())["counts"],
        logged=Counter(tuple(row.values()) for row in log.select(ADDRESS).to_pylist()),
        finished_at=sorted(moment.timestamp() for moment in log["finished_at"].to_pylist()),
    )


def most_within(moments: Sequence[float], *, seconds: float) -> int:
    """The most moments (sorted) that lie within so many seconds."""
    return max((bisect_right(moments, moment + seconds) - index for index, moment in enumerate(moments)), default=0)


def _seconds_to_recover(kill: Kill, finished_at: Sequence[float]) -> float | None:
    later = bisect_right(finished_at, kill.at + STRAGGLER_SECONDS)
    return round(finished_at[later] - kill.at, 1) if later < len(finished_at) else None
