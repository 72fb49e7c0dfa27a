"""Values of the column `metadata`, cleaned. Imports no package that reads files: every run stores them."""

import re
from contextlib import suppress
from datetime import UTC, datetime

TEXTS, TIMES = ("author", "message_id", "answers_id", "thread_id"), ("created_at", "modified_at")
FAILURE = "failure"
TEXT_CHARACTERS = 1000
"""Longest text that is kept. A line of mail, and so an id of a message, has at most 998 characters."""
YEARS = range(1971, 2100)
"""Programs that know no date write the first day of 1601, 1900 or 1970."""
UNSEEN = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]+")
"""Control characters, those that turn the direction of writing, and halves of characters."""


def clean_text(value: object) -> str | None:
    """Returns a text on one line, cut at its longest length; None if it is no text, or a blank one."""
    text = UNSEEN.sub(" ", value[: 2 * TEXT_CHARACTERS]) if isinstance(value, str) else ""
    return " ".join(text.split())[:TEXT_CHARACTERS].rstrip() or None


def parse_time(value: object) -> datetime | None:
    """Parses a time in ISO 8601, without a zone as UTC; returns it in UTC, or None if it is no time within `YEARS`."""
    with suppress(ValueError, OverflowError):
        time = datetime.fromisoformat(value if isinstance(value, str) else "")
        time = time.astimezone(UTC) if time.tzinfo else time.replace(tzinfo=UTC)
        return time if time.year in YEARS else None
    return None
