"""How far a mean score may be off, since few documents were read; whether two differ. Pure."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate

Z_95 = 1.959963984540054
"""Standard deviations on both sides of the mean that hold 95 % of a normal distribution."""
ALIKE = 1e-12
"""Sum of squares below which documents differ by rounding alone."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the true mean lies, in 95 of 100 cases."""

    low: float
    high: float


def mean_interval(scores_by_document: Sequence[Sequence[float]]) -> Interval:
    """Interval of the mean of scores from 0 to 1, for documents drawn as these were.

    Scores of one document are not independent of each other. So the variance is that between documents (of a ratio
    estimate, Cochran 1977), and Wilson's interval is taken for as many independent scores as have this variance, with
    Student's quantile in place of the normal one (Dean and Pagano 2015). Documents with one score of 0 or 1 each have
    Wilson's interval itself; documents that are all alike have the one for as many scores as documents.
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


def sign_test(num_more: int, num_less: int) -> float:
    """Chance that a fair coin splits so many at least so unevenly, both sides; 1 if there are none."""
    num = num_more + num_less
    tail = sum(accumulate(range(min(num_more, num_less)), lambda ways, k: ways * (num - k) // (k + 1), initial=1))
    return min(1.0, 2 * tail / (1 << num))


def holm(chances: Sequence[float]) -> list[float]:
    """Each chance, corrected for how many were looked at (Holm 1979): any below 0.05 is a difference at that level."""
    order = sorted(range(len(chances)), key=chances.__getitem__)
    raised = (min(1.0, (len(chances) - rank) * chances[place]) for rank, place in enumerate(order))
    corrected = dict(zip(order, accumulate(raised, max), strict=True))
    return [corrected[place] for place in range(len(chances))]
