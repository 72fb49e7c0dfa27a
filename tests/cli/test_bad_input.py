"""What a command does before it reads: its steps, its plan, and a refusal that leaves an output as it was."""

import json
import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.executors.ray.session import LEVEL_VARIABLE
from tests.job_process import run_job
from tests.jobs import small_arguments


@pytest.fixture
def job(text_model: str, tmp_path: Path) -> list[str]:
    """Arguments of a job that would run."""
    write_documents(tmp_path, "a", "b")
    return small_arguments(tmp_path, text_model)


def write_documents(folder: Path, *ids: str) -> None:
    (folder / "in").mkdir(exist_ok=True)
    pq.write_table(pa.table({"document_id": ids, "text": ["some text", "more text"]}), folder / "in/documents.parquet")


@pytest.mark.slow
@pytest.mark.ray
def test_real_command_line_with_bad_documents_shows_its_steps_and_nothing_of_rays(
    job: list[str], tmp_path: Path
) -> None:
    write_documents(tmp_path, "a", "a")
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
    assert cli.main(["plan", *job, "--ask=Who?"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["documents"], told["readings"], told["readings_to_do"], told["turns"]) == (2, 2, 2, 4)
    assert told["prompt_tokens_at_least"] <= told["prompt_tokens_at_most"]
    assert not (tmp_path / "run").exists()


def test_answer_into_the_output_of_another_job_is_refused(
    job: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.main(["answer", *job, "--ask=Who?"]) == 0
    assert json.loads(capsys.readouterr().out)["answers_rows"] == 2
    before = sorted((tmp_path / "run").rglob("*"))
    assert cli.main(["answer", *job, "--ask=What?"]) == 2
    assert "belongs to a run over documents" in capsys.readouterr().err.splitlines()[-1]
    assert sorted((tmp_path / "run").rglob("*")) == before
