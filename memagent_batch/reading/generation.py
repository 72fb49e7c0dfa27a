"""What wraps `generate` around an engine: replay, recording, sharing, accounting. Each keeps the same signature."""

import asyncio
from collections.abc import Callable, Mapping, MutableMapping
from dataclasses import dataclass, field, replace

from memagent_batch.domain.addresses import token_hash
from memagent_batch.domain.turns import Completion, FinishReason, Generate, Prompt, TurnKind


@dataclass(frozen=True, slots=True, kw_only=True)
class HeldTurn:
    """A turn that the log holds."""

    prompt_hash: str
    """Hash of the prompt that it answered."""
    completion: Completion
    """What the engine returned then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Replaying:
    """Answers from the log what the log holds, and asks `generate` for the rest."""

    generate: Generate
    """Where turns come from that the log does not hold."""
    held: Mapping[str, HeldTurn]
    """Turns of this reading by path."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """A held turn answers only the very prompt that it was logged for."""
        turn = self.held.get(prompt.path)
        if turn is not None and turn.prompt_hash == token_hash(prompt.token_ids):
            return replace(turn.completion, replayed=True)
        return await self.generate(prompt)


@dataclass(frozen=True, slots=True, kw_only=True)
class Recording:
    """Hands every finished turn to `record`."""

    generate: Generate
    """Where turns come from."""
    record: Callable[[Prompt, Completion], None]
    """Takes a turn; must not block."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """The completion, after it was recorded."""
        completion = await self.generate(prompt)
        self.record(prompt, completion)
        return completion


@dataclass(frozen=True, slots=True, kw_only=True)
class Sharing:
    """Runs a shared turn once for all readings of a question list; the others get what it brought, or its error."""

    own: Generate
    """Where turns of this reading alone come from."""
    shared: Generate
    """Where shared turns come from."""
    turns: MutableMapping[str, "asyncio.Future[Completion]"]
    """Shared turns by path, under way or ended: the same mapping for all readings of the list."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """The first to ask for a shared turn runs it."""
        if not prompt.shared:
            return await self.own(prompt)
        if prompt.path in self.turns:
            return replace(await asyncio.shield(self.turns[prompt.path]), replayed=True)
        self.turns[prompt.path] = asyncio.ensure_future(self.shared(prompt))
        return await asyncio.shield(self.turns[prompt.path])


@dataclass(slots=True, kw_only=True)
class Numbering:
    """Numbers the turns of a reading in the order in which its policy asks for them: the same at every replay.

    Mutable: it counts the turns of one reading.
    """

    generate: Generate
    """Where turns come from."""
    num_asked: int = field(default=0, init=False)
    """Turns asked for so far."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """The completion of the numbered prompt."""
        number, self.num_asked = self.num_asked, self.num_asked + 1
        return await self.generate(replace(prompt, number=number))


@dataclass(slots=True, kw_only=True)
class Tally:
    """Counts what a reading's turns cost. Mutable: it is the running sum of one reading."""

    generate: Generate
    """Where turns come from."""
    with_shared: bool = True
    """Whether shared turns are counted; in one reading of a question list, so that sums over rows are true."""
    num_turns: int = field(default=0, init=False)
    """Turns, replayed ones included."""
    num_replayed_turns: int = field(default=0, init=False)
    """Turns that the log answered."""
    num_prompt_tokens: int = field(default=0, init=False)
    """Prompt tokens of all turns."""
    num_cached_prompt_tokens: int = field(default=0, init=False)
    """Of these, held by the engine's prefix cache."""
    num_completion_tokens: int = field(default=0, init=False)
    """Completion tokens of all turns."""
    engine_seconds: float = field(default=0.0, init=False)
    """Time inside the engine, summed over turns."""
    memory_truncations: int = field(default=0, init=False)
    """Update turns that were cut at their budget, shared ones always among them."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """The completion, after it was counted."""
        completion = await self.generate(prompt)
        cut = completion.finish_reason == FinishReason.LENGTH
        self.memory_truncations += prompt.kind == TurnKind.UPDATE and cut
        if prompt.shared and not self.with_shared:
            return completion
        self.num_turns += 1
        self.num_replayed_turns += completion.replayed
        self.num_prompt_tokens += completion.num_prompt_tokens
        self.num_cached_prompt_tokens += completion.num_cached_prompt_tokens
        self.num_completion_tokens += len(completion.token_ids)
        self.engine_seconds += completion.engine_seconds
        return completion

    def counts(self) -> dict[str, int | float]:
        """The sums, by the names of the tables' columns."""
        names = [
            "num_turns",
            "num_replayed_turns",
            "num_prompt_tokens",
            "num_cached_prompt_tokens",
            "num_completion_tokens",
            "engine_seconds",
            "memory_truncations",
        ]
        return {name: getattr(self, name) for name in names}
