"""What trouble did to a run: the rows and turns that its output holds when it has ended."""

import json
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import pyarrow.parquet as pq

from memagent_batch.domain.readings import Status
from memagent_batch.files.location import Location
from memagent_batch.log.writer import TURNS_FOLDER
from memagent_batch.runs.claim import ANSWER_TABLES, stranger_files
from memagent_batch.runs.manifest import MANIFEST_FILE

ADDRESS = ["document_hash", "question_hash", "sample", "reader_fingerprint", "path"]
TAIL_CHARS = 3000
"""Of the console that a report shows."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChaosReport:
    """One trouble, once."""

    trouble: str
    """What struck."""
    asked: int
    """Readings asked for."""
    ok: int
    """Rows with an answer."""
    failed: int
    """Rows that say why there is none."""
    rows_lost: int
    """Readings without a row."""
    rows_doubled: int
    """Rows beyond one for a reading."""
    counts_close: bool
    """Whether the manifest says the same, and the tables' folders hold its files and no other."""
    turns: int
    """Turns of the whole job."""
    turns_logged_twice: int
    """Log rows beyond one for a turn."""
    seconds_to_recover: float | None
    """From the trouble's begin to the next turn that ends after it; none where no turn was left."""
    seconds: float
    """From the trouble's begin to the last turn."""
    processes_left: list[str]
    """Processes of the job that outlived it."""
    said: str
    """The end of the console."""


def read_report(
    output: Location, *, trouble: str, asked: int, began: float, processes_left: list[str], said: str
) -> ChaosReport:
    """Looks at what is there."""
    manifest: dict[str, Any] = json.loads((output / MANIFEST_FILE).read_bytes())
    rows = _rows(output, (output / "answers").files(), ["document_id", "question_id", "sample", "status"])
    readings = Counter((row["document_id"], row["question_id"], row["sample"]) for row in rows)
    turns = _rows(output, (output / TURNS_FOLDER).files(), [*ADDRESS, "finished_at"])
    addresses = Counter(tuple(row[name] for name in ADDRESS) for row in turns)
    ended = sorted(row["finished_at"].timestamp() for row in turns)
    later = _after_longest_gap([began, *(moment for moment in ended if moment > began)])
    strangers = stranger_files(output, manifest, tables=ANSWER_TABLES)
    statuses = [row["status"] for row in rows]
    return ChaosReport(
        trouble=trouble,
        asked=asked,
        ok=statuses.count(Status.OK),
        failed=statuses.count(Status.FAILED),
        rows_lost=asked - len(readings),
        rows_doubled=readings.total() - len(readings),
        counts_close=manifest["counts"]["answers_rows"] == len(rows) and not strangers,
        turns=len(addresses),
        turns_logged_twice=addresses.total() - len(addresses),
        seconds_to_recover=round(later - began, 1) if later is not None else None,
        seconds=round(ended[-1] - began, 1),
        processes_left=processes_left,
        said=said[-TAIL_CHARS:],
    )


def table(reports: Mapping[str, Sequence[ChaosReport]]) -> str:
    """The fault table in Markdown."""
    lines = [
        "| fault | tried | asked | ok | failed | rows lost | doubled | turns logged twice | seconds to recover |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for trouble, tries in reports.items():
        names = ("asked", "ok", "failed", "rows_lost", "rows_doubled", "turns_logged_twice")
        sums = [sum(getattr(report, name) for report in tries) for name in names]
        lines.append(f"| {trouble} | {len(tries)} | {' | '.join(map(str, sums))} | {_span(tries)} |")
    return "\n".join(lines)


def _span(reports: Sequence[ChaosReport]) -> str:
    seconds = [report.seconds_to_recover for report in reports if report.seconds_to_recover is not None]
    if not seconds:
        return "-"
    return f"{statistics.median(seconds):.0f}" if len(seconds) == 1 else f"{min(seconds):.0f} to {max(seconds):.0f}"


def _after_longest_gap(moments: list[float]) -> float | None:
    """The moment after the longest time without any: the first turn once the trouble was over."""
    gaps = [(after - before, after) for before, after in pairwise(moments)]
    return max(gaps)[1] if gaps else None


def _rows(output: Location, files: list[str], columns: list[str]) -> list[dict[str, Any]]:
    return [row for path in files for row in pq.read_table(path, filesystem=output.fs, columns=columns).to_pylist()]
