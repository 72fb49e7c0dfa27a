import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memagent_batch.apps.training.rewards import Rewarder, built_in_reward, require_reward
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import CONTAINMENT_METRICS, RolloutConfig
from memagent_batch.errors import SettingsError
from memagent_batch.plugins import REWARDS
from tests.processes import left_after

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
    ("\\boxed{}", [], 0.0),
    ("\\boxed{ÉCOLE}", ["école"], 1.0),
]
"""Response, references, and what `compute_score` of MemAgent's verl/utils/reward_score/hotpotqa.py returns."""


@pytest.mark.parametrize(("response", "references", "official"), OFFICIAL_PAIRS)
def test_boxed_reward_equals_the_official_training_reward(
    response: str, references: list[str], official: float
) -> None:
    assert built_in_reward("boxed", extraction=Extraction.AUTO)(response, references) == official


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


@pytest.mark.parametrize("name", REWARDS.built_in)
@pytest.mark.parametrize("guess", ["the", "...", "", "e", "Paris London Rome 42"])
def test_reward_is_full_for_the_answer_and_never_for_a_guess_that_suits_every_question(name: str, guess: str) -> None:
    reward = built_in_reward(name, extraction=Extraction.AUTO)
    assert reward("\\boxed{x}", ["x"]) == 1.0
    assert max(reward(f"\\boxed{{{guess}}}", [right]) for right in ("Paris", "42", "New York")) < 1.0


@pytest.mark.parametrize("name", ["guess", *CONTAINMENT_METRICS])
def test_reward_that_is_not_built_in_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        built_in_reward(name, extraction=Extraction.AUTO)


MINE = "tests.training.rewards_of_mine"


@pytest.fixture
def rewarders() -> Iterator[list[Rewarder]]:
    """Closes what a test opened."""
    opened: list[Rewarder] = []
    yield opened
    for rewarder in opened:
        rewarder.close()


def rewarder_of(opened: list[Rewarder], name: str, *, seconds: float = 60) -> Rewarder:
    settings = RolloutConfig(reward=f"{MINE}:{name}", reward_timeout_seconds=seconds)
    opened.append(Rewarder(settings, extraction=Extraction.AUTO))
    return opened[-1]


def test_rewarder_asks_a_built_in_reward_or_the_users_function(rewarders: list[Rewarder]) -> None:
    rewarder = Rewarder(RolloutConfig(), extraction=Extraction.AUTO)
    assert [rewarder(f"\\boxed{{{text}}}", ["42"]) for text in ("42", "43")] == [{"reward": 1.0}, {"reward": 0.0}]
    assert "no references" in rewarder("\\boxed{42}", None)["error"]
    assert rewarder_of(rewarders, "length")("four", ["ab"]) == {"reward": 2.0}
    with pytest.raises(SettingsError, match="no attribute 'absent'"):
        rewarder_of(rewarders, "absent")("text", ["a"])


@pytest.mark.parametrize(
    ("name", "seconds", "said"),
    [
        ("raises", 60, "KeyError: 'score'"),
        ("says", 60, "must be a number, not str"),
        ("not_finite", 60, "must be finite"),
        ("exits", 60, "it calls exit(3)"),
        ("dies", 60, "its process died"),
        ("hangs", 3, "took longer than 3 s"),
    ],
)
def test_rewarder_function_that_fails_marks_its_sample_and_goes_on(
    rewarders: list[Rewarder], name: str, seconds: float, said: str
) -> None:
    rewarder = rewarder_of(rewarders, name, seconds=seconds)
    rewarded = rewarder("text", ["a"])
    assert "reward" not in rewarded
    assert said in rewarded["error"]
    assert rewarder("good", ["a"]) == {"reward": 1.0}


def test_rewarder_time_to_import_is_not_the_samples(rewarders: list[Rewarder]) -> None:
    settings = RolloutConfig(reward="tests.training.slow_rewards:length", reward_timeout_seconds=1)
    rewarders.append(Rewarder(settings, extraction=Extraction.AUTO))
    assert rewarders[-1]("four", ["a"]) == {"reward": 4.0}


def test_rewarder_whose_process_was_killed_between_two_samples_goes_on(rewarders: list[Rewarder]) -> None:
    rewarder = rewarder_of(rewarders, "raises")
    before = {process.pid for process in psutil.Process(os.getpid()).children()}
    assert rewarder("good", ["a"]) == {"reward": 1.0}
    [process] = [each for each in psutil.Process(os.getpid()).children() if each.pid not in before]
    process.kill()
    psutil.wait_procs([process], timeout=10)
    assert rewarder("good", ["a"]) == {"reward": 1.0}


def test_rewarder_close_ends_what_the_function_started(rewarders: list[Rewarder]) -> None:
    rewarder = rewarder_of(rewarders, "starts_a_program")
    program = psutil.Process(int(rewarder("text", ["a"])["reward"]))
    rewarder.close()
    assert left_after(30, [program]) == []


def test_rewarder_function_that_prints_leaves_stdout_alone(
    rewarders: list[Rewarder], capfd: pytest.CaptureFixture[str]
) -> None:
    assert rewarder_of(rewarders, "prints")("text", ["a"]) == {"reward": 1.0}
    assert capfd.readouterr() == ("", "it says this\n")


@pytest.mark.parametrize("mode", ["idle", "hangs"])
def test_reward_process_ends_when_the_process_that_asks_it_is_killed(mode: str) -> None:
    owner = subprocess.Popen(
        [sys.executable, "-m", "tests.training.reward_owner", mode], stdout=subprocess.PIPE, text=True
    )
    assert owner.stdout is not None
    assert owner.stdout.readline() == "ready\n"
    children = psutil.Process(owner.pid).children(recursive=True)
    owner.kill()
    owner.wait()
    owner.stdout.close()
    left = left_after(30, children)
    for process in left:
        process.kill()
    assert children
    assert left == []


@pytest.mark.parametrize(
    ("source", "seconds", "said"),
    [
        ("def score(response, references) return 1", 60, "SyntaxError: .*line 1"),
        ("raise KeyboardInterrupt", 60, "KeyboardInterrupt"),
        ("import time\ntime.sleep(600)", 3, "took longer than 3 s"),
        ("score = 7", 60, "score is not a function"),
        ("import absent.module", 60, "No module named 'absent'"),
    ],
)
def test_reward_that_can_not_be_imported_is_refused_whatever_its_module_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, source: str, seconds: float, said: str
) -> None:
    (tmp_path / "reward_of_a_stranger.py").write_text(source)
    monkeypatch.syspath_prepend(str(tmp_path))
    settings = RolloutConfig(reward="reward_of_a_stranger:score")
    with pytest.raises(SettingsError, match=f"'reward_of_a_stranger:score' can't be imported: .*{said}") as refused:
        require_reward(settings, import_seconds=seconds)
    assert "\n" not in str(refused.value)
    assert "reward_of_a_stranger" not in sys.modules


def test_reward_that_can_be_imported_is_not_imported_by_the_process_that_asks() -> None:
    sys.modules.pop(MINE, None)
    require_reward(RolloutConfig(reward=f"{MINE}:length"))
    assert MINE not in sys.modules
