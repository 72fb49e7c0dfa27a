"""The API that takes messages: `POST /chat/completions`, as hosted models offer it.

The server renders and tokenises what it is sent. So the markers of chat templates in a text are made harmless first,
tokens are counted by the user's tokeniser, and no completion has the server's tokens.
"""

import re
from collections.abc import Collection
from typing import Any, ClassVar, cast

from pydantic import AliasPath, BaseModel, Field, JsonValue, field_validator

from memagent_batch.config.engines import OpenAIConfig
from memagent_batch.errors import EngineRequestError, EngineStartError
from memagent_batch.loop.completions import OPENING, THOUGHT_END, after_thoughts
from memagent_batch.loop.engines.engine import EngineContext, finish_reason
from memagent_batch.loop.engines.openai.api import (
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
from memagent_batch.loop.tokens.chat_template import THINKING_WORD
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

    def __init__(self, tokenizer_markers: Collection[str] = ()) -> None:
        """Takes the markers of the tokeniser, as texts; one character alone marks nothing."""
        markers = [re.escape(marker) for marker in tokenizer_markers if len(marker.strip()) > 1]
        self._pattern = re.compile("|".join([*sorted(markers, key=len, reverse=True), *FAMILIES]))

    def neutralise(self, text: str) -> str:
        """The text with each marker made harmless."""
        return self._pattern.sub(_neutral_marker, text)


def _neutral_marker(match: re.Match[str]) -> str:
    marker = match[0]
    first, last = BRACKETS.get(marker[0], marker[0] + MARKER_BREAK), BRACKETS.get(marker[-1], marker[-1])
    return first + marker[1:-1] + last


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


class ChatCompletions(Completions):
    """Body of a successful `POST /chat/completions`."""

    choices: list[ChatChoice] = Field(min_length=1)
    prompt_filter_results: list[dict[str, JsonValue]] | None = None
    """What Azure's filter says of the prompt."""

    @property
    def is_filtered(self) -> bool:
        """Whether the provider's filter took something away, by its name or by a flag alone."""
        choice = self.choices[0]
        of_prompts = [result.get("content_filter_results") for result in self.prompt_filter_results or ()]
        results = [result for result in (choice.content_filter_results, *of_prompts) if isinstance(result, dict)]
        categories = [category for result in results for category in result.values() if isinstance(category, dict)]
        is_flagged = any(category.get("filtered") is True for category in categories)
        return is_flagged or choice.finish_reason == CONTENT_FILTER


class ChatApi(Api):
    """Prompts as one user message, completions as text."""

    path = "chat/completions"
    probe_tokens = 16  # some models that think refuse a budget in which they can't say anything
    response_type = ChatCompletions
    address_remedy: ClassVar[str] = CHAT_REMEDY

    def __init__(self, context: EngineContext, *, settings: OpenAIConfig, tokenizer: Tokenizer) -> None:
        """Takes what every request says; the tokeniser need not be the served model's.

        Raises:
            EngineStartError: log-probabilities are to be kept, which have no tokens to belong to here.
        """
        if context.sampling.logprobs:
            raise EngineStartError(
                "openai.api: a chat API returns no tokens that log-probabilities could belong to; set "
                "sampling.logprobs=false, or use api completions (`memagent collect` needs them)"
            )
        super().__init__(context, settings=settings, tokenizer=tokenizer)
        self._markers = Markers(tokenizer.control_texts)
        template = tokenizer.chat_template
        values = template.at_server().values(context.chat_template_kwargs)
        self._opens_thought = template.is_there and template.opens_thought(values)
        self._template_values = values if context.chat_template_kwargs else {}
        self._optional |= {CHAT_TEMPLATE_KWARGS: values} if values else {}
        self._budget_name = MAX_COMPLETION_TOKENS
        self._gives_logprobs = True

    def _prompt_fields(self, prompt: Prompt, *, form: GuideForm | None) -> dict[str, JsonValue]:
        content = self._markers.neutralise(self._tokenizer.text_of(prompt.token_ids))
        shown: dict[str, JsonValue] = {
            "messages": [{"role": "user", "content": content}],
            self._budget_name: self.budget(prompt, form),
        }
        num_candidate = num_candidates(prompt.guide, logprobs=False)
        if num_candidate and self._gives_logprobs:
            shown |= {"logprobs": True, "top_logprobs": num_candidate}
        return shown

    def _template_fields(self, prompt: Prompt) -> dict[str, JsonValue]:
        """What the user gives the template. A guided turn has no room for the thinking that it may switch on."""
        values = dict(self._template_values)
        if prompt.guide is not None and THINKING_WORD in values:
            values[THINKING_WORD] = False
        return {CHAT_TEMPLATE_KWARGS: values} if values else {}

    def adapt(self, response: Response, *, budget: int) -> list[str]:
        """Leaves out fields that a refusal names, and finds the name of the budget; see `Api.adapt`."""
        refused = super().adapt(response, budget=budget)
        if self._gives_logprobs and refused_fields(response, ["logprobs"]):
            self._gives_logprobs = False
            refused.append("logprobs")
        num_written = (response.body.usage.completion_tokens if response.body else None) or 0
        writes_on = num_written > budget + OBJECT_TOKENS
        is_unknown = writes_on or refused_fields(response, [MAX_COMPLETION_TOKENS])
        if is_unknown and self._budget_name == MAX_COMPLETION_TOKENS:
            self._budget_name = "max_tokens"
            refused.append(MAX_COMPLETION_TOKENS)
        return refused

    def remedy(self, response: Response) -> str:
        """What to do where the endpoint refuses every request; see `Api.remedy`."""
        refused = refused_fields(response, DRAWN_FIELDS)
        if not refused:
            return self.address_remedy
        return (
            f"this model takes {refused[0]} at a value of its own only: set sampling.{refused[0]} to that, or leave it "
            f'out of every request with openai.extra_body: {{"{refused[0]}": null}}; answers may then differ from '
            "night to night"
        )

    def completion(self, response: Response, *, prompt: Prompt, turn: str, form: GuideForm | None = None) -> Completion:
        """The response as a completion; see `Api.completion`.

        Raises:
            EngineRequestError: the provider's filter stopped it, or the model refused.
        """
        body = cast(ChatCompletions, response.body)
        choice = body.choices[0]
        if choice.message.refusal:
            raise EngineRequestError(f"{turn}: the model refused to answer: {choice.message.refusal[:MESSAGE_CHARS]}")
        if body.is_filtered:
            raise EngineRequestError(f"{turn}: the provider's content filter stopped the completion ({CONTENT_FILTER})")
        reason = finish_reason(choice.finish_reason, turn=turn)
        if prompt.guide is None:
            text, reason = self._free_text(choice.message, prompt=prompt, reason=reason)
        else:
            text = after_thoughts(choice.message.content or "") or ""
            text = guided_text(text, prompt.guide, form=form, reason=reason, turn=turn)
        token_ids = self._tokenizer.encode(text)
        tokens = (choice.tokens or []) if prompt.guide else []
        values = [token for token in tokens if token.token == text]  # a value of one token, with an object around it
        candidates = [(each.token, each.logprob) for token in values[-1:] for each in token.top_logprobs]
        path = tokens[: len(token_ids)]
        is_path = form is GuideForm.STRUCTURED_OUTPUTS and "".join(token.token for token in path) == text
        return Completion(
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            logprobs=[token.logprob for token in path] if path and is_path else None,
            menu_logprobs=menu_logprobs(prompt.guide, candidates),
            num_prompt_tokens=body.num_prompt_tokens or len(prompt.token_ids),
            num_cached_prompt_tokens=body.usage.cached_tokens or 0,
            num_billed_tokens=body.usage.completion_tokens or None,
            engine_seconds=response.elapsed_seconds,
        )

    def _free_text(self, message: "Message", *, prompt: Prompt, reason: FinishReason) -> tuple[str, FinishReason]:
        """What a free turn wrote, its thoughts first; cut where it exceeds its budget by the user's tokeniser."""
        thoughts, text = self._split_thoughts(message, is_cut=reason is FinishReason.LENGTH)
        token_ids = self._tokenizer.encode(text)
        if len(token_ids) > prompt.max_tokens:
            text = self._tokenizer.text_of(token_ids[: prompt.max_tokens]).rstrip("\ufffd")
            reason = FinishReason.LENGTH
        return thoughts + text, reason

    def _split_thoughts(self, message: "Message", *, is_cut: bool) -> tuple[str, str]:
        """Thoughts between their tags, and what follows them. A thought that was cut off is not closed."""
        text = message.content or ""
        if message.thoughts:
            is_closed = bool(text) or not is_cut
            thoughts = self._markers.neutralise(message.thoughts)  # a tag that they mention would end them
            return OPENING + thoughts + (THOUGHT_END if is_closed else ""), text
        before, end, after = text.partition(THOUGHT_END)
        begins = text.lstrip().startswith(OPENING)
        opening = "" if begins else OPENING
        if end and (begins or self._opens_thought or OPENING not in before):
            return opening + before + end, after
        if is_cut and (begins or self._opens_thought):
            return opening + text, ""
        return "", text
