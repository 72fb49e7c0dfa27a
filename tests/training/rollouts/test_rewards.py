import math
import statistics

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.job import Advantage
from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.scores import CONTAINMENT_METRICS
from memagent_batch.plugins import REWARDS as REGISTRY
from memagent_batch.training.rollouts.rewards import built_in_reward, group_advantages, rewards_are_equal

OFFICIAL_PAIRS = [
    ("\\boxed{Beatles}", ["The Beatles"], 0.0),
    ("\\boxed{Greenwich Village New York City}", ["Greenwich Village, New York City"], 0.0),
    ("\\boxed{NewYorkCity}", ["New York City"], 1.0),
    ("\\boxed{1234}", ["1,234"], 0.0),
    ('\\boxed{"Animorphs"}', ["Animorphs"], 0.0),
    ("\\boxed{Paris} " + "x" * 286, ["Paris"], 1.0),
    ("\\boxed{Paris} " + "x" * 287, ["Paris"], 0.0),
    ("\\boxed{Paris} or \\boxed{Rome", ["Paris"], 0.0),
    ("\\boxed{Paris} or \\boxed{Rome}", ["Paris"], 0.0),
    ("\\boxed Paris$", ["Paris"], 1.0),
    ("\\boxed {Paris}", ["Paris"], 0.0),
    ("\\boxed{Paris} \\boxed Rome$", ["Paris"], 0.0),
    ("\\boxed Paris$ \\boxed{Rome}", ["Paris"], 1.0),
    ("\\fbox{Paris}", ["Paris"], 0.0),
    ("\\BOXED{PARIS}", ["Paris"], 1.0),
    ("\\boxed\n{Paris}", ["Paris"], 0.0),
    ("The answer is Paris.", ["Paris"], 0.0),
    ("\\boxed{New\nYork}", ["New York"], 1.0),
    ("\\boxed{{Paris}}", ["Paris"], 0.0),
    ("\\boxed{\\text{Paris}}", ["Paris"], 0.0),
    ("\\boxed{50\\%}", ["50"], 1.0),
    ("\\boxed{\\$5}", ["5"], 1.0),
    ("\\boxed{90^\\circ}", ["90"], 1.0),
    ("\\boxed{90^{\\circ}}", ["90"], 1.0),
    ("\\boxed{\\dfrac{1}{2}}", ["\\frac{1}{2}"], 1.0),
    ("\\boxed{1/2}", ["\\frac{1}{2}"], 0.0),
    ("\\boxed{\\left(1\\right)}", ["(1)"], 1.0),
    ("\\boxed{a\\!b}", ["ab"], 1.0),
    ("\\boxed{a\\\\b}", ["a\\b"], 1.0),
    ("\\boxed{about .5}", ["about 0.5"], 1.0),
    ("\\boxed{.5}", ["0.5"], 0.0),
    ("\\boxed{a{.5}}", ["a{0.5}"], 1.0),
    ("\\boxed{yes}", ["no", "Yes"], 1.0),
    ("\\boxed{}", ["42"], 0.0),
    ("\\boxed{ÉCOLE}", ["école"], 1.0),
]
"""Response, references, and what `compute_score` of MemAgent's verl/utils/reward_score/hotpotqa.py returns."""


@pytest.mark.parametrize(("response", "references", "official"), OFFICIAL_PAIRS)
def test_boxed_reward_equals_the_official_training_reward(
    response: str, references: list[str], official: float
) -> None:
    assert built_in_reward("boxed", extraction=Extraction.AUTO)(response, references) == official


def test_boxed_reward_without_references_is_zero() -> None:
    assert built_in_reward("boxed", extraction=Extraction.AUTO)("\\boxed{}", []) == 0.0


@pytest.mark.parametrize(
    ("name", "response", "reward"),
    [
        ("boxed_normalised", "\\boxed{The 42.}", 1.0),
        ("boxed_normalised", "The answer is 42", 0.0),
        ("boxed", "\\boxed{The 42.}", 0.0),
        ("em", "The answer is 42.", 1.0),
        ("f1", "\\boxed{42 apples}", 2 / 3),
        ("boxed_normalised", "\\boxed{4.2}", 0.0),
    ],
)
def test_reward_of_a_response_is_that_by_hand(name: str, response: str, reward: float) -> None:
    assert built_in_reward(name, extraction=Extraction.AUTO)(response, ["42"]) == pytest.approx(reward)


def test_rewards_that_are_named_are_all_there() -> None:
    for name in REGISTRY.built_in:
        assert built_in_reward(name, extraction=Extraction.AUTO)("\\boxed{x}", ["x"]) == 1.0


@pytest.mark.parametrize("name", REGISTRY.built_in)
@pytest.mark.parametrize("guess", ["the", "...", "", "e", "Paris London Rome 42"])
def test_reward_of_a_guess_that_suits_every_question_is_never_full(name: str, guess: str) -> None:
    reward = built_in_reward(name, extraction=Extraction.AUTO)
    assert max(reward(f"\\boxed{{{guess}}}", [right]) for right in ("Paris", "42", "New York")) < 1.0


@pytest.mark.parametrize("name", ["guess", *CONTAINMENT_METRICS])
def test_reward_that_is_not_built_in_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        built_in_reward(name, extraction=Extraction.AUTO)


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
    assert not rewards_are_equal([1.0, 0.0, 0.0, 0.0])


@KINDS
@given(rewards_G=GROUPS)
def test_advantages_of_a_group_sum_to_zero(kind: Advantage, rewards_G: list[float | None]) -> None:
    advantages_G = group_advantages(rewards_G, kind=kind)
    assert [advantage is None for advantage in advantages_G] == [reward is None for reward in rewards_G]
    assert math.fsum(known(advantages_G)) == pytest.approx(0, abs=1e-6)


@KINDS
@given(rewards_G=GROUPS, num_failed=st.integers(0, 3))
def test_advantages_of_the_others_do_not_depend_on_failed_members(
    kind: Advantage, rewards_G: list[float | None], num_failed: int
) -> None:
    with_failed = group_advantages([*rewards_G, *[None] * num_failed], kind=kind)
    assert with_failed[: len(rewards_G)] == group_advantages(rewards_G, kind=kind)


@KINDS
@pytest.mark.parametrize(
    ("rewards_G", "advantages_G"),
    [
        ([0.5], [0.0]),
        ([None, 0.5, None], [None, 0.0, None]),
        ([1.25, 1.25, 1.25], [0.0, 0.0, 0.0]),
        ([None, None], [None, None]),
        ([], []),
    ],
)
def test_group_without_a_difference_has_advantages_of_exactly_zero(
    kind: Advantage, rewards_G: list[float | None], advantages_G: list[float | None]
) -> None:
    assert group_advantages(rewards_G, kind=kind) == advantages_G
    assert rewards_are_equal(rewards_G)


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
