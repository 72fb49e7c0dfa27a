"""An OpenAI-compatible endpoint as a plug-in."""

from collections.abc import Mapping
from typing import Any, ClassVar

from memagent_batch.config import OpenAIConfig
from memagent_batch.engines.engine import Engine, EngineContext, Resources
from memagent_batch.engines.openai.client import OpenAIClient
from memagent_batch.engines.openai.engine import OpenAIEngine
from memagent_batch.engines.openai.protocol import NEUTRAL


class OpenAI(OpenAIConfig):
    """An endpoint with its knobs."""

    kind: ClassVar[str] = "openai"
    secrets: ClassVar[frozenset[str]] = frozenset({"api_key", "headers"})
    has_weights: ClassVar[bool] = False
    first_step: ClassVar[str] = "asking the endpoint"

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        OpenAIClient(self)
        return OpenAIEngine(
            self,
            model=context.model,
            window_tokens=context.window_tokens,
            sampling=context.sampling,
            tokenizer=context.load_tokenizer(),
        )

    def identity(self) -> Mapping[str, Any]:
        """The fields of its requests."""
        return {"kind": self.kind, "extra_body": self.extra_body, "neutral_fields": NEUTRAL}

    def resources(self) -> Resources:
        """No GPU: it is elsewhere."""
        return Resources()
