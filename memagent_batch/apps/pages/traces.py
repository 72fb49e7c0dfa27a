"""The memory trace of one reading: what each turn did to the memory word by word, and when the answer came or went."""

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from difflib import SequenceMatcher
from enum import StrEnum
from itertools import groupby
from typing import Any

from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.loop.texts.escapes import shorten
from memagent_batch.loop.texts.words import texts_in
from memagent_batch.types import ANSWER, FinishReason, Writes

WORD = re.compile(r"\s*\S+|\s+")
"""A word with the white space before it, or white space at the end: the words of a text join to the text."""


class WordChange(StrEnum):
    """What happened to a stretch of words."""

    KEPT = "kept"
    ADDED = "added"
    REMOVED = "removed"


@dataclass(frozen=True, slots=True, kw_only=True)
class Stretch:
    """A stretch of words that were treated alike."""

    change: WordChange
    text: str


MAX_STEPS = 36
"""Turns of a trace whose memory is shown; a note replaces the rest."""
MAX_MEMORY_CHARACTERS = 6_000
"""Of a memory, characters that are compared and shown; more than the 1,024 tokens of the default budget hold."""


class StepKind(StrEnum):
    """What a line of a trace stands for."""

    CHANGED = "changed"
    """One turn that wrote another memory."""
    UNCHANGED = "unchanged"
    """Turns in a row that left the memory as it was."""
    OMITTED = "omitted"
    """Turns in a row that are not shown, to bound the page."""
    ANSWER = "answer"


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """A line of a trace: one turn, or several that are treated alike."""

    kind: StepKind
    turn_kind: str
    first_turn: int
    last_turn: int
    char_start: int | None
    """First character that was shown; None where no chunk was."""
    char_end: int | None
    locator: str | None = None
    """Where that stood in the source; None where it is not known, and for several turns."""
    is_note: bool = False
    """Whether a changed turn wrote a note or sub-question, which is not the memory."""
    pieces: tuple[Stretch, ...] = ()
    """What changed against the memory before, or of a note against that of the same round; of a changed turn only."""
    num_characters: int = 0
    """Length of the memory or note after a changed turn, code points."""
    is_cut: bool = False
    answers_in: tuple[str, ...] = ()
    """Answers that came into the memory or note with this turn."""
    answers_out: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The trace of one reading."""

    steps: tuple[TraceLine, ...]
    """Lines, in the order of the document; none if no turn was finished."""
    num_turns: int
    num_changed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class _Text:
    """What a turn left: the memory, or a note that a later turn merges into it."""

    row: Row
    is_note: bool
    held: frozenset[str]
    before: "_Text | None"
    """The memory before; None for a note, and before the first memory."""

    @property
    def held_before(self) -> frozenset[str]:
        """Answers that stood in what it is compared with."""
        return self.before.held if self.before else frozenset()


def make_trace(turns: Sequence[Row], *, answers: Sequence[str]) -> Trace:
    """The trace of a reading, which says when answers come into the memory and when they are lost."""
    texts: list[_Text] = []
    memory: _Text | None = None
    for row in turns:
        is_note = row.get("writes") == Writes.NOTE  # tables of an older version lack the column
        held = texts_in(row["memory"], answers)
        texts.append(_Text(row=row, is_note=is_note, held=held, before=None if is_note else memory))
        memory = memory if is_note else texts[-1]
    shown = _shown_turns(texts)
    steps: list[TraceLine] = []
    for kind, places in groupby(range(len(texts)), key=lambda place: _line_kind(texts[place], is_shown=place in shown)):
        alike = [texts[place] for place in places]
        if kind is StepKind.CHANGED:
            steps += map(_changed_line, alike)
        elif kind is StepKind.ANSWER:
            steps += [_step(kind, text.row, text.row) for text in alike]
        else:
            steps.append(_step(kind, alike[0].row, alike[-1].row))
    num_changed = sum(text.row["changed"] and not text.is_note for text in texts)
    return Trace(steps=tuple(steps), num_turns=len(turns), num_changed=num_changed)


def _shown_turns(texts: Sequence[_Text]) -> set[int]:
    """Changed turns that are drawn: those where an answer came or went, then the first and the last ones by turns."""
    changed = [place for place, text in enumerate(texts) if text.row["changed"]]
    turning = [place for place in changed if texts[place].held != texts[place].held_before]
    ends = [place for pair in zip(changed, reversed(changed), strict=True) for place in pair]
    return {*list(dict.fromkeys([*turning, *ends]))[:MAX_STEPS]}


def _line_kind(text: _Text, *, is_shown: bool) -> StepKind:
    if text.row["kind"] == ANSWER:
        return StepKind.ANSWER
    if not text.row["changed"]:
        return StepKind.UNCHANGED
    return StepKind.CHANGED if is_shown else StepKind.OMITTED


def _changed_line(text: _Text) -> TraceLine:
    row, before = text.row, text.before.row["memory"] if text.before else ""
    after = shorten(row["memory"], characters=MAX_MEMORY_CHARACTERS)
    pieces = word_differences(shorten(before, characters=MAX_MEMORY_CHARACTERS), after)
    return _step(
        StepKind.CHANGED,
        row,
        row,
        is_note=text.is_note,
        pieces=tuple(pieces),
        num_characters=len(row["memory"]),
        is_cut=row["finish_reason"] == FinishReason.LENGTH,
        answers_in=tuple(sorted(text.held - text.held_before)),
        answers_out=tuple(sorted(text.held_before - text.held)),
    )


def _step(kind: StepKind, first: Row, last: Row, **details: Any) -> TraceLine:
    return TraceLine(
        kind=kind,
        turn_kind=first["kind"],
        first_turn=first["turn"],
        last_turn=last["turn"],
        char_start=first["char_start"],
        char_end=last["char_end"],
        locator=first.get("locator") if first is last else None,
        **details,
    )


def word_differences(before: str, after: str) -> list[Stretch]:
    """Words added, removed and kept, in reading order.

    What both begin and end with is taken off first: it makes the comparison of a memory with a copy of itself linear,
    also where it repeats one word thousands of times.
    """
    old, new = WORD.findall(before), WORD.findall(after)
    head = _common(old, new)
    tail = _common(old[head:][::-1], new[head:][::-1])
    old_middle, new_middle = old[head : len(old) - tail], new[head : len(new) - tail]
    pieces = [
        (WordChange.KEPT, new[:head]),
        *_word_changes(old_middle, new_middle),
        (WordChange.KEPT, new[len(new) - tail :]),
    ]
    return [Stretch(change=change, text="".join(words)) for change, words in pieces if words]


def _common(one: Sequence[str], other: Sequence[str]) -> int:
    for place, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return place
    return min(len(one), len(other))


def _word_changes(old: list[str], new: list[str]) -> Iterator[tuple[WordChange, list[str]]]:
    for tag, old_start, old_end, new_start, new_end in SequenceMatcher(None, old, new).get_opcodes():
        if tag == "equal":
            yield WordChange.KEPT, new[new_start:new_end]
        else:
            yield WordChange.REMOVED, old[old_start:old_end]
            yield WordChange.ADDED, new[new_start:new_end]
