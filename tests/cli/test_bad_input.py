"""What a real command says before it reads: its steps, then one line that refuses the documents."""

import os
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.run.executors.ray.session import LEVEL_VARIABLE
from tests.job_process import run_job
from tests.jobs import small_arguments


@pytest.mark.slow
@pytest.mark.ray
def test_real_command_line_with_bad_documents_shows_its_steps_and_nothing_of_rays(
    text_model: str, tmp_path: Path
) -> None:
    (tmp_path / "in").mkdir()
    twice = pa.table({"document_id": ["a", "a"], "text": ["some text", "more text"]})
    pq.write_table(twice, tmp_path / "in/documents.parquet")
    job = small_arguments(tmp_path, text_model)
    command = [sys.executable, "-m", "memagent_batch", "answer", *job, "--ask=Who?", "--executor=ray"]
    variables = {name: value for name, value in os.environ.items() if name != LEVEL_VARIABLE}
    variables["PYTHONWARNINGS"] = "ignore"
    done = run_job(command, env=variables)
    assert (done.returncode, done.stdout) == (2, "")
    *steps, said = done.stderr.splitlines()
    assert steps == ["checking inputs and model", "starting Ray", "indexing the documents: 1 file"]
    assert said.startswith("error: ")
    assert "document_id 'a' is there twice" in said
