"""A circuit breaker: all requests of one engine wait out an endpoint that is away. Knows no network.

A try that fails in a way that may pass is a `Failure`. Who is to blame decides what happens:

- `concerns_all` (nobody listens, or 429): the endpoint takes nobody's request. It is away from this first sign on.
- Any other (a cut connection, a time-out, 408, 409, 5xx, a page in place of a completion): the endpoint or this one
  request. A probe, one token of a short prompt, tells them apart. If the probe fails too, the endpoint is away. If it
  is answered, the request is tried again after a pause, and after `max_retries` further tries it fails alone:
  `EngineRequestError`.

While the endpoint is away, no request is sent. One probe at a time is, with back-off up to a minute; `Retry-After` is
respected. When a probe is answered, all requests go on; the outage counts as no try of theirs. When none was for
`longest_seconds`, they raise `EngineUnavailableError`. From then on one probe a minute decides: until it is answered,
every request raises at once.

One request alone raises `EngineUnavailableError` if the endpoint goes away under it more than `MAX_OUTAGES` times, or
if it is still rejected with 429 `longest_seconds` after its first failure. If other requests are answered in that time,
it is given up only after more than `MAX_REJECTIONS` rejections. The pauses between them grow.

A time-out while other requests are answered is neither an outage nor a try: the endpoint has a queue. `Pace` sends
fewer requests at a time, and the request is asked again.
"""

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import TypeVar

from memagent_batch.errors import EngineRequestError, EngineUnavailableError

log = logging.getLogger(__name__)

MAX_OUTAGES = 10
"""Times that an endpoint may go away under one request, which may be what takes it down each time."""

MAX_REJECTIONS = 30
"""Times that a request may be rejected with 429 while others are answered: it may be too large for a limit."""

MAX_QUEUED = 8
"""Times that a request may wait for too long in a queue; by then one request is sent at a time."""

FIRST_BACKOFF_SECONDS = 1.0
MAX_BACKOFF_SECONDS = 60.0
"""Doubling stops here: an endpoint that comes back is found within a minute."""

MAX_RETRY_AFTER_SECONDS = 600.0
"""A longer `Retry-After` counts as this much, so that a wrong date can't park a job for a day."""

AnswerT = TypeVar("AnswerT")


def pause_seconds(attempt: int, *, retry_after_seconds: float | None = None) -> float:
    """Seconds to wait after failed try number `attempt` (from 0): exponential back-off with full jitter.

    A `Retry-After` is the least that is waited; up to a second of jitter comes on top, so that all who were rejected
    do not come back at once.
    """
    if retry_after_seconds is not None:
        return min(retry_after_seconds, MAX_RETRY_AFTER_SECONDS) + random.random() * FIRST_BACKOFF_SECONDS
    return random.random() * min(FIRST_BACKOFF_SECONDS * 2.0 ** min(attempt, 64), MAX_BACKOFF_SECONDS)


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """A try that failed in a way that may pass."""

    message: str
    retry_after_seconds: float | None = None
    """The pause that the endpoint asked for, seconds."""
    concerns_all: bool = False
    """Whether it can't be the fault of this one request."""
    turned_away: bool = False
    """Whether the endpoint takes no more requests for now."""
    timed_out: bool = False
    """Whether no answer came in time."""
    was_queued: bool = False
    """Whether it timed out while other requests were answered."""
    retry_at_once: bool = False
    """Whether the request is sent again without a pause, and this does not count as one of its tries."""


@dataclass(slots=True, kw_only=True)
class _Tries:
    """The failed tries of one request, by their cause."""

    num_failed: int = 0
    """Tries that failed while the endpoint answered others: the request may be at fault."""
    num_outages: int = 0
    """Tries that failed because the endpoint was away."""
    num_rejections: int = 0
    """Tries that were answered with 429."""
    num_queued: int = 0
    """Tries that timed out while others were answered."""
    failed_at: float = math.inf
    """When the first try failed, by the monotonic clock."""


class CircuitBreaker:
    """Whether an endpoint is there, for all requests of one engine. Lives on its event loop."""

    def __init__(
        self,
        probe: Callable[[], Awaitable[Failure | None]],
        *,
        max_retries: int,
        longest_seconds: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """The endpoint counts as there.

        The probe asks it for next to nothing: None where it answers, even with a refusal. A request is tried so many
        more times while it does.
        """
        self._probe = probe
        self._max_retries = max_retries
        self._longest_seconds = longest_seconds
        self._clock = clock
        self._sleep = sleep
        self._away_since: float | None = None
        self._asked_at = 0.0
        self._answered_at = -math.inf
        self._watch: asyncio.Task[bool] | None = None
        self.failure = ""
        """The last sign of its absence."""

    @property
    def away_seconds(self) -> float:
        """How long the endpoint has been away; 0 where it is there."""
        return 0.0 if self._away_since is None else self._clock() - self._away_since

    async def answer(self, send: Callable[[], Awaitable[AnswerT | Failure]]) -> AnswerT:
        """What `send` returns once it is not a Failure.

        Raises:
            EngineRequestError: this request failed at every try while the endpoint answers probes.
            EngineUnavailableError: the endpoint is away, or has turned this request away, for too long.
        """
        tries = _Tries()
        while True:
            await self._until_back(None)
            result = await send()
            if not isinstance(result, Failure):
                self._answered_at = self._clock()
                return result
            if not result.retry_at_once:
                await self._sleep(await self._pause_after(result, tries))

    async def _pause_after(self, failure: Failure, tries: "_Tries") -> float:
        """Counts a failed try, and returns the seconds to wait before the next one.

        Raises:
            EngineRequestError, EngineUnavailableError: there is no next one; see `answer`.
        """
        tries.failed_at = min(tries.failed_at, self._clock())
        if failure.was_queued:
            tries.num_queued += 1
            if tries.num_queued > MAX_QUEUED:  # the load is at fault, not the request
                raise EngineUnavailableError(
                    f"{failure.message}, {tries.num_queued} times while other requests were answered; run the same "
                    "command again, or lower pool.turns_in_flight"
                )
            return 0.0
        if await self._until_back(failure):
            tries.num_outages += not failure.concerns_all
            tries.num_rejections += failure.turned_away
            is_alone = tries.num_rejections > MAX_REJECTIONS
            since = tries.failed_at if is_alone else max(tries.failed_at, self._answered_at)
            if tries.num_outages > MAX_OUTAGES or self._clock() - since > self._longest_seconds:
                raise EngineUnavailableError(
                    f"{failure.message}, again and again; run the same command again later",
                    is_turned_away=failure.turned_away,
                )
            return pause_seconds(tries.num_rejections) if failure.turned_away and not failure.retry_after_seconds else 0
        tries.num_failed += 1
        if tries.num_failed > self._max_retries:
            raise EngineRequestError(f"{failure.message} ({tries.num_failed} tries)")
        return pause_seconds(tries.num_failed - 1, retry_after_seconds=failure.retry_after_seconds)

    async def _until_back(self, failure: Failure | None) -> bool:
        """Returns when the endpoint is there; whether it was away. All who ask at a time get the same answer.

        `failure`: a sign that it may be away; without one it is there unless it is known to be away.
        """
        if failure is None and self._away_since is None:
            return False
        if self._watch is None and self._has_given_up() and self._clock() - self._asked_at < MAX_BACKOFF_SECONDS:
            raise self._unavailable()
        if self._watch is None:
            self._watch = asyncio.ensure_future(self._probe_until_back(failure))
        was_away = await asyncio.shield(self._watch)
        if self._has_given_up():
            raise self._unavailable()
        return was_away

    async def _probe_until_back(self, failure: Failure | None) -> bool:
        """Probes until the endpoint answers or the outage lasts too long; whether it was away."""
        attempt, was_away = 0, self._away_since is not None
        try:
            sign = failure if failure and failure.concerns_all else await self._probe()
            while sign is not None:
                was_away = True
                self._asked_at, self.failure = self._clock(), sign.message
                self._away_since = self._asked_at if self._away_since is None else self._away_since
                if self._has_given_up():
                    return True
                pause = pause_seconds(attempt, retry_after_seconds=sign.retry_after_seconds)
                await self._sleep(min(pause, self._longest_seconds - self.away_seconds))
                attempt, sign = attempt + 1, await self._probe()
            self._away_since = None
            return was_away
        finally:
            self._watch = None

    def _has_given_up(self) -> bool:
        return self._away_since is not None and self.away_seconds >= self._longest_seconds

    def _unavailable(self) -> EngineUnavailableError:
        return EngineUnavailableError(
            f"{self.failure}; waited for {self._longest_seconds:g} s (openai.outage_seconds); run the same command "
            "again when it is back"
        )
