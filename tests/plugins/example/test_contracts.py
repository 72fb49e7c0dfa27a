"""The example's plug-ins held to the published contracts, as a stranger would; `BROKEN=1` takes their broken twins."""

import os
from dataclasses import replace
from typing import Any

from memagent_example.engine import Echo, Shout
from memagent_example.policy import FirstMatch

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.document import Chunk
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import PromptTokens
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.testing import EngineContract, PolicyContract
from memagent_batch.types import Prompt, QuestionTokens, Writes

IS_BROKEN = "BROKEN" in os.environ


class SameSeat(FirstMatch):
    """The broken twin: gives all turns one path, so that a replay could not tell them apart."""

    def _prompt(self, number: int, chunk: Chunk | None, question: QuestionTokens, prompts: PromptTokens) -> Prompt:
        return FirstMatch._prompt(self, 0, chunk, question, prompts)


class Unsaid(OverwritePolicy):
    """The broken twin of `overwrite`: does not say that an `update` turn writes the memory."""

    def update_prompt(self, *arguments: Any) -> Prompt:
        return replace(OverwritePolicy.update_prompt(self, *arguments), writes=Writes.NOTE)


class TestFirstMatch(PolicyContract):
    def policy(self, chunk_tokens: int) -> FirstMatch:
        return (SameSeat if IS_BROKEN else FirstMatch)(chunk_tokens=chunk_tokens, answer_tokens=6)


class TestOverwrite(PolicyContract):
    def policy(self, chunk_tokens: int) -> OverwritePolicy:
        return (Unsaid if IS_BROKEN else OverwritePolicy)(chunk_tokens=chunk_tokens, memory_tokens=4, answer_tokens=6)


class TestEcho(EngineContract):
    def config(self) -> Engine:
        return (Shout if IS_BROKEN else Echo)(word="amber")

    def context(self) -> EngineContext:
        model = str(TINY_MODEL)
        return EngineContext(
            model=model,
            tokenizer=None,
            window_tokens=256,
            sampling=SamplingConfig(),
            load_tokenizer=lambda: Tokenizer(model),
        )
