"""An OpenAI-compatible endpoint as an engine: token ids go to `/completions`. The only layer that tries again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace

import httpx
from pydantic import JsonValue, ValidationError

from memagent_batch.config import OpenAIConfig, SamplingConfig
from memagent_batch.domain.guides import Guide, GuideKind, menu_logprobs
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.engines.engine import require_fit
from memagent_batch.engines.openai.client import OpenAIClient
from memagent_batch.engines.openai.guides import PROBE_TOKENS, REMEDIES, GuideForm, GuideForms, guide_fields
from memagent_batch.engines.openai.outage import CircuitBreaker, Failure
from memagent_batch.engines.openai.protocol import (
    Choice,
    CompletionResponse,
    ModelList,
    Usage,
    extension_fields,
    first_error,
    holds_choices,
    refused_fields,
    request_body,
)
from memagent_batch.engines.openai.retries import Backoff
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.errors import (
    EngineDeadError,
    EngineRefusedError,
    EngineRequestError,
    EngineStartError,
    EngineUnavailableError,
)

PROBE_SECONDS = 60.0
"""Longest wait for the one token of a probe; an endpoint that takes longer has no room for a reading either."""

START_TRIES = 3
"""Most tries of each question at the start of a run: a wrong address must show within seconds."""

KEY_REMEDY = "set MEMAGENT_OPENAI__API_KEY (or openai.headers) to a key that may use it"
ADDRESS_REMEDY = (
    "check model and openai.base_url (up to /v1): the endpoint must take prompts of token ids at /completions, as the "
    "servers of vLLM and SGLang do; one that offers only chat can't be used"
)

NO_FIELDS: Mapping[str, JsonValue] = {}
"""Further fields of a request without a guide."""

Ask = Callable[[], Awaitable[httpx.Response | Failure]]
"""One try at the endpoint."""


class OpenAIEngine:
    """An endpoint that takes token-id prompts at /completions, such as `vllm serve`.

    That the endpoint is away never means a dead engine: every request waits for it; see `CircuitBreaker`.
    """

    def __init__(
        self,
        settings: OpenAIConfig,
        *,
        model: str,
        window_tokens: int,
        sampling: SamplingConfig,
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
        self._backoff = Backoff(max_retries=settings.max_retries, first_seconds=settings.backoff_seconds)
        self._extensions = extension_fields(sampling)
        self._client: OpenAIClient | None = None
        self._checking = asyncio.Lock()
        self._guide_forms = GuideForms(self._obeys)
        self._is_checked = False
        self.outage = CircuitBreaker(self._probe, backoff=self._backoff, longest_seconds=settings.outage_seconds)
        """Whether the endpoint is away, and for how long."""

    async def start(self) -> None:
        """Opens the client, looks for the model, and asks for one token as every reading will.

        Raises:
            EngineStartError: the endpoint can't be reached, refuses the key, does not serve the model, or does not
                complete prompts of token ids.
        """
        self._client = OpenAIClient(self._settings)
        await self._require_model(self._at_start)
        await self._require_completion(self._at_start)
        self._is_checked = True

    async def rejoin(self) -> None:
        """Opens the client for a run that is under way; see `RemoteEngine.rejoin`. The first request asks for a token.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        self._client = OpenAIClient(self._settings)

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`.

        Raises:
            EngineUnavailableError: the endpoint is away for longer than `openai.outage_seconds`.
            EngineRefusedError: it refuses this request and any other one.
        """
        require_fit(prompt, window_tokens=self._window_tokens)
        await self._check_once()
        form = await self._guide_form(prompt.guide.kind) if prompt.guide else None
        fields = guide_fields(prompt.guide, form) if prompt.guide and form else {}
        if fields is None:
            raise EngineRequestError(
                f"turn {prompt.path}: {self._open_client().name} takes guides as `{form}`, which can't say this one: "
                "its choices must be numbers"
            )
        response = await self.outage.answer(lambda: self._ask(prompt, seed=seed, fields=fields))
        if response.status_code != 200:
            await self._require_served()
            raise EngineRequestError(f"turn {prompt.path}: {self._open_client().refusal(response)}")
        return self._completion(response, prompt=prompt, form=form)

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """Asks for a text that no model writes of itself, under a guide of each kind; see `GuidedEngine`."""
        for kind in sorted(kinds):
            try:
                await self._guide_form(kind)
            except EngineRefusedError as error:
                raise EngineStartError(str(error)) from error

    async def stop(self) -> None:
        """Closes the connections."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()

    def _open_client(self) -> OpenAIClient:
        if self._client is None:
            raise EngineDeadError("the endpoint's client is not open: it was not started, or was stopped")
        return self._client

    async def _ask(
        self,
        prompt: Prompt,
        *,
        seed: int,
        fields: Mapping[str, JsonValue] = NO_FIELDS,
        longest_seconds: float | None = None,
    ) -> httpx.Response | Failure:
        """One try for a completion, with the fields of its guide.

        A success that holds no completion, such as a page of a gateway, counts as a failure.
        """
        body = request_body(prompt, model=self._model, sampling=self._sampling, seed=seed)
        client = self._open_client()
        response = await client.send(
            "POST",
            "completions",
            body={**body, **fields, **self._extensions, **self._settings.extra_body},
            longest_seconds=longest_seconds,
        )
        if isinstance(response, Failure) or response.status_code != 200 or holds_choices(response.content):
            return response
        return Failure(message=f"{client.refusal(response)}; that is no completion")

    def _probe_prompt(self) -> Prompt:
        token_ids = self._tokenizer.encode("Are you there?")
        return Prompt(path="probe", kind="probe", token_ids=token_ids, max_tokens=1)

    async def _probe(self) -> Failure | None:
        """Asks for one token, with all fields of a real request; None where there is an answer of any kind."""
        result = await self._ask(self._probe_prompt(), seed=0, longest_seconds=PROBE_SECONDS)
        return result if isinstance(result, Failure) else None

    async def _require_served(self) -> None:
        """Returns after a refusal that concerns one request; raises for one that concerns all, as with an expired key.

        Raises:
            EngineRefusedError: a probe is refused too.
        """
        response = await self.outage.answer(lambda: self._ask(self._probe_prompt(), seed=0))
        if response.status_code != 200:
            remedy = KEY_REMEDY if response.status_code in (401, 403) else ADDRESS_REMEDY
            raise EngineRefusedError(
                f"{self._open_client().refusal(response)}; {remedy}, then run the same command again"
            )

    async def _check_once(self) -> None:
        """After `rejoin`: asks for one token before the first request, as `start` does, and waits out an outage.

        Raises:
            EngineUnavailableError: the endpoint is away for longer than `openai.outage_seconds`.
            EngineRefusedError: it completes no prompts of token ids.
        """
        if self._is_checked:
            return
        async with self._checking:
            try:
                if not self._is_checked:
                    await self._require_model(self.outage.answer)
                    await self._require_completion(self.outage.answer)
            except EngineStartError as error:
                raise EngineRefusedError(f"{error}, then run the same command again") from error
            except EngineRequestError as error:  # a probe that fails is no fault of the reading that waits for it
                raise EngineUnavailableError(str(error)) from error
            self._is_checked = True

    async def _at_start(self, send: Ask) -> httpx.Response:
        """The first response that is no passing failure."""
        attempt = 0
        while isinstance(result := await send(), Failure):
            pause = self._backoff.pause_seconds(attempt, retry_after_seconds=result.retry_after_seconds)
            attempt += 1
            if pause is None or attempt == START_TRIES:
                raise EngineStartError(
                    f"{result.message} ({attempt} tries); check that it runs, and openai.base_url (up to /v1)"
                )
            await asyncio.sleep(pause)
        return result

    async def _require_model(self, answer: Callable[[Ask], Awaitable[httpx.Response]]) -> None:
        """Looks for the model in GET /models. An endpoint that has no such list is taken at its first completion."""
        client = self._open_client()
        response = await answer(lambda: client.send("GET", "models"))
        if response.status_code in (401, 403):
            raise EngineStartError(f"{client.refusal(response)}; {KEY_REMEDY}")
        try:
            models = {model.id: model for model in ModelList.model_validate_json(response.content).data}
        except ValidationError:
            return
        if self._model not in models:
            served = ", ".join(sorted(models)) or "none"
            raise EngineStartError(f"{client.name} does not serve the model {self._model}; it serves: {served}")
        window = models[self._model].max_model_len
        if window is not None and window < self._window_tokens:
            raise EngineStartError(
                f"{client.name} serves {self._model} with a window of {window} tokens, below "
                f"window_tokens={self._window_tokens}; lower window_tokens to {window}, or serve it with a longer one"
            )

    async def _require_completion(self, answer: Callable[[Ask], Awaitable[httpx.Response]]) -> None:
        """Asks for one token as every reading will, and finds out which extension fields the endpoint refuses."""
        prompt = self._probe_prompt()
        response = await answer(lambda: self._ask(prompt, seed=0))
        while refused := refused_fields(response.status_code, response.content, self._extensions):
            if self._sampling.logprobs:
                raise EngineStartError(
                    f"{self._open_client().refusal(response)}; without {' and '.join(refused)} it is not known what "
                    "the recorded log-probabilities belong to: serve the model with vLLM, or record none "
                    "(sampling.logprobs=false; `memagent collect` needs them)"
                )
            self._extensions = {name: value for name, value in self._extensions.items() if name not in refused}
            response = await answer(lambda: self._ask(prompt, seed=0))
        if response.status_code != 200:
            remedy = KEY_REMEDY if response.status_code in (401, 403) else ADDRESS_REMEDY
            raise EngineStartError(f"{self._open_client().refusal(response)}; {remedy}")
        try:
            self._completion(response, prompt=prompt)
        except EngineRequestError as error:
            raise EngineStartError(f"{error}; no reading could be trusted") from error

    async def _guide_form(self, kind: GuideKind) -> GuideForm:
        """The field by which the endpoint obeys guides of this kind.

        Raises:
            EngineRefusedError: it obeys none.
        """
        form = await self._guide_forms.of(kind)
        if form is None:
            raise EngineRefusedError(
                f"{self._open_client().name} does not keep completions to a {kind.value}, neither by "
                f"{' nor by '.join(GuideForm)}; {REMEDIES[kind]}"
            )
        return form

    async def _obeys(self, guide: Guide, form: GuideForm) -> bool:
        """Whether a completion keeps to a guide that is sent in this form."""
        fields = guide_fields(guide, form)
        if fields is None:
            return False
        prompt = replace(self._probe_prompt(), max_tokens=PROBE_TOKENS, guide=guide)
        response = await self.outage.answer(lambda: self._ask(prompt, seed=0, fields=fields))
        try:
            return response.status_code == 200 and guide.allows(
                self._completion(response, prompt=prompt, form=form).text
            )
        except EngineRequestError:
            return False

    def _text(self, choice: Choice, *, prompt: Prompt) -> str:
        """The choice's text, with the tags of thoughts, which servers leave out where they are special tokens."""
        if choice.token_ids is None or not self._tokenizer.has_thought_tags:
            return choice.text
        return self._tokenizer.continuation(choice.token_ids, after=prompt.token_ids)

    def _completion(self, response: httpx.Response, *, prompt: Prompt, form: GuideForm | None = None) -> Completion:
        """The response as a completion of the prompt, whose guide was sent in this form.

        Raises:
            EngineRequestError: it holds what can't be right: numbers out of range, a text without tokens, more tokens
                than asked for, another prompt than was sent.
        """
        turn = f"turn {prompt.path}: {self._open_client().name}"
        try:
            body = CompletionResponse.model_validate_json(response.content)
        except ValidationError as error:
            raise EngineRequestError(f"{turn} sent what is no completion: {first_error(error)}") from error
        choice, usage = body.choices[0], body.usage
        _require_plausible(choice, usage, prompt=prompt, turn=turn)
        token_ids = self._tokenizer.encode(choice.text) if choice.token_ids is None else choice.token_ids
        details = usage.prompt_tokens_details if usage else None
        return Completion(
            token_ids=token_ids,
            text=self._text(choice, prompt=prompt),
            finish_reason=FinishReason(choice.finish_reason or ""),
            logprobs=self._log_probabilities(choice, form=form, num_tokens=len(token_ids)),
            menu_logprobs=menu_logprobs(prompt.guide, choice.first_candidates())
            if form is GuideForm.STRUCTURED_OUTPUTS
            else None,
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=(details.cached_tokens if details else None) or 0,
            engine_seconds=response.elapsed.total_seconds(),
        )

    def _log_probabilities(self, choice: Choice, *, form: GuideForm | None, num_tokens: int) -> list[float] | None:
        """Log-probability of each token, where they were asked for or the engine masks before it takes them.

        Under `response_format` it is not known whether a server takes them before it masks what may not be written.
        """
        if form is GuideForm.RESPONSE_FORMAT:
            return None
        if self._sampling.logprobs:
            return _logprobs(choice, num_tokens=num_tokens)
        return None if form is None else choice.path_logprobs()


def _require_plausible(choice: Choice, usage: Usage | None, *, prompt: Prompt, turn: str) -> None:
    if choice.finish_reason not in tuple(FinishReason):
        raise EngineRequestError(f"{turn} ended it with `{choice.finish_reason}`")
    if choice.token_ids == [] and choice.text:
        raise EngineRequestError(f"{turn} sent a text without its tokens")
    if choice.token_ids is not None and len(choice.token_ids) > prompt.max_tokens:
        raise EngineRequestError(f"{turn} sent {len(choice.token_ids)} tokens where {prompt.max_tokens} were asked for")
    counted = usage.prompt_tokens if usage else None
    if counted and counted != len(prompt.token_ids):
        raise EngineRequestError(
            f"{turn} read a prompt of {counted} tokens where {len(prompt.token_ids)} were sent: it cuts prompts or "
            "adds to them; serve the model with a window of at least window_tokens, and without tokens of its own"
        )


def _logprobs(choice: Choice, *, num_tokens: int) -> list[float]:
    """Log-probability of each token.

    Raises:
        EngineRequestError: the server sent another number of them, or no tokens to which they belong.
    """
    if choice.token_ids is None:
        raise EngineRequestError(
            "the endpoint sent log-probabilities without the tokens that they belong to; use one that returns token "
            "ids, such as vLLM's, or set sampling.logprobs=false"
        )
    logprobs = [value for value in (choice.logprobs.token_logprobs if choice.logprobs else []) if value is not None]
    if len(logprobs) != num_tokens:
        raise EngineRequestError(
            f"the endpoint sent {len(logprobs)} logprobs for {num_tokens} tokens; use one that returns token ids, "
            "such as vLLM's, or set sampling.logprobs=false"
        )
    return logprobs
