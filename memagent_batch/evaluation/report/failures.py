"""Which readings the report shows as failures, and how each went wrong. Pure."""

from collections import Counter, defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.domain.readings import Status
from memagent_batch.evaluation.record import ReadingIds
from memagent_batch.evaluation.suite import STATUS_MISSING
from memagent_batch.log.index import Row

TRACES_PER_VARIANT = 50
"""Failures with a trace on the page. Keeps it under some 10 MB a variant."""


class Fault(StrEnum):
    """What is wrong with a reading."""

    NONE = "right"
    """Nothing: its score is 1."""

    FAILED = "failed"
    """It was not read to its end."""
    MISSING = "missing"
    """The answers have no row of it."""
    UNANSWERED = "without answer"
    """Its response holds no answer."""
    WRONG = "wrong"
    """The answer scores 0."""
    PARTLY = "partly right"
    """The answer scores more than 0, and less than 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The failures of one variant."""

    shown: tuple[Row, ...]
    """Rows of `SCORES` that get a trace; by task, length and depth."""
    total: int
    """All failures."""
    by_fault: dict[Fault, int]
    """All failures, by what is wrong."""


def fault_of(row: Row) -> Fault:
    """What is wrong with a reading, by its row of `SCORES`."""
    if row["status"] == Status.FAILED:
        return Fault.FAILED
    if row["status"] == STATUS_MISSING:
        return Fault.MISSING
    if not row["answered"]:
        return Fault.UNANSWERED
    if row["score"] >= 1:
        return Fault.NONE
    return Fault.PARTLY if row["score"] > 0 else Fault.WRONG


def reading_ids(row: Row) -> ReadingIds:
    """The reading of a row of `SCORES`."""
    return row["document_id"], row["question_id"], row["sample"]


def choose_failures(rows: Sequence[Row], *, limit: int = TRACES_PER_VARIANT) -> Failures:
    """Takes failures from each task and length in turn, the lowest scores of each first, until the limit is reached.

    Args:
        rows: The rows of one variant.
        limit: How many to show.
    """
    failures = [row for row in rows if fault_of(row) is not Fault.NONE]
    cells: dict[tuple[str, int | None], list[Row]] = defaultdict(list)
    for row in failures:
        cells[row["task"], row["length_tokens"]].append(row)
    ranked = [
        (rank, row) for cell in cells.values() for rank, row in enumerate(sorted(cell, key=lambda row: row["score"]))
    ]
    chosen = [row for _, row in sorted(ranked, key=lambda pair: pair[0])[:limit]]
    faults = Counter(fault_of(row) for row in failures)
    return Failures(
        shown=tuple(sorted(chosen, key=_reading_order)),
        total=len(failures),
        by_fault={fault: faults[fault] for fault in Fault if faults[fault]},
    )


def _reading_order(row: Row) -> tuple[str, float, float, str, str, int]:
    return row["task"], row["length_tokens"] or 0, row["depth"] or 0, *reading_ids(row)
