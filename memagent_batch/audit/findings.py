"""What a check of an output finds, and what it can't check."""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """A file has other bytes than its run recorded."""
    GONE = "gone"
    """A file that a run recorded is not there."""
    CHAIN = "chain"
    """Runs do not follow one from the other."""
    SIGNATURE = "signature"
    """A list is not signed by one of the allowed signers."""
    COUNTS = "counts"
    """Numbers of rows or readings do not add up."""
    ROWS = "rows"
    """Rows do not follow from the log."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: Kind
    where: str
    """The file below the output."""
    what: str
    """What is wrong with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """What could not be checked. It is no sign that something is wrong."""

    what: str
    why: str


Report: TypeAlias = Finding | Unchecked


def split(reports: Iterable[Report]) -> tuple[list[Finding], list[Unchecked]]:
    """What is wrong, one finding for each place, and what could not be checked, each once."""
    each = list(dict.fromkeys(reports))
    found: dict[str, Finding] = {}
    for report in each:
        if isinstance(report, Finding):
            first = found.get(report.where)
            found[report.where] = replace(first, what=f"{first.what}; {report.what}") if first else report
    return [*found.values()], [report for report in each if isinstance(report, Unchecked)]
