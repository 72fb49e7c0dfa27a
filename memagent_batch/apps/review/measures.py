"""How good a scan is: precision, recall, elusion, richness, F1 and error rate, with 95 % intervals. Pure, seeded."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from math import nan

import numpy as np
from numpy.typing import NDArray

from memagent_batch.apps.evaluation.statistics import Interval, wilson

NUM_DRAWS = 4_000
"""Draws of a total: with so many, the ends of an interval move by about 2 % of its width between seeds."""
HALF = 0.5
"""Both parameters of the prior of a share: Jeffreys' (Webber's "half prior")."""
SEED = 20130131
"""Seed of the draws, so that the same labels always have the same intervals."""
Numbers = NDArray[np.floating]
Totals = NDArray[np.int64]
"""Positives of each stratum in each draw, shape (strata, draws)."""
INTERVAL_ENDS = (0.025, 0.975)
"""Quantiles of the draws between which 95 % of them lie."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumCounts:
    """One stratum: how large it is, how much of it was labelled, and what the labels say."""

    name: str
    num_readings: int
    num_labelled: int
    """Of these, drawn at random and labelled."""
    num_positive: int
    """Of the labelled, those that people say are what is looked for."""
    is_found: bool = False
    """Whether the scan's output says that these readings are what is looked for."""

    @property
    def is_unknown(self) -> bool:
        """Whether it has readings, and no label says anything of them."""
        return self.num_readings > 0 and self.num_labelled == 0

    @property
    def total(self) -> float:
        """Estimated positives of the whole stratum; NaN where nothing is known of it."""
        if self.is_unknown:
            return nan
        return self.num_readings * self.num_positive / max(1, self.num_labelled)


def draw_totals(strata: Sequence[StratumCounts], *, seed: int = SEED, num_draws: int = NUM_DRAWS) -> Totals:
    """Draws the positives of each stratum: those labelled so, and a beta-binomial number of the unlabelled.

    The way of Webber, Approximate recall confidence intervals, ACM TOIS 31(1), 2013. What was labelled is known, so
    that a stratum that was read whole has one total only.
    """
    rng = np.random.default_rng(seed)
    draws = np.empty((len(strata), num_draws), np.int64)
    for row, stratum in enumerate(strata):
        num_negative = stratum.num_labelled - stratum.num_positive
        shares = rng.beta(stratum.num_positive + HALF, num_negative + HALF, num_draws)
        draws[row] = stratum.num_positive + rng.binomial(stratum.num_readings - stratum.num_labelled, shares)
    return draws


class Measure(StrEnum):
    """Measures of a scan, in the order in which people ask for them.

    Readings that failed or have no value count among those that were not found.
    """

    RECALL = "recall"
    """Share of all that is right which was found."""
    PRECISION = "precision"
    """Share of what was found that is right."""
    F1 = "f1"
    ELUSION = "elusion"
    """Share of what was not found that should have been."""
    RICHNESS = "richness"
    """Share of all readings that are what is looked for."""
    ERROR_RATE = "error_rate"
    """Share of all readings whose answer is wrong, or that have none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureEstimate:
    """A measure with its interval."""

    value: float | None
    """The estimate; None if nothing is known of it, as the precision of a scan that found nothing, or where it rests
    on a stratum without labels."""
    low: float
    """Lower end of the 95 % interval, from 0 to 1."""
    high: float


def estimate_measures(strata: Sequence[StratumCounts], draws: Totals) -> dict[Measure, MeasureEstimate]:
    """All measures but the error rate; `draws` are the positives of each stratum."""
    totals = np.array([[stratum.total] for stratum in strata], float)
    points, of_draws = (_measures_of_totals(strata, each) for each in (totals, draws.astype(float)))
    return {name: _estimate_of_draws(points[name], of_draws[name]) for name in points}


def estimate_error_rate(strata: Sequence[StratumCounts], draws: Totals, *, num_unanswered: int) -> MeasureEstimate:
    """Share of wrong or missing answers: readings without one count as wrong.

    A stratum's positives are the labels that its answers agree with, and `draws` the right answers of each.
    """
    size = sum(stratum.num_readings for stratum in strata) + num_unanswered
    points = np.array([[stratum.total] for stratum in strata], float).reshape(len(strata), 1)
    point, of_draws = (_ratio(size - totals.sum(0), size) for totals in (points, draws.astype(float)))
    return _estimate_of_draws(point, of_draws)


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two readings of the same documents by two people."""

    num_pairs: int
    num_equal: int
    """Of these, with the same label."""
    interval: Interval
    """Wilson's 95 % interval of the share that is equal."""
    kappa: float | None
    """Cohen's kappa: agreement beyond what chance alone would bring, at most 1; None where it is not defined."""

    @property
    def share(self) -> float | None:
        """Share of the pairs that are equal; None without pairs."""
        return self.num_equal / self.num_pairs if self.num_pairs else None


def agreement_of(pairs: Sequence[tuple[str, str]]) -> Agreement:
    """Agreement of pairs of labels, first reviewer's first.

    Cohen's kappa (1960) is (agreed - expected) / (1 - expected), and not defined where all labels are the same.
    """
    num_equal = sum(first == second for first, second in pairs)
    return Agreement(
        num_pairs=len(pairs),
        num_equal=num_equal,
        interval=wilson(num_equal, len(pairs)),
        kappa=_kappa(pairs, num_equal=num_equal),
    )


def _measures_of_totals(strata: Sequence[StratumCounts], totals: Numbers) -> dict[Measure, Numbers]:
    sizes = np.array([stratum.num_readings for stratum in strata], float)
    is_found = np.array([stratum.is_found for stratum in strata])
    found, missed = totals[is_found].sum(0), totals[~is_found].sum(0)
    num_found = sizes[is_found].sum()
    return {
        Measure.PRECISION: _ratio(found, num_found),
        Measure.RECALL: _ratio(found, found + missed),
        Measure.F1: _ratio(2 * found, found + missed + num_found),
        Measure.ELUSION: _ratio(missed, sizes.sum() - num_found),
        Measure.RICHNESS: _ratio(found + missed, sizes.sum()),
    }


def _ratio(upper: Numbers, lower: Numbers | float) -> Numbers:
    """The quotient; NaN if nothing is known of it, or nothing is known of a part."""
    lower = np.broadcast_to(np.asarray(lower, float), upper.shape)
    quotient: Numbers = np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)
    return quotient


def _estimate_of_draws(point: Numbers, draws: Numbers) -> MeasureEstimate:
    """What the labels say, and the middle 95 % of the draws, which hold it: no wrong label among few leaves zero wrong
    ones possible.
    """
    value = None if np.isnan(point[0]) else float(point[0])
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return MeasureEstimate(value=value, low=0.0, high=1.0)
    low, high = (float(end) for end in np.quantile(draws, INTERVAL_ENDS))
    if value is None:
        return MeasureEstimate(value=None, low=low, high=high)
    return MeasureEstimate(value=value, low=min(low, value), high=max(high, value))


def _kappa(pairs: Sequence[tuple[str, str]], *, num_equal: int) -> float | None:
    firsts, seconds = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    expected = sum(number * seconds[label] for label, number in firsts.items())
    num_possible = len(pairs) ** 2
    if num_possible == expected:
        return None
    return (num_equal * len(pairs) - expected) / (num_possible - expected)
