"""What engines of tests are opened with, and the base of those that a test puts in place of `make_engine`."""

from collections.abc import Mapping
from typing import Any, ClassVar, Self

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.tokens.tokenizer import Tokenizer, load_tokenizer


def context_of(
    model: str,
    *,
    tokenizer: Tokenizer | None = None,
    window_tokens: int = 1024,
    sampling: SamplingConfig = SamplingConfig(),  # noqa: B008
) -> EngineContext:
    """The context of a model folder; or of a model that an endpoint serves, with the tokeniser."""
    return EngineContext(
        model=model,
        tokenizer=None,
        window_tokens=window_tokens,
        sampling=sampling,
        load_tokenizer=lambda: tokenizer or load_tokenizer(model),
    )


class MadeEngine(Engine):
    """Needs no context: `make_engine` is replaced."""

    kind: ClassVar[str] = "made"
    takes_guides: ClassVar[bool] = True

    def open(self, context: EngineContext) -> Self:
        return self

    def identity(self) -> Mapping[str, Any]:
        return {"kind": self.kind}
