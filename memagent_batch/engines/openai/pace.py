"""How many requests an endpoint with rate limits is given at a time, and when. Lives on the engine's event loop.

Without a refusal there is no bound: readings in flight are bounded elsewhere. When the endpoint turns a request away
(429), half as many as were under way may be; each answer then adds a share of one place, so that a full round adds one.
Where responses say what is left of a limit (`x-ratelimit-remaining-*`), a request that is more waits for its reset.
Where the user states a quota a minute, requests are spaced evenly by it.
"""

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass

LONGEST_RESET_SECONDS = 120.0
"""A limit that is renewed later counts as this late, so that a wrong number can't park a job."""

LIMITS = ("requests", "tokens")
"""What providers limit a minute, as the names of headers end."""

RESET_UNITS = {"ms": 0.001, "s": 1.0, "m": 60.0, "h": 3600.0}
"""Units in `x-ratelimit-reset-*`, such as `6m0s`, seconds."""

RESET = re.compile(r"([0-9.]+)(ms|s|m|h)")


@dataclass(frozen=True, slots=True, kw_only=True)
class Quota:
    """What is left of one limit."""

    left: float
    """Requests or tokens."""
    renewed_at: float
    """When it is renewed, by the clock."""


class Pace:
    """Places for the requests of one engine."""

    def __init__(
        self,
        *,
        requests_per_minute: int | None = None,
        tokens_per_minute: int | None = None,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        """Nothing is known of the endpoint's limits but what is stated.

        Args:
            requests_per_minute: most requests; None for no quota.
            tokens_per_minute: most tokens; None for no quota.
            clock: seconds that only grow.
            sleep: waits for so many seconds.
        """
        self._clock = clock
        self._sleep = sleep
        self._request_seconds = 60 / requests_per_minute if requests_per_minute else 0.0
        self._token_seconds = 60 / tokens_per_minute if tokens_per_minute else 0.0
        self._next_at = 0.0
        self._most: float | None = None
        self._under_way = 0
        self._cut_at = -1.0
        self._quotas: dict[str, Quota] = {}
        self._freed = asyncio.Condition()

    @property
    def most(self) -> int | None:
        """Requests that may be under way at a time; None where nothing bounds them."""
        return None if self._most is None else max(1, int(self._most))

    @asynccontextmanager
    async def place(self, *, num_tokens: int) -> AsyncIterator[float]:
        """Waits for a place, and gives when it was taken, for `turned_away`.

        Args:
            num_tokens: tokens of prompt and completion, by which a limit on tokens is counted.
        """
        async with self._freed:
            await self._freed.wait_for(lambda: self.most is None or self._under_way < self.most)
            self._under_way += 1
        try:
            while (seconds := self._wait_seconds(num_tokens)) > 0:
                await self._sleep(seconds)
            self._spend(num_tokens)
            yield self._clock()
        finally:
            async with self._freed:
                self._under_way -= 1
                self._freed.notify_all()

    def answered(self, headers: Mapping[str, str]) -> None:
        """A request was answered."""
        if self._most is not None:
            self._most += 1 / max(1.0, self._most)
        for name in LIMITS:
            quota = _quota(headers, name, now=self._clock())
            if quota is not None:
                self._quotas[name] = quota

    def turned_away(self, *, began_at: float) -> None:
        """A request was turned away. Those that began before the last cut say nothing new."""
        if began_at <= self._cut_at:
            return
        self._cut_at = self._clock()
        self._most = max(1.0, min(self._under_way, self._most or self._under_way) / 2)

    def _wait_seconds(self, num_tokens: int) -> float:
        now = self._clock()
        self._quotas = {name: quota for name, quota in self._quotas.items() if quota.renewed_at > now}
        needs = {"requests": 1, "tokens": num_tokens}
        resets = (quota.renewed_at for name, quota in self._quotas.items() if quota.left < needs[name])
        return max([self._next_at, *resets]) - now

    def _spend(self, num_tokens: int) -> None:
        now = self._clock()
        self._next_at = max(now, self._next_at) + max(self._request_seconds, self._token_seconds * num_tokens)
        spent = {"requests": 1, "tokens": num_tokens}
        self._quotas = {
            name: Quota(left=quota.left - spent[name], renewed_at=quota.renewed_at)
            for name, quota in self._quotas.items()
        }


def parse_reset(value: str | None) -> float | None:
    """Seconds that `x-ratelimit-reset-*` names, as `1.5`, `1s` or `6m0s`; None where it says nothing."""
    text = (value or "").strip()
    if re.fullmatch(r"[0-9]+(\.[0-9]+)?", text):
        return float(text)
    parts = RESET.findall(text)
    if not parts or "".join(number + unit for number, unit in parts) != text:
        return None
    try:
        return sum(float(number) * RESET_UNITS[unit] for number, unit in parts)
    except ValueError:
        return None


def _quota(headers: Mapping[str, str], name: str, *, now: float) -> Quota | None:
    left = headers.get(f"x-ratelimit-remaining-{name}", "").strip()
    seconds = parse_reset(headers.get(f"x-ratelimit-reset-{name}"))
    if not left.isdecimal() or seconds is None:
        return None
    return Quota(left=float(left), renewed_at=now + min(seconds, LONGEST_RESET_SECONDS))
