"""An engine without a model: answers by rule after a set time. For measuring everything that is not the engine."""

import asyncio
import math
import time
from collections.abc import Collection, Mapping
from typing import Any, ClassVar

from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.domain.guides import GuideKind
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import Engine, EngineContext, Resources, require_fit
from memagent_batch.engines.guide_examples import example_of
from memagent_batch.engines.tokenizer import Tokenizer

ANSWER_TEXT = "\\boxed{simulated}"
MEMORY_TEXT = "simulated memory "


class Simulated(SimulatedConfig):
    """The engine with its knobs."""

    kind: ClassVar[str] = "simulated"
    secrets: ClassVar[frozenset[str]] = frozenset()
    has_weights: ClassVar[bool] = False
    first_step: ClassVar[str] = "starting the engine"

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started."""
        return SimulatedEngine(self, window_tokens=context.window_tokens, tokenizer=context.load_tokenizer())

    def identity(self) -> Mapping[str, Any]:
        """The length of what it writes."""
        return {"kind": self.kind, "completion_tokens": self.completion_tokens}

    def resources(self) -> Resources:
        """No GPU."""
        return Resources()


class SimulatedEngine:
    """Every memory and every answer is the same text, cut to `completion_tokens` and the prompt's budget.

    A guided turn has a text that its guide allows; all entries of a menu are as likely.
    """

    def __init__(self, settings: SimulatedConfig, *, window_tokens: int, tokenizer: Tokenizer) -> None:
        """Encodes the two texts once."""
        self._seconds = settings.turn_seconds
        self._window_tokens = window_tokens
        self._tokenizer = tokenizer
        memory = tokenizer.encode(MEMORY_TEXT * settings.completion_tokens)[: settings.completion_tokens]
        self._memory = (memory, tokenizer.decode(memory))
        self._answer = (tokenizer.encode(ANSWER_TEXT), ANSWER_TEXT)

    async def start(self) -> None:
        """Nothing to start."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The rule's text after the set time; `seed` has no effect."""
        require_fit(prompt, window_tokens=self._window_tokens)
        began = time.monotonic()
        await asyncio.sleep(self._seconds)
        token_ids, text = self._written(prompt)
        cut = len(token_ids) > prompt.max_tokens
        token_ids = token_ids[: prompt.max_tokens]
        num_choices = len(prompt.guide.choices) if prompt.guide else 0
        return Completion(
            token_ids=token_ids,
            text=self._tokenizer.decode(token_ids) if cut else text,
            finish_reason=FinishReason.LENGTH if cut else FinishReason.STOP,
            num_prompt_tokens=len(prompt.token_ids),
            engine_seconds=time.monotonic() - began,
            menu_logprobs=[-math.log(num_choices)] * num_choices if num_choices else None,
        )

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """All kinds are obeyed; see `GuidedEngine.require_guides`."""

    async def stop(self) -> None:
        """Nothing to stop."""

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        """Tokens and text of an uncut completion."""
        if prompt.guide is not None:
            text = example_of(prompt.guide)
            return self._tokenizer.encode(text), text
        return self._memory if prompt.writes else self._answer
