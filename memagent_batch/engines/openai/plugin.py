"""An OpenAI-compatible endpoint as a plug-in."""

from collections.abc import Mapping
from typing import Any, ClassVar

from memagent_batch.config.engines import EndpointApi, OpenAIConfig
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
            EngineStartError: the address, the key or a header can't work, or log-probabilities are wanted of messages.
        """
        OpenAIClient(self)
        return OpenAIEngine(
            self,
            model=context.model,
            window_tokens=context.window_tokens,
            sampling=context.sampling,
            tokenizer=context.load_tokenizer(),
            chat_template_kwargs=context.chat_template_kwargs,
        )

    def identity(self) -> Mapping[str, Any]:
        """Its API, where texts are parsed there, and the fields of its requests."""
        api = {"api": self.api.value} if self.takes_messages else {}
        return {"kind": self.kind, "extra_body": self.extra_body, "neutral_fields": NEUTRAL, **api}

    @property
    def takes_messages(self) -> bool:
        """Whether the server wraps prompts into its chat template; see `MessageEngineConfig`."""
        return self.api is EndpointApi.CHAT

    @property
    def ends_thoughts(self) -> bool:
        """Its server may; that is asked before the run. See `ThinkingEngineConfig`."""
        return True

    def resources(self) -> Resources:
        """No GPU: it is elsewhere."""
        return Resources()
