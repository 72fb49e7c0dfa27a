"""Measures of many answers: labels, evidence, calibration. Pure; each is a number from 0 to 1."""

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

from memagent_batch.domain.scoring.intervals import Interval, percentile, wilson

MAX_BINS = 10
"""Most bins of a reliability curve."""

MIN_IN_BIN = 10
"""Least answers in a bin, where there are so many: with fewer, its interval holds nearly everything."""

NUM_RESAMPLES = 1_000
"""Bootstrap samples. With so many, the ends move by less than a hundredth of the interval's width between seeds."""

RESAMPLING_SEED = 0
"""Seed of the bootstrap, so that the same answers always have the same interval."""

Span = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanScores:
    """Evidence of a reading against the sentences that bear the answer."""

    precision: float
    """Share of the evidence that overlaps a right sentence; 0 where there is no evidence."""
    recall: float
    """Share of the right sentences that evidence overlaps."""
    f1: float
    """Harmonic mean of both."""
    hit: bool
    """Whether any evidence overlaps a right sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Answers of about the same confidence."""

    n: int
    """Answers."""
    confidence: float
    """Their mean confidence."""
    accuracy: float
    """Share of them that is right."""
    interval: Interval
    """Wilson's interval of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether answers are right as often as their confidence says."""

    bins: tuple[ReliabilityBin, ...]
    """About as many answers in each, by rising confidence."""
    error: float
    """Expected calibration error: mean distance of accuracy and confidence over the bins."""
    interval: Interval
    """The middle 95 % of it over bootstrap samples. Chance alone gives some error, so few answers look worse."""


def span_scores(found: Sequence[Span], gold: Sequence[Span]) -> SpanScores:
    """Scores of evidence by overlap.

    Args:
        found: Spans of the evidence.
        gold: Spans of the right sentences; at least one.
    """
    right = sum(any(_overlap(span, other) for other in gold) for span in found)
    met = sum(any(_overlap(span, other) for other in found) for span in gold)
    precision, recall = right / len(found) if found else 0.0, met / len(gold)
    both = precision + recall
    return SpanScores(
        precision=precision, recall=recall, f1=2 * precision * recall / both if both else 0.0, hit=met > 0
    )


def macro_f1(pairs: Sequence[tuple[Sequence[str], Sequence[str]]]) -> float:
    """The mean over all classes of the harmonic mean of precision and recall.

    Args:
        pairs: For each answer the classes that it gives, and the right ones; at least one class in all.
    """
    given, wanted, right = Counter[str](), Counter[str](), Counter[str]()
    for answered, reference in pairs:
        given.update(set(answered))
        wanted.update(set(reference))
        right.update(set(answered) & set(reference))
    names = sorted(given | wanted)
    return math.fsum(2 * right[name] / (given[name] + wanted[name]) for name in names) / len(names)


def calibration(answers: Sequence[tuple[float, bool]]) -> Calibration | None:
    """The reliability curve in bins of equal count, and its error; None where there are no answers.

    Args:
        answers: Confidence of each, and whether it is right.
    """
    if not answers:
        return None
    bins = _bins(sorted(answers))
    rng = random.Random(RESAMPLING_SEED)
    ordered = sorted(answers)
    errors = sorted(_error(_bins(sorted(rng.choices(ordered, k=len(ordered))))) for _ in range(NUM_RESAMPLES))
    interval = Interval(low=percentile(errors, 0.025), high=percentile(errors, 0.975))
    return Calibration(bins=bins, error=_error(bins), interval=interval)


def _bins(answers: Sequence[tuple[float, bool]]) -> tuple[ReliabilityBin, ...]:
    """Bins of sorted answers, with as many in each as can be: answers of equal confidence are in one bin."""
    num_bins = max(1, min(MAX_BINS, len(answers) // MIN_IN_BIN))
    confidences = [confidence for confidence, _ in answers]
    ends = (
        bisect_right(confidences, confidences[place * len(answers) // num_bins - 1]) for place in range(1, num_bins + 1)
    )
    borders = [0, *dict.fromkeys(ends)]
    return tuple(_reliability_bin(answers[first:end]) for first, end in pairwise(borders))


def _reliability_bin(answers: Sequence[tuple[float, bool]]) -> ReliabilityBin:
    n, num_right = len(answers), sum(right for _, right in answers)
    confidence = math.fsum(confidence for confidence, _ in answers) / n
    return ReliabilityBin(n=n, confidence=confidence, accuracy=num_right / n, interval=wilson(num_right, n))


def _error(bins: Sequence[ReliabilityBin]) -> float:
    return math.fsum(each.n * abs(each.accuracy - each.confidence) for each in bins) / sum(each.n for each in bins)


def _overlap(one: Span, other: Span) -> bool:
    return one[0] < other[1] and other[0] < one[1]
