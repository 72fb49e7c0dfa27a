"""The API that takes messages: `POST /chat/completions`, as hosted models offer it.

The server renders and tokenises what it is sent. So the markers of chat templates in a text are made harmless first,
tokens are counted by the user's tokeniser, and no completion has the server's tokens.
"""

import re
from collections.abc import Collection, Sequence
from typing import Any, ClassVar, cast

from pydantic import AliasPath, BaseModel, Field, JsonValue, field_validator

from memagent_batch.errors import EngineRequestError, EngineStartError
from memagent_batch.loop.engines.engine import EngineContext, finish_reason
from memagent_batch.loop.engines.openai.protocol import (
    ADDRESS_REMEDY,
    CONTENT_FILTER,
    MESSAGE_CHARS,
    OBJECT_TOKENS,
    Api,
    Choice,
    Completions,
    GuideForm,
    Logprob,
    Response,
    guided_text,
    refused_fields,
)
from memagent_batch.loop.guides import menu_logprobs, num_candidates
from memagent_batch.loop.thoughts import OPENING, THOUGHT_END, after_thoughts
from memagent_batch.loop.tokens.chat_template import THINKING_WORD, ServerTemplate
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt

MAX_COMPLETION_TOKENS = "max_completion_tokens"
"""The budget of a completion, its hidden thoughts included; older servers know `max_tokens` only."""

CHAT_TEMPLATE_KWARGS = "chat_template_kwargs"
"""What vLLM's and SGLang's servers give the chat template."""

DRAWN_FIELDS = ("temperature", "top_p", "seed")
"""Sampling fields that some hosted models take at their own values only."""

CHAT_REMEDY = f"{ADDRESS_REMEDY}: the endpoint must take messages at /chat/completions"

BRACKETS = {"<": "‹", ">": "›", "[": "⟦", "]": "⟧"}
"""What stands for the first and last character of a marker."""

MARKER_BREAK = "·"
"""Goes behind the first character of a marker that begins with none of these."""

FAMILIES = (
    r"<\|[^\s<>|]{1,60}\|>",  # ChatML, Llama 3, Phi, GLM, Command R, Granite, Harmony
    r"<｜[^\s<>｜]{1,60}｜>",  # DeepSeek
    r"\[\|[^\s\[\]|]{1,60}\|\]",  # EXAONE
    r"</?(?:start_of_turn|end_of_turn|start_of_image|end_of_image|image_soft_token|unused[0-9]+)>",  # Gemma
    r"</?(?:s|bos|eos|pad|unk|mask|sop|eop|eoh|eoa|image|video|audio|extra_id_[0-9]+|reserved_[0-9]+)>",
    r"<</?SYS>>",  # Llama 2
    r"\[/?(?:INST|SYSTEM_PROMPT|AVAILABLE_TOOLS|TOOL_CALLS|TOOL_RESULTS|TOOL_CONTENT|ARGS|CALL_ID|THINK|IMG|IMG_BREAK"
    r"|IMG_END|gMASK|MASK|CLS|SEP|PAD|UNK)\]",  # Mistral, GLM, BERT
    r"</?(?:think|thinking|tool_call|tool_response|tools|function_call)>",  # thoughts and tools
    r"<0x[0-9A-Fa-f]{2}>",  # bytes, in tokenisers of SentencePiece
)
"""Markers of the model families that are known, as regular expressions."""


class Markers:
    """The markers of the known families, and those of one tokeniser."""

    def __init__(self, own: Collection[str] = ()) -> None:
        """Takes the markers of the tokeniser, as texts; one character alone marks nothing."""
        own_markers = [re.escape(marker) for marker in own if len(marker.strip()) > 1]
        self._pattern = re.compile("|".join([*sorted(own_markers, key=len, reverse=True), *FAMILIES]))

    def neutralise(self, text: str) -> str:
        """The text with each marker made harmless."""
        return self._pattern.sub(_harmless, text)


def _harmless(match: re.Match[str]) -> str:
    marker = match[0]
    first, last = BRACKETS.get(marker[0], marker[0] + MARKER_BREAK), BRACKETS.get(marker[-1], marker[-1])
    return first + marker[1:-1] + last


class ChatApi(Api):
    """Prompts as one user message, completions as text."""

    path: ClassVar[str] = "chat/completions"
    probe_tokens: ClassVar[int] = 16  # some models that think refuse a budget in which they can't say anything

    def __init__(self, context: EngineContext, *, tokenizer: Tokenizer, thinking_tokens: int = 0) -> None:
        """Takes what every request says; the tokeniser need not be the served model's.

        Raises:
            EngineStartError: log-probabilities are to be kept, which have no tokens to belong to here.
        """
        if context.sampling.logprobs:
            raise EngineStartError(
                "openai.api: a chat API returns no tokens that log-probabilities could belong to; set "
                "sampling.logprobs=false, or use api completions (`memagent collect` needs them)"
            )
        super().__init__(context, tokenizer=tokenizer, thinking_tokens=thinking_tokens)
        self._markers = Markers(tokenizer.control_texts)
        own = tokenizer.chat_template
        values = ServerTemplate(tokenizer=own.tokenizer, model=own.model).values(context.chat_template_kwargs)
        self._opens_thought = own.is_there and own.opens_thought(values)
        self._fixed: dict[str, JsonValue] = {CHAT_TEMPLATE_KWARGS: values} if context.chat_template_kwargs else {}
        self._optional |= {CHAT_TEMPLATE_KWARGS: values} if values else {}
        self._budget_name = MAX_COMPLETION_TOKENS
        self._gives_logprobs = True

    def body(self, prompt: Prompt, *, seed: int, form: GuideForm | None) -> dict[str, JsonValue]:
        """The body of a request; see `Api.body`."""
        return {**super().body(prompt, seed=seed, form=form), **self._fixed, **self._silence(prompt)}

    def _shown(self, prompt: Prompt, *, form: GuideForm | None) -> dict[str, JsonValue]:
        content = self._markers.neutralise(self._tokenizer.text_of(prompt.token_ids))
        shown: dict[str, JsonValue] = {
            "messages": [{"role": "user", "content": content}],
            self._budget_name: self.budget(prompt, form),
        }
        num_candidate = num_candidates(prompt.guide, logprobs=False)
        asks_logprobs = num_candidate and self._gives_logprobs
        return {**shown, "logprobs": True, "top_logprobs": num_candidate} if asks_logprobs else shown

    def adapt(self, response: Response, *, budget: int) -> list[str]:
        """Leaves out fields that a refusal names, and finds the name of the budget; see `Api.adapt`."""
        refused = super().adapt(response, budget=budget)
        if self._gives_logprobs and refused_fields(response, ["logprobs"]):
            self._gives_logprobs = False
            refused.append("logprobs")
        if self._budget_name == MAX_COMPLETION_TOKENS and _passes_over_budget(response, budget=budget):
            self._budget_name = "max_tokens"
            refused.append(MAX_COMPLETION_TOKENS)
        return refused

    def remedy(self, response: Response) -> str:
        """What to do where the endpoint refuses every request; see `Api.remedy`."""
        refused = refused_fields(response, DRAWN_FIELDS)
        if not refused:
            return CHAT_REMEDY
        (name, *_) = refused
        return (
            f"this model takes {name} at a value of its own only: set sampling.{name} to that, or leave it out of "
            f'every request with openai.extra_body: {{"{name}": null}}; answers may then differ from night to night'
        )

    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """The response as a completion; see `Api.completion`.

        Raises:
            EngineRequestError: the provider's filter stopped it, or the model refused.
        """
        body = cast(ChatResponse, response.body)
        choice, usage = body.choices[0], body.usage
        reason = _finish_reason(body, turn=turn)
        text, spans = choice.message.content or "", None
        if prompt.guide is None:
            text, reason = self._fitted(choice.message, prompt=prompt, reason=reason)
        else:
            text = after_thoughts(text) or ""
            text, spans = guided_text(text, prompt.guide, form=form, reason=reason, turn=turn), choice.tokens
        token_ids = self._tokenizer.encode(text)
        is_masked = form is GuideForm.STRUCTURED_OUTPUTS
        return Completion(
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            logprobs=_path_logprobs(spans, text=text, num_tokens=len(token_ids)) if spans and is_masked else None,
            menu_logprobs=menu_logprobs(prompt.guide, _candidates(spans, text)) if spans else None,
            num_prompt_tokens=body.num_prompt_tokens or len(prompt.token_ids),
            num_cached_prompt_tokens=(usage.cached_tokens if usage else None) or 0,
            num_billed_tokens=usage.completion_tokens or None if usage else None,
            engine_seconds=response.elapsed_seconds,
        )

    def _silence(self, prompt: Prompt) -> dict[str, JsonValue]:
        """Switches off the thinking that the user switched on: a guided turn has no room for it."""
        values = self._fixed.get(CHAT_TEMPLATE_KWARGS)
        if prompt.guide is None or not isinstance(values, dict) or THINKING_WORD not in values:
            return {}
        return {CHAT_TEMPLATE_KWARGS: {**values, THINKING_WORD: False}}

    def _fitted(self, message: "Message", *, prompt: Prompt, reason: FinishReason) -> tuple[str, FinishReason]:
        """What a free turn wrote, its thoughts first; cut where it exceeds its budget by the user's tokeniser."""
        thoughts, said = self._parts(message, is_cut=reason is FinishReason.LENGTH)
        token_ids = self._tokenizer.encode(said)
        if len(token_ids) > prompt.max_tokens:
            said = self._tokenizer.text_of(token_ids[: prompt.max_tokens]).rstrip("\ufffd")
            reason = FinishReason.LENGTH
        return thoughts + said, reason

    def _parts(self, message: "Message", *, is_cut: bool) -> tuple[str, str]:
        """Thoughts between their tags, and what follows them. A thought that was cut off is not closed."""
        said = message.content or ""
        if message.thoughts:
            ends = not (is_cut and not said)
            thoughts = self._markers.neutralise(message.thoughts)  # a tag that they mention would end them
            return OPENING + thoughts + (THOUGHT_END if ends else ""), said
        before, follow_ups, after = said.partition(THOUGHT_END)
        begins = said.lstrip().startswith(OPENING)
        if follow_ups and (begins or self._opens_thought or OPENING not in before):
            return ("" if begins else OPENING) + before + follow_ups, after
        if is_cut and (begins or self._opens_thought):
            return ("" if begins else OPENING) + said, ""
        return "", said


class TokenCandidate(BaseModel):
    """A token that could have stood at a place."""

    token: str
    logprob: Logprob


class Token(TokenCandidate):
    """A token of a completion."""

    top_logprobs: list[TokenCandidate] = []


class Message(BaseModel):
    """What the model said."""

    content: str | None = None
    refusal: str | None = None
    reasoning: str | None = None
    """Its thoughts, where the server tells them apart."""
    reasoning_content: str | None = None
    """The same, by an older name."""

    @field_validator("content", mode="before")
    @classmethod
    def _join_parts(cls, content: Any) -> Any:
        """The text of a content that is a list of parts; parts of another kind, such as thoughts, say nothing."""
        if not isinstance(content, list):
            return content
        parts = [{"text": part} if isinstance(part, str) else part for part in content if isinstance(part, str | dict)]
        texts = [part.get("text") for part in parts if part.get("type", "text") in ("text", "output_text")]
        return "".join(text for text in texts if isinstance(text, str))

    @property
    def thoughts(self) -> str:
        """Its thoughts, by whichever name."""
        return self.reasoning or self.reasoning_content or ""


class ChatChoice(Choice):
    """One completion."""

    message: Message
    content_filter_results: dict[str, JsonValue] | None = None
    """What Azure's filter says of the completion."""
    tokens: list[Token] | None = Field(None, validation_alias=AliasPath("logprobs", "content"))
    """Its tokens with their log-probabilities, if the server gives them."""


class ChatResponse(Completions):
    """Body of a successful `POST /chat/completions`."""

    choices: list[ChatChoice] = Field(min_length=1)
    prompt_filter_results: list[dict[str, JsonValue]] | None = None
    """What Azure's filter says of the prompt."""

    @property
    def is_filtered(self) -> bool:
        """Whether the provider's filter took something away, by its name or by a flag alone."""
        choice = self.choices[0]
        results = [choice.content_filter_results or {}]
        for prompt in self.prompt_filter_results or ():
            of_prompt = prompt.get("content_filter_results")
            results.append(of_prompt if isinstance(of_prompt, dict) else {})
        flags = (each.get("filtered") for result in results for each in result.values() if isinstance(each, dict))
        return choice.finish_reason == CONTENT_FILTER or any(flag is True for flag in flags)


ChatApi.response_type = ChatResponse


def _passes_over_budget(response: Response, *, budget: int) -> bool:
    """Whether a server does not know the name of the budget: it says so, or writes on."""
    if refused_fields(response, [MAX_COMPLETION_TOKENS]):
        return True
    usage = response.body.usage if response.body else None
    return ((usage.completion_tokens if usage else None) or 0) > budget + OBJECT_TOKENS


def _finish_reason(body: ChatResponse, *, turn: str) -> FinishReason:
    choice = body.choices[0]
    if choice.message.refusal:
        raise EngineRequestError(f"{turn}: the model refused to answer: {choice.message.refusal[:MESSAGE_CHARS]}")
    if body.is_filtered:
        raise EngineRequestError(f"{turn}: the provider's content filter stopped the completion ({CONTENT_FILTER})")
    return finish_reason(choice.finish_reason, turn=turn)


def _candidates(tokens: Sequence[Token], text: str) -> list[tuple[str, float]]:
    """What could have stood where a value of one token stands, with log-probabilities."""
    found = [token for token in tokens if token.token == text]
    return [(each.token, each.logprob) for each in found[-1].top_logprobs] if found else []


def _path_logprobs(tokens: Sequence[Token], *, text: str, num_tokens: int) -> list[float] | None:
    """Log-probability of each token; None where the server cuts the text in another way."""
    path = tokens[:num_tokens]
    return [token.logprob for token in path] if "".join(token.token for token in path) == text else None
