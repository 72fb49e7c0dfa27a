"""The settings of each engine."""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, SecretStr, field_validator, model_validator

from memagent_batch.config.section import Count, Seconds, Section


class VllmConfig(Section):
    """vLLM inside the actor."""

    dtype: str = "auto"
    """Number format of weights and activations. `auto` takes the model's own, or float32 on a processor with AVX2 but
    not AVX-512."""
    tensor_parallel_size: Count = 1
    """GPUs that share each layer."""
    pipeline_parallel_size: Count = 1
    """Groups of GPUs that share the layers."""
    gpu_memory_utilization: Annotated[float, Field(gt=0, le=1)] = 0.9
    """Share of a GPU's memory for weights and KV cache."""
    cpu_kv_cache_gib: Count = 2
    """KV cache if vLLM runs on CPU, GiB a replica."""
    max_num_seqs: Count = 256
    """Most requests in one engine step."""
    enforce_eager: bool = False
    """Run the model without compiling it: the engine starts a minute earlier or more, and reads more slowly. On CPU
    compiling needs a C++ compiler."""
    reproducible: bool = False
    """vLLM's batch-invariant mode, on a GPU: completions do not depend on what else is in flight."""
    turn_timeout_seconds: Seconds = 1800
    """If no turn of an engine makes progress for so long, it counts as hung: the actor stops and is replaced."""
    engine_args: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further arguments of vLLM's AsyncEngineArgs."""


BATCH_ENGINE = "openai-batch"
ENDPOINT_ENGINES = ("openai", BATCH_ENGINE)
"""Engines whose settings are those of `openai`."""


class EndpointApi(StrEnum):
    """What an endpoint is sent."""

    COMPLETIONS = "completions"
    """Token ids, at /completions: no text becomes a control token."""
    CHAT = "chat"
    """Messages, at /chat/completions: the server parses their text, in which the markers of chat templates are made
    harmless."""
    MESSAGES = "messages"
    """The same for Anthropic's API, at /messages."""


class OpenAIConfig(Section):
    """An OpenAI-compatible endpoint."""

    api: EndpointApi = EndpointApi.COMPLETIONS
    """`completions` sends token ids, for servers of vLLM and SGLang. `chat` sends messages, for hosted models;
    `messages` is for Anthropic. Both need a `tokenizer`, such as `tiny`."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address up to /v1. A query, such as `?api-version=`, is sent with every request."""
    api_key: SecretStr | None = None
    """Bearer token, or Anthropic's key; better given as MEMAGENT_OPENAI__API_KEY. Never recorded."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of every request; better given as MEMAGENT_OPENAI__HEADERS (JSON). Never recorded."""
    thinking_tokens: Annotated[int, Field(ge=0)] = 0
    """Extra room for hidden thoughts in every request of `chat` and `messages`, tokens; part of `window_tokens`."""
    check_window: bool = True
    """Ask at the start for words from a prompt as long as the longest of the job, and refuse a server that cuts it."""
    timeout_seconds: Seconds = 600
    """Longest time for one response, up to its last byte."""
    max_retries: Annotated[int, Field(ge=0)] = 6
    """Further tries of a request (after 408, 409, 5xx, cut connections, time-outs) while the endpoint answers others.
    The pause doubles from up to 1 s to 60 s, or is `Retry-After`."""
    outage_seconds: Annotated[float, Field(ge=0)] = 1800.0
    """How long readings wait for an endpoint that does not answer or is out of quota (429). Then the next run reads
    them."""
    requests_per_minute: Count | None = None
    """Most requests in a minute, over all replicas; null for no limit of your own."""
    tokens_per_minute: Count | None = None
    """Most tokens in a minute, over all replicas: of prompts, and of completions at their full budgets."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further fields of every request body. They replace its own, and null leaves one out."""

    @field_validator("base_url")
    @classmethod
    def _check_base_url(cls, url: str) -> str:
        try:
            _ = urlsplit(url).port
        except ValueError:  # its message quotes a part of the password
            raise ValueError("is not a URL; write / and @ of a password as %2F and %40") from None
        return url

    @model_validator(mode="after")
    def _check_thinking(self) -> Self:
        if self.thinking_tokens and self.api is EndpointApi.COMPLETIONS:
            raise ValueError(
                "thinking_tokens is for openai.api chat and messages; with completions, a model thinks in its own text "
                "and needs larger policy.memory_tokens and policy.answer_tokens"
            )
        return self


class SimulatedConfig(Section):
    """An engine without a model, for measuring."""

    turn_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Time of one turn, seconds."""
    completion_tokens: Count = 16
    """Tokens of each completion, if the budget allows."""
