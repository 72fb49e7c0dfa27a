"""Where spans of a document stood in its source: page 3, message 17."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LocatedRow:
    """A row of a document: what of the text came from one place of the source."""

    char_start: int
    char_end: int
    """Character after the last one; what separates it from the next row is in neither."""
    locator: str
    """The place, for a person; empty where none was asked for."""


def locators(rows: Sequence[LocatedRow], *, char_start: int, char_end: int) -> tuple[str, ...]:
    """The places that a span touches, each once, in order; None where it is empty or between two rows."""
    first = max(0, bisect_right(rows, char_start, key=lambda row: row.char_start) - 1)
    places = []
    for row in rows[first:]:
        if row.char_start >= char_end:
            break
        if max(row.char_start, char_start) < min(row.char_end, char_end):
            places.append(row.locator)
    return tuple(dict.fromkeys(places))


def located(rows: Sequence[LocatedRow], *, char_start: int, char_end: int) -> str | None:
    """The place of a span in one text, such as `page 3 to page 4`; None where no row that it touches has a place."""
    places = [place for place in locators(rows, char_start=char_start, char_end=char_end) if place]
    return " to ".join(dict.fromkeys([places[0], places[-1]])) if places else None
