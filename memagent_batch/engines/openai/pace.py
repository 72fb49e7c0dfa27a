"""How many requests an endpoint with rate limits is given at a time. Lives on the engine's event loop.

Without a refusal there is no bound: readings in flight are bounded elsewhere. When the endpoint turns a request away
(429), half as many as were in flight may be; each answer then adds a share of one place, so that a full round adds one.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Pace:
    """Places for the requests of one engine."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        """Nothing is known of the endpoint's limits; `clock` is seconds that only grow."""
        self._clock = clock
        self._most: float | None = None
        self._in_flight = 0
        self._cut_at = -1.0
        self._freed = asyncio.Condition()

    @property
    def most(self) -> int | None:
        """Requests that may be in flight at a time; None if nothing bounds them."""
        return None if self._most is None else max(1, int(self._most))

    @asynccontextmanager
    async def place(self) -> AsyncIterator[float]:
        """Waits for a place, and gives when it was taken, for `turned_away`."""
        async with self._freed:
            await self._freed.wait_for(lambda: self.most is None or self._in_flight < self.most)
            self._in_flight += 1
        try:
            yield self._clock()
        finally:
            async with self._freed:
                self._in_flight -= 1
                self._freed.notify_all()

    def answered(self) -> None:
        """A request was answered."""
        if self._most is not None:
            self._most += 1 / max(1.0, self._most)

    def turned_away(self, *, began_at: float) -> None:
        """A request was turned away. Those that began before the last cut say nothing new."""
        if began_at <= self._cut_at:
            return
        self._cut_at = self._clock()
        self._most = max(1.0, min(self._in_flight, self._most or self._in_flight) / 2)
