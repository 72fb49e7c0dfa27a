"""An engine without a model: it answers every prompt with one word."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Self

from memagent_batch.loop.engines.engine import Engine, EngineContext, require_fit
from memagent_batch.types import Completion, FinishReason, Prompt


@dataclass(kw_only=True)
class Echo(Engine):
    """Answers with the word in a box, cut to the prompt's budget."""

    kind: ClassVar[str] = "echo"
    secrets: ClassVar[frozenset[str]] = frozenset({"token"})
    first_step: ClassVar[str] = "clearing its throat"

    word: str = "echo"
    """What it answers."""
    token: str = ""
    """Stands for a secret."""

    def open(self, context: EngineContext) -> Self:
        self._window_tokens = context.window_tokens
        self._tokenizer = context.load_tokenizer()
        self._token_ids = list(self._tokenizer.encode(f"\\boxed{{{self.word}}}"))
        return self

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The word; `seed` has no effect."""
        require_fit(prompt, window_tokens=self._window_tokens)
        return self._completion(prompt, self._token_ids[: prompt.max_tokens])

    def identity(self) -> Mapping[str, Any]:
        """The word."""
        return {"kind": self.kind, "word": self.word}

    def _completion(self, prompt: Prompt, token_ids: list[int]) -> Completion:
        is_cut = len(token_ids) < len(self._token_ids)
        return Completion(
            token_ids=token_ids,
            text=self._tokenizer.decode(token_ids),
            finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
            num_prompt_tokens=len(prompt.token_ids),
        )


class Shout(Echo):
    """The broken twin: it takes prompts of any length, and writes the word ten times, past their budgets."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Too long, and whatever the window."""
        return self._completion(prompt, self._token_ids * 10)
