"""What changed between two memories, word by word. Pure."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum

WORD = re.compile(r"\s*\S+|\s+")
"""A word with the white space before it, or white space at the end: the words of a text join to the text."""

CONTEXT_WORDS = 12
"""Unchanged words shown on either side of a change."""
ELIDED_WORDS = 40
"""A stretch of unchanged words longer than this is elided between its contexts."""


class WordChange(StrEnum):
    """What happened to a stretch of words."""

    KEPT = "kept"
    """In both memories."""
    ADDED = "added"
    """Only in the later one."""
    REMOVED = "removed"
    """Only in the earlier one."""
    ELIDED = "elided"
    """In both, and not shown; the text says how many words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of words that were treated alike."""

    change: WordChange
    """What happened to it."""
    text: str
    """The words, with the white space between them."""


def differences(before: str, after: str) -> list[Stretch]:
    """Words added, removed and kept, in reading order; long unchanged stretches elided.

    What both begin and end with is taken off first: it makes the comparison of a memory with a copy of itself linear,
    also where it repeats one word thousands of times.
    """
    old, new = WORD.findall(before), WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    pieces = [
        (WordChange.KEPT, new[:head]),
        *_compare(old_middle, new_middle),
        (WordChange.KEPT, new[len(new) - tail :]),
    ]
    return list(_shorten([(change, words) for change, words in pieces if words]))


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    """Words that both begin with."""
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _compare(old: list[str], new: list[str]) -> Iterator[tuple[WordChange, list[str]]]:
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield WordChange.KEPT, new[new_start:new_end]
        else:
            yield WordChange.REMOVED, old[old_start:old_end]
            yield WordChange.ADDED, new[new_start:new_end]


def _shorten(pieces: Sequence[tuple[WordChange, list[str]]]) -> Iterator[Stretch]:
    if all(change is WordChange.KEPT for change, _ in pieces):
        yield from (Stretch(change=change, text="".join(words)) for change, words in pieces)
        return
    for place, (change, words) in enumerate(pieces):
        if change is not WordChange.KEPT or len(words) <= ELIDED_WORDS:
            yield Stretch(change=change, text="".join(words))
            continue
        left = CONTEXT_WORDS if place else 0
        right = CONTEXT_WORDS if place < len(pieces) - 1 else 0
        yield from _elide(words, left=left, right=right)


def _elide(words: list[str], *, left: int, right: int) -> Iterator[Stretch]:
    end = len(words) - right
    if left:
        yield Stretch(change=WordChange.KEPT, text="".join(words[:left]))
    yield Stretch(change=WordChange.ELIDED, text=f" … {end - left:,} words unchanged … ")
    if right:
        yield Stretch(change=WordChange.KEPT, text="".join(words[end:]))
