"""Why readings have no answer: their error messages, counted by reason. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass

COMPARED_CHARS = 500

SHOWN_CHARS = 300

VARIABLE = re.compile(r"(?<!\w)'[^']*'|\S*[/\\\d]\S*")
"""What differs between documents in messages of one reason: quoted names, paths, numbers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """One reason, and how many readings it concerns."""

    error_type: str
    error_message: str
    num_readings: int = 1

    @property
    def key(self) -> str:
        """The same text for all messages of one reason, for any document."""
        return f"{self.error_type}: {VARIABLE.sub('…', self.error_message[:COMPARED_CHARS])}"


def sum_up(reasons: Iterable[Reason]) -> str:
    """The reasons in one line, each with its count."""
    return "; ".join(f"{reason.num_readings} x {reason.error_type}: {_one_line_message(reason)}" for reason in reasons)


def _one_line_message(reason: Reason) -> str:
    line = " ".join(reason.error_message.split())
    return line if len(line) <= SHOWN_CHARS else f"{line[: SHOWN_CHARS - 1]}…"
