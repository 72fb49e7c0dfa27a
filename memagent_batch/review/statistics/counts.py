"""What people's labels say of each stratum of a population: the numbers that all estimates start from."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import nan


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumCounts:
    """One stratum: how large it is, how much of it was labelled, and what the labels say."""

    name: str
    """Name of the stratum."""
    num_readings: int
    """Readings of the population in it."""
    num_labelled: int
    """Of these, drawn at random and labelled."""
    num_positive: int
    """Of the labelled, those that people say are what is looked for."""
    is_found: bool = False
    """Whether the scan's output says that these readings are what is looked for."""
    votes: Mapping[tuple[int, int], int] = field(default_factory=dict)
    """Labelled readings by (positive labels, labels) of the one, two or more people who read them."""

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
