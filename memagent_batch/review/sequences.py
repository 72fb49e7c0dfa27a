"""Intervals that stay right however often someone looks while the labels come in: confidence sequences. Pure.

An interval of a sample of fixed size covers the truth in 95 of 100 reviews. Who looks again and again, and stops when
the result pleases, has many chances to be misled. A confidence sequence holds at all times at once, and is wider.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache

import numpy as np

from memagent_batch.review.measures import HALF, Measure, MeasureEstimate, Numbers, StratumCounts, measures_of

ALPHA = 0.05
"""How often a sequence may ever miss the truth."""


def sequence_measures(strata: Sequence[StratumCounts], *, alpha: float = ALPHA) -> dict[Measure, MeasureEstimate]:
    """All measures but the error rate, with confidence sequences: each stratum gets its share of `alpha`."""
    sides = {True: np.zeros(3), False: np.zeros(3)}
    sizes = {True: 0, False: 0}
    for stratum in strata:
        bounds = total_bounds(stratum, alpha=alpha / len(strata))
        sides[stratum.is_found] += (bounds.low, bounds.high, stratum.total)
        sizes[stratum.is_found] += stratum.num_readings
    (low, high, total), (missed_low, missed_high, missed_total) = sides[True], sides[False]
    found = np.array([total, low, high, low, high])
    missed = np.array([missed_total, missed_high, missed_low, missed_low, missed_high])
    measures = measures_of(found, missed, num_found=sizes[True], num_missed=sizes[False])
    return {name: _estimate_of_ends(values) for name, values in measures.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalBounds:
    """Fewest and most positives that a stratum can have."""

    low: int
    high: int


def total_bounds(stratum: StratumCounts, *, alpha: float) -> TotalBounds:
    """The totals that a sequence of draws without replacement does not rule out.

    The ratio of prior to posterior of a total is a martingale under that total (Waudby-Smith and Ramdas, Confidence
    sequences for sampling without replacement, 2020), so that it passes 1 / alpha with probability alpha at most.
    """
    size, num_labelled, num_positive = stratum.num_readings, stratum.num_labelled, stratum.num_positive
    lowest, highest = num_positive, size - (num_labelled - num_positive)
    threshold = math.log(alpha) + _log_marginal(num_labelled, num_positive)

    def is_possible(total: int) -> bool:
        return _log_hypergeometric(size, total, num_labelled, num_positive) > threshold

    middle = lowest if stratum.is_unknown else min(max(round(stratum.total), lowest), highest)
    return TotalBounds(
        low=_first(lowest, middle, is_possible=is_possible),
        high=-_first(-highest, -middle, is_possible=lambda total: is_possible(-total)),
    )


def _first(low: int, high: int, *, is_possible: Callable[[int], bool]) -> int:
    """The first number from `low` that is possible; those from it up to `high` are too."""
    while low < high:
        middle = (low + high) // 2
        if is_possible(middle):
            high = middle
        else:
            low = middle + 1
    return low


@lru_cache
def _log_marginal(num_labelled: int, num_positive: int) -> float:
    """Log-probability of one order of these labels, before any is seen."""
    return _log_beta(num_positive + HALF, num_labelled - num_positive + HALF) - _log_beta(HALF, HALF)


def _log_hypergeometric(size: int, total: int, num_labelled: int, num_positive: int) -> float:
    """Log-probability of one order of these labels, where `total` of `size` are positive."""
    rest, rest_positive = size - num_labelled, total - num_positive
    return _log_choose(rest, rest_positive) - _log_choose(size, total)


def _log_choose(number: int, chosen: int) -> float:
    return math.lgamma(number + 1) - math.lgamma(chosen + 1) - math.lgamma(number - chosen + 1)


def _log_beta(first: float, second: float) -> float:
    return math.lgamma(first) + math.lgamma(second) - math.lgamma(first + second)


def _estimate_of_ends(values: Numbers) -> MeasureEstimate:
    """The estimate of a point, which stands first, and of what is possible."""
    point, ends = values[0], values[1:][~np.isnan(values[1:])]
    return MeasureEstimate(
        value=None if np.isnan(point) else float(point),
        low=float(min(ends, default=0.0)),
        high=float(max(ends, default=1.0)),
    )
