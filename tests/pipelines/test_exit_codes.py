"""Exit codes and last lines of real jobs on real Ray."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from jobs.answer import main
from memagent_batch.domain.built_in_prompts import DEFAULT_PROMPTS
from memagent_batch.storage.location import Location
from memagent_batch.storage.manifest import read_json, write_json
from memagent_batch.storage.prompt_files import save_prompt_set
from pipelines import answer as pipeline

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

WINNER = "20991231T000000.000Z.ffff"
"""Id of a newer attempt."""


@pytest.fixture
def arguments(text_model: str, tmp_path: Path) -> list[str]:
    """A job over three documents."""
    rows = [{"document_id": f"d{number}", "text": f"{number} and some words " * 20} for number in range(3)]
    pq.write_table(pa.Table.from_pylist(rows), tmp_path / "documents.parquet")
    knobs: dict[str, Any] = {
        "documents": tmp_path / "documents.parquet",
        "output": tmp_path / "run",
        "ask": "Who?",
        "model": text_model,
        "window-tokens": 1000,
        "policy.chunk-tokens": 40,
        "policy.question-tokens": 60,
        "policy.memory-tokens": 40,
        "policy.answer-tokens": 40,
        "log.flush-seconds": 0.1,
    }
    return [part for name, value in knobs.items() for part in (f"--{name}", str(value))]


def claim(output: Path) -> None:
    """Takes the output over, as a newer attempt does."""
    record = read_json(Location(uri=str(output / "run.json")))
    write_json(Location(uri=str(output / "run.json")), {**(record or {}), "run_id": WINNER})


def test_job_superseded_while_it_writes_its_tables_ends_with_3_and_leaves_none(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    output, write = tmp_path / "run", pipeline.write

    def superseded(*plan: Any, **run: Any) -> Any:
        reports = write(*plan, **run)
        assert list(output.glob("answers/*"))
        claim(output)
        write(*plan, **run)
        return reports

    monkeypatch.setattr(pipeline, "write", superseded)
    assert main([*arguments, "--engine", "simulated"]) == 3
    last = capsys.readouterr().err.splitlines()[-1]
    assert last.startswith("superseded: ")
    assert WINNER in last
    assert not [*output.glob("answers/*"), *output.glob("memories/*"), *output.glob("manifest.json")]
    assert json.loads((output / "run.json").read_text())["run_id"] == WINNER


def test_job_whose_endpoint_is_not_there_ends_with_2_and_one_line(
    arguments: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    endpoint = ["--engine", "openai", "--openai.base-url", "http://127.0.0.1:9/v1", "--openai.max-retries", "0"]
    assert main([*arguments, *endpoint]) == 2
    *_, before, last = capsys.readouterr().err.splitlines()
    assert last.startswith("error: the endpoint http://127.0.0.1:9/v1 can't be reached")
    assert before.startswith("readings 0/3")


def test_job_whose_prompt_set_is_edited_after_its_start_reads_nothing_under_the_old_name(
    arguments: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    prompts, read = tmp_path / "prompts.json", pipeline.read_documents
    save_prompt_set(DEFAULT_PROMPTS, prompts)

    def edited(*bundles: Any, **run: Any) -> Any:
        save_prompt_set(replace(DEFAULT_PROMPTS, first_memory="nothing at all"), prompts)
        return read(*bundles, **run)

    monkeypatch.setattr(pipeline, "read_documents", edited)
    assert main([*arguments, "--engine", "simulated", "--prompt-set", str(prompts)]) == 1
    assert "edited since the run began" in capsys.readouterr().err.splitlines()[-1]
    assert not list((tmp_path / "run").glob("log/turns/*"))
