"""The intervals of a review: what they cover, and that they are the same everywhere."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest

from memagent_batch.apps.review.estimates import (
    Measure,
    MeasureEstimate,
    StratumCounts,
    agreement_of,
    draw_totals,
    estimate_error_rate,
    estimate_measures,
)
from memagent_batch.apps.review.population import Stratum, allocate
from memagent_batch.apps.review.record import share_words

PRECISION, RICHNESS, ELUSION = 0.8, 0.05, 0.01
SIZES: dict[str, int] = {Stratum.FAILED: 200, Stratum.FLAGGED: 496, Stratum.NOT_FLAGGED: 9304}
SHARES: dict[str, float] = {Stratum.FAILED: RICHNESS, Stratum.FLAGGED: PRECISION, Stratum.NOT_FLAGGED: ELUSION}
"""Of what is looked for, in a scan of 10,000 documents whose simulated reviews have 750 labels each."""


def stratum(size: int, labelled: int, positive: int, *, found: bool = False) -> StratumCounts:
    name = "flagged" if found else "not_flagged"
    return StratumCounts(name=name, num_readings=size, num_labelled=labelled, num_positive=positive, is_found=found)


@pytest.mark.slow
def test_intervals_of_simulated_reviews_cover_the_truth_as_often_as_they_say() -> None:
    """Each draws its truth again; a sample of fixed size is drawn and labelled."""
    covered, rng = [], np.random.default_rng(3)
    for _ in range(800):
        truth, counts = simulated(rng)
        true = true_measures(truth)
        seeds = [int(seed) for seed in rng.integers(2**31, size=2)]
        estimates = estimate_measures(counts, draw_totals(counts, seed=seeds[0], num_draws=1000))
        estimates[Measure.ERROR_RATE] = error_rate(counts, seed=seeds[1])
        covered.append([estimates[name].low <= true[name] <= estimates[name].high for name in true])
    assert set(true) == set(Measure)
    for measure, share in zip(true, np.mean(covered, axis=0).tolist(), strict=True):
        assert 0.93 <= share <= 0.98, measure


def simulated(rng: np.random.Generator) -> tuple[dict[str, int], list[StratumCounts]]:
    """Positives of each stratum, and what a sample of it says."""
    drawn = allocate(750, SIZES)
    truth = {name: int(rng.binomial(size, SHARES[name])) for name, size in SIZES.items()}
    counts = []
    for name, size in SIZES.items():
        positive = int(rng.hypergeometric(truth[name], size - truth[name], drawn[name])) if drawn[name] else 0
        counts.append(replace(stratum(size, drawn[name], positive, found=name == Stratum.FLAGGED), name=name))
    return truth, counts


def true_measures(truth: dict[str, int]) -> dict[Measure, float]:
    right, every, missed = truth[Stratum.FLAGGED], sum(truth.values()), truth[Stratum.NOT_FLAGGED]
    flagged, size = SIZES[Stratum.FLAGGED], sum(SIZES.values())
    return {
        Measure.PRECISION: right / flagged,
        Measure.RECALL: right / every,
        Measure.F1: 2 * right / (flagged + every),
        Measure.ELUSION: (every - right) / (size - flagged),
        Measure.RICHNESS: every / size,
        Measure.ERROR_RATE: (flagged - right + missed + SIZES[Stratum.FAILED]) / size,
    }


def error_rate(counts: Sequence[StratumCounts], *, seed: int) -> MeasureEstimate:
    right = [
        each if each.is_found else replace(each, num_positive=each.num_labelled - each.num_positive)
        for each in counts
        if each.name != Stratum.FAILED
    ]
    draws = draw_totals(right, seed=seed, num_draws=1000)
    return estimate_error_rate(right, draws, num_unanswered=SIZES[Stratum.FAILED])


def test_recall_of_the_design_of_the_field_has_the_width_of_the_field() -> None:
    strata = [stratum(500, 150, 120, found=True), stratum(9500, 600, 6)]
    recall = estimate_measures(strata, draw_totals(strata))[Measure.RECALL]
    assert recall.value == pytest.approx(0.808, abs=0.001)
    assert recall.high - recall.low == pytest.approx(0.22, abs=0.04)
    assert recall.low == pytest.approx(0.68, abs=0.04)


@pytest.mark.parametrize(
    ("positive", "labelled", "low", "high"), [(1, 10, 0.011, 0.381), (5, 10, 0.224, 0.776), (2, 30, 0.014, 0.197)]
)
def test_interval_of_a_share_is_that_of_jeffreys_with_95_per_cent(
    positive: int, labelled: int, low: float, high: float
) -> None:
    """As in Brown, Cai and DasGupta, Interval estimation for a binomial proportion, Statistical Science 16(2), 2001."""
    strata = [stratum(10_000_000, labelled, positive, found=True)]
    precision = estimate_measures(strata, draw_totals(strata, num_draws=40_000))[Measure.PRECISION]
    assert [precision.low, precision.high] == pytest.approx([low, high], abs=0.006)


FAILED = StratumCounts(name="failed", num_readings=10, num_labelled=10, num_positive=10)


@pytest.mark.parametrize(
    ("strata", "measure", "expected"),
    [
        ([stratum(20, 20, 15, found=True), stratum(80, 80, 5)], Measure.RECALL, (0.75, 0.75, 0.75)),  # read whole
        ([stratum(100, 50, 5)], Measure.PRECISION, (0.0, None, 1.0)),  # nothing was found
        ([stratum(100, 50, 5)], Measure.RECALL, (0.0, 0.0, 0.0)),
        ([stratum(10, 10, 10, found=True), stratum(10, 10, 0), FAILED], Measure.RECALL, (0.5, 0.5, 0.5)),
    ],
)
def test_measure_of_what_is_known_or_not_known_at_all(
    strata: list[StratumCounts], measure: Measure, expected: tuple[float | None, ...]
) -> None:
    estimate = estimate_measures(strata, draw_totals(strata))[measure]
    assert (estimate.low, estimate.value, estimate.high) == expected


def test_interval_holds_its_estimate_at_both_edges() -> None:
    strata = [stratum(100_000, 50, 50, found=True), stratum(1_000_000, 600, 0)]
    measures = estimate_measures(strata, draw_totals(strata))
    assert measures[Measure.RECALL].value == measures[Measure.RECALL].high == 1.0
    assert measures[Measure.ELUSION].value == measures[Measure.ELUSION].low == 0.0
    assert measures[Measure.PRECISION].low > 0.9
    right = [stratum(10, 10, 10, found=True), stratum(10, 10, 10)]
    assert estimate_error_rate(right, draw_totals(right), num_unanswered=10).value == pytest.approx(1 / 3)


def test_share_is_certain_only_where_it_is() -> None:
    assert share_words(MeasureEstimate(value=0.9996, low=0.9912, high=1.0)) == "99.96 % (99.12 to 100)"
    assert share_words(MeasureEstimate(value=None, low=0.0, high=0.00001)) == "not known (0 to 0.01)"


def test_kappa_of_known_tables() -> None:
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    agreement = agreement_of(pairs)
    assert agreement.share == pytest.approx(0.7)
    assert agreement.kappa == pytest.approx(0.4)
    assert agreement_of([("no", "no")] * 5).kappa is None
    assert agreement_of([]).share is None
