"""Rewards of a sample from its last response: what Multi-Conv DAPO learns from."""

from collections.abc import Callable, Sequence
from enum import StrEnum

from memagent_batch.domain.answers import Extraction, extract_answer
from memagent_batch.domain.scores import Metric, score

Reward = Callable[[str, Sequence[str]], float]
"""From the whole response of the answer turn and the references to a number. A user's own has this signature."""

BOXED = "boxed"
r"""1 where the content of `\boxed{...}` equals a reference, both normalised, else 0: the published training reward."""

BUILT_IN_REWARDS = (BOXED, *Metric)
"""Names of rewards that need no code; those of metrics score the extracted answer."""


class Overlong(StrEnum):
    """What becomes of a sample of which a turn was cut at its budget."""

    KEEP = "keep"
    """It is rewarded like any other."""
    ZERO = "zero"
    """Its reward is 0, whatever it answered."""
    MASK = "mask"
    """It has no reward and no advantage, and its tokens are masked out (DAPO's overlong filtering)."""


def built_in_reward(name: str, *, extraction: Extraction) -> Reward:
    """The reward of this name, for answers that are taken out of responses in this way.

    Raises:
        ValueError: there is none of this name.
    """
    metric = Metric.EM if name == BOXED else Metric(name)
    form = Extraction.BOXED if name == BOXED else extraction

    def reward(response: str, references: Sequence[str]) -> float:
        return score(metric, extract_answer(response, extraction=form), references)

    return reward
