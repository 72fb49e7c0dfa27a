"""What is made of sampled readings."""

from typing import Annotated

from pydantic import Field

from memagent_batch.config.section import Seconds, Section
from memagent_batch.domain.scoring.advantages import Advantage
from memagent_batch.domain.scoring.rewards import Overlong


class RolloutConfig(Section):
    """What `memagent collect` makes of sampled readings."""

    group_size: Annotated[int, Field(ge=1)] = 8
    """Samples of each document and question; they form a group."""
    reward: str = "boxed"
    """`boxed` (the boxed text is a reference but for case, spaces and a little LaTeX: the published training's),
    `boxed_normalised` (they are equal when both are normalised), a metric (all, any, em, f1, hotpotqa_f1,
    sub_em, sub_em_either), or a function of yours, from (response, references)
    to a number: the name that an installed package gives it, or `package.module:function` (with --allow-code)."""
    reward_timeout_seconds: Seconds = 10
    """Longest time that a function of yours may take for one sample, which then has no reward."""
    advantage: Advantage = Advantage.CENTRED
    """How rewards become advantages."""
    overlong: Overlong = Overlong.KEEP
    """Reward of a sample with a turn that was cut at its budget: as any other, 0, or none."""
    drop_equal: bool = False
    """Leave out groups whose rewards are all equal, which teach nothing (dynamic sampling); they are counted."""
    data_source: str = ""
    """Free text for the column `data_source`, by which trainers tell their data apart."""
