"""The intervals of a review: what they cover, and that they are the same everywhere."""

import numpy as np
import pytest

from memagent_batch.review.estimate_files import share_words
from memagent_batch.review.measures import (
    Measure,
    StratumCounts,
    agreement_of,
    draw_totals,
    estimate_error_rate,
    estimate_measures,
)
from tests.review.simulated_reviews import Cell, coverage

CELL = Cell(documents=10_000, richness=0.05, elusion=0.01, labels=750)


def stratum(size: int, labelled: int, positive: int, *, found: bool = False) -> StratumCounts:
    return StratumCounts(
        name="flagged" if found else "not_flagged",
        num_readings=size,
        num_labelled=labelled,
        num_positive=positive,
        is_found=found,
    )


@pytest.mark.slow
def test_intervals_of_simulated_reviews_cover_the_truth_as_often_as_they_say() -> None:
    covered = coverage(CELL, reviews=800, rng=np.random.default_rng(3))
    assert set(covered) == set(Measure)
    for measure, share in covered.items():
        assert 0.93 <= share <= 0.98, measure


def test_recall_of_the_design_of_the_field_has_the_width_of_the_field() -> None:
    strata = [stratum(500, 150, 120, found=True), stratum(9500, 600, 6)]
    recall = estimate_measures(strata, draw_totals(strata))[Measure.RECALL]
    assert recall.value == pytest.approx(0.808, abs=0.001)
    assert recall.high - recall.low == pytest.approx(0.22, abs=0.04)
    assert recall.low == pytest.approx(0.68, abs=0.04)


def test_stratum_read_whole_has_no_interval() -> None:
    strata = [stratum(20, 20, 15, found=True), stratum(80, 80, 5)]
    measures = estimate_measures(strata, draw_totals(strata))
    assert (measures[Measure.RECALL].low, measures[Measure.RECALL].high) == (0.75, 0.75)


def test_interval_holds_its_estimate_at_both_edges() -> None:
    strata = [stratum(100_000, 50, 50, found=True), stratum(1_000_000, 600, 0)]
    measures = estimate_measures(strata, draw_totals(strata))
    assert measures[Measure.RECALL].value == measures[Measure.RECALL].high == 1.0
    assert measures[Measure.ELUSION].value == measures[Measure.ELUSION].low == 0.0
    assert measures[Measure.PRECISION].low > 0.9


def test_scan_that_found_nothing_has_no_precision() -> None:
    strata = [stratum(100, 50, 5)]
    measures = estimate_measures(strata, draw_totals(strata))
    assert measures[Measure.PRECISION].value is None
    assert (measures[Measure.PRECISION].low, measures[Measure.PRECISION].high) == (0.0, 1.0)
    assert measures[Measure.RECALL].value == 0.0


def test_failed_readings_count_as_missed_and_as_wrong() -> None:
    failed = StratumCounts(name="failed", num_readings=10, num_labelled=10, num_positive=10)
    strata = [stratum(10, 10, 10, found=True), stratum(10, 10, 0), failed]
    assert estimate_measures(strata, draw_totals(strata))[Measure.RECALL].value == 0.5
    right = [stratum(10, 10, 10, found=True), stratum(10, 10, 10)]
    assert estimate_error_rate(right, draw_totals(right), num_unanswered=10).value == pytest.approx(1 / 3)


def test_share_is_certain_only_where_it_is() -> None:
    assert share_words({"value": 0.9996, "low": 0.9912, "high": 1.0}) == "99.96 % (99.12 to 100)"
    assert share_words({"value": None, "low": 0.0, "high": 0.00001}) == "not known (0 to 0.01)"


def test_kappa_of_known_tables() -> None:
    pairs = [("yes", "yes")] * 20 + [("yes", "no")] * 5 + [("no", "yes")] * 10 + [("no", "no")] * 15
    agreement = agreement_of(pairs)
    assert agreement.share == pytest.approx(0.7)
    assert agreement.kappa == pytest.approx(0.4)
    assert agreement_of([("no", "no")] * 5).kappa is None
    assert agreement_of([]).share is None
