"""Thresholds learnt from labels keep what they promise, and confidence is fitted to what people say."""

import math
import random
from itertools import combinations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from memagent_batch.review.calibration.betting import capital, fewest_draws
from memagent_batch.review.calibration.isotonic import FOLDS, JudgedAnswer, calibrated, cross_fitted, error_of, fit
from memagent_batch.review.calibration.threshold import ALL, NONE, Target, has_drifted, is_found, learn_threshold

TARGET = Target(recall=0.9, delta=0.05)
ANSWERS = st.lists(
    st.builds(
        JudgedAnswer,
        confidence=st.sampled_from([0.1, 0.3, 0.5, 0.7, 0.9]),
        is_right=st.booleans(),
        weight=st.integers(1, 9).map(float),
    ),
    min_size=1,
)


@pytest.mark.parametrize(("size", "num_found"), [(12, 9), (14, 7), (16, 14), (10, 9), (15, 1)])
@pytest.mark.parametrize("delta", [0.05, 0.2, 0.5])
def test_claim_that_is_true_is_refuted_in_delta_of_all_orders_at_most(size: int, num_found: int, delta: float) -> None:
    """All orders in which a whole population can be drawn, without replacement."""
    orders = [[each in found for each in range(size)] for found in combinations(range(size), num_found)]
    refuted = sum(capital(order, share=num_found / size) >= 1 / delta for order in orders)
    assert refuted <= delta * len(orders)


def test_claim_is_refuted_by_few_more_draws_than_any_test_needs() -> None:
    for share in (0.8, 0.9, 0.95, 0.98):
        at_best = math.log(0.05) / math.log(share)
        assert at_best <= fewest_draws(share=share, delta=0.05) < 1.35 * at_best


def test_more_labels_never_take_a_refutation_back() -> None:
    rng = random.Random(3)
    found = [rng.random() < 0.97 for _ in range(400)]
    highest = [capital(found[:number], share=0.9) for number in range(0, 400, 20)]
    assert highest == sorted(highest)
    assert highest[-1] > 20


def test_threshold_of_few_labels_looks_at_everything_that_is_not_flagged() -> None:
    few = fewest_draws(share=0.9, delta=0.05) - 1
    assert learn_threshold([None] * few, TARGET) == ALL
    assert learn_threshold([None] * (few + 1), TARGET) == NONE
    assert learn_threshold([], TARGET) == ALL


def test_threshold_leaves_what_is_rarely_looked_for() -> None:
    rng = random.Random(1)
    positives: list[float | None] = [None] * 150 + [0.6] * 40 + [0.95] * 5
    rng.shuffle(positives)
    up_to = learn_threshold(positives, TARGET)
    assert up_to == 0.6
    assert sum(is_found(each, up_to=up_to) for each in positives) == 190
    assert learn_threshold(positives, Target(recall=0.98, delta=0.05)) in (0.95, ALL)


def test_confident_misses_keep_the_threshold_above_them() -> None:
    rng = random.Random(2)
    positives: list[float | None] = [None] * 100 + [0.99] * 100
    rng.shuffle(positives)
    assert learn_threshold(positives, TARGET) == 0.99


def test_drift_is_said_where_much_is_missed_and_not_where_the_target_is_met() -> None:
    rng = random.Random(4)
    kept = [[None if rng.random() < 0.93 else 0.99 for _ in range(200)] for _ in range(200)]
    assert sum(has_drifted(fresh, TARGET, up_to=0.6) for fresh in kept) <= 0.05 * len(kept)
    fallen = [[None if rng.random() < 0.7 else 0.99 for _ in range(60)] for _ in range(50)]
    assert sum(has_drifted(fresh, TARGET, up_to=0.6) for fresh in fallen) > 40


@given(ANSWERS)
def test_fitted_steps_never_fall_and_keep_the_share_that_is_right(answers: list[JudgedAnswer]) -> None:
    steps = fit(answers)
    shares = [step.share_right for step in steps]
    assert shares == sorted(shares)
    assert sum(step.num_labels for step in steps) == len(answers)
    fitted = sum(each.weight * calibrated(each.confidence, steps) for each in answers)
    assert fitted == pytest.approx(sum(each.weight * each.is_right for each in answers))


@given(ANSWERS, st.lists(st.floats(0, 1), min_size=5, max_size=5).map(sorted))
@example(
    answers=[
        JudgedAnswer(confidence=0.1, is_right=False),
        JudgedAnswer(confidence=0.7, is_right=False),
        JudgedAnswer(confidence=0.7, is_right=True),
    ],
    others=[0.0, 0.0, 0.0, 0.5, 0.5],
)
def test_no_other_rising_steps_are_nearer_to_the_labels(answers: list[JudgedAnswer], others: list[float]) -> None:
    steps, places = fit(answers), [0.1, 0.3, 0.5, 0.7, 0.9]

    def distance(shares: dict[float, float]) -> float:
        return sum(each.weight * (shares[each.confidence] - each.is_right) ** 2 for each in answers)

    best = distance({place: calibrated(place, steps) for place in places})
    assert best <= distance(dict(zip(places, others, strict=True))) + 1e-9


def test_error_shown_is_that_of_labels_that_nothing_was_fitted_to() -> None:
    rng = random.Random(5)
    confidences = [rng.random() for _ in range(2_000)]
    boasting = [JudgedAnswer(confidence=each, is_right=rng.random() < each**3) for each in confidences]
    before, after = error_of(boasting), error_of(cross_fitted(boasting))
    assert before.gap > 0.2
    assert after.gap < 0.05
    assert after.brier < before.brier
    assert cross_fitted(boasting[: FOLDS - 1]) == [], "nothing else was left to fit to"
    noise = [JudgedAnswer(confidence=each, is_right=rng.random() < 0.5) for each in confidences[:60]]
    fitted = [
        JudgedAnswer(confidence=calibrated(each.confidence, fit(noise)), is_right=each.is_right) for each in noise
    ]
    assert error_of(cross_fitted(noise)).brier > error_of(fitted).brier
