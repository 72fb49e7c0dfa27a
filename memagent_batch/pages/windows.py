"""The passages of a document round the evidence of an answer, with the evidence marked. Pure."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

NEAR_CHARACTERS = 300
"""What is near a mark: characters on either side that are always seen."""
LONGEST_WORD = 40
"""Characters in which the end of a word is looked for."""
_BLANK = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A span of the text to mark; code points."""

    number: int
    """Its number on the page, from 1."""
    start: int
    """First character."""
    end: int
    """Character after the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text with the same marks all along."""

    text: str
    """The characters."""
    numbers: tuple[int, ...] = ()
    """Marks that cover it."""
    begins: tuple[int, ...] = ()
    """Of these, marks that begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A passage of the text; what lies far from its marks stands apart."""

    start: int
    """First character, code points."""
    end: int
    """Character after the last one."""
    num_chars: int
    """Length of the whole text."""
    before: str
    """The passage before what is near its marks."""
    pieces: tuple[Piece, ...]
    """The marks, and what is near them or between them."""
    after: str
    """The passage behind that; `before`, the pieces and `after` join to the text from `start` to `end`."""


def windows(text: str, marks: Sequence[Mark], *, context_chars: int) -> list[Window]:
    """The passages that reach `context_chars` before and behind each mark, or to the last whole word there.

    Passages that touch are one.

    Raises:
        ValueError: a mark lies outside the text.
    """
    passages: list[list[Mark]] = []
    reached = 0
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        if not 0 <= mark.start <= mark.end <= len(text):
            raise ValueError(f"characters {mark.start} to {mark.end} are not in a text of {len(text)}")
        if passages and mark.start - context_chars <= reached:
            passages[-1].append(mark)
        else:
            passages.append([mark])
        reached = max(reached, mark.end + context_chars)
    return [_window(text, marks, context_chars=context_chars) for marks in passages]


def _window(text: str, marks: Sequence[Mark], *, context_chars: int) -> Window:
    first, last = marks[0].start, max(mark.end for mark in marks)
    start, end = _reach(text, first, last, context_chars=context_chars)
    near_start, near_end = _reach(text, first, last, context_chars=min(context_chars, NEAR_CHARACTERS))
    edges = sorted({near_start, near_end, *(mark.start for mark in marks), *(mark.end for mark in marks)})
    pieces = tuple(
        Piece(
            text=text[left:right],
            numbers=tuple(mark.number for mark in marks if mark.start <= left and right <= mark.end),
            begins=tuple(mark.number for mark in marks if mark.start == left),
        )
        for left, right in pairwise(edges)
    )
    before, after = text[start:near_start], text[near_end:end]
    return Window(start=start, end=end, num_chars=len(text), before=before, pieces=pieces, after=after)


def _reach(text: str, first: int, last: int, *, context_chars: int) -> tuple[int, int]:
    """Where the context of a passage begins and ends: at a blank, where there is one near."""
    start, end = max(0, first - context_chars), min(len(text), last + context_chars)
    blank = _BLANK.search(text, start - 1, min(first, start + LONGEST_WORD)) if start else None
    start = blank.end() if blank else start
    blanks = [found.start() for found in _BLANK.finditer(text, max(last, end - LONGEST_WORD), end)]
    return start, blanks[-1] if blanks and end < len(text) else end
