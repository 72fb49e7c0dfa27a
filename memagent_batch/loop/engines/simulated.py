"""An engine without a model: answers by rule after a set time. For measuring everything that is not the engine."""

import asyncio
import math
import time
from collections.abc import Mapping
from typing import Any, ClassVar, Self

from pydantic import PrivateAttr

from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.loop.engines.engine import Engine, EngineContext, require_fit
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt

ANSWER_TEXT = "\\boxed{simulated}"
MEMORY_TEXT = "simulated memory "


class SimulatedEngine(SimulatedConfig, Engine):
    """Every memory and every answer is the same text, cut to `completion_tokens` and the prompt's budget.

    A guided turn writes the example of its guide; all entries of a menu are as likely.
    """

    kind: ClassVar[str] = "simulated"
    has_model: ClassVar[bool] = False
    takes_guides: ClassVar[bool] = True

    _context: EngineContext = PrivateAttr()
    _tokenizer: Tokenizer = PrivateAttr()
    _memory: tuple[list[int], str] = PrivateAttr()
    _answer: tuple[list[int], str] = PrivateAttr()

    def open(self, context: EngineContext) -> Self:
        """Encodes the two texts once."""
        self._context, self._tokenizer = context, context.load_tokenizer()
        memory = self._tokenizer.encode(MEMORY_TEXT * self.completion_tokens)[: self.completion_tokens]
        self._memory = (memory, self._tokenizer.decode(memory))
        self._answer = (self._tokenizer.encode(ANSWER_TEXT), ANSWER_TEXT)
        return self

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The rule's text after the set time; `seed` has no effect."""
        require_fit(prompt, window_tokens=self._context.window_tokens)
        began = time.monotonic()
        await asyncio.sleep(self.turn_seconds)
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

    def identity(self) -> Mapping[str, Any]:
        """The length of what it writes."""
        return {"kind": self.kind, "completion_tokens": self.completion_tokens}

    def _written(self, prompt: Prompt) -> tuple[list[int], str]:
        """Tokens and text of an uncut completion."""
        if prompt.guide is not None:
            text = prompt.guide.example
            return self._tokenizer.encode(text), text
        return self._memory if prompt.writes else self._answer
