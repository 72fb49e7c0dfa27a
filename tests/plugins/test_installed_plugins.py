"""Policies, an engine and a reward of another package, installed into a fresh environment and run by the command."""

import json
import os
import shutil
import site
import subprocess
import sys
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from tests.job_process import run_job

EXAMPLE = Path(__file__).parent / "example"
ROOT = Path(__file__).parents[2]
DOCUMENTS = {"a": "The owl sleeps. " * 60, "b": "The fox reads."}
SETTINGS = ["--window-tokens", "1024", "--policy.chunk-tokens", "200", "--policy.answer-tokens", "40"]


@pytest.fixture(scope="module")
def python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The interpreter of a fresh environment with the example; what the project needs comes from this one."""
    folder = tmp_path_factory.mktemp("fresh")
    uv = shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, folder / "venv"], check=True)
    python = folder / "venv" / "bin" / "python"
    source = shutil.copytree(EXAMPLE, folder / "example")
    subprocess.run([uv, "pip", "install", "--quiet", "--no-deps", "--python", python, source], check=True)
    (packages,) = (folder / "venv" / "lib").glob("python*/site-packages")
    others = [f"import site; site.addsitedir({place!r})" for place in site.getsitepackages()]
    (packages / "project.pth").write_text("\n".join(others))
    return python


def run(python: Path, *arguments: str, cwd: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    places = {"PYTHONPATH": str(ROOT), "PATH": f"{python.parent}:{os.environ['PATH']}"}
    return run_job([python, *arguments], cwd=cwd, env={**os.environ, **places, **environment})


@pytest.mark.ray
@pytest.mark.slow
def test_command_reads_with_policy_engine_and_reward_of_an_installed_package(python: Path, tmp_path: Path) -> None:
    (tmp_path / "documents.jsonl").write_text(
        "".join(json.dumps({"document_id": key, "text": text}) + "\n" for key, text in DOCUMENTS.items())
    )
    (tmp_path / "questions.jsonl").write_text(
        json.dumps({"question_id": "q", "question": "Who sleeps?", "references": ["owl"]}) + "\n"
    )
    engine = ["--engine", "echo", "--engine-options", '{"word": "owl"}', "--executor", "ray"]
    plugins = ["--policy.kind", "first-match", *engine, *SETTINGS]
    sources = ["--documents", "documents.jsonl", "--questions", "questions.jsonl"]
    collect = ["--rollouts.reward", "brevity", "--rollouts.group-size", "2", "--output", "rollouts"]
    ended = run(python, "-m", "memagent_batch", "collect", *sources, *plugins, *collect, cwd=tmp_path)
    assert ended.returncode == 0, ended.stderr
    answers = pq.read_table(tmp_path / "rollouts" / "answers").to_pylist()
    assert {(row["document_id"], row["answer"], row["status"]) for row in answers} == {
        ("a", "owl", "ok"),
        ("b", "owl", "ok"),
    }
    assert {row["num_turns"] for row in answers if row["document_id"] == "a"} != {1}
    rollouts = pq.read_table(tmp_path / "rollouts" / "rollouts").to_pylist()
    assert {(row["kind"], row["reward"]) for row in rollouts} == {("direct", 1.0)}


@pytest.mark.slow
def test_contracts_hold_for_the_plug_ins_and_fail_for_their_broken_twins(python: Path, tmp_path: Path) -> None:
    options = ["-q", "-p", "no:cacheprovider", "-o", "asyncio_mode=auto", "--rootdir", str(tmp_path)]
    suite = ["-m", "pytest", *options, str(EXAMPLE)]
    whole = run(python, *suite, cwd=tmp_path)
    assert whole.returncode == 0, whole.stdout
    broken = run(python, *suite, cwd=tmp_path, BROKEN="1")
    assert broken.returncode == 1
    for name in (
        "TestFirstMatch::test_policy_asked_twice_asks_for_the_same_turns_each_with_a_path_of_its_own",
        "TestOverwrite::test_policy_answers_from_the_memory_that_the_tables_show_last",
        "TestEcho::test_engine_answers_many_prompts_at_once_as_one_at_a_time",
        "TestEcho::test_engine_refuses_a_prompt_that_exceeds_the_window",
    ):
        assert f"{name}" in broken.stdout
