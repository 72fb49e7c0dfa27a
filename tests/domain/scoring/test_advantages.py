import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.scoring.advantages import Advantage, group_advantages, rewards_are_equal

REWARDS = st.floats(-4, 4).map(lambda reward: round(reward, 6))
GROUPS = st.lists(st.one_of(st.none(), REWARDS), min_size=1, max_size=16)
KINDS = pytest.mark.parametrize("kind", list(Advantage))


def known(values: list[float | None]) -> list[float]:
    return [value for value in values if value is not None]


@pytest.mark.parametrize(
    ("kind", "advantages"),
    [
        (Advantage.CENTRED, [0.75, -0.25, -0.25, -0.25]),
        (Advantage.STANDARDISED, [1.5, -0.5, -0.5, -0.5]),
        (Advantage.LEAVE_ONE_OUT, [1.0, -1 / 3, -1 / 3, -1 / 3]),
    ],
)
def test_advantages_of_one_right_in_four_are_those_by_hand(kind: Advantage, advantages: list[float]) -> None:
    assert known(group_advantages([1.0, 0.0, 0.0, 0.0], kind=kind)) == pytest.approx(advantages, rel=1e-5)


@KINDS
@given(rewards_G=GROUPS)
def test_advantages_of_a_group_sum_to_zero(kind: Advantage, rewards_G: list[float | None]) -> None:
    advantages_G = group_advantages(rewards_G, kind=kind)
    assert math.fsum(known(advantages_G)) == pytest.approx(0, abs=1e-6)


@KINDS
@given(rewards_G=GROUPS)
def test_advantages_are_missing_just_where_rewards_are(kind: Advantage, rewards_G: list[float | None]) -> None:
    advantages_G = group_advantages(rewards_G, kind=kind)
    assert [advantage is None for advantage in advantages_G] == [reward is None for reward in rewards_G]


@KINDS
@given(rewards_G=GROUPS, num_failed=st.integers(0, 3))
def test_advantages_of_the_others_do_not_depend_on_failed_members(
    kind: Advantage, rewards_G: list[float | None], num_failed: int
) -> None:
    with_failed = group_advantages([*rewards_G, *[None] * num_failed], kind=kind)
    assert with_failed[: len(rewards_G)] == group_advantages(rewards_G, kind=kind)


@KINDS
@given(reward=REWARDS)
def test_advantage_of_the_only_member_with_a_reward_is_zero(kind: Advantage, reward: float) -> None:
    assert group_advantages([reward], kind=kind) == [0.0]
    assert group_advantages([None, reward, None], kind=kind) == [None, 0.0, None]


@KINDS
@given(reward=REWARDS, size=st.integers(2, 16))
def test_advantages_of_equal_rewards_are_exactly_zero(kind: Advantage, reward: float, size: int) -> None:
    assert group_advantages([reward] * size, kind=kind) == [0.0] * size


@KINDS
def test_advantages_of_a_group_that_failed_whole_are_missing(kind: Advantage) -> None:
    assert group_advantages([None, None], kind=kind) == [None, None]
    assert group_advantages([], kind=kind) == []


@KINDS
@given(rewards_G=st.lists(REWARDS, min_size=2, max_size=16))
def test_advantages_keep_the_order_of_rewards(kind: Advantage, rewards_G: list[float]) -> None:
    pairs = sorted(zip(rewards_G, known(group_advantages(rewards_G, kind=kind)), strict=True))
    assert [advantage for _, advantage in pairs] == sorted(advantage for _, advantage in pairs)


@given(rewards_G=st.lists(REWARDS, min_size=3, max_size=16).filter(lambda rewards: statistics.stdev(rewards) > 0.01))
def test_standardised_advantages_have_a_deviation_of_one(rewards_G: list[float]) -> None:
    advantages_G = known(group_advantages(rewards_G, kind=Advantage.STANDARDISED))
    assert statistics.stdev(advantages_G) == pytest.approx(1, rel=1e-3)


@given(rewards_G=st.lists(REWARDS, min_size=2, max_size=16))
def test_leave_one_out_advantage_is_the_reward_minus_the_mean_of_the_others(rewards_G: list[float]) -> None:
    advantages_G = group_advantages(rewards_G, kind=Advantage.LEAVE_ONE_OUT)
    for place, (reward, advantage) in enumerate(zip(rewards_G, advantages_G, strict=True)):
        others = [*rewards_G[:place], *rewards_G[place + 1 :]]
        assert advantage == pytest.approx(reward - statistics.fmean(others), abs=1e-6)


@pytest.mark.parametrize(
    ("rewards_G", "equal"),
    [
        ([], True),
        ([None], True),
        ([1.0], True),
        ([1.0, 1.0, None], True),
        ([1.0, 0.0], False),
        ([None, 1.0, 0.5], False),
    ],
)
def test_rewards_are_equal_tells_groups_that_teach_nothing(rewards_G: list[float | None], equal: bool) -> None:
    assert rewards_are_equal(rewards_G) is equal
