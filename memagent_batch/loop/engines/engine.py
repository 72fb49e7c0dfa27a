"""What an engine is: prompts in, completions out."""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, Self

from pydantic import JsonValue

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.errors import EngineRequestError, EngineStartError, PromptTooLongError
from memagent_batch.loop.guides import GuideKind
from memagent_batch.types import Completion, FinishReason, Prompt

if TYPE_CHECKING:
    from memagent_batch.loop.tokens.tokenizer import Tokenizer


class Completer(Protocol):
    """All that a reading knows of an engine."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt; see `Engine.complete`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What an engine reads with, beside its own settings."""

    model: str
    """Model folder or hub name; for an endpoint, the name that it serves."""
    tokenizer: str | None
    """Folder or hub name of the tokeniser, if it is not the model's."""
    window_tokens: int
    sampling: SamplingConfig
    load_tokenizer: "Callable[[], Tokenizer]"
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What the user gives the chat template; prompts have it already, unless the engine takes messages."""
    largest_turn: Callable[[], int] = lambda: 0
    """Tokens of the largest turn of the job, its completion included; 0 if it is not known."""
    num_replicas: int = 1
    """Replicas of the job, which share the limits of an endpoint."""


class Folder(Protocol):
    """A folder of small files, or a file in it, that outlives the process."""

    def __truediv__(self, name: str, /) -> "Folder":
        """The file of this name."""

    def at(self, path: str) -> "Folder":
        """The file of a path that `files` lists."""

    def files(self) -> list[str]:
        """Paths of its files, sorted by name."""

    def read_bytes_if_there(self) -> bytes | None:
        """The whole file; None if there is none."""

    def write_bytes(self, data: bytes) -> None:
        """Writes the file whole or not at all."""

    def delete(self) -> None:
        """Removes the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchLimits:
    """The limits of one batch of turns."""

    num_requests: int
    num_bytes: int


class Engine(ABC):
    """Turns prompts into completions, many at once, on the event loop that started it.

    A subclass is a dataclass or pydantic model: its fields are its settings, and until `open` it is a plain value that
    pickles. `open`, `complete` and `identity` are all that it must have.
    """

    kind: ClassVar[str]
    secrets: ClassVar[frozenset[str]] = frozenset()
    has_weights: ClassVar[bool] = False
    """Whether it loads the model's weights here: their hash identifies the model, else its name does."""
    has_model: ClassVar[bool] = True
    """Whether a model reads; else tables name the engine in its place."""
    takes_guides: ClassVar[bool] = False
    """Whether it obeys the guide of a prompt."""
    first_step: ClassVar[str] = "starting the engine"
    """What a run waits for until the first turn."""
    pool_defaults: ClassVar[Mapping[str, int]] = {}
    """Defaults of settings of `pool` for jobs with this engine, by name."""

    @abstractmethod
    def open(self, context: EngineContext) -> Self:
        """Takes what it reads with; starts nothing.

        Raises:
            EngineStartError: model or settings can't work, as far as that is seen without starting.
        """

    @abstractmethod
    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt, drawn with `seed` (0 to 2^31 - 1).

        Raises:
            PromptTooLongError: prompt and budget exceed the window; nothing was sent.
            EngineRequestError: this request failed; others go on.
            EngineUnavailableError: an endpoint has been away for too long; this reading is for the next run.
            EngineRefusedError: an endpoint refuses every request, as with an expired key.
            EngineDeadError: the engine can serve nothing more.
        """

    @abstractmethod
    def identity(self) -> Mapping[str, Any]:
        """What decides a result, as JSON values: its kind, number formats, and what the user passes through."""

    def keep_in(self, folder: Folder, *, flush: Callable[[], Awaitable[None]]) -> None:  # noqa: B027 - as `start`
        """Takes a folder beside the turn log, before the start, for what the next engine must know after a crash.

        `flush` returns when all turns that were recorded so far are durable.
        """

    async def start(self) -> None:  # noqa: B027 - nothing to do unless a subclass says so
        """Makes the engine ready. Raises EngineStartError if model or settings can't work."""

    async def rejoin(self) -> None:
        """Starts in an actor that joins a run in progress: an endpoint that is away now was there before.

        So an engine at an endpoint returns at once, and its requests wait as in any outage.
        """
        await self.start()

    def advice(self, *, model: str, num_prompt_tokens: int, most_completion_tokens: int) -> str:
        """Returns a sentence for `memagent plan` that advises to change a setting for a job of this size, or "".

        Called before `open`.

        Args:
            model: Folder of the weights, or name of the model.
            num_prompt_tokens: Tokens of the prompts that the job computes.
            most_completion_tokens: Sum of the budgets of its completions.
        """
        return ""

    async def describe_server(self) -> Mapping[str, JsonValue]:
        """What a server says of itself and of the model, for the record of a run; empty for an engine without one.

        Asked of an engine that was not started; what does not answer is left out. It decides no fingerprint.
        """
        return {}

    async def stop(self) -> None:  # noqa: B027 - as `start`
        """Frees what the engine uses; no process of it is left."""

    @property
    def num_gpus(self) -> float:
        """GPUs of one node that one engine takes."""
        return 0

    @property
    def batch_limits(self) -> BatchLimits | None:
        """The limits of a batch, if the turns that wait are sent together; None if each turn is sent at once."""
        return None

    @property
    def takes_messages(self) -> bool:
        """Whether a prompt is the text of a user message, without a template around it: the engine wraps it itself."""
        return False

    @property
    def away_seconds(self) -> float:
        """How long an endpoint has been away; 0 if it answers."""
        return 0.0

    @property
    def away_reason(self) -> str:
        """The last failure that showed it."""
        return ""

    def check_guides(self, kinds: Collection[GuideKind]) -> None:
        """Checks, before the start, that the engine takes guides at all, if there are kinds.

        Raises:
            EngineStartError: it does not; names the kinds and what to do.
        """
        if kinds and not self.takes_guides:
            raise EngineStartError(
                f"engine: {type(self).__name__} takes no guides, and the questions or follow-up questions need them "
                f"({', '.join(sorted(kinds))}); use vllm, or leave out answer_type and follow-up questions"
            )

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """Checks, after the start and before the first reading, that guides of these kinds are obeyed.

        Raises:
            EngineStartError: one is not; names it and what to do.
        """
        self.check_guides(kinds)


def require_fit(prompt: Prompt, *, window_tokens: int) -> None:
    """Refuses a prompt that can't fit the window with its completion budget.

    Raises:
        PromptTooLongError: names the turn, the sizes in tokens and the remedy.
    """
    if len(prompt.token_ids) + prompt.max_tokens <= window_tokens:
        return
    settings = "policy.chunk_tokens" if prompt.span or prompt.shown else "policy.memory_tokens"
    if prompt.fingerprint is not None:
        settings = "follow_ups.evidence_tokens, policy.memory_tokens or policy.answer_tokens"
    raise PromptTooLongError(
        f"turn {prompt.path}: prompt of {len(prompt.token_ids)} tokens and budget of {prompt.max_tokens} exceed the "
        f"window of {window_tokens}; lower {settings}, or raise window_tokens if the model allows it"
    )


def finish_reason(reason: str | None, *, turn: str) -> FinishReason:
    """Why a completion ended; `turn` names it and its engine.

    Raises:
        EngineRequestError: the request was ended without one.
    """
    if reason not in tuple(FinishReason):
        raise EngineRequestError(f"{turn} ended it with `{reason}`")
    return FinishReason(reason)
