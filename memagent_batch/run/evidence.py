"""What the texts of documents add to the tables: evidence, and where spans stood in the source.

Evidence are the sentences that the model pointed at, and the places of strings that it wrote itself: those that stand
in the text exactly, or except for case and width.
"""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import cast

import pyarrow as pa

from memagent_batch.data.documents.stored import StoredDocuments, StoredText
from memagent_batch.data.store.turn_log.rows import SpanRow
from memagent_batch.loop.follow_ups.values import UNSTATED
from memagent_batch.loop.texts.locators import LocatedRow, located
from memagent_batch.run.tables import AnswerRow, EvidenceRow, MemoryRow
from memagent_batch.types import Status

MAX_STRING_CHARS = 300
"""A longer answer is prose: its quotes and numbers are looked for, not the whole."""
MAX_STRINGS = 8
QUOTED = re.compile(r"[\"“„«「『]([^\"“”„«»「」『』\n]{2,200})[\"”“»」』]")
NUMBER_RUN = re.compile(r"\d[\d.,:/-]*\d")
_OF_READING = frozenset(
    {"run_id", "read_run_id", "document_id", "question_id", "sample", "question_hash", "fingerprint"}
)


class How(StrEnum):
    """How a span was found."""

    CHOSEN = "chosen"
    """A sentence that the model pointed at by its number."""
    ALIGNED = "aligned"
    """A string of the answer, looked for in the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class AnsweredReading:
    """A reading that has a row of `answers`."""

    row: int
    answer: AnswerRow
    sentences: Sequence[SpanRow]
    """The sentences that its answer rests on, the best first."""
    turns: Sequence[MemoryRow] = ()
    """Its rows of `memories`, whose spans have no locators yet."""

    @property
    def has_spans(self) -> bool:
        """Whether something is to be looked up in the text."""
        return bool(self.sentences) or self.is_aligned

    @property
    def shows_chunks(self) -> bool:
        """Whether a turn of it showed a span of the text."""
        return any(turn["char_start"] is not None for turn in self.turns)

    @property
    def is_aligned(self) -> bool:
        """Whether the strings of the answer are looked for: not where it says that nothing is stated."""
        answer = self.answer
        is_stated = answer["value_status"] not in UNSTATED
        return answer["status"] == Status.OK and answer["answer"] is not None and is_stated


@dataclass(frozen=True, slots=True, kw_only=True)
class PartSpans:
    """The rows of a part of the plan that have spans of its documents."""

    evidence: list[EvidenceRow] | None
    """Rows of `evidence`; None where it was not asked for."""
    memories: list[MemoryRow]


def spans_of_part(
    part: pa.Table, answered: Sequence[AnsweredReading], *, documents: StoredDocuments, has_evidence: bool
) -> PartSpans:
    """Makes the rows of a part of the plan that have spans.

    Texts are read one after another, and only those that evidence lies in; of others their parts alone.
    """
    of_row: dict[int, list[AnsweredReading]] = {}
    for each in answered:
        of_row.setdefault(each.row, []).append(each)
    with_text = {row for row, readings in of_row.items() if has_evidence and any(each.has_spans for each in readings)}
    shown = {row for row, readings in of_row.items() if any(each.shows_chunks for each in readings)}
    evidence: dict[int, list[EvidenceRow]] = {}
    memories = {row: [turn for each in readings for turn in each.turns] for row, readings in of_row.items()}
    for rows in (with_text, shown - with_text):
        wanted = sorted(rows)
        for stored in documents.read_texts(part.take(pa.array(wanted, pa.int64())), with_text=rows is with_text):
            row = wanted[stored.row]
            memories[row] = [
                {**turn, "locator": _locator(stored.parts, turn["char_start"], turn["char_end"])}
                for turn in memories[row]
            ]
            if row in with_text:
                evidence[row] = [line for each in of_row[row] for line in evidence_rows(each, stored)]
    return PartSpans(
        evidence=[line for row in sorted(evidence) for line in evidence[row]] if has_evidence else None,
        memories=[turn for row in sorted(memories) for turn in memories[row]],
    )


def _locator(parts: Sequence[LocatedRow], char_start: int | None, char_end: int | None) -> str | None:
    if char_start is None or char_end is None:
        return None
    return located(parts, char_start=char_start, char_end=char_end)


def evidence_rows(answered: AnsweredReading, stored: StoredText) -> Iterator[EvidenceRow]:
    """The rows of one reading: the sentences that were chosen, then the strings of the answer."""
    text = stored.text
    for rank, span in enumerate(answered.sentences, start=1):
        start, end = span["char_start"], span["char_end"]
        yield {
            **_shared(answered.answer, how=How.CHOSEN, rank=rank),
            "char_start": start,
            "char_end": end,
            "text": text[start:end],
            "chunk_index": span["chunk_index"],
            "locator": _locator(stored.parts, start, end),
            "alignment": Alignment.EXACT.value,
        }
    if not answered.is_aligned:
        return
    near = [(span["char_start"], span["char_end"]) for span in answered.sentences]
    for rank, aligned in enumerate(align(answer_strings(answered.answer["answer"] or ""), text, near=near), start=1):
        is_there = aligned.alignment is not Alignment.NONE
        yield {
            **_shared(answered.answer, how=How.ALIGNED, rank=rank),
            "char_start": aligned.char_start,
            "char_end": aligned.char_end,
            "text": text[aligned.char_start : aligned.char_end] if is_there else None,
            "locator": _locator(stored.parts, aligned.char_start, aligned.char_end),
            "alignment": aligned.alignment.value,
            "quote": aligned.string,
        }


def _shared(answer: AnswerRow, *, how: How, rank: int) -> EvidenceRow:
    """A row with nulls for its span, quote and chunk."""
    none = dict.fromkeys(EvidenceRow.__annotations__)
    own = {name: value for name, value in answer.items() if name in _OF_READING}
    document_hash = answer["document_hash"] or ""
    return cast("EvidenceRow", {**none, **own, "how": how.value, "rank": rank, "document_hash": document_hash})


class Alignment(StrEnum):
    """How near a string of the model's is to one of the text's."""

    EXACT = "exact"
    """Character for character, on borders of words and numbers."""
    FOLDED = "folded"
    """Except for case, width, accents' encoding and white space."""
    NONE = "none"
    """Nowhere: the text does not hold it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aligned:
    """A string of the model's and its place in the text."""

    string: str
    alignment: Alignment
    char_start: int | None = None
    """First character of its place, code points; None where it has none."""
    char_end: int | None = None


def answer_strings(answer: str) -> list[str]:
    """The strings of an answer that its text can be expected to hold: all of a short one, its quotes and numbers."""
    whole = answer.strip()
    found = [whole] if whole and len(whole) <= MAX_STRING_CHARS else []
    found += [match[1].strip() for match in QUOTED.finditer(answer)] + NUMBER_RUN.findall(answer)
    return [string for string in dict.fromkeys(found) if string][:MAX_STRINGS]


def align(strings: Sequence[str], text: str, *, near: Sequence[tuple[int, int]] = ()) -> list[Aligned]:
    """The place of each string in the text; one that has none is there too.

    A string that stands in several places is taken in the spans `near` first.
    """
    folded: _Folded | None = None
    aligned = []
    for string in strings:
        found = _exact(string, text, near=near)
        if found.alignment is Alignment.NONE:
            folded = folded or _Folded(text)
            found = _by_fold(string, folded, near=near)
        aligned.append(found)
    return aligned


class _Folded:
    """A text in lower case, with compatible and accented characters taken apart, and the places of its characters."""

    def __init__(self, text: str) -> None:
        """Folds character by character: places come by counting the few that become several."""
        table = {ord(sign): _folded(sign) for sign in set(text)}
        longer = {sign for sign, fold in table.items() if len(fold) != 1}
        self.text = text.translate(table)
        self._places: list[int] = [0]
        self._folds: list[int] = [0]
        extra = 0
        if longer:
            pattern = re.compile("[" + "".join(re.escape(chr(sign)) for sign in sorted(longer)) + "]")
            for match in pattern.finditer(text):
                extra += len(table[ord(match[0])]) - 1
                self._places.append(match.end())
                self._folds.append(match.end() + extra)

    def place(self, fold: int) -> int:
        """The character of the text that this one of the fold comes from."""
        at = bisect_right(self._folds, fold) - 1
        limit = self._places[at + 1] - 1 if at + 1 < len(self._places) else len(self.text)
        return min(self._places[at] + fold - self._folds[at], limit)


def _folded(text: str) -> str:
    return "".join(" " if sign.isspace() else unicodedata.normalize("NFKD", sign).casefold() for sign in text)


def _exact(string: str, text: str, *, near: Sequence[tuple[int, int]]) -> Aligned:
    for start, end in [*near, (0, len(text))]:
        place = text.find(string, start, end)
        while place >= 0 and not _is_whole(text, place, place + len(string)):
            place = text.find(string, place + 1, end)
        if place >= 0:
            return _at(string, Alignment.EXACT, place, place + len(string))
    return Aligned(string=string, alignment=Alignment.NONE)


def _by_fold(string: str, folded: _Folded, *, near: Sequence[tuple[int, int]]) -> Aligned:
    words = _folded(string).split()
    if not words:
        return Aligned(string=string, alignment=Alignment.NONE)
    first: Aligned | None = None
    for match in re.finditer(r"\s+".join(map(re.escape, words)), folded.text):
        if not _is_whole(folded.text, match.start(), match.end()):
            continue
        found = _at(string, Alignment.FOLDED, folded.place(match.start()), folded.place(match.end() - 1) + 1)
        first = first or found
        if not near or any(start <= (found.char_start or 0) < end for start, end in near):
            return found
    return first or Aligned(string=string, alignment=Alignment.NONE)


def _is_whole(text: str, start: int, end: int) -> bool:
    """Whether a span begins and ends where words and numbers do: "5" in "15" or "1.5", "Ann" in "Annabel" do not."""
    if start >= end or (end < len(text) and unicodedata.combining(text[end])):
        return False
    return not _is_joined(text[max(0, start - 2) : start][::-1], text[start]) and not _is_joined(
        text[end : end + 2], text[end - 1]
    )


def _is_joined(beyond: str, edge: str) -> bool:
    """Whether the two characters beyond an edge, the nearest first, go on with its word or number."""
    if edge.isdigit() and beyond[:1] in (".", ","):
        return beyond[1:].isdigit()
    nearest = beyond[:1]
    return (edge.isdigit() and nearest.isdigit()) or (
        edge.isalpha() and nearest.isalpha() and _is_letter(edge) and _is_letter(nearest)
    )


def _is_letter(character: str) -> bool:
    return character.isalnum() and character < "\u0e00"


def _at(string: str, alignment: Alignment, start: int, end: int) -> Aligned:
    return Aligned(string=string, alignment=alignment, char_start=start, char_end=end)
