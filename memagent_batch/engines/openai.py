"""An OpenAI-compatible endpoint as an engine: token ids go to `/completions`. The only layer that tries again."""

import asyncio
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import httpx
from pydantic import ValidationError

from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import require_fit
from memagent_batch.engines.openai_protocol import (
    Choice,
    CompletionResponse,
    ModelList,
    error_message,
    request_body,
)
from memagent_batch.engines.retries import Backoff, is_retried, parse_retry_after
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.errors import EngineDeadError, EngineRequestError, EngineStartError
from memagent_batch.settings import OpenAISettings, SamplingSettings

CONNECT_SECONDS = 10.0
"""Longest wait for a connection; more means that nobody listens there."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Failure:
    """A try that another one may mend."""

    error: EngineDeadError | EngineRequestError
    """What is raised if no try is left."""
    retry_after_seconds: float | None = None
    """The pause that the endpoint asked for, seconds."""


class OpenAIEngine:
    """An endpoint that takes token-id prompts at /v1/completions, such as `vllm serve`."""

    def __init__(
        self,
        settings: OpenAISettings,
        *,
        model: str,
        window_tokens: int,
        sampling: SamplingSettings,
        tokenizer: Tokenizer,
    ) -> None:
        """Takes the settings; `start` looks whether the endpoint serves the model.

        Args:
            settings: the engine's knobs.
            model: name under which the endpoint serves the model.
            window_tokens: context window, tokens.
            sampling: how tokens are drawn.
            tokenizer: the served model's, for endpoints that return text without token ids.
        """
        self._settings = settings
        self._model = model
        self._window_tokens = window_tokens
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._key = settings.api_key.get_secret_value() if settings.api_key else ""
        self._backoff = Backoff(max_retries=settings.max_retries, first_seconds=settings.backoff_seconds)
        self._free = asyncio.Semaphore(settings.max_concurrency)
        self._extensions: dict[str, Any] = {"return_token_ids": True}
        self._client: httpx.AsyncClient | None = None

    async def start(self) -> None:
        """Opens the client and asks the endpoint for its models.

        Raises:
            EngineStartError: the endpoint can't be reached, refuses the key, or does not serve the model.
        """
        self._client = self._new_client()
        try:
            response = await self._send("GET", "models")
        except (EngineDeadError, EngineRequestError) as error:
            raise EngineStartError(f"{error}; check that it runs, and openai.base_url (up to /v1)") from error
        if response.status_code in (401, 403):
            raise EngineStartError(self._said(response) + "; set MEMAGENT_OPENAI__API_KEY to a key that may use it")
        if response.status_code != 200:
            raise EngineStartError(self._said(response) + "; openai.base_url must lead to an OpenAI API, up to /v1")
        self._require_model(response)

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`."""
        require_fit(prompt, window_tokens=self._window_tokens)
        body = request_body(prompt, model=self._model, sampling=self._sampling, seed=seed)
        async with self._free:
            began = time.monotonic()
            response = await self._post(body)
            seconds = time.monotonic() - began
        if response.status_code != 200:
            raise EngineRequestError(f"turn {prompt.path}: {self._said(response)}")
        return self._completion(response, prompt=prompt, seconds=seconds)

    async def stop(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.aclose()

    def _new_client(self) -> httpx.AsyncClient:
        if not (self._key.isascii() and self._key.isprintable()):
            raise EngineStartError("openai.api_key holds characters that no HTTP header can carry; set it anew")
        url = self._settings.base_url.rstrip("/")
        if not url.startswith(("http://", "https://")):
            raise EngineStartError("openai.base_url must begin with http:// or https://")
        return httpx.AsyncClient(
            base_url=url,
            headers={"Authorization": f"Bearer {self._key}"} if self._key else {},
            timeout=httpx.Timeout(self._settings.timeout_seconds, connect=CONNECT_SECONDS),
            limits=httpx.Limits(max_connections=self._settings.max_concurrency),
        )

    def _require_model(self, response: httpx.Response) -> None:
        try:
            models = {model.id: model for model in ModelList.model_validate_json(response.content).data}
        except ValidationError as error:
            raise EngineStartError(f"{self._where()} does not answer GET /models as an OpenAI API does") from error
        if self._model not in models:
            served = ", ".join(sorted(models)) or "none"
            raise EngineStartError(f"{self._where()} does not serve the model {self._model}; it serves: {served}")
        window = models[self._model].max_model_len
        if window is not None and window < self._window_tokens:
            raise EngineStartError(
                f"{self._where()} serves {self._model} with a window of {window} tokens, below "
                f"window_tokens={self._window_tokens}; lower window_tokens or serve it with a longer one"
            )

    async def _post(self, body: dict[str, Any]) -> httpx.Response:
        """The response to a completion request; a field that only vLLM knows is dropped for good where refused."""
        extensions = self._extensions
        response = await self._send("POST", "completions", body=body | extensions | self._settings.extra_body)
        if extensions and response.status_code in (400, 422) and b"return_token_ids" in response.content:
            self._extensions = {}
            return await self._send("POST", "completions", body=body | self._settings.extra_body)
        return response

    async def _send(self, method: str, path: str, *, body: dict[str, Any] | None = None) -> httpx.Response:
        """The first response that is no passing failure.

        Raises:
            EngineDeadError: no connection, at no try.
            EngineRequestError: all tries ended in a passing failure, the last one in a response or a time-out.
        """
        if self._client is None:
            raise EngineDeadError("the endpoint's client is not open: it was not started, or was stopped")
        attempt = 0
        while True:
            result = await self._try(self._client, method, path, body=body)
            if isinstance(result, httpx.Response):
                return result
            pause = self._backoff.pause_seconds(attempt, retry_after_seconds=result.retry_after_seconds)
            if pause is None:
                raise type(result.error)(f"{result.error} ({attempt + 1} tries)")
            attempt += 1
            await asyncio.sleep(pause)

    async def _try(
        self, client: httpx.AsyncClient, method: str, path: str, *, body: dict[str, Any] | None
    ) -> httpx.Response | _Failure:
        """One try; the place where httpx's errors and the passing statuses become ours."""
        try:
            response = await client.request(method, path, json=body)
        except (httpx.ReadTimeout, httpx.WriteTimeout):
            seconds = self._settings.timeout_seconds
            return _Failure(error=EngineRequestError(f"{self._where()} gave no answer within {seconds:g} s"))
        except httpx.TransportError as error:
            return _Failure(error=EngineDeadError(f"{self._where()} can't be reached: {type(error).__name__}: {error}"))
        if not is_retried(response.status_code):
            return response
        return _Failure(
            error=EngineRequestError(self._said(response)),
            retry_after_seconds=parse_retry_after(response.headers.get("Retry-After"), now=datetime.now(UTC)),
        )

    def _completion(self, response: httpx.Response, *, prompt: Prompt, seconds: float) -> Completion:
        try:
            body = CompletionResponse.model_validate_json(response.content)
        except ValidationError as error:
            raise EngineRequestError(f"turn {prompt.path}: {self._said(response)}; that is no completion") from error
        choice, usage = body.choices[0], body.usage
        if choice.finish_reason not in tuple(FinishReason):
            raise EngineRequestError(f"turn {prompt.path}: {self._where()} ended it with `{choice.finish_reason}`")
        token_ids = self._tokenizer.encode(choice.text) if choice.token_ids is None else choice.token_ids
        details = usage.prompt_tokens_details if usage else None
        return Completion(
            token_ids=token_ids,
            text=choice.text,
            finish_reason=FinishReason(choice.finish_reason),
            logprobs=_logprobs(choice, num_tokens=len(token_ids)) if self._sampling.logprobs else None,
            num_prompt_tokens=(usage.prompt_tokens if usage else None) or len(prompt.token_ids),
            num_cached_prompt_tokens=(details.cached_tokens if details else None) or 0,
            engine_seconds=seconds,
        )

    def _where(self) -> str:
        """The endpoint for messages, without a password that its address may hold."""
        return f"the endpoint {httpx.URL(self._settings.base_url).copy_with(userinfo=b'')}"

    def _said(self, response: httpx.Response) -> str:
        """A refusal in the server's own words; the key, should it repeat it, taken out."""
        message = error_message(response.content)
        if self._key:
            message = message.replace(self._key, "***")
        return f"{self._where()} answered {response.status_code}: {message}"


def _logprobs(choice: Choice, *, num_tokens: int) -> list[float]:
    """Log-probability of each token.

    Raises:
        EngineRequestError: the server sent another number of them, or no tokens to which they belong.
    """
    logprobs = [value for value in (choice.logprobs.token_logprobs if choice.logprobs else []) if value is not None]
    if len(logprobs) != num_tokens:
        raise EngineRequestError(
            f"the endpoint sent {len(logprobs)} logprobs for {num_tokens} tokens; use one that returns token ids, "
            "such as vLLM's, or set sampling.logprobs=false"
        )
    return logprobs
