"""How far two people who label the same readings agree. Pure."""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from memagent_batch.evaluation.statistics import Interval, wilson


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two readings of the same documents by two people."""

    num_pairs: int
    """Readings that two people labelled."""
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


def _kappa(pairs: Sequence[tuple[str, str]], *, num_equal: int) -> float | None:
    firsts, seconds = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    expected = sum(number * seconds[label] for label, number in firsts.items())
    num_possible = len(pairs) ** 2
    if num_possible == expected:
        return None
    return (num_equal * len(pairs) - expected) / (num_possible - expected)
