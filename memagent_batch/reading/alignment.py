"""Where strings that a model wrote itself stand in a text: exactly, except for case and width, or nowhere."""

import re
import unicodedata
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

MAX_STRING_CHARS = 300
"""A longer answer is prose: its quotes and numbers are looked for, not the whole."""
MAX_STRINGS = 8
"""Most strings of one answer that are looked for."""
QUOTED = re.compile(r"[\"“„«「『]([^\"“”„«»「」『』\n]{2,200})[\"”“»」』]")
NUMBER_RUN = re.compile(r"\d[\d.,:/-]*\d")


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

    Args:
        strings: what the model wrote.
        text: the document, or a part of it.
        near: spans in which a string that stands in several places is taken first.
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
        return min(self._places[at] + fold - self._folds[at], self._limit(at))

    def _limit(self, at: int) -> int:
        return self._places[at + 1] - 1 if at + 1 < len(self._places) else len(self.text)


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
