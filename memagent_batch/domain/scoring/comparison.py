"""Two readers over the same questions: which is better, and whether that could be chance. Pure."""

import math
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True, kw_only=True)
class Paired:
    """What two readers reached where both have a score."""

    num_better: int
    """Where the first one is better."""
    num_worse: int
    """Where it is worse."""
    num_equal: int
    """Where both are equal."""
    p: float
    """Chance of a split at least so uneven if neither is better: the exact sign test, both sides."""


def paired(scores: Mapping[Any, float], others: Mapping[Any, float]) -> Paired:
    """Compares the scores of two readers under the keys that both have; the keys must be independent observations."""
    keys: set[Hashable] = scores.keys() & others.keys()
    more = sum(scores[key] > others[key] for key in keys)
    less = sum(scores[key] < others[key] for key in keys)
    return Paired(num_better=more, num_worse=less, num_equal=len(keys) - more - less, p=sign_test(more, less))


def sign_test(num_more: int, num_less: int) -> float:
    """Chance that a fair coin splits so many at least so unevenly, both sides; 1 where there are none."""
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
