"""Places of turns in one engine, shared fairly by the readings that want them."""

import asyncio
from collections import OrderedDict, deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from memagent_batch.domain.addresses import ReadingAddress

TURNS_AT_ONCE = 256
"""Places of an engine if no number is set: as many requests as vLLM puts in a step by default."""


class TurnPlaces:
    """A number of places. Readings that wait get them by turns: one with a thousand turns starves no other."""

    def __init__(self, number: int = TURNS_AT_ONCE) -> None:
        """All places are free."""
        self._num_free = number
        self._waiting: OrderedDict[ReadingAddress, deque[asyncio.Future[None]]] = OrderedDict()

    @asynccontextmanager
    async def place(self, reading: ReadingAddress) -> AsyncIterator[None]:
        """A place inside the block; waits for it first."""
        await self._take(reading)
        try:
            yield
        finally:
            self._give()

    async def room(self, reading: ReadingAddress) -> None:
        """Returns when no turn of the reading waits for a place."""
        while waiting := [place for place in self._waiting.get(reading, ()) if not place.done()]:
            await asyncio.wait(waiting)

    async def _take(self, reading: ReadingAddress) -> None:
        if self._num_free:
            self._num_free -= 1
            return
        place: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(reading, deque()).append(place)
        try:
            await place
        except asyncio.CancelledError:
            if not place.cancelled():  # it was given while the turn was being cancelled
                self._give()
            raise

    def _give(self) -> None:
        """To the next reading that waits, which then goes to the end of the queue."""
        while self._waiting:
            reading, places = self._waiting.popitem(last=False)
            place = places.popleft()
            if places:
                self._waiting[reading] = places
            if not place.done():
                place.set_result(None)
                return
        self._num_free += 1
