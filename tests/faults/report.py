"""What a fault did to a run: rows and turns of its output once it has ended, beside those of an undisturbed run."""

import json
import statistics
from bisect import bisect_right
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.domain.readings import Status
from memagent_batch.runs.claim import ANSWER_TABLES, unreferenced_files
from memagent_batch.runs.manifest import MANIFEST_FILE
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.keys import TURNS_FOLDER
from tests.faults.fault import Fault

ADDRESS = ["document_hash", "question_hash", "sample", "fingerprint", "path"]
RESULT = ["status", "answer", "response", "memory", "error_message"]
TAIL_CHARS = 3000
"""Characters of the console's end that a report shows."""
STRAGGLER_SECONDS = 2.0
"""A turn that ends so soon after a kill still belongs to the old engine."""

Key = tuple[str, str, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Results:
    """Content of an output whose run has closed."""

    rows: dict[Key, list[tuple[Any, ...]]]
    """Status, answer, response, memory and error of each row, by reading."""
    counts: dict[str, int]
    unreferenced_files: list[str]
    """Files in the tables' folders that the manifest does not name."""
    logged: Counter[tuple[Any, ...]]
    """Number of log rows for each turn address."""
    finished_at: list[float]
    """When each logged turn ended, seconds since 1970, sorted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class KillFigures:
    """Further figures of kills that are compared with an undisturbed run."""

    moments: list[str]
    """State of the run at each kill."""
    counts_equal: bool
    """Whether the manifest counts the same as the undisturbed run's."""
    calls_repeated: int
    """Model calls begun beyond one for a turn; those that were in flight at a kill are in it."""
    calls_bound: int
    """What the promise allows: for each kill among turns, those of one flush interval, and those in flight."""
    seconds_to_end: float
    """Longest time for which processes that should end with a killed one outlived it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultReport:
    fault: str
    asked: int
    """Readings that the job was asked for."""
    ok: int
    errors: list[str]
    """Errors of the rows that have one instead of an answer."""
    rows_lost: int
    rows_doubled: int
    """Rows beyond one for a reading."""
    counts_close: bool
    """Whether the manifest counts the same number of rows, and the tables' folders hold its files and no other."""
    turns: int
    """Turns of the whole job."""
    turns_logged_twice: int
    """Log rows beyond one for a turn."""
    seconds_to_recover: list[float]
    """From each strike to the next turn that ends after it; left out where no turn was left."""
    processes_left: list[str]
    """Titles of processes that outlived the job, or the process that they should have ended with."""
    console: str
    """The end of the console."""
    rows_changed: int | None = None
    """Readings whose rows differ from an undisturbed run's, if there is one."""
    kills: KillFigures | None = None
    """Further figures against it, where vLLM's processes are killed."""

    @property
    def failed(self) -> int:
        """Rows with an error instead of an answer."""
        return len(self.errors)


def read_results(output: Location) -> Results:
    """Reads rows, counts and log."""
    manifest: dict[str, Any] = json.loads((output / MANIFEST_FILE).read_bytes())
    rows: dict[Key, list[tuple[Any, ...]]] = {}
    key_columns = ["document_id", "question_id", "sample"]
    for row in _rows(output, (output / "answers").files(), [*key_columns, *RESULT]):
        key = (row["document_id"], row["question_id"], row["sample"])
        rows.setdefault(key, []).append(tuple(row[name] for name in RESULT))
    turns = _rows(output, (output / TURNS_FOLDER).files(), [*ADDRESS, "finished_at"])
    return Results(
        rows=rows,
        counts=manifest["counts"],
        unreferenced_files=unreferenced_files(output, manifest, tables=ANSWER_TABLES),
        logged=Counter(tuple(row[name] for name in ADDRESS) for row in turns),
        finished_at=sorted(row["finished_at"].timestamp() for row in turns),
    )


def make_report(
    results: Results,
    *,
    fault: str,
    asked: int,
    seconds_to_recover: Sequence[float | None],
    processes_left: list[str],
    console: str,
    reference: Results | None = None,
    kills: KillFigures | None = None,
) -> FaultReport:
    """Counts what the run left.

    Args:
        results: content of the output.
        fault: what struck.
        asked: readings asked for.
        seconds_to_recover: of each strike; None where no turn was left.
        processes_left: titles of processes that outlived the job.
        console: everything that the job printed.
        reference: content of the output of an undisturbed run.
        kills: further figures against it.
    """
    statuses = [row[0] for rows in results.rows.values() for row in rows]
    return FaultReport(
        fault=fault,
        asked=asked,
        ok=statuses.count(Status.OK),
        errors=[row[-1] for rows in results.rows.values() for row in rows if row[0] == Status.FAILED],
        rows_lost=asked - len(results.rows),
        rows_doubled=len(statuses) - len(results.rows),
        counts_close=results.counts["answers_rows"] == len(statuses) and not results.unreferenced_files,
        turns=len(results.logged),
        turns_logged_twice=results.logged.total() - len(results.logged),
        seconds_to_recover=[round(seconds, 1) for seconds in seconds_to_recover if seconds is not None],
        processes_left=processes_left,
        console=console[-TAIL_CHARS:],
        rows_changed=None if reference is None else _changed(results, reference),
        kills=kills,
    )


def _changed(results: Results, reference: Results) -> int:
    return sum(rows != results.rows.get(key) for key, rows in reference.rows.items())


def seconds_without_turn(results: Results, *, began: float) -> float | None:
    """From the strike to the turn after the longest time without any: the first one once the fault was over."""
    moments = [began, *(moment for moment in results.finished_at if moment > began)]
    gaps = [(after - before, after) for before, after in pairwise(moments)]
    return max(gaps)[1] - began if gaps else None


def seconds_to_next_turn(results: Results, *, at: float) -> float | None:
    """From a kill to the next turn of a new engine. Further kills before it are in it."""
    later = bisect_right(results.finished_at, at + STRAGGLER_SECONDS)
    return results.finished_at[later] - at if later < len(results.finished_at) else None


def table(reports: Mapping[Fault, Sequence[FaultReport]]) -> str:
    """The fault table in Markdown; the columns `changed` to `bound` hold figures against an undisturbed run."""
    columns = ("asked", "ok", "failed", "rows_lost", "rows_doubled", "turns_logged_twice")
    kill_columns = ("calls_repeated", "calls_bound")
    header = [
        *("fault", "tried", "asked", "ok", "failed", "rows lost", "doubled", "turns logged twice"),
        *("changed", "calls repeated", "bound", "seconds to recover"),
    ]
    lines = [f"| {' | '.join(header)} |", "|" + "---|" * len(header)]
    for fault, tries in reports.items():
        sums = [sum(getattr(report, name) for report in tries) for name in columns]
        kills = [report.kills for report in tries if report.kills]
        kill_sums = [sum(getattr(each, name) for each in kills) if kills else "-" for name in kill_columns]
        changed = [report.rows_changed for report in tries if report.rows_changed is not None]
        seconds = _span([seconds for report in tries for seconds in report.seconds_to_recover])
        figures = [fault, len(tries), *sums, sum(changed) if changed else "-", *kill_sums, seconds]
        lines.append(f"| {' | '.join(map(str, figures))} |")
    return "\n".join(lines)


def _span(seconds: Sequence[float]) -> str:
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.0f}" if len(seconds) == 1 else f"{min(seconds):.0f} to {max(seconds):.0f}"


def _rows(output: Location, files: list[str], columns: list[str]) -> list[dict[str, Any]]:
    return [row for path in files for row in pq.read_table(path, filesystem=output.fs, columns=columns).to_pylist()]
