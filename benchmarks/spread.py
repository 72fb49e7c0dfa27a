"""Median and range of repeated measurements, named alike in every line of figures."""

import statistics
from collections.abc import Sequence


def spread(name: str, values: Sequence[float], *, digits: int) -> dict[str, float | list[float]]:
    """`NAME_median` and `NAME_range`, rounded."""
    return {
        f"{name}_median": round(statistics.median(values), digits),
        f"{name}_range": [round(min(values), digits), round(max(values), digits)],
    }
