import pytest

from memagent_batch.apps.training.rollouts.rewards import built_in_reward, group_advantages, rewards_are_equal
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import CONTAINMENT_METRICS, Advantage
from memagent_batch.plugins import REWARDS as REGISTRY

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


@pytest.mark.parametrize(
    ("kind", "advantages"),
    [
        (Advantage.CENTRED, [0.5, None, 0.0, -0.5]),
        (Advantage.STANDARDISED, [1.0, None, 0.0, -1.0]),
        (Advantage.LEAVE_ONE_OUT, [0.75, None, 0.0, -0.75]),
    ],
)
def test_advantages_of_a_group_with_a_failed_member_are_those_by_hand(
    kind: Advantage, advantages: list[float | None]
) -> None:
    rewards_G = [1.0, None, 0.5, 0.0]
    found = group_advantages(rewards_G, kind=kind)
    assert [each if each is None else round(each, 5) for each in found] == advantages
    assert not rewards_are_equal(rewards_G)


@pytest.mark.parametrize("kind", list(Advantage))
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
