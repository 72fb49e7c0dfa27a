"""When a request to an endpoint is sent again, and after what pause. Pure: no clock, no network, no sleep."""

import random
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime

RETRIED_STATUSES = frozenset({408, 409, 429})
"""Statuses below 500 that another try can mend; every 5xx is tried again too."""

LONGEST_BACKOFF_SECONDS = 60.0
"""Doubling stops here: an endpoint that comes back is found within a minute."""

LONGEST_RETRY_AFTER_SECONDS = 600.0
"""A longer `Retry-After` counts as this much, so that a wrong date can't park a job for a day."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """Exponential back-off with full jitter."""

    max_retries: int
    """Tries after the first."""
    first_seconds: float
    """Longest pause before the first retry; doubled at each further one."""
    draw: Callable[[], float] = random.random
    """A number in [0, 1) at each call."""

    def pause_seconds(self, attempt: int, *, retry_after_seconds: float | None = None) -> float | None:
        """Seconds to wait after failed try number `attempt` (from 0); None where no try is left.

        A `Retry-After` is the least that is waited; up to `first_seconds` of jitter come on top, so that all who were
        turned away do not come back at once.
        """
        if attempt >= self.max_retries:
            return None
        return self.probe_seconds(attempt, retry_after_seconds=retry_after_seconds)

    def probe_seconds(self, attempt: int, *, retry_after_seconds: float | None = None) -> float:
        """The pause where the number of tries has no limit."""
        if retry_after_seconds is not None:
            return min(retry_after_seconds, LONGEST_RETRY_AFTER_SECONDS) + self.draw() * self.first_seconds
        return self.draw() * min(self.first_seconds * 2.0 ** min(attempt, 64), LONGEST_BACKOFF_SECONDS)


def is_retried(status: int) -> bool:
    """Whether a response of this status is worth another try."""
    return status >= 500 or status in RETRIED_STATUSES


def parse_retry_after(value: str | None, *, now: datetime) -> float | None:
    """Seconds that a `Retry-After` header asks for, given as seconds or as an HTTP date; None where it says nothing."""
    if value is None:
        return None
    if value.strip().isdecimal():
        return float(value)
    try:
        date = parsedate_to_datetime(value)
    except ValueError:
        return None
    return max(0.0, (date if date.tzinfo else date.replace(tzinfo=UTC)).timestamp() - now.timestamp())
