"""How many requests an endpoint is sent: at a time, as fast as it answers them, and in a minute, as it allows."""

import asyncio
import logging
import math
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass

from memagent_batch.logs import EventKind
from memagent_batch.loop.texts.shares import quantity

log = logging.getLogger(__name__)

FIRST_IN_FLIGHT = 16
"""Requests at a time until it is known how fast they are answered: each answer in time then adds one."""

QUEUE_SHARE = 8
"""Part of the time-out that the first requests may take if they are answered one after another."""

LATE_SHARE, EARLY_SHARE = 1 / 2, 1 / 4
"""Shares of the time-out: an answer above the first has waited for too long, one below the second has not waited."""

ALONE_FACTOR = 2
"""An answer that takes less than so many times the fastest one has not waited, however long it took."""

MINUTE_SECONDS = 60.0


class MinuteLimit:
    """Spreads requests, or their tokens, so evenly that no minute has more of them than its limit."""

    def __init__(
        self,
        per_minute: float,
        *,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """`per_minute`: the limit, above 0; infinite for none."""
        self._seconds_each = MINUTE_SECONDS / per_minute
        self._clock, self._sleep = clock, sleep
        self._free_at = 0.0

    async def take(self, amount: int) -> None:
        """Returns when so much more may be sent."""
        now = self._clock()
        begins = max(now, self._free_at)
        self._free_at = begins + amount * self._seconds_each
        if begins > now:
            await self._sleep(begins - now)


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """A place among the requests in flight, from when it was taken."""

    began_at: float
    num_answered: int
    """Requests that had been answered by then."""


class Pace:
    """How many requests of one engine are in flight at a time.

    Each answer in time makes it one more; once it was reduced, a round of answers does. A 429, a time-out, or an answer
    that has waited too long in the endpoint's queue halves it. A request also waits for the limits of a minute.
    """

    def __init__(self, *, longest_seconds: float, limits: Sequence["MinuteLimit"] = ()) -> None:
        """`longest_seconds`: the time-out of a request. `limits`: of requests and of tokens, as `place` takes them."""
        self._longest_seconds = longest_seconds
        self._limits = limits
        self._most = float(FIRST_IN_FLIGHT)
        self._least_logged = math.inf
        self._in_flight = self._num_waiting = self._num_answered = 0
        self._reduced_at = -1.0
        self._fastest: dict[int, float] = {}
        self._freed = asyncio.Condition()

    @property
    def most(self) -> int:
        """Requests that may be in flight at a time."""
        return max(1, int(self._most))

    def expect(self, seconds: float) -> None:
        """Takes the time that one request alone took, before the first reading."""
        in_a_row = self._longest_seconds / QUEUE_SHARE / max(seconds, 0.001)
        self._most = min(self._most, max(2.0, in_a_row))

    @asynccontextmanager
    async def place(self, *amounts: int) -> AsyncIterator[Place]:
        """Waits for a place. `amounts`: what the request takes of each limit."""
        async with self._freed:
            self._num_waiting += 1
            try:
                await self._freed.wait_for(lambda: self._in_flight < self.most)
            finally:
                self._num_waiting -= 1
            self._in_flight += 1
        try:
            for limit, amount in zip(self._limits, amounts, strict=True):
                await limit.take(amount)
            yield Place(began_at=time.monotonic(), num_answered=self._num_answered)
        finally:
            async with self._freed:
                self._in_flight -= 1
                self._freed.notify_all()

    def answered(self, place: Place, *, seconds: float, budget: int) -> None:
        """A request with this budget, in tokens, was answered after so many seconds."""
        self._num_answered += 1
        fastest = seconds if self._in_flight <= 1 else min(seconds, self._fastest.get(budget, seconds))
        self._fastest[budget] = fastest  # a request that goes alone waits for nobody: no short answer counts for ever
        has_waited = seconds > ALONE_FACTOR * fastest
        if has_waited and seconds > LATE_SHARE * self._longest_seconds:
            self.reduce(place, why=f"answers take up to {seconds:.0f} s")
        elif self._num_waiting and not (has_waited and seconds > EARLY_SHARE * self._longest_seconds):
            self._most += 1 if self._reduced_at < 0 else 1 / self._most

    def was_queued(self, place: Place) -> bool:
        """Whether other requests were answered since a place was taken."""
        return self._num_answered > place.num_answered

    def reduce(self, place: Place, *, why: str) -> None:
        """Halves the number of requests. A place that was taken before the last time says nothing new."""
        if place.began_at <= self._reduced_at:
            return
        self._reduced_at = time.monotonic()
        self._most = max(1.0, min(self._in_flight, self._most) / 2)
        if self.most < self._least_logged:
            self._least_logged = self.most
            log.warning(
                f"the endpoint is slow ({why}): {quantity(self.most, 'request')} at a time from now on, and more again "
                "as it answers in time",
                extra={"event": EventKind.ENDPOINT_SLOW, "in_flight": self.most},
            )
