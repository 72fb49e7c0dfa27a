"""What wraps one user message: the model's chat template, which is part of the tokeniser, or a server's own."""

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from pydantic import JsonValue

from memagent_batch.errors import SettingsError
from memagent_batch.loop.completions import OPENING, THOUGHT_END, ends_in_thought, other_thought_tags

THINKING_WORD = "enable_thinking"
"""What a template is given to let the model think, or not."""

DEFAULT_VALUES: Mapping[str, JsonValue] = {THINKING_WORD: False}
"""What a template is given that knows these words: thoughts would use up the budget of the memory."""

CLOCK_WORD = "strftime_now"
"""The function by which a template prints the date or the time."""

TEMPLATE_TIME = datetime(2024, 7, 26)
"""What a template that asks for the time gets, on every day: prompts, and so answers, don't depend on the date.

This is the date that templates of Llama 3 print where they have no clock.
"""

OTHER_TIME = datetime(1999, 12, 31, 23, 59, 58)
"""Differs in every part, to see whether a template prints the time."""

OWN_VALUES = frozenset({"messages", "add_generation_prompt", CLOCK_WORD})
"""What every template is given, and no setting may change."""


MESSAGE_MARK = "\ue000message\ue001"
"""Private-use text that stands for a message, to see what the template puts behind it."""


NO_THOUGHT = f"{THOUGHT_END}\n\n"
"""Ends a thought that the chat template opened: a guided completion has no room for one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatTemplate:
    """What a user message becomes before it is tokenised, by the chat template of a tokeniser of `transformers`."""

    tokenizer: Any
    model: str

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
        return {**self.defaults, **given}

    @property
    def is_there(self) -> bool:
        """Whether the tokeniser has one."""
        return bool(self.tokenizer.chat_template)

    @property
    def defaults(self) -> dict[str, JsonValue]:
        """What it is given of words that it knows."""
        return {name: value for name, value in DEFAULT_VALUES.items() if self._has_word(name)}

    def render(self, content: str, *, values: Mapping[str, JsonValue]) -> str:
        """One user message as the template shows it, up to where the model begins to write; the same on every day."""
        return self._render(content, values=values, time=TEMPLATE_TIME)

    def opens_thought(self, values: Mapping[str, JsonValue]) -> bool:
        """Whether it ends each prompt inside a thought."""
        return ends_in_thought(self._tail(values))

    def thought_end(self, values: Mapping[str, JsonValue], *, has_tags: bool) -> str:
        """What goes behind the prompt of a guided turn, which has no room for a thought; empty if nothing is needed.

        It ends the thought that the template opens, or stands for one that the model would begin itself, if the
        tokeniser has a token for each tag. vLLM's server with a `--reasoning-parser` applies no guide before the
        thought ends.
        """
        tail = self._tail(values)
        if ends_in_thought(tail):
            return NO_THOUGHT
        return f"{OPENING}\n\n{NO_THOUGHT}" if has_tags and THOUGHT_END not in tail else ""

    def prints_time(self, values: Mapping[str, JsonValue]) -> bool:
        """Whether prompts show `TEMPLATE_TIME`."""
        return self.render(MESSAGE_MARK, values=values) != self._render(MESSAGE_MARK, values=values, time=OTHER_TIME)

    def other_thought_tags(self) -> list[str]:
        """Tags in its text that mark thoughts in another way than `<think>`."""
        return other_thought_tags(self._text)

    def at_server(self) -> "ServerTemplate":
        """What stands for it where the server applies its own."""
        return ServerTemplate(tokenizer=self.tokenizer, model=self.model)

    @property
    def whole_text(self) -> str:
        """Its text, and a prompt, where some templates put markers together; empty if the tokeniser has none."""
        return self._text + self.render(MESSAGE_MARK, values=self.defaults) if self.is_there else ""

    def _tail(self, values: Mapping[str, JsonValue]) -> str:
        return self.render(MESSAGE_MARK, values=values).rpartition(MESSAGE_MARK)[2]

    def _render(self, content: str, *, values: Mapping[str, JsonValue], time: datetime) -> str:
        from jinja2 import TemplateError

        _ = self._text
        given: dict[str, Any] = {**values, CLOCK_WORD: time.strftime}
        message = {"role": "user", "content": content}
        try:
            return str(
                self.tokenizer.apply_chat_template([message], tokenize=False, add_generation_prompt=True, **given)
            )
        except TemplateError as error:
            raise SettingsError(f"model: the chat template of {self.model} shows no user message: {error}") from error

    @property
    def _text(self) -> str:
        if not self.is_there:
            raise SettingsError(
                f"model: {self.model} has no chat template; use an instruct model, or add chat_template.jinja"
            )
        return str(self.tokenizer.chat_template)

    def _has_word(self, word: str) -> bool:
        return re.search(rf"\b{re.escape(word)}\b", self._text) is not None


class ServerTemplate(ChatTemplate):
    """Stands for a template that a server applies: prompts are the messages themselves.

    The tokeniser's own template, where it has one, is taken for a copy of the server's. The server tells thoughts
    apart, and the engine puts the tag before a completion that begins inside one.
    """

    __slots__ = ()

    @property
    def sha256(self) -> str:
        """Empty: the template is the server's."""
        return ""

    def values(self, given: Mapping[str, JsonValue]) -> dict[str, JsonValue]:
        """The user's values, and the defaults for words that the tokeniser's template knows."""
        return {**(self.defaults if self.is_there else {}), **given}

    def thought_end(self, values: Mapping[str, JsonValue], *, has_tags: bool) -> str:
        """Nothing: the server's own template decides."""
        return ""

    def other_thought_tags(self) -> list[str]:
        """None."""
        return []

    def _render(self, content: str, *, values: Mapping[str, JsonValue], time: datetime) -> str:
        return content
