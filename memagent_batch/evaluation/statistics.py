"""95 % intervals of a mean score: how far it may be off, since few documents were read. Pure."""

import math
import random
from bisect import bisect_right
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

Z_95 = 1.959963984540054
"""Standard deviations on both sides of the mean that hold 95 % of a normal distribution."""
ALIKE = 1e-12
"""Sum of squares below which documents differ by rounding alone."""
MAX_BINS = 10
"""Most bins of a reliability curve."""
MIN_IN_BIN = 10
"""Least answers in a bin, if there are so many: with fewer, its interval holds nearly everything."""
NUM_RESAMPLES = 1_000
"""Bootstrap samples. With so many, the ends move by less than a hundredth of the interval's width between seeds."""
RESAMPLING_SEED = 0
"""Seed of the bootstrap, so that the same answers always have the same interval."""
Span = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the true mean lies, in 95 of 100 cases."""

    low: float
    """Lower end, from 0 to 1."""
    high: float
    """Upper end, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What two readers reached where both have a score."""

    num_better: int
    """Where the first one is better."""
    num_worse: int
    num_equal: int
    p: float
    """Chance of a split at least so uneven if neither is better: the exact sign test, both sides."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SpanScores:
    """Evidence of a reading against the sentences that support the answer."""

    precision: float
    """Share of the evidence that overlaps a right sentence; 0 if there is no evidence."""
    recall: float
    """Share of the right sentences that evidence overlaps."""
    f1: float
    hit: bool
    """Whether any evidence overlaps a right sentence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReliabilityBin:
    """Answers of about the same confidence."""

    n: int
    confidence: float
    accuracy: float
    """Share of them that is right."""
    interval: Interval


@dataclass(frozen=True, slots=True, kw_only=True)
class Calibration:
    """Whether answers are right as often as their confidence says."""

    bins: tuple[ReliabilityBin, ...]
    """About as many answers in each, by rising confidence."""
    error: float
    """Expected calibration error: mean distance of accuracy and confidence over the bins."""
    interval: Interval
    """The middle 95 % of it over bootstrap samples. Chance alone gives some error, so few answers look worse."""


def mean_interval(scores_by_document: Sequence[Sequence[float]]) -> Interval:
    """Interval of the mean of scores from 0 to 1, for documents drawn as these were.

    Scores of one document are not independent of each other. So the variance is that between documents (of a ratio
    estimate, Cochran 1977), and Wilson's interval is taken for as many independent scores as have this variance, with
    Student's quantile in place of the normal one (Dean and Pagano 2015). Documents with one score of 0 or 1 each have
    Wilson's interval itself; documents that are all alike have the one for as many scores as documents.

    Args:
        scores_by_document: The scores of each document; at least one each.
    """
    num_documents, num_scores = len(scores_by_document), sum(map(len, scores_by_document))
    sums = [math.fsum(scores) for scores in scores_by_document]
    if num_scores == num_documents and set(sums) <= {0.0, 1.0}:
        return wilson(math.fsum(sums), num_documents)
    share = math.fsum(sums) / num_scores
    rests = (total - share * len(scores) for total, scores in zip(sums, scores_by_document, strict=True))
    spread = math.fsum(rest**2 for rest in rests)
    if spread < ALIKE:
        return wilson(share * num_documents, num_documents)
    variance = spread * num_documents / (num_documents - 1) / num_scores**2
    num_independent = share * (1 - share) / variance
    return wilson(share * num_independent, num_independent, quantile=_student_95(num_documents - 1))


def wilson(num_right: float, num_scores: float, *, quantile: float = Z_95) -> Interval:
    """Wilson's score interval (1927), without continuity correction; from 0 to 1 if there are no scores."""
    if not num_scores:
        return Interval(low=0.0, high=1.0)
    share = num_right / num_scores
    scale = 1 + quantile**2 / num_scores
    centre = (share + quantile**2 / (2 * num_scores)) / scale
    half = quantile / scale * math.sqrt(share * (1 - share) / num_scores + quantile**2 / (4 * num_scores**2))
    return Interval(low=max(0.0, min(share, centre - half)), high=min(1.0, max(share, centre + half)))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies; linear between the two next to it."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)


def _student_95(degrees: int) -> float:
    """The 97.5 % quantile of Student's t distribution; above two degrees of freedom an expansion, right to 0.03."""
    if degrees == 1:
        return math.tan(math.pi * 0.475)
    if degrees == 2:
        return 0.95 * math.sqrt(2 / (1 - 0.95**2))
    z, n = Z_95, degrees
    return (
        z
        + (z**3 + z) / (4 * n)
        + (5 * z**5 + 16 * z**3 + 3 * z) / (96 * n**2)
        + (3 * z**7 + 19 * z**5 + 17 * z**3 - 15 * z) / (384 * n**3)
    )


def paired(scores: Mapping[Any, float], others: Mapping[Any, float]) -> Paired:
    """Compares the scores of two readers under the keys that both have; the keys must be independent observations."""
    keys: set[Hashable] = scores.keys() & others.keys()
    more = sum(scores[key] > others[key] for key in keys)
    less = sum(scores[key] < others[key] for key in keys)
    return Paired(num_better=more, num_worse=less, num_equal=len(keys) - more - less, p=sign_test(more, less))


def sign_test(num_more: int, num_less: int) -> float:
    """Chance that a fair coin splits so many at least so unevenly, both sides; 1 if there are none."""
    num = num_more + num_less
    tail = sum(math.comb(num, each) for each in range(min(num_more, num_less) + 1))
    return min(1.0, math.ldexp(tail, 1 - num))


def holm(chances: Sequence[float]) -> list[float]:
    """Each chance, corrected for how many were looked at (Holm 1979): any below 0.05 is a difference at that level."""
    corrected = [0.0] * len(chances)
    least = 0.0
    for rank, place in enumerate(sorted(range(len(chances)), key=chances.__getitem__)):
        least = max(least, min(1.0, (len(chances) - rank) * chances[place]))
        corrected[place] = least
    return corrected


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
    """The reliability curve in bins of equal count, and its error; None if there are no answers.

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
