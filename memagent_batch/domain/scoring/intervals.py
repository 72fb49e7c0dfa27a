"""95 % intervals of a mean score: how far it may be off, since few questions were asked. Pure."""

import math
import random
from collections.abc import Sequence
from dataclasses import dataclass

Z_95 = 1.959963984540054
"""Standard deviations on both sides of the mean that hold 95 % of a normal distribution."""

NUM_RESAMPLES = 1_000
"""Bootstrap samples. With so many, the ends move by less than a hundredth of the interval's width between seeds."""

RESAMPLING_SEED = 0
"""Seed of the bootstrap, so that the same scores always have the same interval."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval:
    """Where the true mean lies, in 95 of 100 cases."""

    low: float
    """Lower end, from 0 to 1."""
    high: float
    """Upper end, from 0 to 1."""


def mean_interval(scores: Sequence[float], *, seed: int = RESAMPLING_SEED) -> Interval:
    """Interval of the mean of scores from 0 to 1: Wilson's where each is 0 or 1, else the bootstrap's.

    Scores that are all alike tell the bootstrap nothing. They get Wilson's, which is too wide then rather than too
    narrow: no scores with a given mean vary more than those that are 0 or 1.
    """
    if len(set(scores)) < 2 or set(scores) <= {0.0, 1.0}:
        return wilson(math.fsum(scores), len(scores))
    return bootstrap(scores, seed=seed)


def wilson(num_right: float, num_scores: int) -> Interval:
    """Wilson's score interval (1927), without continuity correction; from 0 to 1 where there are no scores."""
    if not num_scores:
        return Interval(low=0.0, high=1.0)
    share = num_right / num_scores
    scale = 1 + Z_95**2 / num_scores
    centre = (share + Z_95**2 / (2 * num_scores)) / scale
    half = Z_95 / scale * math.sqrt(share * (1 - share) / num_scores + Z_95**2 / (4 * num_scores**2))
    return Interval(low=max(0.0, min(share, centre - half)), high=min(1.0, max(share, centre + half)))


def bootstrap(scores: Sequence[float], *, seed: int) -> Interval:
    """Percentile bootstrap (Efron 1979): the middle 95 % of the means of samples drawn with replacement."""
    if not scores:
        return Interval(low=0.0, high=1.0)
    rng = random.Random(seed)
    ordered = sorted(scores)  # so that the order of the rows has no part in it
    means = sorted(math.fsum(rng.choices(ordered, k=len(ordered))) / len(ordered) for _ in range(NUM_RESAMPLES))
    return Interval(low=percentile(means, 0.025), high=percentile(means, 0.975))


def percentile(ordered: Sequence[float], share: float) -> float:
    """The value below which a share of sorted values lies; linear between the two next to it."""
    place = share * (len(ordered) - 1)
    below = math.floor(place)
    above = min(below + 1, len(ordered) - 1)
    return ordered[below] + (ordered[above] - ordered[below]) * (place - below)
