import pytest

from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.scoring.rewards import BUILT_IN_REWARDS, built_in_reward
from memagent_batch.domain.scoring.scores import CONTAINMENT_METRICS

OFFICIAL_PAIRS = [
    ("\\boxed{Beatles}", ["The Beatles"], 0.0),
    ("\\boxed{The Beatles}", ["the beatles"], 1.0),
    ("\\boxed{Greenwich Village New York City}", ["Greenwich Village, New York City"], 0.0),
    ("\\boxed{New York City.}", ["New York City"], 0.0),
    ("\\boxed{NewYorkCity}", ["New York City"], 1.0),
    ("\\boxed{1234}", ["1,234"], 0.0),
    ("\\boxed{35}", ["3.5"], 0.0),
    ('\\boxed{"Animorphs"}', ["Animorphs"], 0.0),
    ("\\boxed{Paris} " + "x" * 299, ["Paris"], 0.0),
    ("\\boxed{Paris} " + "x" * 286, ["Paris"], 1.0),
    ("\\boxed{Paris} " + "x" * 287, ["Paris"], 0.0),
    ("\\boxed{Paris} or \\boxed{Rome", ["Paris"], 0.0),
    ("\\boxed{Rome} or \\boxed{Paris}", ["Paris"], 1.0),
    ("\\boxed{Paris} or \\boxed{Rome}", ["Paris"], 0.0),
    ("\\boxed Paris$", ["Paris"], 1.0),
    ("\\boxed Paris, I think$ it is", ["Paris, I think"], 1.0),
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
    ("\\boxed{50%}", ["50"], 0.0),
    ("\\boxed{\\$5}", ["5"], 1.0),
    ("\\boxed{$5}", ["5"], 0.0),
    ("\\boxed{90^\\circ}", ["90"], 1.0),
    ("\\boxed{90^{\\circ}}", ["90"], 1.0),
    ("\\boxed{\\dfrac{1}{2}}", ["\\frac{1}{2}"], 1.0),
    ("\\boxed{\\tfrac{1}{2}}", ["\\frac{1}{2}"], 1.0),
    ("\\boxed{1/2}", ["\\frac{1}{2}"], 0.0),
    ("\\boxed{\\left(1\\right)}", ["(1)"], 1.0),
    ("\\boxed{a\\!b}", ["ab"], 1.0),
    ("\\boxed{a\\\\b}", ["a\\b"], 1.0),
    ("\\boxed{about .5}", ["about 0.5"], 1.0),
    ("\\boxed{.5}", ["0.5"], 0.0),
    ("\\boxed{a{.5}}", ["a{0.5}"], 1.0),
    ("\\boxed{yes}", ["no", "Yes"], 1.0),
    ("\\boxed{42}", ["42"], 1.0),
    ("\\boxed{42 or 43}", ["42", "43"], 0.0),
    ("\\boxed{}", ["42"], 0.0),
    ("", ["42"], 0.0),
    ("\\boxed{ÉCOLE}", ["école"], 1.0),
    ("\\boxed{a{b}c}", ["a{b}c"], 1.0),
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
        ("boxed_normalised", "\\boxed{42 or 43}", 0.0),
        ("boxed_normalised", "", 0.0),
        ("boxed", "\\boxed{The 42.}", 0.0),
        ("em", "The answer is 42.", 1.0),
        ("f1", "\\boxed{42 apples}", 2 / 3),
        ("boxed_normalised", "\\boxed{4.2}", 0.0),
        ("boxed_normalised", "\\boxed{-42}", 0.0),
    ],
)
def test_reward_of_a_response_is_that_by_hand(name: str, response: str, reward: float) -> None:
    assert built_in_reward(name, extraction=Extraction.AUTO)(response, ["42"]) == pytest.approx(reward)


def test_rewards_that_are_named_are_all_there() -> None:
    for name in BUILT_IN_REWARDS:
        assert built_in_reward(name, extraction=Extraction.AUTO)("\\boxed{x}", ["x"]) == 1.0


@pytest.mark.parametrize("name", BUILT_IN_REWARDS)
@pytest.mark.parametrize("guess", ["the", "...", "", "e", "Paris London Rome 42"])
def test_reward_of_a_guess_that_suits_every_question_is_never_full(name: str, guess: str) -> None:
    reward = built_in_reward(name, extraction=Extraction.AUTO)
    assert max(reward(f"\\boxed{{{guess}}}", [right]) for right in ("Paris", "42", "New York")) < 1.0


@pytest.mark.parametrize("name", ["guess", *CONTAINMENT_METRICS])
def test_reward_that_is_not_built_in_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        built_in_reward(name, extraction=Extraction.AUTO)
