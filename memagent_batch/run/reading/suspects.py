"""Turns that were in flight when an engine died: remembered after the restart, and given up at the fourth death.

Without that, a turn that kills its engine would be retried forever, and stop the readings beside it each time. Turns
that were there at two deaths are suspects. They run in groups of 16, then those of the group that died run alone: of
256 suspects the one that kills is found by two more deaths, and without one they have run after 16 times one turn.
"""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager

from memagent_batch.data.store.turn_log.index import ReadingKey, reading_key
from memagent_batch.errors import EngineDeadError, EngineRequestError
from memagent_batch.loop.addresses import ReadingAddress

SUSPECT_DEATHS = 2
"""Deaths after which a turn is a suspect; any turn beside it may have caused the first."""
SUSPECTS_TOGETHER = 16
"""Suspects that run at once: the square root of the turns in flight by default, so that groups and members are few."""
ALONE_DEATHS = 3
"""Deaths after which a suspect runs with no other suspect beside it."""
FATAL_DEATHS = 4
"""Deaths after which a turn is given up and its reading fails."""

TurnKey = tuple[ReadingKey, str, str]
"""A reading, the fingerprint of what answers its turn, and the turn's path."""


class Suspects:
    """Which turns are in flight, and which were when an engine of this run died. One for each actor.

    Deaths in other runs do not count: the cluster, the model or the machine may have been repaired since.
    """

    def __init__(self, died: Iterable[TurnKey] = ()) -> None:
        """`died`: the turns that were in flight at earlier deaths, once for each death."""
        self.at_death: list[TurnKey] = []
        """The turns that were in flight when this engine died."""
        self._deaths = Counter(died)
        self._in_flight: set[TurnKey] = set()
        self._next = asyncio.Lock()
        self._permits = asyncio.Semaphore(SUSPECTS_TOGETHER)

    @asynccontextmanager
    async def admit(self, address: ReadingAddress, path: str) -> AsyncIterator[None]:
        """Lets a turn into the block. A suspect waits until few enough other suspects, or none, are in theirs.

        Raises:
            EngineRequestError: the engine died at this turn too often.
        """
        deaths = self._deaths[_turn_key(address, path)]
        if deaths >= FATAL_DEATHS:
            raise EngineRequestError(f"turn {path}: the engine died {deaths} times while this turn was in flight")
        async with AsyncExitStack() as permits:
            if deaths >= SUSPECT_DEATHS:
                async with self._next:  # one that needs all permits is not overtaken by those that need one
                    for _ in range(SUSPECTS_TOGETHER if deaths >= ALONE_DEATHS else 1):
                        await permits.enter_async_context(self._permits)
            yield

    @contextmanager
    def watch(self, address: ReadingAddress, path: str) -> Iterator[None]:
        """Keeps the turn noted as in flight inside the block."""
        turn = _turn_key(address, path)
        self._in_flight.add(turn)
        try:
            yield
        except EngineDeadError:
            if not self.at_death:  # turns that ask the dead engine later did not kill it
                self.at_death = sorted(self._in_flight)
            raise
        finally:
            self._in_flight.discard(turn)


def _turn_key(address: ReadingAddress, path: str) -> TurnKey:
    return (reading_key(address), address.fingerprint, path)
