"""The model's chat template: what it is given, and what it makes of one user message. Part of the tokeniser."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import JsonValue

from memagent_batch.errors import SettingsError

DEFAULT_VALUES: Mapping[str, JsonValue] = {"enable_thinking": False}
"""What a template is given that knows these words: thoughts would use up the budget of the memory."""

OWN_VALUES = frozenset({"messages", "add_generation_prompt"})
"""What every template is given, and no setting may change."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """The chat template of a tokeniser of `transformers`."""

    tokenizer: Any
    """The tokeniser."""
    model: str
    """Name of the model, for messages."""

    @property
    def sha256(self) -> str:
        """Hash of the template's text, as 64 hex digits."""
        return hashlib.sha256(self._text.encode()).hexdigest()

    def values(self, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """What the template is given beside the message: the user's values, and the defaults for words that it knows.

        Raises:
            SettingsError: the template does not know one of the user's words.
        """
        for name in given:
            if name in OWN_VALUES or not self._has_word(name):
                raise SettingsError(
                    f"chat_template_kwargs: the chat template of {self.model} takes no {name!r}; take a word that "
                    "stands in the template, or leave it out"
                )
        defaults = {name: value for name, value in DEFAULT_VALUES.items() if self._has_word(name)}
        return {**defaults, **given}

    def render(self, content: str, *, values: Mapping[str, JsonValue]) -> str:
        """One user message as the template shows it, up to where the model begins to write."""
        from jinja2 import TemplateError

        message = {"role": "user", "content": content}
        try:
            return str(
                self.tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True, **values)
            )
        except TemplateError as error:
            raise SettingsError(f"model: the chat template of {self.model} shows no user message: {error}") from error

    @property
    def _text(self) -> str:
        return str(self.tokenizer.chat_template)

    def _has_word(self, word: str) -> bool:
        return re.search(rf"\b{re.escape(word)}\b", self._text) is not None
