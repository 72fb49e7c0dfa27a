import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from memagent_batch.apps.training.rollouts.rewarder import Rewarder, require_reward
from memagent_batch.config.agent import Extraction
from memagent_batch.config.job import RolloutConfig
from memagent_batch.errors import SettingsError
from tests.processes import left_after

MINE = "tests.training.rollouts.rewards_of_mine"


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


def test_rewarder_built_in_rewards_the_answer() -> None:
    rewarder = Rewarder(RolloutConfig(), extraction=Extraction.AUTO)
    assert [rewarder(f"\\boxed{{{text}}}", ["42"]) for text in ("42", "43")] == [{"reward": 1.0}, {"reward": 0.0}]


def test_rewarder_question_without_references_has_no_reward() -> None:
    assert "no references" in str(Rewarder(RolloutConfig(), extraction=Extraction.AUTO)("\\boxed{42}", None)["error"])


def test_rewarder_function_of_the_user_is_asked(rewarders: list[Rewarder]) -> None:
    assert rewarder_of(rewarders, "length")("four", ["ab"]) == {"reward": 2.0}


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
    settings = RolloutConfig(reward="tests.training.rollouts.slow_rewards:length", reward_timeout_seconds=1)
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
        [sys.executable, "-m", "tests.training.rollouts.reward_owner", mode], stdout=subprocess.PIPE, text=True
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
    sys.modules.pop(f"{MINE}", None)
    require_reward(RolloutConfig(reward=f"{MINE}:length"))
    assert MINE not in sys.modules


def test_rewarder_function_that_can_not_be_imported_here_stops_at_the_first_sample(rewarders: list[Rewarder]) -> None:
    with pytest.raises(SettingsError, match="no attribute 'absent'"):
        rewarder_of(rewarders, "absent")("text", ["a"])
