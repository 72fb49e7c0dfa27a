import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.scoring.measures import MAX_BINS, calibration, macro_f1, span_scores

SPANS = st.lists(st.tuples(st.integers(0, 50), st.integers(1, 9)).map(lambda span: (span[0], span[0] + span[1])))


def test_span_scores_count_spans_that_overlap() -> None:
    scores = span_scores([(0, 10), (20, 30), (90, 95)], [(5, 25), (40, 50)])
    assert scores.precision == pytest.approx(2 / 3)
    assert (scores.recall, scores.hit) == (0.5, True)
    assert scores.f1 == pytest.approx(4 / 7)


def test_span_scores_spans_that_touch_do_not_overlap() -> None:
    assert not span_scores([(0, 5)], [(5, 9)]).hit


def test_span_scores_without_evidence_are_zero() -> None:
    scores = span_scores([], [(0, 3)])
    assert (scores.precision, scores.recall, scores.f1, scores.hit) == (0.0, 0.0, 0.0, False)


@given(SPANS, SPANS.filter(bool))
def test_span_scores_are_shares_and_one_for_the_right_spans(
    found: list[tuple[int, int]], gold: list[tuple[int, int]]
) -> None:
    scores = span_scores(found, gold)
    assert 0 <= scores.f1 <= 1
    assert scores.hit == (scores.precision > 0) == (scores.recall > 0)
    assert span_scores(gold, gold).f1 == 1


def test_macro_f1_weighs_a_rare_label_like_a_frequent_one() -> None:
    pairs = [(["a"], ["a"])] * 8 + [(["a"], ["b"])] * 2
    assert macro_f1(pairs) == pytest.approx((2 * 8 / 18 + 0) / 2)


def test_macro_f1_of_several_labels_an_answer_counts_each() -> None:
    assert macro_f1([(["a", "b"], ["a"]), (["b"], ["b", "a"])]) == pytest.approx((2 / 3 + 2 / 3) / 2)


def test_calibration_of_nothing_is_none() -> None:
    assert calibration([]) is None


def test_calibration_bins_hold_as_many_answers_each_and_all_of_them() -> None:
    rng = random.Random(0)
    answers = [(rng.random(), rng.random() < 0.5) for _ in range(107)]
    found = calibration(answers)
    assert found is not None
    assert len(found.bins) == MAX_BINS
    assert sum(each.n for each in found.bins) == 107
    assert {each.n for each in found.bins} == {10, 11}
    assert [each.confidence for each in found.bins] == sorted(each.confidence for each in found.bins)


def test_calibration_error_is_the_distance_of_confidence_and_accuracy() -> None:
    sure = calibration([(0.9, number % 2 == 0) for number in range(100)])
    assert sure is not None
    assert sure.error == pytest.approx(0.4)
    assert sure.interval.low < 0.4 < sure.interval.high


def test_calibration_answers_of_equal_confidence_share_a_bin_whatever_their_order() -> None:
    answers = [(1.0, number % 4 > 0) for number in range(80)] + [(0.5, False)] * 20
    found = calibration(answers)
    assert found is not None
    assert [(each.n, each.accuracy) for each in found.bins] == [(20, 0.0), (80, 0.75)]
    assert found == calibration(answers[::-1])


def test_calibration_of_honest_confidence_is_near_zero() -> None:
    rng = random.Random(0)
    drawn = [rng.random() for _ in range(2000)]
    honest = calibration([(confidence, rng.random() < confidence) for confidence in drawn])
    assert honest is not None
    assert honest.error < 0.05


def test_calibration_of_few_answers_is_one_bin() -> None:
    few = calibration([(0.5, True), (1.0, True)])
    assert few is not None
    assert [(each.n, each.confidence, each.accuracy) for each in few.bins] == [(2, 0.75, 1.0)]
