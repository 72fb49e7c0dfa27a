"""The command and `ma.answer` in a project with packages `jobs` and `pipelines` of its own: both are found."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.job_process import run_job

ROOT = Path(__file__).parents[2]


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """A folder with packages `jobs` and `pipelines` of its own, documents, and a reward."""
    for name, module in (("jobs", "cli"), ("jobs", "arguments"), ("pipelines", "answer"), ("pipelines", "collect")):
        (tmp_path / name).mkdir(exist_ok=True)
        (tmp_path / name / "__init__.py").write_text("raise ImportError('the package of the user')\n")
        (tmp_path / name / f"{module}.py").write_text("")
    (tmp_path / "rewards.py").write_text("def score(response: str, references: list[str]) -> float:\n    return 0.25\n")
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.txt").write_text("Ann signed the contract.")
    row = {"question": "Who signed?", "references": ["Ann"]}
    (tmp_path / "questions.jsonl").write_text(json.dumps(row))
    return tmp_path


def run(project: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    """Runs the command as its users do, with the project's folder first on the path."""
    search = os.pathsep.join([".", str(ROOT)])
    command = [sys.executable, "-m", "memagent_batch", *arguments]
    return run_job(command, cwd=project, env=os.environ | {"PYTHONPATH": search})


def test_command_beside_packages_of_the_same_name_starts_ours(project: Path) -> None:
    assert run(project, "answer", "--help").stdout.startswith("usage: memagent answer")


@pytest.mark.slow
@pytest.mark.ray
def test_collect_beside_packages_of_the_same_name_reads_and_finds_the_users_reward(
    project: Path, text_model: str
) -> None:
    budgets = {"chunk-tokens": 50, "question-tokens": 60, "memory-tokens": 40, "answer-tokens": 40}
    done = run(
        project,
        *("collect", "--documents", "texts", "--questions", "questions.jsonl", "--output", "out"),
        *("--engine", "simulated", "--model", text_model, "--window-tokens", "1000", "--sampling.temperature", "1"),
        *("--rollouts.reward", "rewards:score", "--allow-code", "--rollouts.group-size", "2", "--executor", "ray"),
        *(f"--policy.{name}={value}" for name, value in budgets.items()),
    )
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["mean_reward"] == 0.25


SCRIPT = """
import memagent_batch as ma
import pyarrow as pa
from pipelines.clean import clean
from jobs.nightly import KEY

if __name__ == "__main__":
    agent = ma.Agent(model={model!r}, engine="simulated", window_tokens=1000, policy=ma.Overwrite(
        chunk_tokens=50, question_tokens=60, memory_tokens=40, answer_tokens=40))
    texts = pa.table({{"document_id": [KEY], "text": [clean(" Ann signed. ")]}})
    run = ma.answer(documents=texts, questions=["Who signed?"],
                    output="out/", agent=agent, executor="ray")
    print(run.answers().num_rows)
"""


@pytest.mark.slow
@pytest.mark.ray
@pytest.mark.parametrize("are_packages", [True, False])
def test_answer_from_python_and_modules_of_the_users_own_pipelines_and_jobs(
    tmp_path: Path, text_model: str, are_packages: bool
) -> None:
    for name, text in {
        "pipelines/clean.py": "def clean(text):\n    return text.strip()\n",
        "jobs/nightly.py": "KEY = 'a'\n",
        "scan.py": SCRIPT.format(model=text_model),
    }.items():
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(text)
    if are_packages:
        (tmp_path / "pipelines" / "__init__.py").write_text("")
        (tmp_path / "jobs" / "__init__.py").write_text("")
    done = run_job([sys.executable, "scan.py"], cwd=tmp_path, env=os.environ | {"PYTHONPATH": str(ROOT)})
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1"]
