"""Two contestants over the same questions: who is right where the other is not, and whether that could be chance."""

import math
from collections.abc import Hashable, Mapping
from typing import Any


def paired(own: Mapping[Any, bool], other: Mapping[Any, bool], *, name: str) -> dict[str, Any]:
    """The questions that both were asked and only one answered right.

    Args:
        own: Whether each question was answered right, by one of them.
        other: The same, by the other one.
        name: What the other one is called in the figures.
    """
    keys: set[Hashable] = own.keys() & other.keys()
    more = sum(own[key] and not other[key] for key in keys)
    less = sum(other[key] and not own[key] for key in keys)
    return {
        f"right_where_{name}_is_not": more,
        f"wrong_where_{name}_is_right": less,
        "p": round(sign_test(more, less), 4),
    }


def sign_test(num_more: int, num_less: int) -> float:
    """Chance that a fair coin splits so many at least so unevenly, both sides; 1 where there are none."""
    num = num_more + num_less
    tail = sum(math.comb(num, each) for each in range(min(num_more, num_less) + 1))
    return min(1.0, math.ldexp(tail, 1 - num))
