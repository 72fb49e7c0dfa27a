"""The settings of each engine."""

from enum import StrEnum
from typing import Annotated, Self
from urllib.parse import urlsplit

from pydantic import Field, JsonValue, SecretStr, field_validator, model_validator

from memagent_batch.config.section import Count, Seconds, Section


class VllmConfig(Section):
    """vLLM inside the actor."""

    dtype: str = "auto"
    """Number format of weights and activations; `auto` takes the model's own, and float32 on a processor with AVX2 but
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
    reproducible: bool = False
    """On a GPU, vLLM's batch-invariant mode: a completion does not depend on what else is in flight. Costs speed."""
    turn_timeout_seconds: Seconds = 1800
    """An engine in which no turn makes progress for so long hangs: the actor stops and is replaced."""
    engine_args: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further arguments of vLLM's AsyncEngineArgs. Secrets such as `hf_token` are recorded as a hash."""


class EndpointApi(StrEnum):
    """What an endpoint is sent."""

    COMPLETIONS = "completions"
    """Token ids, at /completions: no text becomes a control token."""
    CHAT = "chat"
    """Messages, at /chat/completions: the server parses their text, in which the markers of chat templates are made
    harmless."""


class OpenAIConfig(Section):
    """An OpenAI-compatible endpoint."""

    api: EndpointApi = EndpointApi.COMPLETIONS
    """`completions` sends token ids to /completions, for the servers of vLLM and SGLang. `chat` sends messages to
    /chat/completions, for hosted models; then `tokenizer` must be set, if only to `tiny`."""
    base_url: str = "http://127.0.0.1:8000/v1"
    """Address up to /v1; a query in it, such as `?api-version=`, is sent with every request."""
    api_key: SecretStr | None = None
    """Bearer token; better given as MEMAGENT_OPENAI__API_KEY than in a file. Never recorded."""
    headers: dict[str, SecretStr] = Field(default_factory=dict)
    """Further headers of every request; better given as MEMAGENT_OPENAI__HEADERS (a JSON object) than in a file. Never
    recorded."""
    thinking_tokens: Annotated[int, Field(ge=0)] = 0
    """Room for hidden thoughts, tokens: added to the budget of every request of `chat`, follow-up questions included.
    Set it for models that think before they write; it counts in `window_tokens`."""
    check_window: bool = True
    """At the start, asks for words from both ends and the middle of a prompt as long as the longest of the job, so that
    a server that cuts prompts is refused."""
    timeout_seconds: Seconds = 600
    """Longest time for one response, from its request to its last byte. Fewer requests are sent at a time where answers
    take more than half of it."""
    max_retries: Annotated[int, Field(ge=0)] = 6
    """Further tries of a request, on 408, 409, 5xx, cut connections and time-outs, while the endpoint answers others;
    then its reading fails. They come after up to 1 s, then twice as long each time up to 60 s, or `Retry-After`."""
    outage_seconds: Annotated[float, Field(ge=0)] = 1800.0
    """Longest time that readings wait for an endpoint that answers nobody, or is out of quota (429). The next run reads
    what is left."""
    extra_body: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Further fields of every request body; they replace its own, and null leaves a field out. A hash is recorded."""

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
        if self.thinking_tokens and self.api is not EndpointApi.CHAT:
            raise ValueError(
                "thinking_tokens is for openai.api chat; with completions, a model thinks in its own text and needs "
                "larger policy.memory_tokens and policy.answer_tokens"
            )
        return self


class SimulatedConfig(Section):
    """An engine without a model, for measuring."""

    turn_seconds: Annotated[float, Field(ge=0)] = 0.0
    """Time of one turn, seconds."""
    completion_tokens: Count = 16
    """Tokens of each completion (fewer if the budget is smaller)."""
