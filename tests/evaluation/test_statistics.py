import random
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.apps.evaluation.statistics import holm, mean_interval, sign_test, wilson


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


@pytest.mark.parametrize("value", [0.0, 0.5, 1.0])
def test_mean_interval_documents_that_are_all_alike_count_once_each(value: float) -> None:
    assert mean_interval([[value] * 20] * 10) == wilson(10 * value, 10)
    assert mean_interval([[1.0], [0.0], [1.0], [1.0]]) == wilson(3, 4)


@pytest.mark.parametrize(("num_documents", "num_questions"), [(6, 16), (20, 5), (60, 3)])
def test_mean_interval_holds_the_true_mean_in_19_of_20_draws_of_documents(
    num_documents: int, num_questions: int
) -> None:
    rng = random.Random(5)
    held = 0
    for _ in range(600):
        shares = [rng.betavariate(3.2, 0.8) for _ in range(num_documents)]
        interval = mean_interval([[float(rng.random() < share) for _ in range(num_questions)] for share in shares])
        held += interval.low <= 0.8 <= interval.high
    assert 0.92 <= held / 600 <= 0.98


@given(st.lists(st.lists(st.floats(0, 1), min_size=1, max_size=5), min_size=1, max_size=10))
def test_mean_interval_anything_is_around_the_mean_within_zero_and_one(documents: list[list[float]]) -> None:
    interval = mean_interval(documents)
    mean = statistics.fmean(score for scores in documents for score in scores)
    assert 0.0 <= interval.low <= mean + 1e-9
    assert mean - 1e-9 <= interval.high <= 1.0


@pytest.mark.parametrize(
    ("more", "less", "chance"),
    [(0, 0, 1.0), (5, 5, 1.0), (5, 0, 2 / 32), (0, 5, 2 / 32), (8, 2, 2 * 56 / 1024), (20_000, 20_000, 1.0)],
)
def test_sign_test_is_exact(more: int, less: int, chance: float) -> None:
    assert sign_test(more, less) == pytest.approx(chance)


def test_holm_worked_case_is_as_computed_by_hand() -> None:
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.6, 0.9]) == [1.0, 1.0]
    assert holm([]) == []
