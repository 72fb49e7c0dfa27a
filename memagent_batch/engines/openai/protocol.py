"""The part of the OpenAI completions protocol that is used: the request's body, the responses' fields."""

from collections.abc import Iterable
from typing import Annotated

from pydantic import BaseModel, Field, JsonValue, ValidationError

from memagent_batch.config import SamplingConfig
from memagent_batch.domain.guides import num_candidates
from memagent_batch.domain.turns import Prompt

MESSAGE_CHARS = 500
"""Most characters of a server's own message that an error repeats."""

NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""Sampling fields that change nothing. Every request names them: where one is left out, vLLM's server takes the value
of the model's `generation_config.json`."""

RETURN_TOKEN_IDS = "return_token_ids"
"""vLLM's extension that returns the tokens of a completion beside its text."""

TokenId = Annotated[int, Field(ge=0, lt=2**31)]
TokenCount = Annotated[int, Field(ge=0, lt=2**31)]
Logprob = Annotated[float, Field(allow_inf_nan=False)]


class Logprobs(BaseModel):
    """Log-probabilities of a choice."""

    token_logprobs: list[Logprob | None] = []
    """One for each token."""
    top_logprobs: list[dict[str, Logprob] | None] | None = None
    """For each token those that could have stood there, by their text."""


class Choice(BaseModel):
    """One completion."""

    text: str
    """The text."""
    finish_reason: str | None = None
    """Why it ended."""
    token_ids: list[TokenId] | None = None
    """Its tokens; vLLM's extension."""
    logprobs: Logprobs | None = None
    """Present where asked for."""

    def path_logprobs(self) -> list[float] | None:
        """Log-probability of each token; None where the server gives no such numbers, or no tokens."""
        found = [value for value in (self.logprobs.token_logprobs if self.logprobs else []) if value is not None]
        return found if found and len(found) == len(self.token_ids or ()) else None

    def first_candidates(self) -> list[tuple[str, float]]:
        """Texts that could have come first, with their log-probabilities."""
        top = self.logprobs.top_logprobs if self.logprobs else None
        return list((top[0] or {}).items()) if top else []


class PromptTokensDetails(BaseModel):
    """What is known of the prompt's tokens."""

    cached_tokens: TokenCount | None = None
    """Tokens that a prefix cache held."""


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: TokenCount | None = None
    """Tokens of the prompt."""
    prompt_tokens_details: PromptTokensDetails | None = None
    """Present where the server sends it."""


class CompletionResponse(BaseModel):
    """Body of a successful `POST /completions`."""

    choices: list[Choice] = Field(min_length=1)
    """The completions; one is asked for."""
    usage: Usage | None = None
    """Token counts."""


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


def request_body(prompt: Prompt, *, model: str, sampling: SamplingConfig, seed: int) -> dict[str, JsonValue]:
    """Body of `POST /completions` with the fields that every endpoint knows. A guided turn is decoded greedily."""
    num_logprobs = num_candidates(prompt.guide, logprobs=sampling.logprobs)
    sampling = sampling if prompt.guide is None else SamplingConfig()
    body: dict[str, JsonValue] = {
        "model": model,
        "prompt": [*prompt.token_ids],
        "max_tokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.temperature > 0:
        body["seed"] = seed
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if num_logprobs is not None:
        body["logprobs"] = num_logprobs
    return body


def extension_fields(sampling: SamplingConfig) -> dict[str, JsonValue]:
    """Fields that some endpoints refuse, and that may be left out there: none of them is a knob that the user set."""
    fields = NEUTRAL | {RETURN_TOKEN_IDS: True}
    return {name: value for name, value in fields.items() if name != "top_k" or sampling.top_k <= 0}


def refused_fields(status: int, body: bytes, fields: Iterable[str]) -> list[str]:
    """The fields that a refusal names."""
    return [name for name in fields if status in (400, 422) and name.encode() in body]


def holds_choices(body: bytes) -> bool:
    """Whether a successful response is meant as a completion, and not as the page or error of a gateway."""
    return b'"choices"' in body


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
