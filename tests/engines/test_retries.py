from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.engines.openai.client import retry_after_seconds
from memagent_batch.engines.openai.outage import (
    FIRST_BACKOFF_SECONDS,
    MAX_BACKOFF_SECONDS,
    MAX_RETRY_AFTER_SECONDS,
    pause_seconds,
)

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.fixture(autouse=True)
def _short_pauses() -> None:
    """Pauses are as long as they are: nothing waits here."""


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 0.5), (1, 1.0), (2, 2.0), (5, 16.0), (7, 30.0), (11, 30.0)])
def test_pause_without_retry_after_doubles_up_to_a_minute(attempt: int, seconds: float) -> None:
    assert pause_seconds(attempt, draw=lambda: 0.5) == seconds


@given(attempt=st.integers(0, 2000), draw=DRAWS)
def test_pause_any_attempt_stays_within_its_bounds(attempt: int, draw: float) -> None:
    assert 0 <= pause_seconds(attempt, draw=lambda: draw) <= MAX_BACKOFF_SECONDS


@given(asked=st.floats(0, 10_000), draw=DRAWS)
def test_pause_with_retry_after_waits_at_least_that_up_to_the_cap(asked: float, draw: float) -> None:
    least = min(asked, MAX_RETRY_AFTER_SECONDS)
    assert least <= pause_seconds(0, retry_after_seconds=asked, draw=lambda: draw) <= least + FIRST_BACKOFF_SECONDS


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"Retry-After": "7"}, 7.0),
        ({"Retry-After": " 0 ", "retry-after-ms": "9"}, 0.0),
        ({"Retry-After": "Sun, 01 Mar 2026 12:00:30 GMT"}, 30.0),
        ({"Retry-After": "Sun, 01 Mar 2026 11:00:00 GMT"}, 0.0),
        ({"Retry-After": "soon", "retry-after-ms": "1500"}, 1.5),
        ({"retry-after-ms": "-3"}, None),
    ],
)
def test_retry_after_in_seconds_as_a_date_or_in_milliseconds_is_read(
    headers: dict[str, str], seconds: float | None
) -> None:
    assert retry_after_seconds(headers, now=NOW) == seconds
