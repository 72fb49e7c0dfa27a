"""An OpenAI-compatible endpoint as an engine. The only layer that tries again."""

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import JsonValue, PrivateAttr, ValidationError

from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.domain.follow_ups.prompts import FOLLOW_UP_TEXTS, VALUE
from memagent_batch.domain.guides import Guide, GuideKind
from memagent_batch.domain.prompts import Slot
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.engines.engine import Engine, EngineContext, require_fit
from memagent_batch.engines.openai.chat import ChatApi
from memagent_batch.engines.openai.completions import CompletionsApi
from memagent_batch.engines.openai.outage import CircuitBreaker, Failure, Pace, pause_seconds
from memagent_batch.engines.openai.protocol import (
    NEUTRAL,
    PROBE_TOKENS,
    PROBES,
    REMEDIES,
    Api,
    GuideForm,
    ModelList,
    Response,
    holds_choices,
)
from memagent_batch.errors import EngineRefusedError, EngineRequestError, EngineStartError, EngineUnavailableError
from memagent_batch.tokens.chat_template import ServerTemplate
from memagent_batch.tokens.tokenizer import Tokenizer

if TYPE_CHECKING:
    from memagent_batch.engines.openai.client import OpenAIClient

PROBE_SECONDS = 60.0
"""Longest wait for the one token of a probe; an endpoint that takes longer has no room for a reading either."""

START_TRIES = 3
"""Most tries of each question at the start of a run: a wrong address must show within seconds."""

KEY_REMEDY = "set MEMAGENT_OPENAI__API_KEY (or openai.headers) to a key that may use it"
Ask = Callable[[], Awaitable[Response | Failure]]


class OpenAIEngine(OpenAIConfig, Engine):
    """An endpoint, such as `vllm serve` or a hosted model.

    That the endpoint is away never means a dead engine: every request waits for it; see `CircuitBreaker`.
    """

    kind: ClassVar[str] = "openai"
    secrets: ClassVar[frozenset[str]] = frozenset({"api_key", "headers"})
    takes_guides: ClassVar[bool] = True
    first_step: ClassVar[str] = "asking the endpoint"

    _context: EngineContext = PrivateAttr()
    _tokenizer: Tokenizer = PrivateAttr()
    _api: Api = PrivateAttr()
    _pace: Pace = PrivateAttr()
    _client: "OpenAIClient" = PrivateAttr()
    _outage: CircuitBreaker = PrivateAttr()
    _guide_forms: dict[GuideKind, GuideForm] = PrivateAttr(default_factory=dict)
    _checking: asyncio.Lock = PrivateAttr()
    _is_checked: bool = PrivateAttr(False)

    def open(self, context: EngineContext) -> Self:
        """Takes what it reads with; `start` looks whether the endpoint serves the model.

        Raises:
            EngineStartError: the address, the key or a header can't work, or log-probabilities are wanted of messages.
        """
        from memagent_batch.engines.openai.client import OpenAIClient  # aiohttp: runs without an endpoint need none

        self._context, self._tokenizer = context, context.load_tokenizer()
        self._client = OpenAIClient(self)
        self._api = (ChatApi if self.takes_messages else CompletionsApi)(context, tokenizer=self._tokenizer)
        self._pace, self._checking = Pace(), asyncio.Lock()
        self._outage = CircuitBreaker(self._probe, max_retries=self.max_retries, longest_seconds=self.outage_seconds)
        return self

    def identity(self) -> Mapping[str, Any]:
        """Its API, if texts are parsed there, and the fields of its requests."""
        api = {"api": self.api.value} if self.takes_messages else {}
        return {"kind": self.kind, "extra_body": self.extra_body, "neutral_fields": NEUTRAL, **api}

    @property
    def takes_messages(self) -> bool:
        """Whether the server wraps prompts into its chat template."""
        return self.api is EndpointApi.CHAT

    @property
    def away_seconds(self) -> float:
        """How long the endpoint has been away; 0 if it answers."""
        return self._outage.away_seconds

    @property
    def away_reason(self) -> str:
        """The last failure that showed it."""
        return self._outage.failure

    async def start(self) -> None:
        """Opens the client, looks for the model, and asks for one token as every reading will.

        Raises:
            EngineStartError: the endpoint can't be reached, refuses the key, does not serve the model, or does not
                complete prompts through this API.
        """
        self._client.open()
        try:
            await self._require_model(self._at_start)
            await self._require_completion(self._at_start)
        except EngineStartError:
            await self.stop()
            raise
        self._is_checked = True

    async def rejoin(self) -> None:
        """Opens the client for a run in progress; see `Engine.rejoin`. The first request asks for a token.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        self._client.open()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`.

        Raises:
            EngineUnavailableError: the endpoint is away for longer than `openai.outage_seconds`.
            EngineRefusedError: it refuses this request and any other one.
        """
        require_fit(prompt, window_tokens=self._context.window_tokens)
        await self._check_once()
        form = await self._guide_form(prompt.guide.kind) if prompt.guide else None
        body = self._body(prompt, seed=seed, form=form)
        response = await self._outage.answer(lambda: self._paced(body))
        if response.status_code != 200:
            await self._require_served()
            raise EngineRequestError(f"turn {prompt.path}: {self._client.refusal(response)}")
        return self._completion(response, prompt=prompt, form=form)

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """Asks for a text that no model writes of itself, under a guide of each kind; see `Engine`.

        After `rejoin` the first request of each kind asks, and waits out an outage.
        """
        if not self._is_checked:
            return
        for kind in sorted(kinds):
            try:
                await self._guide_form(kind)
            except EngineRefusedError as error:
                raise EngineStartError(str(error)) from error

    async def stop(self) -> None:
        """Closes the connections."""
        await self._client.close()

    def _body(self, prompt: Prompt, *, seed: int, form: GuideForm | None = None) -> dict[str, JsonValue]:
        body = self._api.body(prompt, seed=seed, form=form) | self.extra_body
        return {name: value for name, value in body.items() if value is not None}

    async def _paced(self, body: Mapping[str, JsonValue]) -> Response | Failure:
        """One try of a reading's request, as soon as the endpoint's limits let it."""
        async with self._pace.place() as began_at:
            result = await self._ask(body)
            if isinstance(result, Response):
                self._pace.answered()
            elif result.turned_away:
                self._pace.turned_away(began_at=began_at)
            return result

    async def _ask(self, body: Mapping[str, JsonValue], *, longest_seconds: float | None = None) -> Response | Failure:
        """One try for a completion.

        A success that holds no completion, such as a page of a gateway, counts as a failure.
        """
        client = self._client
        response = await client.send("POST", self._api.path, body=body, longest_seconds=longest_seconds)
        if isinstance(response, Failure) or response.status_code != 200 or holds_choices(response.content):
            return response
        return Failure(message=f"{client.refusal(response)}; that is not a completion")

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
            if self._context.sampling.logprobs:
                raise EngineStartError(
                    f"{self._client.refusal(response)}; without {' and '.join(refused)} it is not known what "
                    "the recorded log-probabilities belong to: serve the model with vLLM, or record none "
                    "(sampling.logprobs=false; `memagent collect` needs them)"
                )

    def _probe_prompt(self) -> Prompt:
        token_ids = self._tokenizer.encode("Are you there?")
        return Prompt(path="probe", kind="probe", token_ids=token_ids, max_tokens=self._api.probe_tokens)

    def _guided_token_ids(self) -> list[int]:
        """A value turn as readings ask it: a guide may be obeyed behind a chat template only."""
        own = self._tokenizer.chat_template
        tokens = self._tokenizer.follow_up_tokens(
            FOLLOW_UP_TEXTS,
            chat_template_kwargs=self._context.chat_template_kwargs,
            template=ServerTemplate(tokenizer=own.tokenizer, model=own.model) if self.takes_messages else own,
        )
        texts = {Slot.QUESTION: "Are you there?", Slot.MEMORY: "Yes.", Slot.ANSWER: "Yes.", Slot.FORM: "Write it."}
        return tokens.templates[VALUE].fill({slot: self._tokenizer.encode(text) for slot, text in texts.items()})

    async def _probe(self) -> Failure | None:
        """Asks for next to nothing, with all fields of a real request; None if there is an answer of any kind."""
        result = await self._ask(self._body(self._probe_prompt(), seed=0), longest_seconds=PROBE_SECONDS)
        return result if isinstance(result, Failure) else None

    async def _require_served(self) -> None:
        """Returns after a refusal that concerns one request; raises for one that concerns all, as with an old key."""
        body = self._body(self._probe_prompt(), seed=0)
        response = await self._outage.answer(lambda: self._ask(body))
        if response.status_code != 200:
            raise EngineRefusedError(
                f"{self._client.refusal(response)}; {self._remedy(response)}, then run the same command again"
            )

    def _remedy(self, response: Response) -> str:
        return KEY_REMEDY if response.status_code in (401, 403) else self._api.remedy(response)

    async def _check_once(self) -> None:
        """After `rejoin`: asks for one token before the first request, as `start` does, and waits out an outage."""
        if self._is_checked:
            return
        async with self._checking:
            try:
                if not self._is_checked:
                    await self._require_model(self._outage.answer)
                    await self._require_completion(self._outage.answer)
            except EngineStartError as error:
                raise EngineRefusedError(f"{error}, then run the same command again") from error
            except EngineRequestError as error:  # a probe that fails is not a fault of the reading that waits for it
                raise EngineUnavailableError(str(error)) from error
            self._is_checked = True

    async def _at_start(self, send: Ask) -> Response:
        """The first response that is not a passing failure."""
        attempt = 0
        while isinstance(result := await send(), Failure):
            attempt += 1
            if attempt > min(START_TRIES - 1, self.max_retries):
                raise EngineStartError(
                    f"{result.message} ({attempt} tries); check that it runs, and openai.base_url (up to /v1)"
                )
            await asyncio.sleep(pause_seconds(attempt - 1, retry_after_seconds=result.retry_after_seconds))
        return result

    async def _require_model(self, answer: Callable[[Ask], Awaitable[Response]]) -> None:
        """Looks for the model in GET /models. An endpoint that has no such list is taken at its first completion."""
        client = self._client
        response = await answer(lambda: client.send("GET", "models"))
        if response.status_code in (401, 403):
            raise EngineStartError(f"{client.refusal(response)}; {KEY_REMEDY}")
        try:
            models = {model.id: model for model in ModelList.model_validate_json(response.content).data}
        except ValidationError:
            return
        if self._context.model not in models:
            served = ", ".join(sorted(models)) or "none"
            raise EngineStartError(f"{client.name} does not serve the model {self._context.model}; it serves: {served}")
        window, window_tokens = models[self._context.model].max_model_len, self._context.window_tokens
        if window is not None and window < window_tokens:
            raise EngineStartError(
                f"{client.name} serves {self._context.model} with a window of {window} tokens, below "
                f"window_tokens={window_tokens}; lower window_tokens to {window}, or serve it with a longer one"
            )

    async def _require_completion(self, answer: Callable[[Ask], Awaitable[Response]]) -> None:
        """Asks for next to nothing as every reading will, and finds out which fields the endpoint refuses."""
        prompt = self._probe_prompt()
        response = await self._ask_adapted(answer, prompt)
        if response.status_code != 200:
            raise EngineStartError(f"{self._client.refusal(response)}; {self._remedy(response)}")
        try:
            self._completion(response, prompt=prompt)
        except EngineRequestError as error:
            raise EngineStartError(f"{error}; no reading could be trusted") from error

    async def _guide_form(self, kind: GuideKind) -> GuideForm:
        """The field by which the endpoint obeys guides of this kind, found by a probe the first time; there is one."""
        async with self._checking:
            if kind in self._guide_forms:
                return self._guide_forms[kind]
            problem = ""
            for form in GuideForm:
                try:
                    if await self._obeys(PROBES[kind], form):
                        self._guide_forms[kind] = form
                        return form
                except EngineRequestError as error:
                    problem = f" ({error})"
        raise EngineRefusedError(
            f"{self._client.name} does not keep completions to a {kind.value}, neither by "
            f"{' nor by '.join(GuideForm)}{problem}; {REMEDIES[kind]}"
        )

    async def _obeys(self, guide: Guide, form: GuideForm) -> bool:
        """Whether a completion keeps to a guide that is sent in this form.

        Raises:
            EngineRequestError: there is none: the endpoint fails at it, or sends something else.
        """
        prompt = replace(self._probe_prompt(), token_ids=self._guided_token_ids(), max_tokens=PROBE_TOKENS, guide=guide)
        response = await self._ask_adapted(self._outage.answer, prompt, form=form)
        if response.status_code != 200:
            return False
        return guide.allows(self._completion(response, prompt=prompt, form=form).text)

    def _completion(self, response: Response, *, prompt: Prompt, form: GuideForm | None = None) -> Completion:
        turn = f"turn {prompt.path}: {self._client.name}"
        return self._api.completion(response, prompt=prompt, turn=turn, form=form)
