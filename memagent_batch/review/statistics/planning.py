"""How wide an interval will be, before anyone reads: by simulated reviews of an assumed truth. Pure, seeded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memagent_batch.review.statistics.counts import StratumCounts
from memagent_batch.review.statistics.measures import Measure, estimate_measures
from memagent_batch.review.statistics.totals import SEED, draw_totals

NUM_REVIEWS = 40
"""Simulated reviews of a design; their mean width is right to about 3 %."""
NUM_PLAN_DRAWS = 1_000
"""Draws of each of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Promise:
    """What a review will be able to say, on average."""

    value: float
    """The measure, under the assumed truth."""
    width: float
    """Mean width of its 95 % interval."""
    low: float
    """Mean lower end."""


def promise_measures(
    strata: Sequence[StratumCounts], shares: Mapping[str, float], *, seed: int = SEED
) -> dict[Measure, Promise]:
    """Mean intervals of simulated reviews, in which everyone labels right.

    Args:
        strata: The population; `num_labelled` is how many of each would be labelled.
        shares: Assumed share of positives in each.
        seed: Seed of the simulation.
    """
    rng = np.random.default_rng(seed)
    reviews = []
    for _ in range(NUM_REVIEWS):
        counts = [_simulated(stratum, shares[stratum.name], rng=rng) for stratum in strata]
        draws = draw_totals(counts, seed=int(rng.integers(2**31)), num_draws=NUM_PLAN_DRAWS)
        reviews.append(estimate_measures(counts, draws))
    assumed = [replace(each, num_labelled=10**9, num_positive=round(10**9 * shares[each.name])) for each in strata]
    truth = estimate_measures(assumed, np.zeros((len(strata), 0), np.int64))
    return {
        name: Promise(
            value=truth[name].value or 0.0,
            width=float(np.mean([review[name].high - review[name].low for review in reviews])),
            low=float(np.mean([review[name].low for review in reviews])),
        )
        for name in truth
    }


def _simulated(stratum: StratumCounts, share: float, *, rng: np.random.Generator) -> StratumCounts:
    num_positive = int(rng.binomial(stratum.num_readings, share))
    num_drawn = 0
    if stratum.num_labelled:
        others = stratum.num_readings - num_positive
        num_drawn = int(rng.hypergeometric(num_positive, others, stratum.num_labelled))
    return replace(stratum, num_positive=num_drawn)
