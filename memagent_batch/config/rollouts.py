"""What is made of sampled readings."""

from typing import Annotated

from pydantic import Field, field_validator

from memagent_batch.config.section import Seconds, Section
from memagent_batch.domain.rewards import Advantage, Overlong
from memagent_batch.domain.scores import CONTAINMENT_METRICS


class RolloutConfig(Section):
    """What `memagent collect` makes of sampled readings."""

    group_size: Annotated[int, Field(ge=2)] = 8
    """Samples of each document and question; they form a group, and are compared with each other."""
    reward: str = "boxed"
    """`boxed` (the boxed text is a reference, apart from case, spaces and a little LaTeX: the published training's),
    `boxed_normalised` (both normalised), a metric (em, f1, hotpotqa_f1), or a function of yours, from (response,
    references) to a number: the name of an installed one, or `package.module:function`."""
    reward_timeout_seconds: Seconds = 10
    """Longest time that a function of yours may take for one sample, which then has no reward."""
    advantage: Advantage = Advantage.CENTRED
    """How rewards become advantages."""
    overlong: Overlong = Overlong.KEEP
    """Reward of a sample with a turn that was cut at its budget: as any other, 0, or none."""
    drop_equal: bool = False
    """Leave out groups whose rewards are all equal; none is drawn in their place."""
    data_source: str = ""
    """Free text for the column `data_source`, by which trainers tell their data apart."""

    @field_validator("reward")
    @classmethod
    def _refuse_containment(cls, reward: str) -> str:
        if reward in CONTAINMENT_METRICS:
            raise ValueError(
                f"{reward!r} can't be a reward: a policy would learn to list many candidates, one of which is right; "
                "use boxed, boxed_normalised, em or f1"
            )
        return reward
