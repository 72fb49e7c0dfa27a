"""Pieces of a long text that are tokenised apart, and give the tokens of the whole."""

import unicodedata
from collections.abc import Iterator

SEGMENT_CHARS = 65_536
"""Characters tokenised in one call; bounds what the tokeniser's per-token records take (some 100 bytes a token)."""

SIGN_CHARS = 1024
"""Characters before the end of such a piece in which a sign is looked for where the text has no white space."""


def segments_of(text: str) -> Iterator[tuple[int, str]]:
    """Pieces of at most SEGMENT_CHARS with their first character, cut where the tokeniser cuts words anyway."""
    start = 0
    while start < len(text):
        end = len(text) if len(text) - start <= SEGMENT_CHARS else _word_end(text, start, start + SEGMENT_CHARS)
        yield start, text[start:end]
        start = end


def _word_end(text: str, start: int, end: int) -> int:
    """Last place before `end` where a word ends: before white space, else before a sign, else between characters."""
    for place in range(end - 1, start, -1):
        if text[place] in " \n" and text[place - 1].isalnum():
            return place
    nearest = range(end, max(start, end - SIGN_CHARS), -1)
    for place in nearest:
        if text[place - 1].isalnum() and _ends_word(text[place]):
            return place
    return next((place for place in nearest if _begins_character(text, place)), end)


def _ends_word(character: str) -> bool:
    """Whether words end before it. An apostrophe may belong to the word before it."""
    return character not in "'’" and (character.isspace() or unicodedata.category(character)[0] in "PS")


def _begins_character(text: str, place: int) -> bool:
    """Whether no normalisation makes one character of what stands on both sides."""
    character = text[place]
    ends_hangul_syllable = "\u1160" <= character <= "\u11ff"
    return not (ends_hangul_syllable or unicodedata.combining(character))
