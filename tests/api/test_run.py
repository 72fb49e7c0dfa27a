"""`ma.answer`: the job as the command runs it, over files or over what a program holds; and the run that it returns."""

import asyncio
import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from deltalake import DeltaTable
from ray.data import DataContext

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.location import Location
from memagent_batch.errors import (
    BoundReachedError,
    InputError,
    OutputError,
    SettingsError,
    TooManyFailedError,
    TooManyRemovedError,
)
from memagent_batch.run.flows import answer as chain
from tests.api.conftest import QUESTIONS, TEXTS, agent_of, by_reading, logged_turns, run_local, table_of

MONDAY = {"a": "the fox " * 60, "b": "a dog", "c": "a cat"}
TUESDAY = {"a": MONDAY["a"], "b": "another dog", "d": "a bird"}


def frame_of(texts: dict[str, Any]) -> pd.DataFrame:
    frame: pd.DataFrame = table_of(texts).to_pandas()
    return frame.set_index(pd.Index([f"row {name}" for name in texts]))


def test_answer_gives_the_tables_of_the_command(
    agent: ma.Agent, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pq.write_table(table_of(TEXTS), tmp_path / "documents.parquet")
    rows = [{"question": "Who?"}, {"question": "What?", "question_id": "what"}]
    (tmp_path / "questions.jsonl").write_text("\n".join(map(json.dumps, rows)))
    settings = {**agent.model_dump(mode="json", exclude_unset=True), "input": {"carry_columns": ["number"]}}
    (tmp_path / "job.yaml").write_text(json.dumps(settings))
    monkeypatch.chdir(tmp_path)  # the workers of the Ray that is there stay where they are
    inputs = [f"--documents={tmp_path}/documents.parquet", f"--questions={tmp_path}/questions.jsonl"]
    inputs += [f"--output={tmp_path}/command", "--max-failed-share=1"]
    assert main(["answer", "--config", "job.yaml", *inputs]) == 0
    carry = ma.InputConfig(carry_columns=("number",))
    monkeypatch.setenv("MEMAGENT_OUTPUT", "elsewhere")
    monkeypatch.setenv("MEMAGENT_MODEL", "nothing")
    read = partial(run_local, agent=agent, input=carry)
    files = read(documents="documents.parquet", questions=Path("questions.jsonl"), output="files")
    given = read(documents=table_of(TEXTS), questions=["Who?", QUESTIONS[1]], output="given")
    expected = ma.Run.at("command")
    for run in (files, given):
        assert by_reading(run.answers()) == by_reading(expected.answers())
        assert run.answers().schema.equals(expected.answers().schema)
        assert in_order(run.memories()).equals(in_order(expected.memories()))
        assert run.manifest["counts"] == expected.manifest["counts"]
        assert run.manifest["fingerprint"] == expected.manifest["fingerprint"]
    assert not Path("elsewhere").exists()


def in_order(memories: pa.Table) -> pa.Table:
    keys = [(name, "ascending") for name in ("document_id", "question_id", "sample", "turn")]
    return memories.sort_by(keys).drop_columns(["run_id", "read_run_id"]).combine_chunks()


def test_second_night_with_other_rows_reads_only_what_changed(text_model: str, tmp_path: Path) -> None:
    def rows_of(texts: dict[str, Any]) -> Any:
        return [{"document_id": name, "text": text} for name, text in texts.items()]

    require_second_night(rows_of, text_model, tmp_path / "scan", executor="local")


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_second_night_with_another_dataset_reads_only_what_changed(text_model: str, tmp_path: Path) -> None:
    def dataset_of(texts: dict[str, Any]) -> Any:
        return ray.data.from_arrow(table_of(texts)).repartition(2)

    require_second_night(dataset_of, text_model, tmp_path / "scan", executor="ray")


def require_second_night(given: Callable[[dict[str, Any]], Any], model: str, output: Path, *, executor: str) -> None:
    how: dict[str, Any] = {"questions": ["Who?"], "output": output, "agent": agent_of(model), "executor": executor}
    monday = ma.answer(documents=given(MONDAY), **how)
    again = ma.answer(documents=given(MONDAY), **how)
    assert again.manifest["changes"]["readings"] == {"read": 0, "kept": 3, "unreadable": 0, "not_read": 0}
    tuesday = ma.answer(documents=given(TUESDAY), **how)
    assert tuesday.manifest["changes"]["documents"] == {"added": 1, "changed": 1, "removed": 1, "unchanged": 1}
    assert tuesday.manifest["changes"]["readings"] == {"read": 2, "kept": 1, "unreadable": 0, "not_read": 0}
    assert {row["document_id"]: row["read_run_id"] for row in tuesday.answers().to_pylist()} == {
        "a": monday.run_id,
        "b": tuesday.run_id,
        "d": tuesday.run_id,
    }
    changes = {(row["document_id"], row["change"]) for row in tuesday.diff(monday).to_pylist()}
    assert changes == {("c", "removed"), ("d", "added")}
    assert tuesday.diff().equals(tuesday.diff(again))
    with pytest.raises(OutputError, match="is the first one"):
        monday.diff()


def test_documents_of_many_rows_are_filtered_and_joined_in_order(text_model: str, tmp_path: Path) -> None:
    rows = [
        {"document_id": name, "text": f"page {page} of {name}", "page": page, "kind": kind, "sender": "Ann", "more": 1}
        for name, page, kind in (("a", 2, "mail"), ("a", 1, "mail"), ("a", 3, "spam"), ("b", 1, "mail"))
    ]
    templates = {"header": "From {sender}", "locator": "page {page}"}
    settings = ma.InputConfig(order_columns=("page",), where="kind = 'mail'", **templates)
    how: dict[str, Any] = {"output": tmp_path / "scan", "agent": agent_of(text_model), "input": settings}
    run = run_local(documents=pa.Table.from_pylist(rows), questions=["Who?"], **how)
    assert sorted(run.answers()["document_id"].to_pylist()) == ["a", "b"]
    texts = {row["document_id"]: row["text"] for row in ma.table(tmp_path / "scan", "documents").to_pylist()}
    assert texts["a"] == "From Ann\npage 1 of a\n\nFrom Ann\npage 2 of a"
    assert "page 1 to page 2" in run.memories()["locator"].to_pylist()


def test_refused_call_leaves_the_input_of_a_run_that_goes_on(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    call: dict[str, Any] = {"output": tmp_path / "scan", "agent": agent_of(text_model), "executor": "local"}
    asked = [ma.Question(question="Who?", question_id="who")]
    run_chain = chain.answer

    def interrupted(job: JobConfig) -> Any:
        monkeypatch.setattr(chain, "answer", run_chain)
        too_long = [ma.Question(question="why " * 2000, question_id="who")]
        with pytest.raises(SettingsError, match="shorten the question"):
            ma.answer(documents=frame_of(TUESDAY), questions=too_long, **call)
        return run_chain(job)

    monkeypatch.setattr(chain, "answer", interrupted)
    monday = ma.answer(documents=frame_of(MONDAY), questions=asked, **call)
    assert set(monday.answers()["document_id"].to_pylist()) == set(MONDAY)
    assert set(monday.answers()["question"].to_pylist()) == {"Who?"}
    again = ma.answer(documents=frame_of(MONDAY), questions=asked, **call)
    assert again.manifest["changes"]["readings"] == {"read": 0, "kept": 3, "unreadable": 0, "not_read": 0}


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_log_that_a_stage_began_becomes_the_output_of_a_scan(text_model: str, tmp_path: Path) -> None:
    agent, output = agent_of(text_model), tmp_path / "scan"
    ma.read(ray.data.from_arrow(table_of(MONDAY)), agent, questions=["Who?"], log=output).materialize()
    num_turns = logged_turns(output)
    run = ma.answer(documents=table_of(MONDAY), questions=["Who?"], output=output, agent=agent)
    assert run.manifest["counts"]["ok"] == 3
    assert all(run_id < run.run_id for run_id in run.answers()["read_run_id"].to_pylist())
    assert logged_turns(output) == num_turns


def test_call_whose_agent_can_not_work_writes_nothing(text_model: str, tmp_path: Path) -> None:
    agent = agent_of(text_model).model_copy(update={"window_tokens": 60})
    with pytest.raises(SettingsError, match="window"):
        run_local(documents=table_of(MONDAY), questions=["Who?"], output=tmp_path / "scan", agent=agent)
    assert not (tmp_path / "scan").exists()


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
def test_equal_blocks_of_a_dataset_are_refused_as_the_rows_of_a_table_are(text_model: str, tmp_path: Path) -> None:
    dataset, agent = ray.data.from_arrow(table_of(MONDAY)), agent_of(text_model)
    for number, documents in enumerate((dataset.union(dataset), pa.concat_tables([table_of(MONDAY)] * 2))):
        with pytest.raises(InputError, match="document_id 'a' is there twice"):
            ma.answer(documents=documents, questions=["Who?"], output=tmp_path / str(number), agent=agent)


@pytest.mark.ray
@pytest.mark.usefixtures("ray_here")
async def test_answer_works_where_an_event_loop_runs_and_leaves_the_session_there(
    text_model: str, tmp_path: Path
) -> None:
    assert asyncio.get_running_loop().is_running()
    context = DataContext.get_current()
    before = (context.execution_no_progress_timeout_s, context.enable_progress_bars)
    run = ma.answer(
        documents=frame_of(MONDAY), questions=["Who?"], output=tmp_path / "scan", agent=agent_of(text_model)
    )
    assert run.answers().to_pandas()["answer"].tolist() == ["simulated"] * 3
    assert ray.is_initialized()
    assert DataContext.get_current() is context
    assert (context.execution_no_progress_timeout_s, context.enable_progress_bars) == before
    assert ray.data.range(3).count() == 3


def test_run_whose_readings_all_fail_raises_and_its_tables_can_be_opened(text_model: str, tmp_path: Path) -> None:
    output = tmp_path / "scan"
    with pytest.raises(TooManyFailedError, match="3 of 3"):
        run_local(documents=table_of(MONDAY), questions=["Why? " * 30], output=output, agent=agent_of(text_model))
    assert {row["error_type"] for row in ma.Run.at(output).answers().to_pylist()} == {"QuestionTooLongError"}


def test_tables_of_a_run_can_be_read_until_they_are_vacuumed(text_model: str, tmp_path: Path) -> None:
    how: dict[str, Any] = {"questions": ["Who?"], "output": tmp_path, "agent": agent_of(text_model)}
    first = run_local(documents=table_of(MONDAY), **how)
    run_local(documents=table_of(TUESDAY), **how)
    assert set(first.answers()["document_id"].to_pylist()) == set(MONDAY)
    DeltaTable(str(tmp_path / "answers")).vacuum(0, dry_run=False, enforce_retention_duration=False, full=True)
    assert ma.Run.at(tmp_path).answers().num_rows == 3
    for read in (first.answers, ma.Run.at(tmp_path).diff, lambda: ma.table(tmp_path, "answers", run_id="previous")):
        with pytest.raises(OutputError, match="`VACUUM` may have removed it"):
            read()
    assert ma.Run.at(tmp_path, "previous").run_id == first.run_id


@pytest.mark.s3
def test_answer_over_a_bucket_keeps_its_input_there(s3_bucket: Location, text_model: str) -> None:
    run = run_local(
        documents=frame_of(MONDAY),
        questions=[ma.Question(question="Who?", question_id="who")],
        output=f"{s3_bucket.uri}/scan",
        agent=agent_of(text_model),
        storage_options=dict(s3_bucket.storage_options),
    )
    assert run.answers().num_rows == 3
    assert "secret" not in repr(run)


CARRYING_TEXT = ma.InputConfig(format="text", carry_columns=("year",))


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ({"documents": pa.table({"text": ["a"]})}, InputError, "no column 'document_id'; its columns: 'text'"),
        ({"documents": table_of(MONDAY).slice(0, 0)}, InputError, "there is no row"),
        ({"documents": []}, InputError, "documents: the list is empty"),
        ({"documents": ["a.txt", "One line.\nAnother."]}, InputError, "documents: no. 2 is a text, not a path or URI"),
        ({"documents": 7}, InputError, "this int can't be read as a table"),
        ({"documents": [{"text": "a"}]}, InputError, "no column 'document_id'; its columns: 'text'"),
        ({"documents": __file__, "input": CARRYING_TEXT}, InputError, "leave out input.carry_columns"),
        ({"output": "nope://x"}, OutputError, "check the path, storage_options and your rights"),
        ({"questions": "Which law governs?"}, InputError, r"give a question in a list: \['Which law governs\?'\]"),
        ({"questions": []}, SettingsError, "no question"),
        ({"max_failed_share": 2}, SettingsError, "max_failed_share"),
        ({"ask": "Why?"}, SettingsError, r"ask: give the questions as questions=\[...\]"),
        ({"again_where": "confidence < 0.8"}, SettingsError, "again_from and again_where need each other"),
        ({"output": "{folder}"}, OutputError, "holds other files"),
    ],
)
def test_mistake_in_the_call_is_refused(
    text_model: str, tmp_path: Path, how: dict[str, Any], kind: type[Exception], says: str
) -> None:
    (tmp_path / "mine.txt").write_text("mine")
    call = {"documents": table_of(MONDAY), "questions": ["Who?"], "output": tmp_path / "scan"}
    call |= {name: tmp_path if value == "{folder}" else value for name, value in how.items()}
    with pytest.raises(kind, match=says) as refused:
        run_local(**call, agent=agent_of(text_model))
    assert refused.value.exit_code == 2  # type: ignore[attr-defined]
    assert not list(tmp_path.glob("**/log"))


@pytest.mark.parametrize("call", [ma.answer, ma.collect, ma.scan])
@pytest.mark.parametrize(
    ("settings", "says"),
    [
        ({"limt": 3}, "limt: there is no such setting; did you mean limit?"),
        ({"recrod": {}}, "recrod: there is no such setting; did you mean record?"),
        ({"followups": {}}, "followups: there is no such setting; did you mean follow_ups?"),
        ({"kind": "gated"}, "kind: there is no such setting; did you mean agent.policy.kind?"),
        ({"ask": ["Who?"]}, "ask: give the questions as questions=[...]"),
        ({"bounds": 1}, "bounds: there is no such setting; see docs/reference/settings.md"),
        ({"pool": {"replica": 3}}, "pool.replica: there is no such setting; did you mean pool.replicas?"),
        ({"limit": 0}, "limit: 0 is below 1, the least"),
        ({"pool": {"replicas": "many"}}, "pool.replicas: 'many' is not a whole number"),
        ({"executor": "rey"}, "executor: 'rey' is not one of 'auto', 'local' or 'ray'; did you mean ray?"),
        ({"storage_options": "key"}, "storage_options: this holds no names with values; write them as {name: value}"),
    ],
)
def test_setting_that_is_misspelt_or_wrong_is_named_with_its_place(
    tmp_path: Path, call: Callable[..., Any], settings: dict[str, Any], says: str
) -> None:
    (tmp_path / "in.txt").write_text("a word")
    if call is ma.scan:
        with pytest.raises(SettingsError, match="documents: give them as files"):
            ma.scan("in/", documents="in/", questions=["Who?"], output=tmp_path, agent=ma.Agent(model="none"))
    place = {"files" if call is ma.scan else "documents": tmp_path / "in.txt"}
    with pytest.raises(SettingsError) as refused:
        call(**place, questions=["Who?"], output=tmp_path / "out", agent=ma.Agent(model="none"), **settings)
    assert str(refused.value) == says
    assert not (tmp_path / "out").exists()


def test_settings_of_a_job_file_are_arguments(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(logging.getLogger(), "handlers", [])  # as in a program that has set up no logging
    logging.getLogger("memagent_batch").setLevel(logging.NOTSET)
    how: dict[str, Any] = {"questions": ["Who?"], "output": tmp_path / "scan", "agent": agent_of(text_model)}
    own: dict[str, Any] = {"record": {"keep_days": 2}, "log_format": "json", "max_removed_share": 0.5}
    run = run_local(documents=table_of(MONDAY), **how, **own)
    assert run.manifest["settings"]["record"]["keep_days"] == 2
    assert run.run_id in [json.loads(line).get("run_id") for line in capsys.readouterr().err.splitlines()]
    with pytest.raises(BoundReachedError, match="max_hours"):
        run_local(documents=table_of(TUESDAY), **how, **own, max_hours=1e-6)
    with pytest.raises(TooManyRemovedError, match="2 of 3 documents"):
        run_local(documents=table_of({"a": MONDAY["a"]}), **how, **own)
    assert ma.Run.at(tmp_path / "scan").answers().num_rows == 1


@pytest.mark.slow
def test_script_without_ray_starts_none_and_its_types_are_right(text_model: str, tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(f"""
import memagent_batch as ma

policy = ma.Overwrite(chunk_tokens=50, question_tokens=60, memory_tokens=40, answer_tokens=40)
agent = ma.Agent(model={text_model!r}, engine="simulated", window_tokens=1000, policy=policy)
with open("a.txt", "w") as file:
    file.write("a word")
questions: list[str | ma.Question] = ["Who?", ma.Question(question="What?")]
run: ma.Run = ma.answer(documents=["a.txt"], questions=questions, output="scan", agent=agent)
with agent.open() as reader:
    answer: str | None = reader.read("a word", "Who?").answer
import sys

print(run.run_id, answer, "ray" in sys.modules, run.answers().num_rows)
""")
    own = os.environ | {"MYPYPATH": "", "MYPY_CACHE_DIR": str(tmp_path / "cache")}
    command = [sys.executable, "-m", "mypy", "--strict", "--ignore-missing-imports", "--follow-imports=silent"]
    checked = subprocess.run([*command, str(script)], capture_output=True, text=True, cwd=tmp_path, env=own)
    assert checked.returncode == 0, checked.stdout
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, cwd=tmp_path)
    assert done.stdout.split()[1:] == ["simulated", "False", "2"], done.stderr
    assert done.stdout.split()[0] in done.stderr  # what the run does is said there
    assert logged_turns(tmp_path / "scan") == 4
