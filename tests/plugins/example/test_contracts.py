"""The example's plug-ins held to the published contracts, as a stranger would; `BROKEN=1` takes their broken twins."""

import os
from collections.abc import Sequence

from memagent_example.engine import Echo, Shout
from memagent_example.heads import Heads, HeadsUnsaid
from memagent_example.nominated import Nominated
from memagent_example.policy import FirstMatch, SameSeat
from memagent_example.reread import Reread

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.engines.engine import Engine, EngineContext
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.testing import EngineContract, PolicyContract
from memagent_batch.tokens.tokenizer import Tokenizer

IS_BROKEN = "BROKEN" in os.environ


class TestFirstMatch(PolicyContract):
    def policy(self, chunk_tokens: int) -> FirstMatch:
        return (SameSeat if IS_BROKEN else FirstMatch)(chunk_tokens=chunk_tokens, answer_tokens=6)


class TestHeads(PolicyContract):
    def policy(self, chunk_tokens: int) -> Heads:
        policy = HeadsUnsaid if IS_BROKEN else Heads
        return policy(chunk_tokens=chunk_tokens, memory_tokens=12, answer_tokens=6, heads=3)


class TestReread(PolicyContract):
    def policy(self, chunk_tokens: int) -> Reread:
        return Reread(chunk_tokens=chunk_tokens, question_tokens=3, memory_tokens=4, answer_tokens=6)


class TestNominated(PolicyContract):
    def policy(self, chunk_tokens: int) -> Nominated:
        return Nominated(chunk_tokens=chunk_tokens, memory_tokens=10, answer_tokens=6, rank=by_first_token)


def by_first_token(passages: Sequence[Sequence[int]], question: Sequence[int]) -> list[float]:
    """The later in the document, the nearer."""
    return [float(passage[0]) for passage in passages]


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
