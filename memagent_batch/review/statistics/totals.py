"""Draws of how many readings of each stratum are positive, given the labels of a sample. Pure, seeded."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memagent_batch.review.statistics.counts import StratumCounts

NUM_DRAWS = 4_000
"""Draws of a total: with so many, the ends of an interval move by about 2 % of its width between seeds."""
HALF = 0.5
"""Both parameters of the prior of a share: Jeffreys' (Webber's "half prior")."""
SEED = 20130131
"""Seed of the draws, so that the same labels always have the same intervals."""

Numbers = NDArray[np.floating]
Totals = NDArray[np.int64]
"""Positives of each stratum in each draw, shape (strata, draws)."""


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
