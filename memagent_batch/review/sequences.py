"""Intervals that stay right however often someone looks while the labels come in: confidence sequences. Pure.

An interval of a sample of fixed size covers the truth in 95 of 100 reviews. Who looks again and again, and stops when
the result pleases, has many chances to be misled. A confidence sequence holds at all times at once, and is wider.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from memagent_batch.review.measures import HALF, Measure, MeasureEstimate, StratumCounts

ALPHA = 0.05
"""How often a sequence may ever miss the truth."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TotalBounds:
    """Fewest and most positives that a stratum can have."""

    low: int
    high: int


def sequence_measures(strata: Sequence[StratumCounts], *, alpha: float = ALPHA) -> dict[Measure, MeasureEstimate]:
    """All measures but the error rate, with confidence sequences: each stratum gets its share of `alpha`."""
    bounds = {stratum.name: total_bounds(stratum, alpha=alpha / len(strata)) for stratum in strata}
    sides = (False, True)
    sizes = {side: sum(each.num_readings for each in strata if each.is_found is side) for side in sides}
    ends = []
    for found_end, missed_end in (("low", "high"), ("high", "low"), ("low", "low"), ("high", "high")):
        found = sum(getattr(bounds[each.name], found_end) for each in strata if each.is_found)
        missed = sum(getattr(bounds[each.name], missed_end) for each in strata if not each.is_found)
        ends.append(_measures_of_total(found, missed, sizes=sizes))
    missed_total, found_total = (sum(each.total for each in strata if each.is_found is side) for side in sides)
    points = _measures_of_total(found_total, missed_total, sizes=sizes)
    return {
        name: MeasureEstimate(value=point, low=_end(ends, name, is_upper=False), high=_end(ends, name, is_upper=True))
        for name, point in points.items()
    }


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


def _measures_of_total(found: float, missed: float, *, sizes: Mapping[bool, int]) -> dict[Measure, float | None]:
    return {
        Measure.PRECISION: _ratio_or_none(found, sizes[True]),
        Measure.RECALL: _ratio_or_none(found, found + missed),
        Measure.F1: _ratio_or_none(2 * found, found + missed + sizes[True]),
        Measure.ELUSION: _ratio_or_none(missed, sizes[False]),
        Measure.RICHNESS: _ratio_or_none(found + missed, sizes[False] + sizes[True]),
    }


def _ratio_or_none(upper: float, lower: float) -> float | None:
    return upper / lower if lower > 0 and not math.isnan(upper) else None


def _end(ends: Sequence[Mapping[Measure, float | None]], name: Measure, *, is_upper: bool) -> float:
    values = [value for end in ends if (value := end[name]) is not None]
    if not values:
        return 1.0 if is_upper else 0.0
    return max(values) if is_upper else min(values)
