"""What an engine is: prompts in, completions out."""

from typing import Protocol, runtime_checkable

from memagent_batch.config import SamplingConfig
from memagent_batch.domain.turns import Completion, Prompt
from memagent_batch.errors import PromptTooLongError


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


class RenewableEngine(Engine, Protocol):
    """An engine in this process whose weights can be replaced while it runs."""

    async def renew(self, model: str) -> None:
        """Takes the weights of another folder of the same architecture; no request may be under way.

        Raises:
            EngineStartError: the folder can't be used.
            EngineDeadError: the engine can serve nothing more.
        """

    def with_sampling(self, sampling: SamplingConfig) -> Engine:
        """The same running engine for requests that draw their tokens otherwise."""


def require_fit(prompt: Prompt, *, window_tokens: int) -> None:
    """Refuses a prompt that can't fit the window with its completion budget.

    Raises:
        PromptTooLongError: names the turn, the sizes in tokens and the remedy.
    """
    if len(prompt.token_ids) + prompt.max_tokens > window_tokens:
        raise PromptTooLongError(
            f"turn {prompt.path}: prompt of {len(prompt.token_ids)} tokens and budget of {prompt.max_tokens} exceed "
            f"the window of {window_tokens}; lower policy.chunk_tokens, or raise window_tokens if the model allows it"
        )
