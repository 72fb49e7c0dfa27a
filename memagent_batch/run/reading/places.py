"""When a turn may ask the engine: the places of its turns, and the turns that may have killed it.

The questions of a document stay in step, so that they share its prefix cache.

Of turns with the same prompt one asks, and the others take its completion. Contracts from one template have chunks of
the same text, for which a policy that reads chunks apart from each other, such as `parallel`, sends the same prompt.

Turns that were in flight when an engine died are remembered after the restart, and given up at the fourth death.
Without that, a turn that kills its engine would be retried forever, and stop the readings beside it each time. Turns
that were there at two deaths are suspects. They run in groups of 16, then those of the group that died run alone: of
256 suspects the one that kills is found by two more deaths, and without one they have run after 16 times one turn.
"""

import asyncio
import heapq
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, field, replace

from memagent_batch.data.store.turn_log.index import ReadingKey, reading_key
from memagent_batch.errors import BoundReachedError, EngineDeadError, EngineRequestError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.types import Completion

TURNS_AT_ONCE = 256
"""Places of an engine if no number is set: as many requests as vLLM puts in a step by default."""
SUSPECT_DEATHS = 2
"""Deaths after which a turn is a suspect; any turn beside it may have caused the first."""
SUSPECTS_TOGETHER = 16
"""Suspects that run at once: the square root of the turns in flight by default, so that groups and members are few."""
ALONE_DEATHS = 3
"""Deaths after which a suspect runs with no other suspect beside it."""
FATAL_DEATHS = 4
"""Deaths after which a turn is given up and its reading fails."""

KEPT_TOKENS = 500_000
"""Tokens of the completions that are kept: some 30 MB. Those that were not used for longest are dropped."""
LEAST_TOKENS = 25
"""What a shorter completion counts as: of those at most 20,000 are kept."""

TurnKey = tuple[ReadingKey, str, str]
"""A reading, the fingerprint of what answers its turn, and the turn's path."""


@dataclass(order=True, frozen=True, slots=True, kw_only=True)
class _Waiting:
    """A turn that waits for a place. Turns are served in the order of these fields."""

    document: int
    turn: int
    arrival: int
    reading: ReadingAddress = field(compare=False)
    place: asyncio.Future[None] = field(compare=False)


class TurnPlaces:
    """A number of places. A free one goes to the earliest document, and in it to the earliest turn of its readings.

    No reading starves: before its turns come only those of documents that began earlier, and they end.
    """

    def __init__(self, number: int = TURNS_AT_ONCE) -> None:
        self._num_free = self._number = number
        self._waiting: list[_Waiting] = []
        self._num_documents = self._num_arrivals = 0
        self._closed_because = ""

    def begin_document(self) -> int:
        """The number of a document that begins to be read."""
        self._num_documents += 1
        return self._num_documents

    @asynccontextmanager
    async def place(self, reading: ReadingAddress, *, document: int, turn: int) -> AsyncIterator[None]:
        """A place inside the block; waits for it first.

        Raises:
            BoundReachedError: the places are closed.
        """
        await self._take(reading, document=document, turn=turn)
        try:
            yield
        finally:
            self._give()

    async def room(self, reading: ReadingAddress) -> None:
        """Returns when no turn of the reading waits for a place."""
        while waiting := [each.place for each in self._waiting if each.reading == reading and not each.place.done()]:
            await asyncio.wait(waiting)

    def close(self, why: str) -> None:
        """Gives no further place. Turns that wait fail with a BoundReachedError when the turns in flight have ended.

        They wait, since a policy that asks turns side by side would cancel those in flight.
        """
        self._closed_because = why
        self._refuse()

    async def _take(self, reading: ReadingAddress, *, document: int, turn: int) -> None:
        if self._num_free and not self._closed_because:
            self._num_free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._num_arrivals += 1
        waiting = _Waiting(document=document, turn=turn, arrival=self._num_arrivals, reading=reading, place=place)
        heapq.heappush(self._waiting, waiting)
        self._refuse()
        try:
            await place
        except asyncio.CancelledError:
            if place.done() and not place.cancelled() and place.exception() is None:
                self._give()  # it was given while the turn was being cancelled
            raise

    def _give(self) -> None:
        self._num_free += 1
        self._refuse()
        while self._waiting and not self._closed_because:
            place = heapq.heappop(self._waiting).place
            if not place.done():
                self._num_free -= 1
                place.set_result(None)
                return

    def _refuse(self) -> None:
        """Fails the turns that wait, if the places are closed and no turn is in flight."""
        if not self._closed_because or self._num_free < self._number:
            return
        for waiting in self._waiting:
            if not waiting.place.done():
                waiting.place.set_exception(BoundReachedError(self._closed_because))
        self._waiting.clear()


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


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualKey:
    """What equal turns have in common."""

    fingerprint: str
    kind: str
    prompt_hash: str
    max_tokens: int


class EqualTurns:
    """Keeps completions at temperature 0 by their prompts, so that the readings of a process ask equal turns once."""

    def __init__(self) -> None:
        self._kept: OrderedDict[EqualKey, Completion] = OrderedDict()
        self._num_tokens = 0
        self._under_way: dict[EqualKey, asyncio.Future[None]] = {}

    def find(self, key: EqualKey) -> Completion | None:
        """The completion of an equal turn, marked as replayed; None if there is none."""
        if key not in self._kept:
            return None
        self._kept.move_to_end(key)
        return replace(self._kept[key], replayed=True)

    def under_way(self, key: EqualKey) -> asyncio.Future[None] | None:
        """A future that completes when the equal turn in progress ends or fails; None if none is in progress."""
        return self._under_way.get(key)

    async def ask(
        self, key: EqualKey, ask: Callable[[], Awaitable[Completion]], *, may_keep: Callable[[Completion], bool]
    ) -> Completion:
        """Calls `ask`, and keeps the completion for other readings if `may_keep` returns true for it.

        Callers that waited for an equal turn which failed call this at the same time. Only the first of them is in
        progress for others; the rest just call `ask`.
        """
        if key in self._under_way:
            return await ask()
        ended = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            completion = await ask()
            if may_keep(completion):
                self._keep(key, completion)
            return completion
        finally:
            del self._under_way[key]
            ended.set_result(None)

    def _keep(self, key: EqualKey, completion: Completion) -> None:
        self._kept[key] = completion
        self._num_tokens += _size(completion)
        while self._num_tokens > KEPT_TOKENS:
            self._num_tokens -= _size(self._kept.popitem(last=False)[1])


def _size(completion: Completion) -> int:
    return max(LEAST_TOKENS, len(completion.token_ids))


def _turn_key(address: ReadingAddress, path: str) -> TurnKey:
    return (reading_key(address), address.fingerprint, path)
