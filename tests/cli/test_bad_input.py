"""Mistakes in documents and questions, which are found after the settings; those of settings are in mistakes.yaml."""

import json
import os
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.executors.ray.session import LEVEL_VARIABLE
from tests.job_process import run_job
from tests.jobs import small_arguments

STEPS = ("checking inputs and model", "indexing the documents")


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> list[str]:
    """Arguments of a job that would run."""
    write_documents(tmp_path)
    return small_arguments(tmp_path, text_model)


def write_documents(folder: Path, **columns: Any) -> None:
    rows = {"document_id": ["a", "b"], "text": ["some text", "more text"]} | columns
    (folder / "in").mkdir(exist_ok=True)
    table = pa.table({name: values for name, values in rows.items() if values is not None})
    pq.write_table(table, folder / "in" / "documents.parquet")


def require_refused(arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The job is refused in one line, after those of steps."""
    assert cli.main(["answer", *arguments]) == 2
    *steps, last = capsys.readouterr().err.strip().split("\n")
    assert last.startswith("error: ")
    assert said in last
    assert all(step.startswith(STEPS) for step in steps)


@pytest.mark.slow
@pytest.mark.ray
def test_real_command_line_with_bad_documents_shows_its_steps_and_nothing_of_rays(
    job: list[str], tmp_path: Path
) -> None:
    write_documents(tmp_path, document_id=["a", "a"])
    command = [sys.executable, "-m", "memagent_batch", "answer", *job, "--ask=Who?", "--executor=ray"]
    variables = {name: value for name, value in os.environ.items() if name != LEVEL_VARIABLE}
    variables["PYTHONWARNINGS"] = "ignore"
    done = run_job(command, env=variables)
    assert (done.returncode, done.stdout) == (2, "")
    *steps, said = done.stderr.splitlines()
    assert steps == ["checking inputs and model", "starting Ray", "indexing the documents: 1 file"]
    assert said.startswith("error: ")
    assert "document_id 'a' is there twice" in said


def test_plan_tells_what_answer_would_read_and_writes_nothing(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["plan", *job, "--ask=Who?", "--tokens-per-second=100", "--price-per-hour=2"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["readings"], told["readings_to_do"], told["turns"]) == (2, 2, 2, 4)
    assert told["prompt_tokens_at_least"] <= told["prompt_tokens_at_most"]
    assert 0 < told["estimate"]["hours_at_least"] <= told["estimate"]["hours_at_most"]
    assert not (tmp_path / "run").exists()


def test_answer_into_the_output_of_another_job_is_refused(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["answer", *job, "--ask=Who?"]) == 0
    assert json.loads(capsys.readouterr().out)["answers_rows"] == 2
    before = sorted((tmp_path / "run").rglob("*"))
    require_refused([*job, "--ask=What?"], "belongs to a run over documents", capsys)
    assert sorted((tmp_path / "run").rglob("*")) == before
