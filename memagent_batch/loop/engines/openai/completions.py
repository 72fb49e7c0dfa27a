"""The API that takes token ids: `POST /completions`, as the servers of vLLM and SGLang offer it."""

from collections.abc import Mapping
from typing import Annotated, ClassVar, cast

from pydantic import AliasPath, Field, JsonValue

from memagent_batch.errors import EngineRequestError
from memagent_batch.loop.engines.engine import finish_reason
from memagent_batch.loop.engines.openai.protocol import (
    ADDRESS_REMEDY,
    NEUTRAL,
    Api,
    Choice,
    Completions,
    GuideForm,
    Logprob,
    Response,
    guided_text,
)
from memagent_batch.loop.guides import menu_logprobs, num_candidates
from memagent_batch.types import Completion, Prompt

RETURN_TOKEN_IDS = "return_token_ids"
"""vLLM's extension that returns the tokens of a completion beside its text."""

TOKEN_REMEDY = (
    f"{ADDRESS_REMEDY}: the endpoint must take prompts of token ids at /completions, as the servers of vLLM and SGLang "
    "do; for one that offers only chat, read docs/how-to/endpoints.md and set openai.api: chat"
)

TokenId = Annotated[int, Field(ge=0, lt=2**31)]


class CompletionsApi(Api):
    """Prompts as token ids, completions as token ids or as text."""

    path: ClassVar[str] = "completions"
    probe_tokens: ClassVar[int] = 1
    optional: ClassVar[Mapping[str, JsonValue]] = {**NEUTRAL, RETURN_TOKEN_IDS: True}

    def _shown(self, prompt: Prompt, *, form: GuideForm | None) -> dict[str, JsonValue]:
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
        body = cast(CompletionResponse, response.body)
        choice, usage = body.choices[0], body.usage
        _require_plausible(choice, max_tokens=self.budget(prompt, form), turn=turn)
        reason = finish_reason(choice.finish_reason, turn=turn)
        text = guided_text(self._text(choice, prompt=prompt), prompt.guide, form=form, reason=reason, turn=turn)
        own_ids = None if form is GuideForm.RESPONSE_OBJECT else choice.token_ids
        token_ids = self._tokenizer.encode(text) if own_ids is None else own_ids
        return Completion(
            token_ids=token_ids,
            text=text,
            finish_reason=reason,
            logprobs=self._log_probabilities(choice, form=form, num_tokens=len(token_ids)),
            menu_logprobs=menu_logprobs(prompt.guide, choice.first_candidates())
            if form is GuideForm.STRUCTURED_OUTPUTS
            else None,
            num_prompt_tokens=len(prompt.token_ids),
            num_cached_prompt_tokens=(usage.cached_tokens if usage else None) or 0,
            num_billed_tokens=usage.completion_tokens or None if usage and own_ids is None else None,
            engine_seconds=response.elapsed_seconds,
        )

    def _text(self, choice: "TextChoice", *, prompt: Prompt) -> str:
        """The choice's text, with the tags of thoughts, which servers leave out where they are special tokens."""
        if choice.token_ids is None or not self._tokenizer.has_thought_tags:
            return choice.text
        return self._tokenizer.continuation(choice.token_ids, after=prompt.token_ids)

    def _log_probabilities(
        self, choice: "TextChoice", *, form: GuideForm | None, num_tokens: int
    ) -> list[float] | None:
        """Log-probability of each token, where they were asked for or the engine masks before it takes them."""
        if form is GuideForm.RESPONSE_OBJECT:  # they are those of the object
            return None
        if self._sampling.logprobs:
            return _logprobs(choice, num_tokens=num_tokens)
        return None if form is None else choice.path_logprobs()


class TextChoice(Choice):
    """One completion."""

    text: str
    token_ids: list[TokenId] | None = None
    """Its tokens; vLLM's extension."""
    logprobs: list[Logprob | None] = Field([], validation_alias=AliasPath("logprobs", "token_logprobs"))
    """Log-probability of each token."""
    top_logprobs: list[dict[str, Logprob] | None] | None = Field(
        None, validation_alias=AliasPath("logprobs", "top_logprobs")
    )
    """For each token those that could have stood there, by their text."""

    @property
    def known_logprobs(self) -> list[float]:
        """Log-probabilities that the server gives."""
        return [value for value in self.logprobs if value is not None]

    def path_logprobs(self) -> list[float] | None:
        """Log-probability of each token; None where the server gives no such numbers, or no tokens."""
        found = self.known_logprobs
        return found if found and len(found) == len(self.token_ids or ()) else None

    def first_candidates(self) -> list[tuple[str, float]]:
        """Texts that could have come first, with their log-probabilities."""
        return list((self.top_logprobs[0] or {}).items()) if self.top_logprobs else []


class CompletionResponse(Completions):
    """Body of a successful `POST /completions`."""

    choices: list[TextChoice] = Field(min_length=1)


CompletionsApi.response_type = CompletionResponse


def _require_plausible(choice: TextChoice, *, max_tokens: int, turn: str) -> None:
    if choice.token_ids == [] and choice.text:
        raise EngineRequestError(f"{turn} sent a text without its tokens")
    if choice.token_ids is not None and len(choice.token_ids) > max_tokens:
        raise EngineRequestError(f"{turn} sent {len(choice.token_ids)} tokens where {max_tokens} were asked for")


def _logprobs(choice: TextChoice, *, num_tokens: int) -> list[float]:
    if choice.token_ids is None:
        raise EngineRequestError(
            "the endpoint sent log-probabilities without the tokens that they belong to; use one that returns token "
            "ids, such as vLLM's, or set sampling.logprobs=false"
        )
    logprobs = choice.known_logprobs
    if len(logprobs) != num_tokens:
        raise EngineRequestError(
            f"the endpoint sent {len(logprobs)} logprobs for {num_tokens} tokens; use one that returns token ids, "
            "such as vLLM's, or set sampling.logprobs=false"
        )
    return logprobs
