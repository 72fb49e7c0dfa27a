"""What a tokenizer.json says: the tokenisers that are made of it, and which of its tokens steer the model."""

import hashlib
import json
import unicodedata
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from memagent_batch.domain.thoughts import OPENING, THOUGHT_END
from memagent_batch.tokens.spans import BytePlaces

if TYPE_CHECKING:
    import tokenizers


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
    def has_thought_tags(self) -> bool:
        """Whether the model has tokens that open or close a thought."""
        return any(token["content"] in (OPENING, THOUGHT_END) for token in self.content["added_tokens"])

    @property
    def ends_thoughts(self) -> bool:
        """Whether it has both tags of a thought as tokens, which no text of a document is written with.

        vLLM 0.32 counts too few thoughts where a tag takes several tokens.
        """
        return {OPENING, THOUGHT_END} <= {token["content"] for token in self.content["added_tokens"]}

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
        return BytePlaces.of(model["vocab"], to_nfc=normalizer == "NFC")

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
                and _has_sign(token["content"])
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

    def textless_token_ids(self, control: frozenset[int]) -> frozenset[int]:
        """Control tokens that no text shows: all but the tags of thoughts."""
        tags = {token["id"] for token in self.content["added_tokens"] if token["content"] in (OPENING, THOUGHT_END)}
        return control - tags


def _tokenizer_of(content: Mapping[str, Any]) -> "tokenizers.Tokenizer":
    from tokenizers import Tokenizer

    inner = {**content, "truncation": None, "padding": None}
    inner |= {part: _without_prefix(content.get(part)) for part in ("normalizer", "pre_tokenizer")}
    return Tokenizer.from_str(json.dumps(inner))


def _has_sign(text: str) -> bool:
    return any(unicodedata.category(character)[0] in "PS" for character in text)


def _without_prefix(part: Any) -> Any:
    """A normaliser or pre-tokeniser, as tokenizer.json writes it, that adds nothing at the start of a text."""
    if not isinstance(part, dict) or part.get("type") == "Prepend":
        return None
    for steps in ("normalizers", "pretokenizers"):
        if steps in part:
            kept = [_without_prefix(step) for step in part[steps]]
            return {**part, steps: [step for step in kept if step is not None]}
    changes = {"add_prefix_space": False, "prepend_scheme": "never"}
    return {**part, **{knob: value for knob, value in changes.items() if knob in part}}
