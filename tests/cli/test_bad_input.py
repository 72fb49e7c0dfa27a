"""Mistakes in documents and questions, which are found after the settings; those of settings are in mistakes.yaml."""

import json
import os
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.executors.ray.session import LEVEL_VARIABLE
from tests.job_process import run_job

BUDGETS = {"chunk-tokens": 50, "question-tokens": 60, "memory-tokens": 40, "answer-tokens": 40}
STEPS = ("checking inputs and model", "indexing the documents")
Run = Callable[..., str]


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> dict[str, str]:
    """Settings of a job that would run."""
    write_documents(tmp_path / "documents.parquet")
    settings = {
        "documents": str(tmp_path / "documents.parquet"),
        "ask": "Who?",
        "output": str(tmp_path / "run"),
        "executor": "local",
    }
    budgets = {f"policy.{name}": str(value) for name, value in BUDGETS.items()}
    return settings | budgets | {"engine": "simulated", "model": text_model, "window-tokens": "1000"}


@pytest.fixture
def refused(job: dict[str, str], capsys: pytest.CaptureFixture[str]) -> Run:
    """Runs the job with some settings changed, and returns the one line with which it is refused, after those of
    steps."""

    def run(**settings: str | None) -> str:
        changed = {name.replace("__", ".").replace("_", "-"): value for name, value in settings.items()}
        assert cli.main(["answer", *arguments_of(job | changed)]) == 2
        *steps, said = capsys.readouterr().err.strip().split("\n")
        assert said.startswith("error: ")
        assert all(step.startswith(STEPS) for step in steps)
        return said

    return run


def write_documents(path: Path, **columns: Any) -> None:
    rows = {"document_id": ["a", "b"], "text": ["some text", "more text"]} | columns
    pq.write_table(pa.table({name: values for name, values in rows.items() if values is not None}), path)


def arguments_of(settings: Mapping[str, str | None]) -> list[str]:
    return [f"--{name}={value}" for name, value in settings.items() if value is not None]


def files_below(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file()]


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        (
            {"text": None, "body": ["a", "b"]},
            "has no column 'text'; its columns: 'document_id', 'body'; name the right",
        ),
        ({"text": [1, 2]}, "column 'text' holds int64, not text"),
        ({"document_id": ["a", "a"]}, "document_id 'a' is there twice"),
        ({"document_id": ["a", None]}, "column 'document_id' is null; give every row a value"),
    ],
)
def test_answer_bad_documents_are_named(refused: Run, tmp_path: Path, columns: dict[str, Any], said: str) -> None:
    write_documents(tmp_path / "documents.parquet", **columns)
    message = refused()
    assert said in message
    assert "documents.parquet" in message
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
@pytest.mark.ray
def test_real_command_line_with_bad_documents_shows_its_steps_and_nothing_of_rays(
    job: dict[str, str], tmp_path: Path
) -> None:
    write_documents(tmp_path / "documents.parquet", document_id=["a", "a"])
    command = [sys.executable, "-m", "memagent_batch", "answer", *arguments_of(job | {"executor": "ray"})]
    variables = {name: value for name, value in os.environ.items() if name != LEVEL_VARIABLE}
    variables["PYTHONWARNINGS"] = "ignore"
    done = run_job(command, env=variables)
    assert (done.returncode, done.stdout) == (2, "")
    *steps, said = done.stderr.splitlines()
    assert steps == ["checking inputs and model", "starting Ray", "indexing the documents: 1 file"]
    assert said.startswith("error: ")
    assert "document_id 'a' is there twice" in said


def test_answer_bad_questions_are_named(refused: Run, tmp_path: Path) -> None:
    questions = tmp_path / "questions.jsonl"
    questions.write_text(json.dumps({"question": "Who?", "document_id": "absent"}))
    assert "document_id 'absent', which is not among the 2 documents" in refused(questions=str(questions), ask=None)
    questions.write_text(json.dumps({"question": "Why? " * 2000}))
    assert "shorten the question" in refused(questions=str(questions), ask=None)
    assert "no such file or folder" in refused(questions=str(tmp_path / "absent.csv"), ask=None)
    assert not (tmp_path / "run").exists()


def test_plan_tells_what_answer_would_read_and_writes_nothing(
    job: dict[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", *arguments_of(job), "--tokens-per-second=100", "--price-per-hour=2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["readings"], told["readings_to_do"], told["turns"]) == (2, 2, 2, 4)
    assert told["prompt_tokens_at_least"] <= told["prompt_tokens_at_most"]
    assert 0 < told["estimate"]["hours_at_least"] <= told["estimate"]["hours_at_most"]
    assert not (tmp_path / "run").exists()


def test_answer_into_the_output_of_another_job_is_refused(
    job: dict[str, str], refused: Run, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["answer", *arguments_of(job | {"log.flush-seconds": "0.1"})]) == 0
    assert json.loads(capsys.readouterr().out)["answers_rows"] == 2
    before = files_below(tmp_path / "run")
    assert "belongs to a run over documents" in refused(ask="What?")
    assert files_below(tmp_path / "run") == before
