"""The example's plug-ins held to the published contracts, as a stranger would; `BROKEN=1` takes their broken twins."""

import os

from memagent_example.engine import Echo, Shout
from memagent_example.policy import FirstMatch, SameSeat, Unsaid

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.engines.engine import Engine, EngineContext
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.testing import EngineContract, PolicyContract
from memagent_batch.tokens.tokenizer import Tokenizer

IS_BROKEN = "BROKEN" in os.environ


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
