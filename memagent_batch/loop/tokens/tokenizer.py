"""The model's tokeniser, in two voices: control tokens for our own prompt pieces, plain text for everything else.

Runs in CPU tasks for documents and in the actor for prompt pieces; never on the engine's event loop for long texts.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from itertools import chain, groupby, repeat
from pathlib import Path
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
import numpy.typing as npt

from memagent_batch.errors import DocumentError, PromptSetError
from memagent_batch.loop.follow_ups.prompts import FollowUpTokens
from memagent_batch.loop.prompts import (
    PASSAGE_GAP,
    Memory,
    PromptSet,
    PromptTokens,
    Slot,
    TokenTemplate,
    split_slots,
)
from memagent_batch.loop.tokens.chat_template import THINKING_WORD, ChatTemplate
from memagent_batch.loop.tokens.pretrained import load_pretrained
from memagent_batch.loop.tokens.tokenizer_json import TokenizerJson, segments_of
from memagent_batch.types import Document

CONTEXT_TOKENS = 8
"""Tokens of a prompt that are decoded before what follows it: more than the control tokens that end a chat template."""

SLOT_MARKS = {slot: f"\ue000{slot.value}\ue001" for slot in Slot}
"""Private-use text that stands for a slot while the chat template is rendered."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenisedText:
    """A text as tokens, with the place of each."""

    token_ids: npt.NDArray[np.int32]
    """Shape [num_tokens]."""
    token_chars: npt.NDArray[np.int64]
    """First character of each token in the text; shape [num_tokens]."""


class Tokenizer:
    """A model folder's tokeniser and chat template.

    Raises:
        SettingsError: the folder has no fast tokeniser.
    """

    def __init__(self, model: str) -> None:
        """Loads from a local folder, or a hub name that `transformers` can resolve."""
        self.model = model
        self._full = load_pretrained(model)
        content = TokenizerJson.of(self._full.backend_tokenizer)
        self.sha256 = content.sha256
        self.chat_template = ChatTemplate(tokenizer=self._full, model=model)
        self._plain = content.plain_tokenizer()
        self._places = content.byte_places()
        self._inner = content.inner_tokenizer()
        self.control_token_ids = content.control_token_ids(self._plain, template_text=self.chat_template.whole_text)
        """Tokens that steer the model."""
        tags = content.thought_tags
        self._textless = self.control_token_ids - set(tags.values())
        self._letters = content.letters()
        self.control_texts = content.texts(self.control_token_ids)
        self.has_thought_tags = bool(tags)
        self.ends_thoughts = len(tags) == 2  # vLLM 0.32 counts too few thoughts where a tag takes several tokens

    @property
    def end_token_id(self) -> int | None:
        """The token that ends a completion, if the tokeniser names one."""
        end = self._full.eos_token_id
        return None if end is None else int(end)

    def encode(self, text: str) -> list[int]:
        """Token ids of a short text, read as plain text: markers of the chat template are letters like any other."""
        token_ids: list[int] = self.encode_document(text).token_ids.tolist()
        return token_ids

    def encode_document(self, text: str) -> TokenisedText:
        """Token ids and character places of a text of any length, read as plain text.

        Raises:
            DocumentError: the text holds a lone surrogate, or the vocabulary has no plain tokens for a part of it.
        """
        ids, chars = [], []
        for start, segment in segments_of(text):
            tokens = self._encode_segment(segment, start=start)
            ids.append(tokens.token_ids)
            chars.append(tokens.token_chars + start)
        token_ids = np.concatenate([np.empty(0, np.int32), *ids])
        tokens = TokenisedText(token_ids=token_ids, token_chars=np.concatenate([np.empty(0, np.int64), *chars]))
        self._require_plain(tokens, text)
        return tokens

    def document(self, text: str) -> Document:
        """The text as a policy reads it.

        Raises:
            DocumentError: as `encode_document`.
        """
        tokens = self.encode_document(text)
        return Document(token_ids=tokens.token_ids.data, token_chars=tokens.token_chars.data, num_chars=len(text))

    def decode(self, token_ids: Sequence[int]) -> str:
        """Text of the tokens, without control tokens."""
        return self.text_of([token for token in token_ids if token not in self.control_token_ids])

    def text_of(self, token_ids: Sequence[int]) -> str:
        """Text of the tokens as they are, control tokens included."""
        decode = partial(self._full.backend_tokenizer.decode, skip_special_tokens=False)
        if not self._letters:
            return str(decode(list(token_ids)))
        runs = groupby(token_ids, key=self._letters.get)
        return "".join(decode(list(run)) if letters is None else letters * len(list(run)) for letters, run in runs)

    def continuation(self, token_ids: Sequence[int], *, after: Sequence[int]) -> str:
        """Text of tokens that follow others, without a last character that is cut in two.

        It has no control tokens, except for the tags of thoughts. The last of the tokens before decide whether a word
        that comes next begins with a space.
        """
        before = self._text_tokens(after[-CONTEXT_TOKENS:])
        text = self.text_of([*before, *self._text_tokens(token_ids)])
        return text[len(self.text_of(before)) :].rstrip("\ufffd")

    def prompt_tokens(
        self,
        prompts: PromptSet,
        *,
        chat_template_kwargs: Mapping[str, Any] = {},
        template: ChatTemplate | None = None,
    ) -> PromptTokens:
        """The prompt set as this tokeniser and its chat template write it.

        `template`: what wraps a message, if it is not the own chat template.
        """
        template = template or self.chat_template
        shown = partial(self._template, template=template, values=template.values(chat_template_kwargs))
        no_merge = TokenTemplate(pieces=(), place=f"prompt set {prompts.name!r}, merge text")
        return PromptTokens(
            update=shown(prompts.update),
            answer=shown(prompts.answer),
            direct=shown(prompts.direct),
            merge=shown(prompts.merge) if prompts.merge else no_merge,
            first_memory=Memory(token_ids=self.encode(prompts.first_memory), text=prompts.first_memory),
            control_token_ids=self.control_token_ids,
            encode=self.encode,
            decode=self.decode,
            gap=tuple(self.encode(PASSAGE_GAP)),
            keep_word=prompts.keep_word,
            opens_thought=template.opens_thought(template.values(chat_template_kwargs)),
        )

    def follow_up_tokens(
        self,
        texts: Mapping[str, str],
        *,
        chat_template_kwargs: Mapping[str, Any] = {},
        template: ChatTemplate | None = None,
    ) -> FollowUpTokens:
        """The follow-up questions as this tokeniser and its chat template write them, each behind a thought that has
        ended.

        `template`: as in `prompt_tokens`.
        """
        template = template or self.chat_template
        values = template.values(chat_template_kwargs)
        if THINKING_WORD in values:
            values[THINKING_WORD] = False
        ending = template.thought_end(values, has_tags=self.ends_thoughts)
        shown = partial(self._template, template=template, values=values, ending=ending)
        return FollowUpTokens(
            templates={kind: shown(text) for kind, text in texts.items()},
            encode=self.encode,
            decode=self.decode,
        )

    def _require_plain(self, tokens: TokenisedText, text: str) -> None:
        (places,) = np.nonzero(np.isin(tokens.token_ids, list(self.control_token_ids)))
        if len(places) == 0:
            return
        token = self._full.backend_tokenizer.id_to_token(int(tokens.token_ids[places[0]]))
        start = int(tokens.token_chars[places[0]])
        raise DocumentError(
            f"the vocabulary of {self.model} has only the control token {token!r} for {text[start : start + 8]!r} at "
            f"character {start}; remove such characters from the text, or use a model whose vocabulary has all bytes"
        )

    def _text_tokens(self, token_ids: Sequence[int]) -> list[int]:
        return [token for token in token_ids if token not in self._textless]

    def _encode_segment(self, segment: str, *, start: int) -> TokenisedText:
        try:
            segment.encode()
        except UnicodeEncodeError as error:
            raise DocumentError(
                f"the text holds a lone surrogate at character {start + error.start}; it is not valid Unicode"
            ) from error
        if self._places:
            token_ids = np.asarray(self._plain.encode_batch_fast([segment], add_special_tokens=False)[0].ids, np.int32)
            token_chars = self._places.token_chars(token_ids, segment)
            if token_chars is not None:
                return TokenisedText(token_ids=token_ids, token_chars=token_chars)
        slow = self._plain.encode(segment, add_special_tokens=False)
        token_chars = np.fromiter((first for first, _ in slow.offsets), np.int64)
        return TokenisedText(token_ids=np.asarray(slow.ids, np.int32), token_chars=token_chars)

    def _template(
        self, text: str, *, template: ChatTemplate, values: Mapping[str, Any], ending: str = ""
    ) -> TokenTemplate:
        marked = "".join(SLOT_MARKS[piece] if isinstance(piece, Slot) else piece for piece in split_slots(text))
        slots = {mark: slot for slot, mark in SLOT_MARKS.items()}
        parts = re.split(f"({'|'.join(slots)})", template.render(marked, values=values) + ending)
        pieces = [slots.get(part, part) for part in parts if part]
        slot_names = sorted(piece for piece in pieces if isinstance(piece, Slot))
        if slot_names != sorted(piece for piece in split_slots(text) if isinstance(piece, Slot)):
            raise PromptSetError(
                f"the chat template of {self.model} shows a prompt's slots {slot_names}: one is lost or doubled"
            )
        encoders = chain([self._full.backend_tokenizer], repeat(self._inner))
        return TokenTemplate(
            pieces=tuple(
                piece if isinstance(piece, Slot) else tuple(encoder.encode(piece, add_special_tokens=False).ids)
                for encoder, piece in zip(encoders, pieces, strict=False)
            )
        )


def load_tokenizer(model: str, *, sha256: str | None = None) -> Tokenizer:
    """The model's tokeniser; one whose files have not changed is loaded once in a process.

    `sha256`: its hash, if it is known. One with this hash that was loaded before is taken, whatever the files hold now.
    """
    if sha256 is not None and (known := _LOADED.get(sha256)) is not None:
        return known
    paths = sorted(Path(model).iterdir()) if Path(model).is_dir() else []  # none for a hub name
    files = ((path, path.stat()) for path in paths)
    states = ((path.name, state.st_size, state.st_mtime_ns, state.st_ctime_ns) for path, state in files)
    return _load_tokenizer(model, tuple(states))


@lru_cache(maxsize=2)
def _load_tokenizer(model: str, files: tuple[tuple[str, int, int, int], ...]) -> Tokenizer:
    tokenizer = Tokenizer(model)
    _LOADED[tokenizer.sha256] = tokenizer
    return tokenizer


_LOADED: WeakValueDictionary[str, Tokenizer] = WeakValueDictionary()
"""The tokenisers that this process keeps, by hash."""
