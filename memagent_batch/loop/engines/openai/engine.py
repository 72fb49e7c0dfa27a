"""An OpenAI-compatible endpoint as an engine. The only layer that tries again."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, ClassVar, Self

from pydantic import JsonValue, PrivateAttr, ValidationError
from pydantic_core import from_json

from memagent_batch.config.engines import EndpointApi, OpenAIConfig
from memagent_batch.errors import EngineRefusedError, EngineRequestError, EngineStartError, EngineUnavailableError
from memagent_batch.logs import EventKind
from memagent_batch.loop.completions import after_thoughts, is_blank, why_unanswered
from memagent_batch.loop.engines.engine import Engine, EngineContext, require_fit
from memagent_batch.loop.engines.openai.api import (
    NEUTRAL,
    PROBE_TOKENS,
    PROBES,
    REMEDIES,
    Api,
    CompletionsApi,
    GuideForm,
    ModelList,
    Response,
    ServerVersion,
    model_description,
)
from memagent_batch.loop.engines.openai.chat import ChatApi
from memagent_batch.loop.engines.openai.client import OpenAIClient
from memagent_batch.loop.engines.openai.messages import MessagesApi
from memagent_batch.loop.engines.openai.outage import CircuitBreaker, Failure, pause_seconds
from memagent_batch.loop.engines.openai.pace import MinuteLimit, Pace
from memagent_batch.loop.engines.openai.window import (
    CUT_REMEDY,
    MARKED_ANSWER_TOKENS,
    MARKERS,
    SHORT_TOKENS,
    SMALL_TOKENS,
    PromptCounts,
    marked_text,
    missing_words,
)
from memagent_batch.loop.follow_ups.prompts import FOLLOW_UP_TEXTS, VALUE
from memagent_batch.loop.guides import Guide, GuideKind
from memagent_batch.loop.prompts import Slot, TokenTemplate
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt

log = logging.getLogger(__name__)

PROBE_SECONDS = 60.0
"""Longest wait for the one token of a probe; an endpoint that takes longer has no room for a reading either."""

DESCRIBE_SECONDS = 10.0
"""Longest wait for each answer of an endpoint about itself, which a run can do without."""

START_TRIES = 3
"""Most tries of each question at the start of a run: a wrong address must show within seconds."""

EMPTY_TRIES = 3
"""Most requests for a completion that ends by itself and says nothing: it may pass."""

CUT_TRIES = 3
"""Most requests for a turn whose replies say that a part of the prompt was read."""

REFUSED_PROBES = 5
"""Probes that are refused in a row, with back-off, before the endpoint counts as one that refuses everything: a gateway
with several servers behind it may refuse some requests."""

KEY_STATUSES = (401, 403)
KEY_REMEDY = "set MEMAGENT_OPENAI__API_KEY (or openai.headers) to a key that may use it"
THINKS_REMEDY = "a model that thinks needs room for it: set openai.thinking_tokens"
Send = Callable[[], Awaitable[Response | Failure]]
"""One try of a request."""


APIS: Mapping[EndpointApi, type[Api]] = {
    EndpointApi.COMPLETIONS: CompletionsApi,
    EndpointApi.CHAT: ChatApi,
    EndpointApi.MESSAGES: MessagesApi,
}


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
    _client: OpenAIClient = PrivateAttr()
    _pace: Pace = PrivateAttr()
    _outage: CircuitBreaker = PrivateAttr()
    _counts: PromptCounts = PrivateAttr()
    _guide_forms: dict[GuideKind, GuideForm] = PrivateAttr(default_factory=dict)
    _checking: asyncio.Lock = PrivateAttr()
    """Held while the endpoint is checked, or is asked for the form of a guide."""
    _is_starting: bool = PrivateAttr(False)
    _is_checked: bool = PrivateAttr(False)
    _named_model: str | None = PrivateAttr(None)
    """The model that the endpoint names in its replies."""

    def open(self, context: EngineContext) -> Self:
        """Takes what it reads with; `start` looks whether the endpoint serves the model.

        Raises:
            EngineStartError: the address, the key or a header can't work, or log-probabilities are wanted of messages.
        """
        self._context, self._tokenizer = context, context.load_tokenizer()
        self._client = OpenAIClient(self)
        self._api = APIS[self.api](context, settings=self, tokenizer=self._tokenizer)
        limits = [
            (each or math.inf) / context.num_replicas for each in (self.requests_per_minute, self.tokens_per_minute)
        ]
        self._pace = Pace(longest_seconds=self.timeout_seconds, limits=[*map(MinuteLimit, limits)])
        self._checking = asyncio.Lock()
        self._counts = PromptCounts(self._count_tokens, probe_tokens=self._api.probe_tokens)
        self._outage = CircuitBreaker(self._probe, max_retries=self.max_retries, longest_seconds=self.outage_seconds)
        return self

    def identity(self) -> Mapping[str, Any]:
        """Its API, if texts are parsed there, the fields of its requests, and any room for thoughts."""
        api: dict[str, Any] = {"api": self.api.value} if self.takes_messages else {}
        if self.thinking_tokens:
            api["thinking_tokens"] = self.thinking_tokens
        return {"kind": self.kind, "extra_body": self.extra_body, "neutral_fields": NEUTRAL, **api}

    @property
    def takes_messages(self) -> bool:
        """Whether the server wraps prompts into its chat template."""
        return self.api is not EndpointApi.COMPLETIONS

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
            EngineStartError: the endpoint can't be reached, refuses the key, does not serve the model, does not
                complete prompts through this API, or cuts them.
        """
        self._client.open()
        self._is_starting = True
        try:
            await self._check_endpoint()
        except (EngineRefusedError, EngineStartError) as error:
            await self.stop()
            raise EngineStartError(str(error)) from error
        finally:
            self._is_starting = False

    async def rejoin(self) -> None:
        """Opens the client for a run in progress; see `Engine.rejoin`. The first request checks the endpoint.

        Raises:
            EngineStartError: the address, the key or a header can't work.
        """
        self._client.open()

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`.

        Raises:
            EngineUnavailableError: the endpoint is away for longer than `openai.outage_seconds`.
            EngineRefusedError: it refuses this request and any other one, or cuts prompts.
        """
        require_fit(prompt, window_tokens=self._context.window_tokens - self.thinking_tokens)
        if not self._is_checked:
            await self._check_in_run()
        guide = prompt.guide
        form = await self._guide_form(guide.kind) if guide else None
        send = partial(self._try_turn, prompt, seed=seed, form=form)
        for _ in range(EMPTY_TRIES):  # an empty completion may be a passing fault
            completion = await self._answer_whole(prompt, send, form=form)
            reason, budget = completion.finish_reason, prompt.max_tokens
            why_empty = why_unanswered(completion.text, finish_reason=reason, max_tokens=budget, guide=guide)
            if why_empty is None or reason is FinishReason.LENGTH:
                break
        if guide is not None and reason is not FinishReason.LENGTH and not _keeps_form(completion.text, guide):
            kind = guide.kind
            raise EngineRequestError(
                f"{self._turn(prompt)} did not keep the completion to the {kind} that it was asked for"
            )
        return completion

    def check_guides(self, kinds: Collection[GuideKind]) -> None:
        """Checks that the API takes guides; see `Engine.check_guides`.

        Raises:
            EngineStartError: it does not.
        """
        if kinds and self.api is EndpointApi.MESSAGES:
            raise EngineStartError(
                f"openai.api: {self.api} keeps no completion to a form, and typed questions and follow-up questions "
                f"need that ({', '.join(sorted(kinds))}); leave out answer_type and follow_ups, or use another api"
            )

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

    async def describe_server(self) -> Mapping[str, JsonValue]:
        """The entry of the model in `GET /models`, and the server's version; see `Engine.describe_server`."""
        client = self._client
        client.open()
        try:
            listed = await client.send("GET", "models", longest_seconds=DESCRIBE_SECONDS)
            if isinstance(listed, Failure):
                return {}
            described = model_description(listed, model=self._context.model)
            answer = await client.send("GET", "../version", longest_seconds=DESCRIBE_SECONDS)
        finally:
            await client.close()
        try:
            version = None if isinstance(answer, Failure) else ServerVersion.model_validate_json(answer.content).version
        except ValidationError:
            version = None
        return described if version is None else {**described, "version": version}

    async def stop(self) -> None:
        """Closes the connections."""
        await self._client.close()

    async def _try_turn(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> Response | Failure:
        """One try of a turn's request, as soon as the endpoint's limits let it.

        A refused key is a failure that passes if the endpoint serves others.

        Raises:
            MemagentError: it is refused; see `_refused`.
        """
        num_tokens = len(prompt.token_ids) + prompt.max_tokens + self.thinking_tokens
        async with self._pace.place(1, num_tokens) as place:
            result = await self._send(self._api.body(prompt, seed=seed, form=form))
            if isinstance(result, Failure):
                was_queued = result.timed_out and self._pace.was_queued(place)
                if result.turned_away or result.timed_out:
                    self._pace.reduce(place, why=result.message)
                return replace(result, was_queued=was_queued)
            if result.status_code == 200:
                self._pace.answered(place, seconds=result.elapsed_seconds, budget=prompt.max_tokens)
                return result
        return await self._refused(result, prompt=prompt)

    async def _refused(self, response: Response, *, prompt: Prompt) -> Failure:
        """What the refusal of a turn's request means, where the endpoint serves others.

        Raises:
            EngineRequestError: it refuses this request.
            EngineRefusedError: it refuses every request.
        """
        await self._require_served()
        refusal = f"turn {prompt.path}: {self._client.refusal(response)}"
        if response.status_code in KEY_STATUSES:
            return Failure(message=refusal)
        raise EngineRequestError(refusal)

    async def _send(self, body: Mapping[str, JsonValue], *, longest_seconds: float | None = None) -> Response | Failure:
        """One try for a completion.

        A success that holds no completion, such as a page of a gateway, counts as a failure.
        """
        response = await self._client.send("POST", self._api.path, body=body, longest_seconds=longest_seconds)
        if isinstance(response, Failure) or response.status_code != 200:
            return response
        if not self._is_checked:
            self._pace.expect(response.elapsed_seconds)
        return self._parsed(response)

    def _parsed(self, response: Response) -> Response | Failure:
        """A response of status 200 with the completion that it holds, if it holds one."""
        client = self._client
        parsed = self._api.parse(response.content)
        if isinstance(parsed, str):
            is_page = not self._api.is_completion(response.content)  # else a model wrote it: no message repeats that
            reply = client.refusal(response) if is_page else f"{client.name} answered {response.request}"
            return Failure(message=f"{reply}; {parsed}")
        named, before = parsed.model, self._named_model
        if named and before and named != before:  # the same name may stand for other weights now
            log.warning(
                f"{client.name} names the model {named} in its replies, and {before} before; if it is another one, "
                "name that in weights_version",
                extra={"event": EventKind.ENDPOINT_CHANGED, "model": named, "model_before": before},
            )
        self._named_model = named or before
        return replace(response, body=parsed)

    async def _probe(self) -> Failure | None:
        """Asks for next to nothing, with all fields of a real request; None if there is an answer of any kind."""
        result = await self._send(self._api.body(self._probe_prompt()), longest_seconds=PROBE_SECONDS)
        return result if isinstance(result, Failure) else None

    async def _require_served(self) -> None:
        """Returns after a refusal that concerns one request; raises for one that concerns all, as with an old key."""
        body = self._api.body(self._probe_prompt())
        for attempt in range(REFUSED_PROBES):
            response = await self._outage.answer(lambda: self._send(body))
            if response.status_code == 200:
                return
            await asyncio.sleep(pause_seconds(attempt))
        raise EngineRefusedError(
            f"{self._client.refusal(response)}; {self._remedy(response)}, then run the same command again"
        )

    async def _check_in_run(self) -> None:
        """After `rejoin`: checks the endpoint before the first request, as `start` does, and waits out an outage."""
        async with self._checking:
            if self._is_checked:
                return
            try:
                await self._check_endpoint()
            except EngineStartError as error:
                raise EngineRefusedError(f"{error}, then run the same command again") from error
            except EngineRequestError as error:  # a probe that fails is not a fault of the reading that waits for it
                raise EngineUnavailableError(str(error)) from error

    async def _check_endpoint(self) -> None:
        """Checks that the endpoint serves the model, completes a prompt, and reads one of the longest prompts whole."""
        await self._require_model()
        await self._require_completion()
        await self._require_window()
        self._is_checked = True

    async def _answer(self, send: Send) -> Response:
        """The response to a question of a check: after a few tries at the start of a run, else after any outage."""
        if not self._is_starting:
            return await self._outage.answer(send)
        attempt = 0
        while isinstance(result := await send(), Failure):
            attempt += 1
            if attempt > min(START_TRIES - 1, self.max_retries):
                raise EngineStartError(
                    f"{result.message} ({attempt} tries); check that it runs, and openai.base_url (up to /v1)"
                )
            await asyncio.sleep(pause_seconds(attempt - 1, retry_after_seconds=result.retry_after_seconds))
        return result

    async def _answer_adapted(self, prompt: Prompt, *, form: GuideForm | None = None) -> Response:
        """The response to a prompt, asked again without each field that the endpoint shows not to know."""
        while True:
            response = await self._answer(partial(self._send, self._api.body(prompt, form=form)))
            refused = self._api.adapt(response, budget=self._api.budget(prompt, form))
            if not refused:
                return response
            if self._context.sampling.logprobs:
                raise EngineStartError(
                    f"{self._client.refusal(response)}; without {' and '.join(refused)} it is not known what "
                    "the recorded log-probabilities belong to: serve the model with vLLM, or record none "
                    "(sampling.logprobs=false; `memagent collect` needs them)"
                )

    async def _require_model(self) -> None:
        """Looks for the model in GET /models. An endpoint that has no such list is taken at its first completion.

        So is Anthropic's, whose list has no aliases.
        """
        if self.api is EndpointApi.MESSAGES:
            return
        client, model, window_tokens = self._client, self._context.model, self._context.window_tokens
        response = await self._answer(lambda: client.send("GET", "models"))
        if response.status_code in KEY_STATUSES:
            raise EngineStartError(f"{client.refusal(response)}; {KEY_REMEDY}")
        try:
            windows = {each.id: each.max_model_len for each in ModelList.model_validate_json(response.content).data}
        except ValidationError:
            return
        if model not in windows:
            served = ", ".join(sorted(windows)) or "none"
            raise EngineStartError(f"{client.name} does not serve the model {model}; it serves: {served}")
        window = windows[model]
        if window is not None and window < window_tokens:
            raise EngineStartError(
                f"{client.name} serves {model} with a window of {window} tokens, below window_tokens={window_tokens}; "
                f"lower window_tokens to {window}, or serve it with a longer one"
            )

    async def _require_completion(self) -> None:
        """Asks for next to nothing as every reading will, and finds out which fields the endpoint refuses."""
        prompt = self._probe_prompt()
        response = await self._answer_adapted(prompt)
        if response.status_code != 200:
            raise EngineStartError(f"{self._client.refusal(response)}; {self._remedy(response)}")
        try:
            self._completion(response, prompt=prompt)
            await self._require_whole(prompt, response)
        except (EngineRequestError, EngineRefusedError) as error:
            raise EngineStartError(f"{error}; no reading could be trusted") from error
        self._counts.note_overhead(response.num_read)

    async def _answer_whole(
        self, prompt: Prompt, send: Callable[[], Awaitable[Response | Failure]], *, form: GuideForm | None
    ) -> Completion:
        """The completion of a prompt that was read whole: one of which a part was read is asked for again.

        Behind one address there may be several servers, of which one has a smaller window.

        Raises:
            EngineRefusedError: a part was read again and again.
        """
        for number in range(CUT_TRIES):
            response = await self._outage.answer(send)
            completion = self._completion(response, prompt=prompt, form=form)
            if await self._is_whole(prompt, response):
                return completion
            log.info(f"{self._turn(prompt)} was cut, try {number + 1} of {CUT_TRIES}")
        raise self._cut_error(prompt, response)

    async def _require_whole(self, prompt: Prompt, response: Response) -> None:
        """Checks that a prompt was read whole, by the tokens that the response counts.

        Raises:
            EngineRefusedError: it was not.
        """
        if not await self._is_whole(prompt, response):
            raise self._cut_error(prompt, response)

    async def _is_whole(self, prompt: Prompt, response: Response) -> bool:
        if self.takes_messages:
            return not await self._counts.is_cut(prompt, response.num_read)
        return response.num_read in (None, len(prompt.token_ids))

    def _cut_error(self, prompt: Prompt, response: Response) -> EngineRefusedError:
        num_read, sent = response.num_read, len(prompt.token_ids)
        if self.takes_messages:
            why = f"the halves of the prompt have more; {CUT_REMEDY}"
        else:
            is_cut = (num_read or 0) < sent
            why = CUT_REMEDY if is_cut else "it adds tokens of its own; serve the model without them"
        return EngineRefusedError(
            f"{self._turn(prompt)} read a prompt of {num_read} tokens where {sent} were sent, as `tokenizer` counts; "
            f"{why}"
        )

    async def _count_tokens(self, prompt: Prompt) -> int | None:
        """Tokens of a prompt that the endpoint says to have read; None if it doesn't say."""
        body = self._api.body(prompt)
        try:
            response = await self._outage.answer(lambda: self._send(body))
        except EngineRequestError:  # nothing is known then, and the completion that is checked by it stays
            return None
        return response.num_read if response.status_code == 200 else None

    async def _require_window(self) -> None:
        """Checks that a prompt as long as the longest of the job is read at both ends and in the middle.

        Raises:
            EngineRefusedError: it is not, though a short one is.
        """
        num_tokens = self._context.largest_turn() if self.check_window else 0
        if num_tokens <= SMALL_TOKENS:
            return
        missing: list[str] | None = []
        for words in MARKERS:
            if await self._missing_words(words, SHORT_TOKENS) != []:
                return
            missing = await self._missing_words(words, num_tokens)
            if not missing:
                return
        raise EngineRefusedError(
            f"{self._client.name} repeats the words of a short prompt, but of one of {num_tokens} tokens, as the "
            f"longest of this job, it misses {len(missing or ())} of 3 words from its ends and its middle: "
            f"{CUT_REMEDY}. If the model can't find them though it is shown all: openai.check_window=false"
        )

    async def _missing_words(self, words: Sequence[str], num_tokens: int) -> list[str] | None:
        """Words of a text of so many tokens that the model does not repeat; None where it answers nothing to judge."""
        template = self._template_of("{chunk}")
        room = num_tokens - template.num_fixed_tokens - MARKED_ANSWER_TOKENS - self.thinking_tokens
        text = marked_text(words, num_tokens=room, count=lambda text: len(self._tokenizer.encode(text)))
        token_ids = template.fill({Slot.CHUNK: self._tokenizer.encode(text)})
        prompt = Prompt(path="the window", kind="probe", token_ids=token_ids, max_tokens=MARKED_ANSWER_TOKENS)
        response = await self._answer(partial(self._send, self._api.body(prompt)))
        if response.status_code != 200:
            return None  # it says itself what it can't do, and will so of a reading
        await self._require_whole(prompt, response)
        try:
            answer = after_thoughts(self._completion(response, prompt=prompt).text) or ""
        except EngineRequestError:
            return None
        return None if is_blank(answer) else missing_words(answer, words)

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
            f"{' nor by '.join(GuideForm)}{problem}{'' if THINKS_REMEDY in problem else f'; {REMEDIES[kind]}'}"
        )

    async def _obeys(self, guide: Guide, form: GuideForm) -> bool:
        """Whether a completion keeps to a guide that is sent in this form.

        It is asked for as a reading asks for a value: a guide may be obeyed behind a chat template only.

        Raises:
            EngineRequestError: there is none: the endpoint fails at it, or sends something else.
        """
        texts = {Slot.QUESTION: "Are you there?", Slot.MEMORY: "Yes.", Slot.ANSWER: "Yes.", Slot.FORM: "Write it."}
        filled = {slot: self._tokenizer.encode(text) for slot, text in texts.items()}
        token_ids = self._template_of(FOLLOW_UP_TEXTS[VALUE]).fill(filled)
        prompt = Prompt(path="probe", kind="probe", token_ids=token_ids, max_tokens=PROBE_TOKENS, guide=guide)
        response = await self._answer_adapted(prompt, form=form)
        if response.status_code != 200:
            return False
        completion = self._completion(response, prompt=prompt, form=form)
        if is_blank(completion.text) and completion.finish_reason is FinishReason.LENGTH:
            raise EngineRequestError(
                f"a completion of {self._api.budget(prompt, form)} tokens is empty: {THINKS_REMEDY}"
            )
        return guide.allows(completion.text)

    def _probe_prompt(self) -> Prompt:
        token_ids = self._tokenizer.encode("Are you there?")
        return Prompt(path="probe", kind="probe", token_ids=token_ids, max_tokens=self._api.probe_tokens)

    def _template_of(self, text: str) -> TokenTemplate:
        """A text with slots as the message of a user, as readings ask their turns."""
        template = self._tokenizer.chat_template
        if self.takes_messages:
            template = template.at_server()
        kwargs = self._context.chat_template_kwargs
        tokens = self._tokenizer.follow_up_tokens({"probe": text}, chat_template_kwargs=kwargs, template=template)
        return tokens.templates["probe"]

    def _completion(self, response: Response, *, prompt: Prompt, form: GuideForm | None = None) -> Completion:
        return self._api.completion(response, prompt=prompt, turn=self._turn(prompt), form=form)

    def _turn(self, prompt: Prompt) -> str:
        """A turn at this endpoint, for messages."""
        return f"turn {prompt.path}: {self._client.name}"

    def _remedy(self, response: Response) -> str:
        return KEY_REMEDY if response.status_code in KEY_STATUSES else self._api.remedy(response)


def _keeps_form(text: str, guide: Guide) -> bool:
    """Whether a completion keeps to its guide. Of JSON only the form: values are checked where they are used."""
    if guide.kind is not GuideKind.JSON:
        return guide.allows(text)
    try:
        from_json(text)
    except ValueError:
        return False
    return True
