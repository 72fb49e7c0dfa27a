"""What the page of a document shows of its readings: answer, evidence in its passages, trace, commands."""

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

from memagent_batch.apps.pages.readings import (
    ANSWERED,
    NEEDS,
    NO_ANSWER,
    NOT_STATED_OUTCOME,
    Change,
    RunChanges,
    RunReading,
    need_of,
    outcome_of,
    shown_value,
    unread_of,
)
from memagent_batch.apps.pages.traces import Trace, make_trace
from memagent_batch.apps.review.sign_offs import Decision, SignOff, SignOffs, reading_hash, signed_words
from memagent_batch.data.documents.document_index import SOURCE_NOTES, SOURCE_REVIEW
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.run.accepted_unread import accepted_reason
from memagent_batch.run.comparison import AnswerChange
from memagent_batch.run.evidence import How
from memagent_batch.run.manifest import Manifest

NEAR_CHARACTERS = 300
"""What is near a mark: characters on either side that are always seen."""
REJECTED = "rejected"
"""What stands in place of an answer that a person has rejected."""
MAX_WORD = 40
"""Characters in which the end of a word is looked for."""
_BLANK = re.compile(r"\s+")


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """A span of the text to mark; code points."""

    number: int
    start: int
    end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Piece:
    """A stretch of text with the same marks all along."""

    text: str
    numbers: tuple[int, ...] = ()
    begins: tuple[int, ...] = ()
    """Of these, marks that begin with it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Window:
    """A passage of the text from `start` to `end`, code points; what lies far from its marks stands apart."""

    start: int
    end: int
    num_chars: int
    before: str
    """The passage before what is near its marks."""
    pieces: tuple[Piece, ...]
    """The marks, and what is near them or between them."""
    after: str
    """The passage behind that; `before`, the pieces and `after` join to the passage."""


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
    """Where the context of a passage begins and ends: at a blank, if there is one near."""
    start, end = max(0, first - context_chars), min(len(text), last + context_chars)
    blank = _BLANK.search(text, start - 1, min(first, start + MAX_WORD)) if start else None
    start = blank.end() if blank else start
    blanks = [found.start() for found in _BLANK.finditer(text, max(last, end - MAX_WORD), end)]
    return start, blanks[-1] if blanks and end < len(text) else end


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingView:
    """One reading on the page of its document."""

    answer: Row
    value: str
    """In words; the correction of a person in place of the answer that was read, `REJECTED` where that is wrong."""
    replaced: str | None
    """The value that was read, if a person has corrected or rejected it."""
    unread: str | None
    """What was not read of the source; None if all was."""
    accepted: str | None
    """Why the run accepts that; None if it does not."""
    review: str | None
    """What of the source may have been read wrongly; None if nothing."""
    outcome: str
    trace: Trace
    evidence: tuple[Row, ...]
    """Rows of `evidence`, numbered from 1: chosen sentences first, by rank."""
    change: Change | None
    """How the answer changed since the run before; None where it did not, or where that is not known."""
    hash: str
    """What a sign-off of it names."""
    signed: str | None
    """Who has signed it off, when and why; None if it is open."""
    signed_before: str | None
    """The same of a sign-off that is open again."""
    command: str
    """What shows more in a terminal."""

    @property
    def need(self) -> int:
        """Why a person should look at it: a place in `NEEDS`, or behind them all."""
        is_changed = self.change is not None and self.change.kind == AnswerChange.CHANGED
        return need_of(
            self.answer,
            self.evidence,
            is_changed=is_changed,
            is_accepted=self.accepted is not None,
            was_signed=self.signed_before is not None,
        )

    @property
    def marks(self) -> list[Mark]:
        """Spans of the document to mark, by the number of their evidence."""
        return [
            Mark(number=number, start=row["char_start"], end=row["char_end"])
            for number, row in enumerate(self.evidence, start=1)
            if row["char_start"] is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """The page of a document."""

    document_id: str
    readings: tuple[ReadingView, ...]


def view_reading(
    reading: RunReading, *, manifest: Manifest, changes: RunChanges, signed: SignOffs, output: str
) -> ReadingView:
    """What the page shows of a reading, except for the passages of its document."""
    row = reading.answer
    by, before = signed.of(row), signed.before(row)
    value, outcome = decided_value(row, by)
    sought = {row["answer"], row["value_label"]} - {None, ""}
    return ReadingView(
        answer=row,
        value=value,
        replaced=shown_value(row) if by and by["decision"] != Decision.ACCEPT else None,
        unread=unread_of(row),
        accepted=accepted_reason(row, manifest),
        review=row.get(SOURCE_REVIEW),
        outcome=outcome,
        trace=make_trace(reading.turns, answers=sorted(sought)),
        evidence=tuple(shown_evidence(reading)),
        change=changes.readings.get(reading.key),
        hash=reading_hash(row),
        signed=by and signed_words(by, row),
        signed_before=before and signed_words(before, row),
        command=shlex.join(["memagent", "show", output, reading.document_id, reading.question_id]),
    )


def decided_value(row: Row, signed: SignOff | None) -> tuple[str, str]:
    """The value of a row of `answers` in words, and what became of it: as a person has decided, else as it was read."""
    match signed and signed["decision"]:
        case Decision.CORRECT:
            assert signed is not None
            correction = signed["correction"] or ""
            is_stated = correction.casefold().rstrip(".") != NOT_STATED_OUTCOME
            return correction, ANSWERED if is_stated else NOT_STATED_OUTCOME
        case Decision.REJECT:
            return REJECTED, NO_ANSWER
    return shown_value(row), outcome_of(row)


def shown_evidence(reading: RunReading) -> list[Row]:
    """Rows of `evidence`, chosen sentences first, by rank.

    Of a yes, a no or a label no words are sought in the document: they need not stand there.
    """
    is_choice = any(reading.answer[column] is not None for column in ("value_bool", "value_label"))
    rows = [row for row in reading.evidence if not (is_choice and row["char_start"] is None)]
    return sorted(rows, key=lambda row: (row["how"] != How.CHOSEN, row["rank"]))


def place_of(row: Row) -> str:
    """Where the sentence of a row of `evidence` stands: in the source, or in the text if that is all that is known."""
    return row["locator"] or f"characters {row['char_start']:,} to {row['char_end']:,}"


def template_values(sheet: Sheet, passages: Sequence[Sequence[Window]]) -> dict[str, Any]:
    """What the template of a document's page takes; `passages` of each reading, or none if there is no text to show."""
    rows: Sequence[Row] = [view.answer for view in sheet.readings]
    first = rows[0]
    lengths = [row["num_document_tokens"] for row in rows if row["num_document_tokens"] is not None]
    return {
        "sheet": sheet,
        "passages": passages,
        "num_tokens": lengths[0] if lengths else None,
        "num_chunks": max((row["num_chunks"] or 0 for row in rows), default=0),
        "document_hash": first["document_hash"],
        "source": first.get("source"),
        "source_hash": first.get("source_hash"),
        "source_notes": first.get(SOURCE_NOTES),
        "model": first["model"],
        "columns": {
            "confidence": any(row["confidence"] is not None for row in rows),
            "support": any(row["support"] is not None for row in rows),
            "change": any(view.change for view in sheet.readings),
        },
        "chosen": How.CHOSEN,
        "needs": (*NEEDS, None),
    }
