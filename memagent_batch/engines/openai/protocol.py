"""What the two APIs of an OpenAI-compatible endpoint share: their base class, responses, sampling fields, errors."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Protocol

from pydantic import BaseModel, Field, JsonValue, ValidationError
from pydantic_core import from_json

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.openai.guides import GuideForm

MESSAGE_CHARS = 500
"""Most characters of a server's own message that an error repeats."""

NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""Sampling fields that change nothing. Every request names them: where one is left out, vLLM's server takes the value
of the model's `generation_config.json`."""

THINKING_BUDGET = "thinking_token_budget"
"""vLLM's extension that bounds a thought; of -1 tokens or more."""

NO_THINKING_BUDGET = -2
"""What no server takes that knows the field: one that answers passes over it."""

ADDRESS_REMEDY = "check model and openai.base_url (up to /v1)"

TokenCount = Annotated[int, Field(ge=0, lt=2**31)]
Logprob = Annotated[float, Field(allow_inf_nan=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response of an endpoint."""

    status_code: int
    content: bytes
    headers: Mapping[str, str]
    """By name, in upper or lower case."""
    elapsed_seconds: float
    """From the request to the last byte."""


class Api(Protocol):
    """One of the APIs of an OpenAI-compatible endpoint."""

    path: ClassVar[str]
    """Where requests go, below the base URL."""
    probe_tokens: ClassVar[int]
    """Budget of a request that only asks whether the endpoint answers."""
    forms: ClassVar[tuple[GuideForm, ...]]
    """How guides may be sent, in the order in which they are tried."""

    def body(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> dict[str, JsonValue] | None:
        """The body of a request; None where the form can't say the prompt's guide."""

    def adapt(self, response: Response) -> list[str]:
        """Leaves out of all further requests what this response to a probe shows to be unknown there; its names."""

    def remedy(self, response: Response) -> str:
        """What to do where this response refuses every request."""

    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """The response as a completion of the prompt, whose guide was sent in this form.

        Args:
            response: of status 200.
            prompt: what was asked.
            turn: the turn and the endpoint, for messages.
            form: how the guide was sent; None where there was none.

        Raises:
            EngineRequestError: there is no completion, or none that can be right.
        """


class PromptTokensDetails(BaseModel):
    """What is known of the prompt's tokens."""

    cached_tokens: TokenCount | None = None
    """Tokens that a prefix cache held."""


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: TokenCount | None = None
    """Tokens of the prompt."""
    completion_tokens: TokenCount | None = None
    """Tokens of the completion."""
    prompt_tokens_details: PromptTokensDetails | None = None
    """Present where the server sends it."""

    @property
    def num_cached_tokens(self) -> int:
        """Tokens of the prompt that a prefix cache held."""
        return (self.prompt_tokens_details.cached_tokens if self.prompt_tokens_details else None) or 0


class Model(BaseModel):
    """A model that is served."""

    id: str
    """Its name in requests."""
    max_model_len: int | None = None
    """Its window, tokens; vLLM's extension."""


class ModelList(BaseModel):
    """Body of a successful `GET /models`."""

    data: list[Model]
    """What is served."""


def sampling_fields(sampling: SamplingConfig, prompt: Prompt, *, seed: int) -> dict[str, JsonValue]:
    """How the tokens of a turn are drawn; those of a guided one greedily."""
    if prompt.guide is not None:
        sampling = SamplingConfig()
    fields: dict[str, JsonValue] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
    if sampling.temperature > 0:
        fields["seed"] = seed
    if sampling.top_k > 0:
        fields["top_k"] = sampling.top_k
    if sampling.thinking_tokens is not None:
        fields[THINKING_BUDGET] = sampling.thinking_tokens
    return fields


def optional_fields(sampling: SamplingConfig) -> dict[str, JsonValue]:
    """Fields that some endpoints refuse, and that may be left out there: none of them is a knob that the user set."""
    return {name: value for name, value in NEUTRAL.items() if name != "top_k" or sampling.top_k <= 0}


def refused_fields(response: Response, fields: Iterable[str]) -> list[str]:
    """The fields that a refusal names."""
    return [name for name in fields if response.status_code in (400, 422) and name.encode() in response.content]


def holds_choices(body: bytes) -> bool:
    """Whether a successful response is meant as a completion, and not as the page of a gateway, or a part of one."""
    try:
        return b'"choices"' in body and bool(from_json(body))
    except ValueError:
        return False


def first_error(error: ValidationError) -> str:
    """Where and how a body breaks the protocol; without the value, which may be long."""
    first = error.errors(include_url=False, include_input=False)[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def error_message(body: bytes) -> str:
    """What a server says went wrong, from the forms in use, shortened."""
    text = body.decode("utf-8", errors="replace").strip()
    for form in (_NestedError, _FlatError):
        try:
            text = form.model_validate_json(body).text()
        except ValidationError:
            continue
        break
    return text[:MESSAGE_CHARS] or "(no message)"


class _FlatError(BaseModel):
    message: str

    def text(self) -> str:
        return self.message


class _NestedError(BaseModel):
    error: _FlatError

    def text(self) -> str:
        return self.error.message
