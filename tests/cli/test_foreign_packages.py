"""The command in a project with packages `jobs` and `pipelines` of its own finds its package and the user's reward."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.job_process import run_job
from tests.jobs import small_arguments

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with packages `jobs` and `pipelines` of its own, documents, and a reward."""
    for name, module in (("jobs", "cli"), ("jobs", "arguments"), ("pipelines", "answer"), ("pipelines", "collect")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the package of the user')\n")
        (tmp_path / name / f"{module}.py").write_text("")
    (tmp_path / "rewards.py").write_text("def score(response: str, references: list[str]) -> float:\n    return 0.25\n")
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.txt").write_text("Ann signed the contract.")
    row = {"question": "Who signed?", "references": ["Ann"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    return tmp_path


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command as its users do, with the project's folder first on the path."""
    search = os.pathsep.join([".", str(ROOT)])
    command = [sys.executable, "-m", "memagent_batch", *arguments]
    return run_job(command, cwd=project, env=os.environ | {"PYTHONPATH": search})


@pytest.mark.slow
@pytest.mark.ray
def test_collect_beside_packages_of_the_same_name_reads_and_finds_the_users_reward(
    project: Path, text_model: str
) -> None:
    job = small_arguments(project, text_model, questions=str(project / "questions.jsonl"), executor="ray")
    rewards = ("--rollouts.reward", "rewards:score", "--allow-code", "--rollouts.group-size", "2")
    done = run(project, "collect", *job, *rewards)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean_reward"] == 0.25
