"""What a tokenizer.json says: the tokenisers that are made of it, which of its tokens steer the model, and where tokens
stand in their text.

The tokeniser's own offsets cost more than half of its time. In a byte-level vocabulary each letter of a token stands
for one byte of the text, so that lengths say it all.
"""

import hashlib
import json
import unicodedata
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import numpy.typing as npt

from memagent_batch.loop.completions import OPENING, THOUGHT_END

if TYPE_CHECKING:
    import tokenizers

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
        sign = text[place]
        is_apart = sign not in "'’" and (sign.isspace() or unicodedata.category(sign)[0] in "PS")
        if is_apart and text[place - 1].isalnum():
            return place
    for place in nearest:
        ends_hangul_syllable = "\u1160" <= text[place] <= "\u11ff"
        if not (ends_hangul_syllable or unicodedata.combining(text[place])):  # which normalisation joins to the last
            return place
    return end


@dataclass(frozen=True, slots=True, kw_only=True)
class BytePlaces:
    """A vocabulary whose tokens are bytes."""

    num_bytes: npt.NDArray[np.int64]
    """Bytes of each token; shape [vocabulary]."""
    to_nfc: bool
    """Whether texts are brought to Unicode's form NFC first."""

    def token_chars(self, token_ids: npt.NDArray[np.int32], text: str) -> npt.NDArray[np.int64] | None:
        """First character of each token in the text, or None where lengths can't say it."""
        if self.to_nfc and not unicodedata.is_normalized("NFC", text):
            return None
        data = np.frombuffer(text.encode(), np.uint8)
        lengths = self.num_bytes[token_ids]
        ends = lengths.cumsum()
        if len(ends) == 0 or ends[-1] != len(data):
            return None
        chars = np.cumsum((data & 0xC0) != 0x80) - 1  # a byte 10xxxxxx goes on with a character
        return np.asarray(chars[ends - lengths], np.int64)


@dataclass(frozen=True, kw_only=True)
class TokenizerJson:
    """The parsed file."""

    content: Mapping[str, Any]
    """As the library `tokenizers` writes it."""

    @classmethod
    def of(cls, tokenizer: "tokenizers.Tokenizer") -> Self:
        """The file of a loaded tokeniser."""
        return cls(content=json.loads(tokenizer.to_str()))

    @cached_property
    def sha256(self) -> str:
        """Hash of the content, 64 hex digits."""
        return hashlib.sha256(json.dumps(self.content, sort_keys=True).encode()).hexdigest()

    @property
    def thought_tags(self) -> dict[str, int]:
        """The tags of thoughts that are tokens, which no text of a document is written with."""
        tokens = {token["content"]: token["id"] for token in self.content["added_tokens"]}
        return {tag: tokens[tag] for tag in (OPENING, THOUGHT_END) if tag in tokens}

    def plain_tokenizer(self) -> "tokenizers.Tokenizer":
        """The same tokeniser without added tokens, so that it knows no markers; and without trimmed offsets."""
        return _tokenizer_of({**self.content, "added_tokens": [], "post_processor": None})

    def inner_tokenizer(self) -> "tokenizers.Tokenizer":
        """The same tokeniser for text from the middle of a prompt: it puts no space before the first word."""
        return _tokenizer_of(self.content)

    def byte_places(self) -> BytePlaces | None:
        """The places of tokens by their lengths, if the tokens are bytes."""
        normalizer = (self.content.get("normalizer") or {"type": ""})["type"]
        decoder = (self.content.get("decoder") or {}).get("type")
        model = self.content["model"]
        if model["type"] != "BPE" or decoder != "ByteLevel" or normalizer not in ("", "NFC"):
            return None
        num_bytes = np.zeros(max(model["vocab"].values()) + 1, np.int64)
        for token, token_id in model["vocab"].items():
            num_bytes[token_id] = len(token)
        return BytePlaces(num_bytes=num_bytes, to_nfc=normalizer == "NFC")

    def control_token_ids(self, plain: "tokenizers.Tokenizer", *, template_text: str) -> frozenset[int]:
        """Tokens that steer the model: special ones, tags of thoughts, and added ones that stand in the chat template.

        Letters and white space steer nothing, and neither does what plain text is written with: some vocabularies have
        added tokens for `ü`, for `<table>`, for runs of spaces, or for line breaks.
        """
        return frozenset(
            int(token["id"])
            for token in self.content["added_tokens"]
            if token["special"]
            or token["content"] in (OPENING, THOUGHT_END)
            or (
                token["content"] in template_text
                and any(unicodedata.category(character)[0] in "PS" for character in token["content"])
                and plain.encode(token["content"], add_special_tokens=False).ids != [token["id"]]
            )
        )

    def letters(self) -> dict[int, str]:
        """Texts of added tokens, such as `ü`, that the decoder of a byte-level vocabulary would take for bytes."""
        if (self.content.get("decoder") or {}).get("type") != "ByteLevel":
            return {}
        return {
            token["id"]: token["content"]
            for token in self.content["added_tokens"]
            if not (token["special"] or token["content"].isascii())
        }

    def texts(self, token_ids: frozenset[int]) -> frozenset[str]:
        """Texts of added tokens."""
        return frozenset(token["content"] for token in self.content["added_tokens"] if token["id"] in token_ids)


def _tokenizer_of(content: Mapping[str, Any]) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer

    inner = {**content, "truncation": None, "padding": None}
    inner |= {part: _without_prefix(content.get(part)) for part in ("normalizer", "pre_tokenizer")}
    return Tokenizer.from_str(json.dumps(inner))


def _without_prefix(part: Any) -> Any:
    """A normaliser or pre-tokeniser, as tokenizer.json writes it, that adds nothing at the start of a text."""
    if not isinstance(part, dict) or part.get("type") == "Prepend":
        return None
    for steps in ("normalizers", "pretokenizers"):
        if steps in part:
            kept = [_without_prefix(step) for step in part[steps]]
            return {**part, steps: [step for step in kept if step is not None]}
    changes = {"add_prefix_space": False, "prepend_scheme": "never"}
    return {**part, **{setting: value for setting, value in changes.items() if setting in part}}
