"""Places of turns in one engine: the questions of a document stay in step, so that they share its prefix cache."""

import asyncio
import heapq
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field

from memagent_batch.errors import BoundReachedError
from memagent_batch.loop.addresses import ReadingAddress

TURNS_AT_ONCE = 256
"""Places of an engine if no number is set: as many requests as vLLM puts in a step by default."""


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
