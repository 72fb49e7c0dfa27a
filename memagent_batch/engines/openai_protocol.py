"""The part of the OpenAI completions protocol that is used: the request's body, the responses' fields."""

from typing import Any

from pydantic import BaseModel, Field, ValidationError

from memagent_batch.domain.turns import Prompt
from memagent_batch.settings import SamplingSettings

MESSAGE_CHARS = 500
"""Most characters of a server's own message that an error repeats."""


class Logprobs(BaseModel):
    """Log-probabilities of a choice."""

    token_logprobs: list[float | None] = []
    """One for each token."""


class Choice(BaseModel):
    """One completion."""

    text: str
    """The text."""
    finish_reason: str | None = None
    """Why it ended."""
    token_ids: list[int] | None = None
    """Its tokens; vLLM's extension."""
    logprobs: Logprobs | None = None
    """Present where asked for."""


class PromptTokensDetails(BaseModel):
    """What is known of the prompt's tokens."""

    cached_tokens: int | None = None
    """Tokens that a prefix cache held."""


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: int | None = None
    """Tokens of the prompt."""
    prompt_tokens_details: PromptTokensDetails | None = None
    """Present where the server tells."""


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


def request_body(prompt: Prompt, *, model: str, sampling: SamplingSettings, seed: int) -> dict[str, Any]:
    """Body of `POST /completions`; knobs that an endpoint may not know are left out where they change nothing."""
    body: dict[str, Any] = {
        "model": model,
        "prompt": list(prompt.token_ids),
        "max_tokens": prompt.max_tokens,
        "temperature": sampling.temperature,
        "top_p": sampling.top_p,
    }
    if sampling.temperature > 0:
        body["seed"] = seed
    if sampling.top_k > 0:
        body["top_k"] = sampling.top_k
    if sampling.logprobs:
        body["logprobs"] = 0
    return body


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
