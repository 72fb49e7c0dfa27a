"""An OpenAI-compatible endpoint as an engine. The only layer that tries again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import cached_property, partial

from pydantic import JsonValue, ValidationError

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.domain.closing.plan import VALUE
from memagent_batch.domain.guides import Guide, GuideKind
from memagent_batch.domain.prompts import Slot
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.chat_template import ClosedThoughts, ServerTemplate
from memagent_batch.engines.engine import require_fit
from memagent_batch.engines.openai.api import Api
from memagent_batch.engines.openai.chat import ChatApi
from memagent_batch.engines.openai.client import OpenAIClient
from memagent_batch.engines.openai.completions import CompletionsApi
from memagent_batch.engines.openai.guides import PROBE_TOKENS, REMEDIES, GuideForm, GuideForms
from memagent_batch.engines.openai.outage import CircuitBreaker, Failure
from memagent_batch.engines.openai.pace import Pace
from memagent_batch.engines.openai.protocol import (
    NO_THINKING_BUDGET,
    THINKING_BUDGET,
    ModelList,
    Response,
    holds_choices,
    refused_fields,
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
from memagent_batch.prompts.closing import CLOSING_PROMPTS

PROBE_SECONDS = 60.0
"""Longest wait for the one token of a probe; an endpoint that takes longer has no room for a reading either."""

START_TRIES = 3
"""Most tries of each question at the start of a run: a wrong address must show within seconds."""

KEY_REMEDY = "set MEMAGENT_OPENAI__API_KEY (or openai.headers) to a key that may use it"
THINKING_REMEDY = (
    "serve the model with vLLM and its --reasoning-parser, or set sampling.thinking_tokens to null; other APIs bound "
    "thoughts by fields of their own, such as openai.extra_body: {reasoning_effort: low}"
)
Ask = Callable[[], Awaitable[Response | Failure]]
"""One try at the endpoint."""


class OpenAIEngine:
    """An endpoint, such as `vllm serve` or a hosted model.

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
        chat_template_kwargs: Mapping[str, JsonValue] = {},
    ) -> None:
        """Takes the settings; `start` looks whether the endpoint serves the model.

        Args:
            settings: the engine's knobs.
            model: name under which the endpoint serves the model.
            window_tokens: context window, tokens.
            sampling: how tokens are drawn.
            tokenizer: what prompts were tokenised with.
            chat_template_kwargs: what the user gives the chat template, for an endpoint that takes messages.
        """
        self._settings = settings
        self._model = model
        self._window_tokens = window_tokens
        self._sampling = sampling
        self._tokenizer = tokenizer
        self._chat_template_kwargs = chat_template_kwargs
        self._backoff = Backoff(max_retries=settings.max_retries, first_seconds=settings.backoff_seconds)
        self._api: Api = (
            ChatApi(model=model, sampling=sampling, tokenizer=tokenizer, chat_template_kwargs=chat_template_kwargs)
            if settings.api is EndpointApi.CHAT
            else CompletionsApi(model=model, sampling=sampling, tokenizer=tokenizer)
        )
        self._pace = Pace(
            requests_per_minute=settings.requests_per_minute, tokens_per_minute=settings.tokens_per_minute
        )
        self._client: OpenAIClient | None = None
        self._checking = asyncio.Lock()
        self._guide_forms = GuideForms(self._obeys, forms=self._api.forms)
        self._is_checked = False
        self.outage = CircuitBreaker(self._probe, backoff=self._backoff, longest_seconds=settings.outage_seconds)
        """Whether the endpoint is away, and for how long."""

    async def start(self) -> None:
        """Opens the client, looks for the model, and asks for one token as every reading will.

        Raises:
            EngineStartError: the endpoint can't be reached, refuses the key, does not serve the model, or does not
                complete prompts through this API.
        """
        self._client = OpenAIClient(self._settings).open()
        try:
            await self._require_model(self._at_start)
            await self._require_completion(self._at_start)
        except EngineStartError:
            await self.stop()
            raise
        self._is_checked = True

    async def rejoin(self) -> None:
        """Opens the client for a run that is under way; see `RemoteEngine.rejoin`. The first request asks for a token.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        self._client = OpenAIClient(self._settings).open()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`.

        Raises:
            EngineUnavailableError: the endpoint is away for longer than `openai.outage_seconds`.
            EngineRefusedError: it refuses this request and any other one.
        """
        require_fit(prompt, window_tokens=self._window_tokens)
        await self._check_once()
        form = await self._guide_form(prompt.guide.kind) if prompt.guide else None
        body = self._body(prompt, seed=seed, form=form)
        if body is None:
            raise EngineRequestError(
                f"turn {prompt.path}: {self._open_client().name} takes guides as `{form}`, which can't say this one: "
                "its choices must be numbers",
                is_turned_away=True,
            )
        num_tokens = len(prompt.token_ids) + prompt.max_tokens
        response = await self.outage.answer(lambda: self._paced(body, num_tokens=num_tokens))
        if response.status_code != 200:
            await self._require_served()
            message = f"turn {prompt.path}: {self._open_client().refusal(response)}"
            raise EngineRequestError(message, is_turned_away=True)
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

    def _body(self, prompt: Prompt, *, seed: int, form: GuideForm | None = None) -> dict[str, JsonValue] | None:
        """The body of a request, with the user's own fields; None where the form can't say the prompt's guide."""
        body = self._api.body(prompt, seed=seed, form=form)
        if body is None:
            return None
        return {name: value for name, value in {**body, **self._settings.extra_body}.items() if value is not None}

    async def _paced(self, body: Mapping[str, JsonValue], *, num_tokens: int) -> Response | Failure:
        """One try of a reading's request, as soon as the endpoint's limits let it."""
        async with self._pace.place(num_tokens=num_tokens) as began_at:
            result = await self._ask(body)
            if isinstance(result, Response):
                self._pace.answered(result.headers)
            elif result.turned_away:
                self._pace.turned_away(began_at=began_at)
            return result

    async def _ask(
        self, body: Mapping[str, JsonValue] | None, *, longest_seconds: float | None = None
    ) -> Response | Failure:
        """One try for a completion.

        A success that holds no completion, such as a page of a gateway, counts as a failure.
        """
        client = self._open_client()
        response = await client.send("POST", self._api.path, body=body, longest_seconds=longest_seconds)
        if isinstance(response, Failure) or response.status_code != 200 or holds_choices(response.content):
            return response
        return Failure(message=f"{client.refusal(response)}; that is no completion")

    async def _ask_adapted(
        self,
        answer: Callable[[Ask], Awaitable[Response]],
        prompt: Prompt,
        *,
        form: GuideForm | None = None,
    ) -> Response:
        """Asks, and again without each field that the endpoint shows not to know."""
        while True:
            body = self._body(prompt, seed=0, form=form)
            response = await answer(partial(self._ask, body))
            refused = self._api.adapt(response)
            if not refused:
                return response
            if self._sampling.logprobs:
                raise EngineStartError(
                    f"{self._open_client().refusal(response)}; without {' and '.join(refused)} it is not known what "
                    "the recorded log-probabilities belong to: serve the model with vLLM, or record none "
                    "(sampling.logprobs=false; `memagent collect` needs them)"
                )

    def _probe_prompt(self) -> Prompt:
        token_ids = self._tokenizer.encode("Are you there?")
        return Prompt(path="probe", kind="probe", token_ids=token_ids, max_tokens=self._api.probe_tokens)

    @cached_property
    def _guided_token_ids(self) -> list[int]:
        """A value turn as readings ask it: a guide may be obeyed behind a chat template only."""
        own = self._tokenizer.chat_template
        tokens = self._tokenizer.closing_tokens(
            CLOSING_PROMPTS,
            chat_template_kwargs=self._chat_template_kwargs,
            template=ClosedThoughts(
                template=ServerTemplate(own=own) if self._settings.api is EndpointApi.CHAT else own,
                has_tags=self._tokenizer.ends_thoughts,
            ),
        )
        texts = {Slot.QUESTION: "Are you there?", Slot.MEMORY: "Yes.", Slot.ANSWER: "Yes.", Slot.FORM: "Write it."}
        return tokens.templates[VALUE].fill({slot: self._tokenizer.encode(text) for slot, text in texts.items()})

    async def _probe(self) -> Failure | None:
        """Asks for next to nothing, with all fields of a real request; None where there is an answer of any kind."""
        result = await self._ask(self._body(self._probe_prompt(), seed=0), longest_seconds=PROBE_SECONDS)
        return result if isinstance(result, Failure) else None

    async def _require_served(self) -> None:
        """Returns after a refusal that concerns one request; raises for one that concerns all, as with an expired key.

        Raises:
            EngineRefusedError: a probe is refused too.
        """
        body = self._body(self._probe_prompt(), seed=0)
        response = await self.outage.answer(lambda: self._ask(body))
        if response.status_code != 200:
            raise EngineRefusedError(
                f"{self._open_client().refusal(response)}; {self._remedy(response)}, then run the same command again"
            )

    def _remedy(self, response: Response) -> str:
        if refused_fields(response, [THINKING_BUDGET]):
            return THINKING_REMEDY
        return KEY_REMEDY if response.status_code in (401, 403) else self._api.remedy(response)

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

    async def _at_start(self, send: Ask) -> Response:
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

    async def _require_model(self, answer: Callable[[Ask], Awaitable[Response]]) -> None:
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

    async def _require_completion(self, answer: Callable[[Ask], Awaitable[Response]]) -> None:
        """Asks for next to nothing as every reading will, and finds out which fields the endpoint refuses."""
        prompt = self._probe_prompt()
        response = await self._ask_adapted(answer, prompt)
        if response.status_code != 200:
            raise EngineStartError(f"{self._open_client().refusal(response)}; {self._remedy(response)}")
        try:
            self._completion(response, prompt=prompt)
        except EngineRequestError as error:
            raise EngineStartError(f"{error}; no reading could be trusted") from error
        if self._sampling.thinking_tokens is not None:
            await self._require_thinking_budget(answer, prompt)

    async def _require_thinking_budget(self, answer: Callable[[Ask], Awaitable[Response]], prompt: Prompt) -> None:
        """Sends a budget that can't be: an endpoint that answers does not look at it."""
        body = {**(self._body(prompt, seed=0) or {}), THINKING_BUDGET: NO_THINKING_BUDGET}
        if (await answer(partial(self._ask, body))).status_code == 200:
            raise EngineStartError(f"{self._open_client().name} passes over {THINKING_BUDGET}; {THINKING_REMEDY}")

    async def _guide_form(self, kind: GuideKind) -> GuideForm:
        """The field by which the endpoint obeys guides of this kind.

        Raises:
            EngineRefusedError: it obeys none.
        """
        form = await self._guide_forms.of(kind)
        if form is None:
            raise EngineRefusedError(
                f"{self._open_client().name} does not keep completions to a {kind.value}, neither by "
                f"{' nor by '.join(self._api.forms)}; {REMEDIES[kind]}"
            )
        return form

    async def _obeys(self, guide: Guide, form: GuideForm) -> bool:
        """Whether a completion keeps to a guide that is sent in this form."""
        prompt = replace(self._probe_prompt(), token_ids=self._guided_token_ids, max_tokens=PROBE_TOKENS, guide=guide)
        if self._body(prompt, seed=0, form=form) is None:
            return False
        response = await self._ask_adapted(self.outage.answer, prompt, form=form)
        try:
            return response.status_code == 200 and guide.allows(
                self._completion(response, prompt=prompt, form=form).text
            )
        except EngineRequestError:
            return False

    def _completion(self, response: Response, *, prompt: Prompt, form: GuideForm | None = None) -> Completion:
        """The response as a completion of the prompt, whose guide was sent in this form; see `Api.completion`."""
        turn = f"turn {prompt.path}: {self._open_client().name}"
        return self._api.completion(response, prompt=prompt, turn=turn, form=form)
