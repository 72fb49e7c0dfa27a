"""The memory trace of one reading: what each turn did to the memory, and where the right answer went. Pure."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import groupby
from typing import Any

from memagent_batch.domain.turns import ANSWER, FinishReason
from memagent_batch.evaluation.report.text_diff import Stretch, WordChange, differences
from memagent_batch.evaluation.report.visible import shorten
from memagent_batch.log.index import Row

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
    """The turn that answered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TraceLine:
    """A line of a trace: one turn, or several that are treated alike."""

    kind: StepKind
    """What it stands for."""
    turn_kind: str
    """Kind of its (first) turn."""
    first_turn: int
    """Its first turn, from 0."""
    last_turn: int
    """Its last turn."""
    token_start: int | None
    """First token that was shown; None where no chunk was."""
    token_end: int | None
    """Token after the last one."""
    char_start: int | None
    """First character that was shown."""
    char_end: int | None
    """Character after the last one."""
    locator: str | None = None
    """Where that stood in the source; None where it is not known, and for several turns."""
    pieces: tuple[Stretch, ...] = ()
    """What changed against the memory before; of a changed turn only."""
    memory: str | None = None
    """The memory after a changed turn, where the pieces leave out some of it."""
    num_characters: int = 0
    """Length of that memory, code points."""
    is_cut: bool = False
    """Whether the memory was cut at its budget."""
    references_in: tuple[str, ...] = ()
    """References that came into the memory with this turn."""
    references_out: tuple[str, ...] = ()
    """References that it lost with this turn."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Trace:
    """The trace of one reading."""

    steps: tuple[TraceLine, ...]
    """Lines, in the order of the document; none where no turn was finished."""
    num_turns: int
    """Turns, the answer included."""
    num_changed: int
    """Of these, turns that changed the memory."""
    verdict: str
    """Where the right answer went, in one phrase."""


def make_trace(turns: Sequence[Row], *, references: Sequence[str], alternatives: bool) -> Trace:
    """The trace of a reading.

    Args:
        turns: Its rows of `memories`, in order.
        references: Right answers.
        alternatives: Whether one of them is enough.
    """
    held = [held_references(row["memory"], references) for row in turns]
    shown = _shown_turns(turns, held)
    num_changed = sum(row["changed"] for row in turns)
    return Trace(
        steps=tuple(_trace_lines(turns, held, shown=shown)),
        num_turns=len(turns),
        num_changed=num_changed,
        verdict=_line_verdict(held, has_memory=num_changed > 0, references=references, alternatives=alternatives),
    )


def held_references(memory: str, references: Sequence[str]) -> frozenset[str]:
    """References whose text is in the memory, without regard to case."""
    folded = memory.casefold()
    return frozenset(reference for reference in references if reference and reference.casefold() in folded)


def _line_verdict(
    held: Sequence[frozenset[str]], *, has_memory: bool, references: Sequence[str], alternatives: bool
) -> str:
    if not held:
        return "no turn recorded"
    if not has_memory:
        return "the memory never changed"
    ever, last = frozenset[str]().union(*held), held[-1]
    if alternatives or len(references) == 1:
        return "in the last memory" if last else "lost on the way" if ever else "never in the memory"
    parts = {"in the last memory": len(last), "lost": len(ever - last), "never noted": len(set(references) - ever)}
    return ", ".join(f"{number} {words}" for words, number in parts.items() if number)


def _shown_turns(turns: Sequence[Row], held: Sequence[frozenset[str]]) -> frozenset[int]:
    """Changed turns that are drawn: those where a reference came or went, then the first and the last ones by turns."""
    changed = [place for place, row in enumerate(turns) if row["changed"]]
    turning = [place for place in changed if held[place] != (held[place - 1] if place else frozenset())]
    ends = [place for pair in zip(changed, reversed(changed), strict=True) for place in pair]
    return frozenset(list(dict.fromkeys([*turning, *ends]))[:MAX_STEPS])


def _trace_lines(turns: Sequence[Row], held: Sequence[frozenset[str]], *, shown: frozenset[int]) -> Iterator[TraceLine]:
    for kind, run in groupby(range(len(turns)), key=lambda place: _line_kind(turns, place, shown=shown)):
        places = list(run)
        if kind in {StepKind.UNCHANGED, StepKind.OMITTED}:
            yield _step(kind, turns[places[0]], turns[places[-1]])
            continue
        for place in places:
            before = turns[place - 1]["memory"] if place else ""
            held_before = held[place - 1] if place else frozenset()
            if kind is StepKind.ANSWER:
                yield _step(kind, turns[place], turns[place])
            else:
                yield _changed(
                    turns[place], before=before, gone=held_before - held[place], come=held[place] - held_before
                )


def _line_kind(turns: Sequence[Row], place: int, *, shown: frozenset[int]) -> StepKind:
    row = turns[place]
    if row["kind"] == ANSWER:
        return StepKind.ANSWER
    if not row["changed"]:
        return StepKind.UNCHANGED
    return StepKind.CHANGED if place in shown else StepKind.OMITTED


def _changed(row: Row, *, before: str, come: frozenset[str], gone: frozenset[str]) -> TraceLine:
    after = shorten(row["memory"], characters=MAX_MEMORY_CHARACTERS)
    pieces = differences(shorten(before, characters=MAX_MEMORY_CHARACTERS), after)
    is_elided = any(piece.change is WordChange.ELIDED for piece in pieces)
    return _step(
        StepKind.CHANGED,
        row,
        row,
        pieces=tuple(pieces),
        memory=after if is_elided else None,
        num_characters=len(row["memory"]),
        is_cut=row["finish_reason"] == FinishReason.LENGTH,
        references_in=tuple(sorted(come)),
        references_out=tuple(sorted(gone)),
    )


def _step(kind: StepKind, first: Row, last: Row, **details: Any) -> TraceLine:
    return TraceLine(
        kind=kind,
        turn_kind=first["kind"],
        first_turn=first["turn"],
        last_turn=last["turn"],
        token_start=first["token_start"],
        token_end=last["token_end"],
        char_start=first["char_start"],
        char_end=last["char_end"],
        locator=first.get("locator") if first is last else None,
        **details,
    )
