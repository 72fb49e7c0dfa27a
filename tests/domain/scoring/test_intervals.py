import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.scoring.intervals import bootstrap, mean_interval, wilson

SHARES = st.lists(st.floats(0, 1), min_size=1, max_size=30)


@pytest.mark.parametrize(
    ("num_right", "num_scores", "low", "high"),
    [
        (81, 263, 0.2553, 0.3662),  # Newcombe 1998, table I, method 3
        (15, 148, 0.0624, 0.1605),
        (0, 20, 0.0000, 0.1611),
        (1, 29, 0.0061, 0.1718),
    ],
)
def test_wilson_published_cases_are_met(num_right: int, num_scores: int, low: float, high: float) -> None:
    interval = wilson(num_right, num_scores)
    assert (round(interval.low, 4), round(interval.high, 4)) == (low, high)


@given(st.integers(0, 200), st.integers(0, 200))
def test_wilson_ends_hold_the_share_and_mirror_each_other(num_right: int, num_wrong: int) -> None:
    num_scores = num_right + num_wrong
    interval, mirrored = wilson(num_right, num_scores), wilson(num_wrong, num_scores)
    assert interval.low == pytest.approx(1 - mirrored.high)
    if num_scores:
        assert 0.0 <= interval.low <= num_right / num_scores <= interval.high <= 1.0


def test_mean_interval_no_scores_is_all_there_is() -> None:
    for interval in (mean_interval([]), bootstrap([], seed=0)):
        assert (interval.low, interval.high) == (0.0, 1.0)


def test_mean_interval_zeros_and_ones_have_wilsons() -> None:
    assert mean_interval([1.0, 0.0, 1.0, 1.0]) == wilson(3, 4)


def test_mean_interval_fractions_have_the_bootstraps() -> None:
    assert mean_interval([0.25, 0.5, 1.0]) == bootstrap([0.25, 0.5, 1.0], seed=0)


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_mean_interval_scores_that_are_all_alike_have_a_width(value: float) -> None:
    interval = mean_interval([value] * 10)
    assert interval.high - interval.low > 0.2


def test_bootstrap_same_seed_is_the_same_whatever_the_order() -> None:
    scores = [number**2 / 900 for number in range(30)]
    assert bootstrap(scores, seed=3) == bootstrap(scores[::-1], seed=3)


def test_bootstrap_width_is_that_of_the_normal_approximation() -> None:
    rng = random.Random(1)
    scores = [rng.random() for _ in range(400)]
    interval = bootstrap(scores, seed=0)
    error = statistics.stdev(scores) / 20
    assert interval.low == pytest.approx(statistics.fmean(scores) - 1.96 * error, abs=0.2 * error)
    assert interval.high == pytest.approx(statistics.fmean(scores) + 1.96 * error, abs=0.2 * error)


@given(SHARES)
def test_mean_interval_anything_is_within_zero_and_one(scores: list[float]) -> None:
    interval = mean_interval(scores)
    assert 0.0 <= interval.low <= interval.high <= 1.0
