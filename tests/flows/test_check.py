"""What is refused before Ray starts, and how soon."""

import json
import os
import shutil
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.cli.settings import job_of
from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import InputConfig
from memagent_batch.data.store.location import Location
from memagent_batch.run.claim import asked_documents, asked_questions
from memagent_batch.run.flows.check import check
from memagent_batch.run.history import begin
from memagent_batch.run.manifest import RunRecord, public_settings
from tests.jobs import put_texts

COMMAND = """import sys
from memagent_batch.cli.main import main
print(main(["answer", *sys.argv[1:]]), *sys.modules)
"""


def settings_of(documents: Path, **settings: object) -> JobConfig:
    return job_of(documents=str(documents), ask=("Who?",), output="run", input=InputConfig(**settings))


def refused(*arguments: str, **environment: str) -> tuple[list[str], set[str]]:
    """What a command that is refused says on stderr, and the modules that it imported."""
    command, variables = [sys.executable, "-c", COMMAND, *arguments], os.environ | environment
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=variables)
    code, *modules = done.stdout.split()
    assert code == "2"
    return done.stderr.splitlines(), set(modules)


@pytest.fixture
def inputs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parents[2]))
    monkeypatch.chdir(tmp_path)
    put_texts(tmp_path / "texts", {"a.txt": "a text"})
    (tmp_path / "rows.jsonl").write_text(json.dumps({"document_id": "a", "text": "a text"}))


@pytest.mark.usefixtures("inputs")
def test_answer_refuses_missing_documents_without_ray_or_a_tokeniser() -> None:
    lines, modules = refused("--documents=none.jsonl", "--ask=Who?", "--output=run")
    assert lines[0] == "checking inputs and model"
    assert lines[1].startswith("error: ")
    assert len(lines) == 2
    assert not modules & {"ray", "vllm", "torch", "transformers"}
    assert not Path("run").exists()


def record_of(job: JobConfig, run_id: str) -> RunRecord:
    return RunRecord(
        run_id=run_id,
        started_at="2026-11-29T01:00:00+00:00",
        documents=asked_documents(job),
        questions=asked_questions(job),
        asked=1,
        fingerprint="f",
        settings=public_settings(job),
        documents_table={"output": None, "version": 0},
    )


def prompt_set_of(
    folder: Path, model: str, questions: list[dict[str, str]], *, begun_with: JobConfig | None = None, **settings: Any
) -> tuple[str | None, JobConfig]:
    """The prompt set of a run over this list, into an output that another run may have begun; and the run's job."""
    put_texts(folder / "in", {"a.txt": "a text"})
    (folder / "questions.jsonl").write_text("\n".join(map(json.dumps, questions)))
    output = folder / "out"
    if begun_with is not None:
        begin(Location(uri=str(output)), partial(record_of, begun_with), writer="memagent", after="")
    places = {"documents": str(folder / "in"), "questions": str(folder / "questions.jsonl"), "output": str(output)}
    checked = check(job_of(**places, model=model, engine="simulated", **settings))
    return checked.reader.parts["prompt_set"], checked.job


@pytest.mark.usefixtures("inputs")
def test_output_has_its_whole_path_since_workers_may_run_in_another_folder(text_model: str) -> None:
    job = job_of(documents="texts", ask=("Who?",), output="run", engine="simulated", model=text_model)
    assert check(job).job.output == str(Path.cwd() / "run")


ONE, OTHER = {"question_id": "one", "question": "Who?"}, {"question_id": "other", "question": "Where?"}
OF_A, OF_B = OTHER | {"document_id": "a.txt"}, OTHER | {"question_id": "of-b", "document_id": "b.txt"}


@pytest.mark.parametrize(
    ("questions", "settings", "prompt_set"),
    [
        ([ONE], {}, "default"),
        ([ONE, OTHER], {}, "section-first"),
        ([ONE, OF_A], {}, "section-first"),
        ([OF_A, OF_B], {}, "default"),
        ([ONE, OTHER], {"prompt_set": "default"}, "default"),
        ([ONE, OTHER], {"policy": {"kind": "gated"}}, "gated"),
        ([ONE, OTHER], {"policy": {"kind": "truncate"}}, "default"),
    ],
)
def test_sections_stand_first_if_a_document_has_several_questions_and_no_set_was_named(
    questions: list[dict[str, str]], settings: dict[str, Any], prompt_set: str, text_model: str, tmp_path: Path
) -> None:
    assert prompt_set_of(tmp_path, text_model, questions, **settings)[0] == prompt_set


@pytest.mark.parametrize(("before", "after"), [([ONE], [ONE, OTHER]), ([ONE, OTHER], [ONE])])
def test_first_run_of_an_output_decides_the_prompt_set_for_all_later_ones(
    before: list[dict[str, str]], after: list[dict[str, str]], text_model: str, tmp_path: Path
) -> None:
    first, job = prompt_set_of(tmp_path, text_model, before)
    later, _ = prompt_set_of(tmp_path, text_model, after, begun_with=job)
    assert later == first
    shutil.rmtree(tmp_path / "out")
    assert prompt_set_of(tmp_path, text_model, after)[0] != first
