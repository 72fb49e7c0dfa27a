"""Where tokens stand in their text: pieces of a long text that are tokenised apart, and places by lengths of tokens.

The tokeniser's own offsets cost more than half of its time. In a byte-level vocabulary each letter of a token stands
for one byte of the text, so that lengths say it all.
"""

import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt

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


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePlaces:
    """A vocabulary whose tokens are bytes."""

    num_bytes: npt.NDArray[np.int64]
    """Bytes of each token; shape [vocabulary]."""
    to_nfc: bool
    """Whether texts are brought to Unicode's form NFC first."""

    @classmethod
    def of(cls, vocabulary: Mapping[str, int], *, to_nfc: bool) -> Self:
        """The places in a vocabulary without added tokens."""
        num_bytes = np.zeros(max(vocabulary.values()) + 1, np.int64)
        for token, token_id in vocabulary.items():
            num_bytes[token_id] = len(token)
        return cls(num_bytes=num_bytes, to_nfc=to_nfc)

    def token_chars(self, token_ids: npt.NDArray[np.int32], text: str) -> npt.NDArray[np.int64] | None:
        """First character of each token in the text, or None where lengths can't say it.

        Args:
            token_ids: the text's tokens; shape [num_tokens].
            text: the text.
        """
        if self.to_nfc and not unicodedata.is_normalized("NFC", text):
            return None
        data = np.frombuffer(text.encode(), np.uint8)
        lengths = self.num_bytes[token_ids]
        ends = lengths.cumsum()
        if len(ends) == 0 or ends[-1] != len(data):
            return None
        chars = np.cumsum((data & 0xC0) != 0x80) - 1  # a byte 10xxxxxx goes on with a character
        return np.asarray(chars[ends - lengths], np.int64)
