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
    lines = []
    for reason in reasons:
        message = " ".join(reason.error_message.split())
        shown = message if len(message) <= SHOWN_CHARS else f"{message[: SHOWN_CHARS - 1]}…"
        lines.append(f"{reason.num_readings} x {reason.error_type}: {shown}")
    return "; ".join(lines)
