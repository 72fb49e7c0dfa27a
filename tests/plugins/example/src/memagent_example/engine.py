"""An engine without a model: it answers every prompt with one word."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import Engine, EngineContext, Resources, require_fit


@dataclass(frozen=True, slots=True, kw_only=True)
class Echo:
    """The engine with its knobs."""

    kind: ClassVar[str] = "echo"
    secrets: ClassVar[frozenset[str]] = frozenset({"token"})
    has_weights: ClassVar[bool] = False
    first_step: ClassVar[str] = "clearing its throat"

    word: str = "echo"
    """What it answers."""
    token: str = ""
    """Stands for a secret."""

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started."""
        return EchoEngine(self, context)

    def identity(self) -> Mapping[str, Any]:
        """The word."""
        return {"kind": self.kind, "word": self.word}

    def resources(self) -> Resources:
        """No GPU."""
        return Resources()


class EchoEngine:
    """Answers with the word in a box, cut to the prompt's budget."""

    def __init__(self, config: Echo, context: EngineContext) -> None:
        """Encodes the word once."""
        self._window_tokens = context.window_tokens
        self._tokenizer = context.load_tokenizer()
        self._token_ids = list(self._tokenizer.encode(f"\\boxed{{{config.word}}}"))

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The word; `seed` has no effect."""
        require_fit(prompt, window_tokens=self._window_tokens)
        return self._completion(prompt, self._token_ids[: prompt.max_tokens])

    async def stop(self) -> None:
        """Nothing to stop."""

    def _completion(self, prompt: Prompt, token_ids: list[int]) -> Completion:
        is_cut = len(token_ids) < len(self._token_ids)
        return Completion(
            token_ids=token_ids,
            text=self._tokenizer.decode(token_ids),
            finish_reason=FinishReason.LENGTH if is_cut else FinishReason.STOP,
            num_prompt_tokens=len(prompt.token_ids),
        )


class Shout(Echo):
    """The broken twin: its engine takes prompts of any length, and writes past their budgets."""

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started."""
        return ShoutEngine(self, context)


class ShoutEngine(EchoEngine):
    """Answers with the word ten times."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Too long, and whatever the window."""
        return self._completion(prompt, self._token_ids * 10)
