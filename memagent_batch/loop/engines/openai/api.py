"""The APIs of an OpenAI-compatible endpoint: what is sent, and what its responses become.

Here is what both share, and the API that takes token ids: `POST /completions`, as the servers of vLLM and SGLang offer
it. The one that takes messages is in `chat.py`.
"""

import html
import json
import re
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Annotated, ClassVar, cast

from pydantic import AliasPath, BaseModel, BeforeValidator, Field, JsonValue, TypeAdapter, ValidationError
from pydantic_core import from_json

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.errors import EngineRequestError
from memagent_batch.loop.completions import is_blank
from memagent_batch.loop.engines.engine import EngineContext, finish_reason
from memagent_batch.loop.guides import (
    Guide,
    GuideKind,
    choice_guide,
    json_guide,
    menu_logprobs,
    num_candidates,
    regex_guide,
)
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.masking import mask_urls
from memagent_batch.types import Completion, FinishReason, Prompt

MESSAGE_CHARS = 500
"""Most characters of a server's own message that an error repeats."""

NEUTRAL = {"top_k": -1, "min_p": 0, "repetition_penalty": 1, "presence_penalty": 0, "frequency_penalty": 0}
"""Sampling fields that change nothing. Every request names them: where one is left out, vLLM's server takes the value
of the model's `generation_config.json`."""

ADDRESS_REMEDY = "check model and openai.base_url (up to /v1)"
TOKEN_REMEDY = (
    f"{ADDRESS_REMEDY}: the endpoint must take prompts of token ids at /completions, as the servers of vLLM and SGLang "
    "do; for one that offers only chat, read docs/how-to/endpoints.md and set openai.api: chat"
)

HTML_TITLE = re.compile(r"<title[^>]*>(.*?)</title>", re.IGNORECASE | re.DOTALL)
"""What a page of a gateway says in short."""

Count = Annotated[int, Field(ge=0, lt=2**31)]
Logprob = Annotated[float, Field(allow_inf_nan=False)]

CONTENT_FILTER = "content_filter"
"""Why a completion ended that the provider's filter stopped."""

FINAL_REASONS = (*FinishReason, CONTENT_FILTER, "tool_calls", "function_call")
"""Reasons to end a completion that another try would bring again."""

VALUE_PROPERTY = "value"
"""Name of the schema in a request, and of the one property of an object that holds a value."""

OBJECT_TOKENS = 16
"""What the object around a value takes of a completion, tokens, with room for white space."""

PROBE_TOKENS = 24
"""Budget of a probe, tokens: more than its text takes in any tokeniser, an end token included."""

PROBES: Mapping[GuideKind, Guide] = {
    GuideKind.CHOICE: choice_guide(*map(str, range(733, 742))),
    GuideKind.REGEX: regex_guide("zq7[3]{2}", example="zq733"),
    GuideKind.JSON: json_guide(
        {
            "type": "object",
            "properties": {"zq": {"type": "array", "items": {"enum": [733]}, "minItems": 2, "maxItems": 2}},
            "required": ["zq"],
            "additionalProperties": False,
        }
    ),
}
"""Guides that no model follows by chance; the choices are as many as those of the largest menu of single tokens."""

SERVER_REMEDY = "serve the model with vLLM, without --reasoning-parser (it keeps guides off until a thought ends)"

REMEDIES: Mapping[GuideKind, str] = {
    GuideKind.CHOICE: f"{SERVER_REMEDY}, or leave out follow-up questions and the types bool and label",
    GuideKind.REGEX: f"{SERVER_REMEDY}, or leave out evidence and the types labels, number and date",
    GuideKind.JSON: (
        f"{SERVER_REMEDY}, and with --structured-outputs-config "
        '\'{"backend": "xgrammar", "disable_any_whitespace": true}\', or leave out the type json'
    ),
}
"""What to do where an endpoint does not obey a kind of guide."""


class GuideForm(StrEnum):
    """A field of a request that says what may be written, in the order in which they are tried."""

    STRUCTURED_OUTPUTS = "structured_outputs"
    """vLLM's extension: choices, expressions and schemas."""
    RESPONSE_OBJECT = "response_format with an object"
    """OpenAI's own, as hosted models want it: the schema of an object, with one value if the guide has no object."""


class Usage(BaseModel):
    """Token counts."""

    prompt_tokens: Count | None = None
    completion_tokens: Count | None = None
    cached_tokens: Count | None = Field(None, validation_alias=AliasPath("prompt_tokens_details", "cached_tokens"))
    """Tokens of the prompt that were found in a prefix cache."""


class Choice(BaseModel):
    """One completion of a response."""

    finish_reason: str | None = None


class Completions(BaseModel):
    """Body of a successful response of either API."""

    choices: Sequence[Choice] = Field(min_length=1)
    usage: Annotated[Usage, BeforeValidator(lambda usage: usage or {})] = Usage()
    model: str | None = None
    """The model that wrote it, as the server names it."""

    @property
    def num_prompt_tokens(self) -> int | None:
        """Tokens of the prompt that the server says to have read; None if it doesn't say."""
        return self.usage.prompt_tokens or None


class Model(BaseModel):
    """A model that is served."""

    id: str
    max_model_len: int | None = None
    """Its window, tokens; vLLM's extension."""


class ModelList(BaseModel):
    """Body of a successful `GET /models`."""

    data: list[Model]


class ModelEntries(BaseModel):
    """The same body, with whatever the server says of each model."""

    data: list[dict[str, JsonValue]]


class ServerVersion(BaseModel):
    """Body of a successful `GET /version`."""

    version: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Response:
    """A whole response of an endpoint."""

    status_code: int
    content: bytes
    elapsed_seconds: float
    request: str
    """Method and path of what it answers."""
    date: str = ""
    """When the server answered, as its header says; empty if it doesn't."""
    body: Completions | None = None
    """What `content` holds, once it is known to be a whole completion."""

    @property
    def num_read(self) -> int | None:
        """Tokens of the prompt that a completion says were read; None if it doesn't say."""
        return self.body.num_prompt_tokens if self.body else None


DESCRIBED = ("id", "root", "owned_by", "max_model_len", "created")
"""What the record of a run has of the entry of a model."""
MAX_DESCRIPTION_CHARS = 1_000
"""Longer texts of a server are not recorded."""
NOW_SECONDS = 60.0
"""A model that was created so shortly before the answer is one whose server names the time of the answer."""


def model_description(response: Response, *, model: str) -> dict[str, JsonValue]:
    """What a server says of a model in `GET /models`; empty if it says nothing."""
    try:
        entries = ModelEntries.model_validate_json(response.content).data
    except ValidationError:
        return {}
    entry: dict[str, JsonValue] = next((each for each in entries if each.get("id") == model), {})
    known: dict[str, JsonValue] = {}
    for name in DESCRIBED:
        value = entry.get(name)
        if isinstance(value, int):
            known[name] = value
        elif isinstance(value, str) and len(value) <= MAX_DESCRIPTION_CHARS:
            known[name] = mask_urls(value)
    created = known.get("created")
    if isinstance(created, int) and abs(created - _answered_at(response)) < NOW_SECONDS:
        del known["created"]
    return known


def _answered_at(response: Response) -> float:
    try:
        return parsedate_to_datetime(response.date).timestamp()
    except ValueError:
        return time.time()


def guide_fields(guide: Guide, form: GuideForm) -> dict[str, JsonValue]:
    """Fields of a request that keep its completion to a guide."""
    if form is GuideForm.STRUCTURED_OUTPUTS:
        return {form.value: {guide.kind.value: guide.constraint}}
    sent: JsonValue = {"name": VALUE_PROPERTY, "strict": True, "schema": _object_schema(guide)}
    return {"response_format": {"type": "json_schema", "json_schema": sent}}


def guided_text(text: str, guide: Guide | None, *, form: GuideForm | None, reason: FinishReason, turn: str) -> str:
    """What a turn wrote, without the object around it if it was guided by one. A text that was cut, or is empty, stays
    as it is.

    Raises:
        EngineRequestError: it is not such an object.
    """
    is_value = guide is not None and form is GuideForm.RESPONSE_OBJECT and not _is_object(guide)
    if guide is None or not is_value or reason is FinishReason.LENGTH or is_blank(text):
        return text
    try:
        value = TypeAdapter(dict[str, JsonValue]).validate_json(text)[VALUE_PROPERTY]
        if guide.kind is GuideKind.JSON:
            return json.dumps(value, ensure_ascii=False, separators=(",", ":"))
        return TypeAdapter(str).validate_python(value)
    except (ValueError, KeyError) as error:
        raise EngineRequestError(f"{turn} sent no object with a value where one was asked for") from error


def _is_object(guide: Guide) -> bool:
    return guide.kind is GuideKind.JSON and guide.sent_json_schema().get("type") == "object"


def _object_schema(guide: Guide) -> JsonValue:
    """The schema of an object that holds what the guide allows, and nothing else."""
    if _is_object(guide):
        return guide.sent_json_schema()
    value: JsonValue
    if guide.kind is GuideKind.JSON:
        value = guide.sent_json_schema()
    elif guide.choices:
        value = {"type": "string", "enum": list(guide.choices)}
    else:
        value = {"type": "string", "pattern": f"^({guide.regex})$"}
    return {
        "type": "object",
        "properties": {VALUE_PROPERTY: value},
        "required": [VALUE_PROPERTY],
        "additionalProperties": False,
    }


class Api(ABC):
    """One of the APIs of an OpenAI-compatible endpoint."""

    path: ClassVar[str]
    """Where requests go, below the base URL."""
    probe_tokens: ClassVar[int]
    """Budget of a request that only asks whether the endpoint answers."""
    optional: ClassVar[Mapping[str, JsonValue]] = NEUTRAL
    """Fields that may be left out where an endpoint refuses them: none of them is a setting of the user's."""
    response_type: ClassVar[type[Completions]]
    """The body of a successful response."""

    def __init__(self, context: EngineContext, *, settings: OpenAIConfig, tokenizer: Tokenizer) -> None:
        self._settings = settings
        self._model = context.model
        self._sampling = context.sampling
        self._tokenizer = tokenizer
        self._optional = {
            name: value for name, value in self.optional.items() if name != "top_k" or context.sampling.top_k <= 0
        }

    def body(self, prompt: Prompt, *, seed: int = 0, form: GuideForm | None = None) -> dict[str, JsonValue]:
        """The body of a request. A guided turn is greedy."""
        sampling = SamplingConfig() if prompt.guide else self._sampling
        body: dict[str, JsonValue] = {"model": self._model, **self._prompt_fields(prompt, form=form)}
        body |= self._sampling_fields(sampling, seed=seed)
        if prompt.guide and form:
            body |= guide_fields(prompt.guide, form)
        body |= self._optional | self._template_fields(prompt) | self._settings.extra_body
        return {name: value for name, value in body.items() if value is not None}

    def _sampling_fields(self, sampling: SamplingConfig, *, seed: int) -> dict[str, JsonValue]:
        """How tokens are drawn."""
        fields: dict[str, JsonValue] = {"temperature": sampling.temperature, "top_p": sampling.top_p}
        if sampling.temperature > 0:
            fields["seed"] = seed
        if sampling.top_k > 0:
            fields["top_k"] = sampling.top_k
        return fields

    def budget(self, prompt: Prompt, form: GuideForm | None) -> int:
        """Tokens that a completion may have, with those of hidden thoughts and of an object around a value."""
        object_tokens = OBJECT_TOKENS if form is GuideForm.RESPONSE_OBJECT else 0
        return prompt.max_tokens + self._settings.thinking_tokens + object_tokens

    @abstractmethod
    def _prompt_fields(self, prompt: Prompt, *, form: GuideForm | None) -> dict[str, JsonValue]:
        """The prompt, its budget, and the log-probabilities that are asked for."""

    def _template_fields(self, prompt: Prompt) -> dict[str, JsonValue]:
        """Fields that an endpoint must know."""
        return {}

    def is_completion(self, content: bytes) -> bool:
        """Whether a successful response is meant as a completion: it is not the page of a gateway, or a part of one."""
        try:
            return b'"choices"' in content and bool(from_json(content))
        except ValueError:
            return False

    def parse(self, content: bytes) -> Completions | str:
        """The body of a response of status 200; or why it holds no whole completion, which may pass."""
        if not self.is_completion(content):
            return "that is not a completion"
        try:
            body = self.response_type.model_validate_json(content)
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]  # without the value, which may be long
            return f"that is not a completion: {'.'.join(map(str, first['loc']))}: {first['msg']}"
        reason = body.choices[0].finish_reason
        return body if reason in FINAL_REASONS else f"that is not a whole completion: its finish_reason is {reason!r}"

    def adapt(self, response: Response, *, budget: int) -> list[str]:
        """Leaves out of all further requests what this response to a probe shows to be unknown there; its names.

        `budget`: tokens that the completion was allowed.
        """
        refused = refused_fields(response, self._optional)
        self._optional = {name: value for name, value in self._optional.items() if name not in refused}
        return refused

    @abstractmethod
    def remedy(self, response: Response) -> str:
        """What to do where this response refuses every request."""

    @abstractmethod
    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """A response of status 200 as a completion of the prompt; `form` is how its guide was sent.

        Raises:
            EngineRequestError: there is no completion, or none that can be right.
        """


class TextChoice(Choice):
    """One completion."""

    text: str
    token_ids: list[Count] | None = None
    """Its tokens; vLLM's extension."""
    logprobs: list[Logprob | None] = Field([], validation_alias=AliasPath("logprobs", "token_logprobs"))
    """Log-probability of each token."""
    top_logprobs: list[dict[str, Logprob] | None] | None = Field(
        None, validation_alias=AliasPath("logprobs", "top_logprobs")
    )
    """For each token those that could have stood there, by their text."""


class TextCompletions(Completions):
    """Body of a successful `POST /completions`."""

    choices: list[TextChoice] = Field(min_length=1)


class CompletionsApi(Api):
    """Prompts as token ids, completions as token ids or as text."""

    path = "completions"
    probe_tokens = 1
    optional: ClassVar[Mapping[str, JsonValue]] = {**NEUTRAL, "return_token_ids": True}  # vLLM's extension
    response_type = TextCompletions

    def _prompt_fields(self, prompt: Prompt, *, form: GuideForm | None) -> dict[str, JsonValue]:
        shown: dict[str, JsonValue] = {"prompt": [*prompt.token_ids], "max_tokens": self.budget(prompt, form)}
        num_logprobs = num_candidates(prompt.guide, logprobs=self._sampling.logprobs)
        return shown if num_logprobs is None else {**shown, "logprobs": num_logprobs}

    def remedy(self, response: Response) -> str:
        """What to do where the endpoint refuses every request; see `Api.remedy`."""
        return TOKEN_REMEDY

    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """The response as a completion; see `Api.completion`.

        Raises:
            EngineRequestError: it holds what can't be right: a text without tokens, more tokens than asked for.
        """
        body = cast(TextCompletions, response.body)
        choice, budget = body.choices[0], self.budget(prompt, form)
        if choice.token_ids == [] and choice.text:
            raise EngineRequestError(f"{turn} sent a text without its tokens")
        if len(choice.token_ids or ()) > budget:
            raise EngineRequestError(f"{turn} sent {len(choice.token_ids or ())} tokens where {budget} were asked for")
        reason, text = finish_reason(choice.finish_reason, turn=turn), choice.text
        if choice.token_ids is not None and self._tokenizer.has_thought_tags:
            # servers leave the tags out where they are special tokens
            text = self._tokenizer.continuation(choice.token_ids, after=prompt.token_ids)
        text = guided_text(text, prompt.guide, form=form, reason=reason, turn=turn)
        own_ids = None if form is GuideForm.RESPONSE_OBJECT else choice.token_ids
        token_ids = self._tokenizer.encode(text) if own_ids is None else own_ids
        is_masked = form is GuideForm.STRUCTURED_OUTPUTS  # else log-probabilities are those before the guide
        candidates = (choice.top_logprobs or [None])[0]
        return Completion(
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            logprobs=self._logprobs(choice, form=form, num_tokens=len(token_ids)),
            menu_logprobs=menu_logprobs(prompt.guide, (candidates or {}).items()) if is_masked else None,
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=body.usage.cached_tokens or 0,
            num_billed_tokens=body.usage.completion_tokens or None if own_ids is None else None,
            engine_seconds=response.elapsed_seconds,
        )

    def _logprobs(self, choice: TextChoice, *, form: GuideForm | None, num_tokens: int) -> list[float] | None:
        """Log-probability of each token, where they were asked for or the engine masks before it takes them."""
        logprobs = [value for value in choice.logprobs if value is not None]
        if form is GuideForm.RESPONSE_OBJECT:  # they are those of the object
            return None
        if not self._sampling.logprobs:
            return logprobs if form and logprobs and len(logprobs) == len(choice.token_ids or ()) else None
        if choice.token_ids is None or len(logprobs) != num_tokens:
            tokens = f"for {num_tokens} tokens"
            if choice.token_ids is None:
                tokens = "without the tokens that they belong to"
            raise EngineRequestError(
                f"the endpoint sent {len(logprobs)} logprobs {tokens}; use one that returns token ids, such as vLLM's, "
                "or set sampling.logprobs=false"
            )
        return logprobs


def refused_fields(response: Response, fields: Iterable[str]) -> list[str]:
    """The fields that a refusal names."""
    return [name for name in fields if response.status_code in (400, 422) and name.encode() in response.content]


def error_message(body: bytes) -> str:
    """What a server says went wrong, from the forms in use, shortened."""
    try:
        message = from_json(body)
    except ValueError:
        message = None
    for name in ("error", "message"):
        message = message.get(name, message) if isinstance(message, dict) else message
    text = message if isinstance(message, str) else body.decode("utf-8", errors="replace").strip()
    if title := HTML_TITLE.search(text):
        text = " ".join(html.unescape(title[1]).split())
    return text[:MESSAGE_CHARS] or "(no message)"
