"""Where the turns of a reading come from: the log, another reading of its question list, or else the engine."""

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.turns import Completion, FinishReason, Generate, Prompt
from memagent_batch.engines.engine import Engine
from memagent_batch.log.index import ReadingKey, Row, reading_key
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.reading.generation import HeldTurn, Recording, Replaying
from memagent_batch.reading.suspects import Suspects


@dataclass(frozen=True, slots=True, kw_only=True)
class LoggedTurns:
    """Turns of one engine, each kept in the log under an address."""

    engine: Engine
    """Where turns come from that the log does not hold."""
    log: TurnLogWriter
    """Where they go."""
    suspects: Suspects
    """Watches those that are under way."""
    seed: int
    """The run's seed."""

    def at(self, address: ReadingAddress, held: Mapping[ReadingKey, Mapping[str, Row]]) -> Generate:
        """`generate` for the turns at this address: what is held is answered by the log."""
        ask = partial(engine_turn, self.engine, address, seed=self.seed)
        recording = Recording(
            generate=self.suspects.guard(ask, address=address), record=partial(self.log.record_turn, address)
        )
        turns = {path: held_turn(row) for path, row in held.get(reading_key(address), {}).items()}
        return Replaying(generate=partial(self._with_room, recording), held=turns)

    async def _with_room(self, generate: Generate, prompt: Prompt) -> Completion:
        """A turn, begun when the log can take it: while the store fails, turns wait here and memory stays bounded."""
        await self.log.room()
        return await generate(prompt)


class SharedTurns:
    """The shared turns of one question list over one document. Readings that share none have one of these each."""

    def __init__(self) -> None:
        """Nothing is asked for yet."""
        self.by_path: dict[str, asyncio.Future[Completion]] = {}
        """Turns by path, under way or ended."""
        self._first_ended: asyncio.Event | None = None

    @asynccontextmanager
    async def place(self, slots: asyncio.Semaphore) -> AsyncIterator[None]:
        """A place among the readings in flight. The first reading takes it at once, the others when that has ended.

        They would do nothing but wait for its turns, and so hold places that other documents could use.
        """
        if self._first_ended is not None:
            await self._first_ended.wait()
            async with slots:
                yield
            return
        self._first_ended = asyncio.Event()
        try:
            async with slots:
                yield
        finally:
            self._first_ended.set()


async def engine_turn(engine: Engine, address: ReadingAddress, prompt: Prompt, *, seed: int) -> Completion:
    """One turn with its own seed."""
    return await engine.complete(prompt, seed=address.turn_seed(prompt.path, seed=seed))


def held_turn(row: Row) -> HeldTurn:
    """A row of the turn log as a turn to replay."""
    return HeldTurn(
        prompt_hash=row["prompt_hash"],
        completion=Completion(
            token_ids=row["token_ids"],
            text=row["text"],
            finish_reason=FinishReason(row["finish_reason"]),
            logprobs=row["logprobs"],
            num_prompt_tokens=row["num_prompt_tokens"],
            num_cached_prompt_tokens=row["num_cached_prompt_tokens"],
            engine_seconds=row["engine_seconds"],
        ),
    )
