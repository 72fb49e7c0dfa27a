from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.engines.openai.client import retry_after_seconds
from memagent_batch.engines.openai.outage import MAX_BACKOFF_SECONDS, MAX_RETRY_AFTER_SECONDS, Backoff

NOW = datetime(2026, 3, 1, 12, 0, 0, tzinfo=UTC)
DRAWS = st.floats(min_value=0, max_value=1, exclude_max=True)


@pytest.mark.parametrize(("attempt", "seconds"), [(0, 0.5), (1, 1.0), (2, 2.0), (5, 16.0), (7, 30.0), (11, 30.0)])
def test_pause_without_retry_after_doubles_up_to_a_minute(attempt: int, seconds: float) -> None:
    backoff = Backoff(max_retries=12, first_seconds=1.0, draw=lambda: 0.5)
    assert backoff.pause_seconds(attempt) == seconds


@given(attempt=st.integers(0, 2000), draw=DRAWS, first=st.floats(0.001, 60))
def test_pause_any_attempt_stays_within_its_bounds(attempt: int, draw: float, first: float) -> None:
    pause = Backoff(max_retries=3000, first_seconds=first, draw=lambda: draw).pause_seconds(min(attempt, 1000))
    assert pause is not None
    assert 0 <= pause <= MAX_BACKOFF_SECONDS


@pytest.mark.parametrize(("max_retries", "attempt"), [(0, 0), (2, 2), (2, 5)])
def test_pause_no_try_left_is_none(max_retries: int, attempt: int) -> None:
    assert Backoff(max_retries=max_retries, first_seconds=1.0).pause_seconds(attempt, retry_after_seconds=3) is None


@given(asked=st.floats(0, 10_000), draw=DRAWS)
def test_pause_with_retry_after_waits_at_least_that_up_to_the_cap(asked: float, draw: float) -> None:
    pause = Backoff(max_retries=1, first_seconds=2.0, draw=lambda: draw).pause_seconds(0, retry_after_seconds=asked)
    assert pause is not None
    least = min(asked, MAX_RETRY_AFTER_SECONDS)
    assert least <= pause <= least + 2.0


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
