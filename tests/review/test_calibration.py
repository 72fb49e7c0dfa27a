"""Thresholds learnt from labels keep what they promise."""

import math
import random
from itertools import combinations

import pytest

from memagent_batch.review.calibration import (
    ALL_AGAIN,
    NONE_AGAIN,
    capitals,
    fewest_draws,
    learn_threshold,
)

TARGET = {"recall": 0.9, "delta": 0.05}


@pytest.mark.parametrize(("size", "num_found"), [(12, 9), (14, 7), (16, 14), (10, 9), (15, 1)])
@pytest.mark.parametrize("delta", [0.05, 0.2, 0.5])
def test_claim_that_is_true_is_refuted_in_delta_of_all_orders_at_most(size: int, num_found: int, delta: float) -> None:
    """All orders in which a whole population can be drawn, without replacement."""
    orders = [[each in found for each in range(size)] for found in combinations(range(size), num_found)]
    refuted = sum(max(capitals(order, share=num_found / size)) >= 1 / delta for order in orders)
    assert refuted <= delta * len(orders)


def test_claim_is_refuted_by_few_more_draws_than_any_test_needs() -> None:
    for share in (0.8, 0.9, 0.95, 0.98, 0.9999):
        at_best = math.log(0.05) / math.log(share)
        assert at_best <= fewest_draws(share=share, delta=0.05) < 1.35 * at_best


def test_more_labels_never_take_a_refutation_back() -> None:
    rng = random.Random(3)
    found = [rng.random() < 0.97 for _ in range(400)]
    highest = [max(capitals(found[:number], share=0.9)) for number in range(0, 400, 20)]
    assert highest == sorted(highest)
    assert highest[-1] > 20


def test_threshold_of_few_labels_looks_at_everything_that_is_not_flagged() -> None:
    few = fewest_draws(share=0.9, delta=0.05) - 1
    assert learn_threshold([None] * few, **TARGET) == ALL_AGAIN
    assert learn_threshold([None] * (few + 1), **TARGET) == NONE_AGAIN
    assert learn_threshold([], **TARGET) == ALL_AGAIN


def test_threshold_leaves_what_is_rarely_looked_for() -> None:
    rng = random.Random(1)
    positives: list[float | None] = [None] * 150 + [0.6] * 40 + [0.95] * 5
    rng.shuffle(positives)
    up_to = learn_threshold(positives, **TARGET)
    assert up_to == 0.6
    assert sum(each is None or each <= up_to for each in positives) == 190
    assert learn_threshold(positives, recall=0.98, delta=0.05) in (0.95, ALL_AGAIN)


def test_confident_misses_keep_the_threshold_above_them() -> None:
    rng = random.Random(2)
    positives: list[float | None] = [None] * 100 + [0.99] * 100
    rng.shuffle(positives)
    assert learn_threshold(positives, **TARGET) == 0.99
