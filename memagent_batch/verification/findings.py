"""What a check of an output finds, and what it can't check."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeAlias


class Kind(StrEnum):
    """What is wrong."""

    CHANGED = "changed"
    """A file has other bytes than its run recorded."""
    GONE = "gone"
    """A file that a run recorded is not there."""
    CHAIN = "chain"
    """Manifests do not follow one from the other."""
    COUNTS = "counts"
    """Numbers of rows or readings do not add up."""
    ROWS = "rows"
    """Rows do not follow from the log."""
    CLOCK = "clock"
    """A clock went back."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that is wrong."""

    kind: Kind
    """What kind."""
    where: str
    """The file below the output, or the run."""
    what: str
    """What is wrong with it."""
    since: str
    """The run that recorded it as right, or with which it became wrong; empty where that is not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Unchecked:
    """What could not be checked. It is no sign that something is wrong."""

    what: str
    """What."""
    why: str
    """Why."""


Report: TypeAlias = Finding | Unchecked


def split(reports: Iterable[Report]) -> tuple[list[Finding], list[Unchecked]]:
    """What is wrong, and what could not be checked; each once."""
    each = list(dict.fromkeys(reports))
    found = [report for report in each if isinstance(report, Finding)]
    return found, [report for report in each if isinstance(report, Unchecked)]
