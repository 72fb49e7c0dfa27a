"""Formats of strings that a schema may name, and how each is checked: the same in every install."""

import re
from datetime import UTC, datetime
from typing import Final

import jsonschema

FORMATS = frozenset({"date", "date-time", "time", "email", "uuid"})
"""Formats of strings that engines know."""
FORMAT_CHECKER: Final = jsonschema.FormatChecker(formats=["date", "email", "uuid"])
"""Checks all of `FORMATS`. The library has these three itself. It checks times only where a further package is
installed, so they are checked here."""

_TIME = re.compile(
    r"(([01][0-9]|2[0-3]):[0-5][0-9]):([0-5][0-9]|60)(\.[0-9]+)?(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])", re.IGNORECASE
)
"""A time of day with its zone, as RFC 3339 writes it. Groups 1, 3 and 5: hour and minute, second, zone."""
_DATE_CHARS = len("2026-11-23")


def is_date_time(value: object) -> bool:
    """Whether a value, if it is text, is a day of the calendar and a time of it, as RFC 3339 writes them."""
    if not isinstance(value, str):
        return True
    day, mark, time = value[:_DATE_CHARS], value[_DATE_CHARS : _DATE_CHARS + 1], value[_DATE_CHARS + 1 :]
    return mark in ("T", "t") and FORMAT_CHECKER.conforms(day, "date") and is_time(time)


def is_time(value: object) -> bool:
    """Whether a value, if it is text, is a time of day with its zone, as RFC 3339 writes it.

    Second 60 is a leap second, which only the last minute of a day in UTC may have.
    """
    if not isinstance(value, str):
        return True
    found = _TIME.fullmatch(value)
    if found is None or found[3] != "60":
        return found is not None
    minute = datetime.fromisoformat(f"2000-01-02T{found[1]}{found[5].upper()}").astimezone(UTC)
    return (minute.hour, minute.minute) == (23, 59)


FORMAT_CHECKER.checks("date-time")(is_date_time)
FORMAT_CHECKER.checks("time")(is_time)
