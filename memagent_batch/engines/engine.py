"""What an engine is: prompts in, completions out."""

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Protocol, runtime_checkable

from memagent_batch.config.agent import SamplingConfig
from memagent_batch.domain.guides import GuideKind
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.errors import EngineStartError, PromptTooLongError

if TYPE_CHECKING:
    from memagent_batch.engines.tokenizer import Tokenizer


class Engine(Protocol):
    """Turns prompts into completions, many at once, on the event loop that started it."""

    async def start(self) -> None:
        """Makes the engine ready. Raises EngineStartError where model or arguments can't work."""

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """The completion of one prompt, drawn with `seed` (0 to 2^31 - 1).

        Raises:
            PromptTooLongError: prompt and budget exceed the window; nothing was sent.
            EngineRequestError: this request failed; others go on.
            EngineUnavailableError: an endpoint has been away for too long; this reading is for the next run.
            EngineRefusedError: an endpoint refuses every request, as with an expired key.
            EngineDeadError: the engine can serve nothing more.
        """

    async def stop(self) -> None:
        """Frees what the engine holds; no process of it is left."""


class Outage(Protocol):
    """Whether an endpoint is away."""

    @property
    def away_seconds(self) -> float:
        """How long it has been away; 0 where it is there."""

    @property
    def failure(self) -> str:
        """The last sign of its absence."""


@runtime_checkable
class RemoteEngine(Engine, Protocol):
    """An engine outside this process, which may be away for a while."""

    async def rejoin(self) -> None:
        """Stands for `start` in an actor that joins a run under way: returns whether or not the engine is there.

        An engine that is away at that moment is one that was there before, so requests wait for it as in any outage.
        """

    @property
    def outage(self) -> Outage:
        """What is known of that."""


@runtime_checkable
class GuidedEngine(Engine, Protocol):
    """An engine that obeys the guide of a prompt."""

    async def require_guides(self, kinds: Collection[GuideKind]) -> None:
        """Makes sure that guides of these kinds are obeyed; the engine has started.

        Raises:
            EngineStartError: one is not; names it and what to do.
        """


@runtime_checkable
class RenewableEngine(Engine, Protocol):
    """An engine in this process whose weights can be replaced while it runs."""

    async def renew(self, model: str) -> None:
        """Takes the weights of another folder of the same architecture; no request may be under way.

        Raises:
            EngineStartError: the folder can't be used.
            EngineDeadError: the engine can serve nothing more.
        """

    def with_sampling(self, sampling: SamplingConfig) -> Engine:
        """The same running engine for requests with other sampling."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineContext:
    """What an engine reads with, beside its own knobs."""

    model: str
    """Model folder or hub name; for an endpoint, the name that it serves."""
    tokenizer: str | None
    """Folder or hub name of the tokeniser, where it is not the model's."""
    window_tokens: int
    """Context window, tokens."""
    sampling: SamplingConfig
    """How tokens are drawn."""
    load_tokenizer: "Callable[[], Tokenizer]"
    """Loads the model's tokeniser."""
    chat_template_kwargs: Mapping[str, Any] = field(default_factory=dict)
    """What the user gives the chat template; prompts have it already, but where the engine takes messages."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Resources:
    """What one engine takes of the cluster."""

    num_gpus: float = 0
    """GPUs of one node."""


class EngineConfig(Protocol):
    """An engine that is not started: a frozen value whose fields are its knobs."""

    kind: ClassVar[str]
    """Name in settings and tables."""
    secrets: ClassVar[frozenset[str]]
    """Knobs that no record holds."""
    has_weights: ClassVar[bool]
    """Whether it loads the model's weights here: their hash identifies the model, else its name does."""
    first_step: ClassVar[str]
    """What a run waits for until the first turn."""

    def open(self, context: EngineContext) -> Engine:
        """The engine, not started.

        Raises:
            EngineStartError: model or knobs can't work, as far as that is seen without starting.
        """

    def identity(self) -> Mapping[str, Any]:
        """What decides a result, as JSON values: its kind, number formats, and what the user passes through."""

    def resources(self) -> Resources:
        """What one engine takes of the cluster."""


@runtime_checkable
class MessageEngineConfig(EngineConfig, Protocol):
    """An engine that may wrap a message into a chat template itself."""

    @property
    def takes_messages(self) -> bool:
        """Whether a prompt is the text of a user message, as the tokeniser writes it, without a template around it."""


@runtime_checkable
class ThinkingEngineConfig(EngineConfig, Protocol):
    """An engine that may keep a thought to `sampling.thinking_tokens`."""

    @property
    def ends_thoughts(self) -> bool:
        """Whether it does: it writes the tag that ends a thought when the tokens are spent."""


async def require_guides(engine: Engine, kinds: Collection[GuideKind]) -> None:
    """Makes sure, before the first reading, that an engine obeys guides of these kinds; it has started.

    Raises:
        EngineStartError: it does not; names the kind and what to do.
    """
    if kinds:
        await require_guided(engine, kinds).require_guides(kinds)


def require_guided(engine: Engine, kinds: Collection[GuideKind]) -> GuidedEngine:
    """The engine, if it takes guides at all; it need not have started.

    Raises:
        EngineStartError: it takes none; names the kinds and what to do.
    """
    if isinstance(engine, GuidedEngine):
        return engine
    names = ", ".join(sorted(kinds))
    raise EngineStartError(
        f"engine: {type(engine).__name__} takes no guides, and the questions or closing turns need them ({names}); "
        "use vllm, or leave out answer_type and closing turns"
    )


def require_fit(prompt: Prompt, *, window_tokens: int) -> None:
    """Refuses a prompt that can't fit the window with its completion budget.

    Raises:
        PromptTooLongError: names the turn, the sizes in tokens and the remedy.
    """
    if len(prompt.token_ids) + prompt.max_tokens > window_tokens:
        raise PromptTooLongError(
            f"turn {prompt.path}: prompt of {len(prompt.token_ids)} tokens and budget of {prompt.max_tokens} exceed "
            f"the window of {window_tokens}; lower {_knobs_of(prompt)}, or raise window_tokens if the model allows it"
        )


def _knobs_of(prompt: Prompt) -> str:
    """The knobs that bound what a prompt shows."""
    if prompt.fingerprint is not None:
        return "closing.evidence_tokens, policy.memory_tokens or policy.answer_tokens"
    return "policy.chunk_tokens" if prompt.span or prompt.shown else "policy.memory_tokens"
