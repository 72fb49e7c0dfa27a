"""Advantages of a group: how much better each sample of a question did than its siblings (Multi-Conv DAPO).

Every conversation (turn) of a sample has the sample's advantage, and so has every token of it. MemAgent (arXiv
2507.02259) centres on the mean of the group and leaves out the standard deviation.
"""

import statistics
from collections.abc import Sequence
from enum import StrEnum

EPSILON = 1e-6
"""Added to the standard deviation before it divides, as trainers do."""


class Advantage(StrEnum):
    """How rewards become advantages."""

    CENTRED = "centred"
    """Reward minus the group's mean reward: the published form."""
    STANDARDISED = "standardised"
    """The same, divided by the group's standard deviation (of a sample, n - 1) plus 1e-6: GRPO's form."""
    LEAVE_ONE_OUT = "leave_one_out"
    """Reward minus the mean reward of the others: RLOO's form."""


def group_advantages(rewards_G: Sequence[float | None], *, kind: Advantage) -> list[float | None]:
    """The advantages of a group, shape [G]; those of `centred` and `leave_one_out` sum to zero.

    A member without a reward (its reading failed, or its reward did) has no advantage, and the others are compared
    among themselves. If all rewards are equal, or there is only one, all advantages are exactly zero. (The official
    code gives the only member its reward: an update without a baseline.)

    Args:
        rewards_G: Rewards of the samples of one question, None where there is none; shape [G].
        kind: How.
    """
    known = [reward for reward in rewards_G if reward is not None]
    if len(set(known)) <= 1:
        return [None if reward is None else 0.0 for reward in rewards_G]
    mean = statistics.fmean(known)
    scale = _scale(known, kind=kind)
    return [None if reward is None else (reward - mean) * scale for reward in rewards_G]


def rewards_are_equal(rewards_G: Sequence[float | None]) -> bool:
    """Whether a group teaches nothing: fewer than two rewards, or all the same."""
    return len({reward for reward in rewards_G if reward is not None}) <= 1


def _scale(known: Sequence[float], *, kind: Advantage) -> float:
    match kind:
        case Advantage.CENTRED:
            return 1.0
        case Advantage.STANDARDISED:
            return 1.0 / (statistics.stdev(known) + EPSILON)
        case Advantage.LEAVE_ONE_OUT:
            return len(known) / (len(known) - 1)
