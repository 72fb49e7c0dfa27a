"""The API that takes messages of Anthropic: `POST /messages`. What it answers becomes what a chat API would."""

from collections.abc import Mapping
from typing import Annotated, ClassVar

from pydantic import BaseModel, BeforeValidator, JsonValue, ValidationError

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.errors import EngineStartError
from memagent_batch.loop.engines.engine import EngineContext
from memagent_batch.loop.engines.openai.api import ADDRESS_REMEDY, CONTENT_FILTER, Completions, Count
from memagent_batch.loop.engines.openai.chat import ChatApi, ChatCompletions
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import FinishReason

STOP_REASONS = {
    "end_turn": FinishReason.STOP.value,
    "stop_sequence": FinishReason.STOP.value,
    "max_tokens": FinishReason.LENGTH.value,
    "model_context_window_exceeded": FinishReason.LENGTH.value,
    "refusal": CONTENT_FILTER,
    "tool_use": "tool_calls",
}
"""The `finish_reason` of a chat API for each `stop_reason` of a message."""


class Block(BaseModel):
    """A part of a message."""

    type: str
    text: str = ""
    thinking: Annotated[str, BeforeValidator(lambda thinking: thinking or "")] = ""


class MessageUsage(BaseModel):
    """Token counts. Those of the prompt that went through a cache are counted apart."""

    input_tokens: Count | None = None
    output_tokens: Count | None = None
    cache_creation_input_tokens: Annotated[Count, BeforeValidator(lambda count: count or 0)] = 0
    cache_read_input_tokens: Annotated[Count, BeforeValidator(lambda count: count or 0)] = 0

    @property
    def prompt_tokens(self) -> int | None:
        """All tokens of the prompt; None if they are not said."""
        if self.input_tokens is None:
            return None
        return self.input_tokens + self.cache_creation_input_tokens + self.cache_read_input_tokens


class MessageReply(BaseModel):
    """Body of a successful `POST /messages`."""

    content: list[Block]
    stop_reason: str | None = None
    model: str | None = None
    usage: Annotated[MessageUsage, BeforeValidator(lambda usage: usage or {})] = MessageUsage()

    def to_chat(self, finish_reason: str) -> ChatCompletions:
        """What a chat API would have answered."""
        text = "".join(block.text for block in self.content if block.type == "text")
        thoughts = "".join(block.thinking for block in self.content if block.type == "thinking")
        usage = {
            "prompt_tokens": self.usage.prompt_tokens,
            "completion_tokens": self.usage.output_tokens,
            "prompt_tokens_details": {"cached_tokens": self.usage.cache_read_input_tokens},
        }
        message = {"content": text, "reasoning": thoughts or None}
        choices = [{"message": message, "finish_reason": finish_reason}]
        return ChatCompletions.model_validate({"choices": choices, "usage": usage, "model": self.model})


class MessagesApi(ChatApi):
    """Prompts as one user message; no guides, no seeds, no log-probabilities."""

    path = "messages"
    optional: ClassVar[Mapping[str, JsonValue]] = {}
    address_remedy = f"{ADDRESS_REMEDY}: the endpoint must take messages of Anthropic's API at /messages"

    def __init__(self, context: EngineContext, *, settings: OpenAIConfig, tokenizer: Tokenizer) -> None:
        """See `ChatApi`.

        Raises:
            EngineStartError: also if there are values for a chat template, which this API does not have.
        """
        if context.chat_template_kwargs:
            raise EngineStartError("chat_template_kwargs: openai.api messages has no chat template; leave it out")
        super().__init__(context, settings=settings, tokenizer=tokenizer)
        self._opens_thought, self._gives_logprobs = False, False
        self._optional = {}
        self._budget_name = "max_tokens"

    def _sampling_fields(self, sampling: SamplingConfig, *, seed: int) -> dict[str, JsonValue]:
        """Leaves out a `top_p` that changes nothing: recent models refuse it beside `temperature`."""
        fields: dict[str, JsonValue] = {"temperature": sampling.temperature}
        if sampling.top_p != 1:
            fields["top_p"] = sampling.top_p
        if sampling.top_k > 0:
            fields["top_k"] = sampling.top_k
        return fields

    def is_completion(self, content: bytes) -> bool:
        """Whether a successful response is meant as a message; see `Api.is_completion`."""
        return b'"stop_reason"' in content

    def parse(self, content: bytes) -> Completions | str:
        """A message as the completion of a chat API; see `Api.parse`."""
        try:
            reply = MessageReply.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]  # without the value, which may be long
            return f"that is not a message: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        finish_reason = STOP_REASONS.get(reply.stop_reason or "")
        if finish_reason is None:
            return f"that is not a whole message: its stop_reason is {reply.stop_reason!r}"
        return reply.to_chat(finish_reason)
