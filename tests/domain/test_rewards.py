import pytest

from memagent_batch.domain.answers import Extraction
from memagent_batch.domain.rewards import BUILT_IN_REWARDS, built_in_reward


@pytest.mark.parametrize(
    ("name", "response", "reward"),
    [
        ("boxed", "\\boxed{The 42.}", 1.0),
        ("boxed", "The answer is 42", 0.0),
        ("boxed", "\\boxed{42 or 43}", 0.0),
        ("boxed", "", 0.0),
        ("em", "The answer is 42.", 1.0),
        ("f1", "\\boxed{42 apples}", 2 / 3),
        ("sub_em", "\\boxed{42 apples}", 1.0),
        ("all", "\\boxed{it is 42}", 1.0),
        ("any", "no answer here, though 42", 0.0),
    ],
)
def test_reward_of_a_response_is_that_by_hand(name: str, response: str, reward: float) -> None:
    assert built_in_reward(name, extraction=Extraction.AUTO)(response, ["42"]) == pytest.approx(reward)


def test_rewards_that_are_named_are_all_there() -> None:
    for name in BUILT_IN_REWARDS:
        assert built_in_reward(name, extraction=Extraction.AUTO)("\\boxed{x}", ["x"]) == 1.0


def test_reward_of_an_unknown_name_is_refused() -> None:
    with pytest.raises(ValueError, match="guess"):
        built_in_reward("guess", extraction=Extraction.AUTO)
