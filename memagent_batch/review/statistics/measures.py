"""How good a scan is: precision, recall, elusion, richness, F1 and error rate, each with its 95 % interval. Pure."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from memagent_batch.review.statistics.counts import StratumCounts
from memagent_batch.review.statistics.totals import Numbers, Totals

INTERVAL_ENDS = (0.025, 0.975)
"""Quantiles of the draws between which 95 % of them lie."""


class Measure(StrEnum):
    """Measures of a scan. Readings that failed or have no value count among those that were not found."""

    PRECISION = "precision"
    """Share of what was found that is right."""
    RECALL = "recall"
    """Share of all that is right which was found."""
    F1 = "f1"
    """Harmonic mean of precision and recall."""
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
    """The estimate; None where nothing bears on it, as the precision of a scan that found nothing, or where it rests
    on a stratum without labels."""
    low: float
    """Lower end of the 95 % interval, from 0 to 1."""
    high: float
    """Upper end, from 0 to 1."""


def estimate_measures(
    strata: Sequence[StratumCounts], draws: Totals, *, is_point_of_draws: bool = False
) -> dict[Measure, MeasureEstimate]:
    """All measures but the error rate.

    Args:
        strata: The population.
        draws: Positives of each, as `draw_totals` gives them.
        is_point_of_draws: Whether the estimate is the median of the draws, and not what the labels say by themselves.
    """
    sizes = np.array([stratum.num_readings for stratum in strata], float)
    found = np.array([stratum.is_found for stratum in strata])
    points = np.array([[stratum.total] for stratum in strata], float)
    formulas: dict[Measure, Callable[[Numbers], Numbers]] = {
        Measure.PRECISION: lambda totals: _ratio(totals[found].sum(0), sizes[found].sum()),
        Measure.RECALL: lambda totals: _ratio(totals[found].sum(0), totals.sum(0)),
        Measure.F1: lambda totals: _ratio(2 * totals[found].sum(0), totals.sum(0) + sizes[found].sum()),
        Measure.ELUSION: lambda totals: _ratio(totals[~found].sum(0), sizes[~found].sum()),
        Measure.RICHNESS: lambda totals: _ratio(totals.sum(0), sizes.sum()),
    }
    totals = draws.astype(float)
    if is_point_of_draws:
        known = np.where(np.isnan(points), np.nan, 1.0)
        return {
            name: _of_draws(formula(totals), is_known=not np.isnan(formula(known)[0]))
            for name, formula in formulas.items()
        }
    return {name: _estimate_of_draws(formula(points), formula(totals)) for name, formula in formulas.items()}


def estimate_error_rate(strata: Sequence[StratumCounts], draws: Totals, *, num_unanswered: int) -> MeasureEstimate:
    """Share of wrong or missing answers.

    Args:
        strata: Strata with an answer; positive is a label that the answer agrees with.
        draws: Right answers of each, as `draw_totals` gives them.
        num_unanswered: Readings without an answer, each of which counts as wrong.
    """
    size = sum(stratum.num_readings for stratum in strata) + num_unanswered
    points = np.array([[stratum.total] for stratum in strata], float).reshape(len(strata), 1)
    wrong = [_ratio(size - totals.sum(0), size) for totals in (points, draws.astype(float))]
    return _estimate_of_draws(*wrong)


def _ratio(upper: Numbers, lower: Numbers | float) -> Numbers:
    """The quotient; NaN where nothing bears on it, or nothing is known of a part."""
    lower = np.broadcast_to(np.asarray(lower, float), upper.shape)
    quotient: Numbers = np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)
    return quotient


def _estimate_of_draws(point: Numbers, draws: Numbers) -> MeasureEstimate:
    """The middle of the draws. It holds the estimate: no wrong label among few leaves zero wrong ones possible."""
    value = None if np.isnan(point[0]) else float(point[0])
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return MeasureEstimate(value=value, low=0.0, high=1.0)
    low, high = (float(end) for end in np.quantile(draws, INTERVAL_ENDS))
    if value is None:
        return MeasureEstimate(value=None, low=low, high=high)
    return MeasureEstimate(value=value, low=min(low, value), high=max(high, value))


def _of_draws(draws: Numbers, *, is_known: bool) -> MeasureEstimate:
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return MeasureEstimate(value=None, low=0.0, high=1.0)
    low, middle, high = (float(end) for end in np.quantile(draws, (INTERVAL_ENDS[0], 0.5, INTERVAL_ENDS[1])))
    return MeasureEstimate(value=middle if is_known else None, low=low, high=high)
