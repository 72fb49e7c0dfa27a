"""Where the tokens of a byte-level vocabulary stand in their text, computed from their lengths.

The tokeniser's own offsets cost more than half of its time. In a byte-level vocabulary each letter of a token stands
for one byte of the text, so that lengths say it all.
"""

import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

import numpy as np
import numpy.typing as npt


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
