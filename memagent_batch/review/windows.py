"""The passages of a document round the evidence of an answer, with the evidence marked. Pure."""

from collections.abc import Sequence
from dataclasses import dataclass


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
    """A passage of the text."""

    start: int
    """First character, code points."""
    end: int
    """Character after the last one."""
    num_chars: int
    """Length of the whole text."""
    pieces: tuple[Piece, ...]
    """The passage; joined, these are the text from `start` to `end`."""


def windows(text: str, marks: Sequence[Mark], *, context_chars: int) -> list[Window]:
    """The passages that reach `context_chars` before and behind each mark; passages that touch are one.

    Raises:
        ValueError: a mark lies outside the text.
    """
    passages: list[tuple[int, int]] = []
    for mark in sorted(marks, key=lambda mark: (mark.start, mark.end)):
        if not 0 <= mark.start <= mark.end <= len(text):
            raise ValueError(f"characters {mark.start} to {mark.end} are not in a text of {len(text)}")
        start, end = max(0, mark.start - context_chars), min(len(text), mark.end + context_chars)
        if passages and start <= passages[-1][1]:
            start, end = passages[-1][0], max(end, passages[-1][1])
            passages.pop()
        passages.append((start, end))
    return [
        Window(start=start, end=end, num_chars=len(text), pieces=_pieces(text, marks, start=start, end=end))
        for start, end in passages
    ]


def _pieces(text: str, marks: Sequence[Mark], *, start: int, end: int) -> tuple[Piece, ...]:
    inside = [mark for mark in marks if start <= mark.start and mark.end <= end and mark.start < mark.end]
    edges = sorted({start, end, *(mark.start for mark in inside), *(mark.end for mark in inside)})
    return tuple(
        Piece(
            text=text[left:right],
            numbers=tuple(mark.number for mark in inside if mark.start <= left and right <= mark.end),
            begins=tuple(mark.number for mark in inside if mark.start == left),
        )
        for left, right in zip(edges, edges[1:], strict=False)
    )
