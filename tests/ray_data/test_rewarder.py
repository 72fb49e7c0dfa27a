import multiprocessing
from collections.abc import Iterator

import pytest

from memagent_batch.domain.answers import Extraction
from memagent_batch.errors import SettingsError
from memagent_batch.ray_data.rewarder import Rewarded, Rewarder, import_reward
from memagent_batch.sections import RolloutSettings

MINE = "tests.ray_data.rewards_of_mine"


@pytest.fixture
def rewarders() -> Iterator[list[Rewarder]]:
    """Closes what a test opened."""
    opened: list[Rewarder] = []
    yield opened
    for rewarder in opened:
        rewarder.close()


def rewarder_of(opened: list[Rewarder], name: str, *, seconds: float = 60) -> Rewarder:
    settings = RolloutSettings(reward=f"{MINE}:{name}", allow_reward_code=True, reward_timeout_seconds=seconds)
    opened.append(Rewarder(settings, extraction=Extraction.AUTO))
    return opened[-1]


def test_rewarder_built_in_rewards_the_answer() -> None:
    rewarder = Rewarder(RolloutSettings(), extraction=Extraction.AUTO)
    assert [rewarder(f"\\boxed{{{text}}}", ["42"]) for text in ("42", "43")] == [
        Rewarded(reward=1.0),
        Rewarded(reward=0.0),
    ]


def test_rewarder_question_without_references_has_no_reward() -> None:
    assert "no references" in str(Rewarder(RolloutSettings(), extraction=Extraction.AUTO)("\\boxed{42}", None).error)


def test_rewarder_function_of_the_user_is_asked(rewarders: list[Rewarder]) -> None:
    assert rewarder_of(rewarders, "length")("four", ["ab"]) == Rewarded(reward=2.0)


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        ("raises", 60, "KeyError: 'score'"),
        ("raises_timeout", 60, "TimeoutError: its judge did not answer"),
        ("says", 60, "must be a number, not str"),
        ("not_finite", 60, "must be finite"),
        ("exits", 60, "RuntimeError: it calls exit(3)"),
        ("dies", 60, "its process died"),
        ("hangs", 3, "took longer than 3 s"),
    ],
)
def test_rewarder_function_that_fails_marks_its_sample_and_goes_on(
    rewarders: list[Rewarder], name: str, seconds: float, said: str
) -> None:
    rewarder = rewarder_of(rewarders, name, seconds=seconds)
    rewarded = rewarder("text", ["a"])
    assert rewarded.reward is None
    assert said in str(rewarded.error)
    assert rewarder("good", ["a"]) == Rewarded(reward=1.0)


def test_rewarder_time_to_import_is_not_the_samples(rewarders: list[Rewarder]) -> None:
    settings = RolloutSettings(
        reward="tests.ray_data.slow_rewards:length", allow_reward_code=True, reward_timeout_seconds=1
    )
    rewarders.append(Rewarder(settings, extraction=Extraction.AUTO))
    assert rewarders[-1]("four", ["a"]) == Rewarded(reward=4.0)


def test_rewarder_whose_process_was_killed_between_two_samples_goes_on(rewarders: list[Rewarder]) -> None:
    rewarder = rewarder_of(rewarders, "length")
    others = {process.pid for process in multiprocessing.active_children()}
    assert rewarder("four", ["ab"]).reward == 2.0
    [process] = [process for process in multiprocessing.active_children() if process.pid not in others]
    process.kill()
    process.join()
    rewarded = [rewarder("four", ["ab"]) for _ in range(2)]
    assert rewarded[-1] == Rewarded(reward=2.0)
    assert rewarded[0] in (Rewarded(reward=2.0), Rewarded(error="its process died"))


@pytest.mark.parametrize("name", [f"{MINE}:absent", "absent.module:reward", f"{MINE}:NO_FUNCTION"])
def test_reward_that_can_not_be_imported_is_named(name: str) -> None:
    with pytest.raises(SettingsError, match=name.split(":")[1]):
        import_reward(name)


@pytest.mark.parametrize(
    ("knobs", "said"),
    [
        ({"reward": "guess"}, "there is no 'guess'; take one of boxed, boxed_normalised, all"),
        ({"reward": f"{MINE}:length"}, "say --rollouts.allow-reward-code to run it"),
    ],
)
def test_reward_knob_that_is_wrong_or_not_allowed_is_refused(knobs: dict[str, str], said: str) -> None:
    with pytest.raises(ValueError, match=said):
        RolloutSettings(**knobs)
