"""`ma.read`: the rows of the job's tables, lazily, between stages of a program's own, in a Ray session of its own."""

import contextlib
import os
import signal
import sys
import threading
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray
from ray.data import DataContext
from ray.data._internal.metadata_exporter import sanitize_for_struct

import memagent_batch as ma
from memagent_batch.apps.api import stage
from memagent_batch.apps.api.stage import AnswerReader
from memagent_batch.config.job import RunConfig
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS
from memagent_batch.data.store.location import Location
from memagent_batch.errors import EngineStartError, InputError, MemagentError, OutputError, SettingsError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.run.executors.ray import executor, replicas
from memagent_batch.run.executors.reader import ReaderProcess, ReaderTask
from tests import prompt_dependent_engine
from tests.api.conftest import QUESTIONS, TEXTS, agent_of, by_reading, logged_turns, run_local, table_of

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the modules of tests

PATIENCE_SECONDS = 120.0


def rows_of(dataset: Any) -> list[dict[str, Any]]:
    return [row for batch in dataset.iter_batches(batch_size=None, batch_format="pyarrow") for row in batch.to_pylist()]


def test_rows_equal_the_tables_of_the_job_with_and_without_a_log(agent: ma.Agent, tmp_path: Path) -> None:
    how: dict[str, Any] = {"output": tmp_path / "scan", "input": ma.InputConfig(carry_columns=("number",))}
    run = run_local(documents=table_of(TEXTS), questions=QUESTIONS, agent=agent, **how)
    answers = run.answers()
    table = by_reading(answers)
    assert {row["status"] for row in table.values()} == {"ok", "failed"}
    assert len(table) == 2 * (3 * len(TEXTS) + 1)
    dataset = ray.data.from_arrow(table_of(TEXTS)).repartition(3)
    read = ma.read(dataset, agent, questions=QUESTIONS, carry=["number"])
    assert by_reading(rows_of(read)) == table
    log = tmp_path / "log"
    kept = ma.read(dataset, agent, questions=QUESTIONS, carry=["number"], log=log)
    batches = list(kept.iter_batches(batch_size=None, batch_format="pyarrow"))
    assert by_reading([row for batch in batches for row in batch.to_pylist()]) == table
    of_rows = answers.drop_columns(SOURCE_COLUMNS.names)
    assert all(batch.schema.equals(of_rows.schema) for batch in batches)
    num_turns = logged_turns(log)
    assert by_reading(rows_of(kept)) == table
    assert logged_turns(log) == num_turns


def test_rows_with_values_and_votes_equal_the_tables_of_the_job(text_model: str, tmp_path: Path) -> None:
    agent = agent_of(text_model, sampling=ma.SamplingConfig(samples=2, temperature=1.0))
    texts = {"short": "It is simulated. A word.", "none": None, "blank": " \n"}
    questions = [
        ma.Question(question_id="is", question="Is it?", type=ma.Bool()),
        ma.Question(question_id="price", question="Is it?", type=ma.Number(unit="EUR")),
        ma.Question(question_id="free", question="Who?"),
    ]
    follow_ups, scan = ma.FollowUpConfig(evidence=True, support=True), tmp_path / "scan"
    plain = [ma.Question(question_id=each.question_id, question=each.question) for each in questions]
    run_local(documents=table_of(texts), questions=plain, output=scan, agent=agent)
    dataset = ray.data.from_arrow(table_of(texts))
    num_turns = logged_turns(scan)
    closed = by_reading(rows_of(ma.read(dataset, agent, questions=questions, log=scan, follow_ups=follow_ups)))
    asked = logged_turns(scan) - num_turns
    assert asked == 2 * 6  # of each sample evidence and support for two wordings, and two values
    run = run_local(documents=table_of(texts), questions=questions, output=scan, agent=agent, follow_ups=follow_ups)
    assert logged_turns(scan) == num_turns + asked
    assert closed == by_reading(run.answers())
    values = {(row["question_id"], row["value"], row["votes"]) for row in run.answers().to_pylist() if row["value"]}
    assert values == {("is", "true", 1.0), ("price", "0", 1.0)}
    assert {row["document_id"] for row in run.results().to_pylist() if row["is"]} == {"short"}
    assert set(run.evidence()["how"].to_pylist()) == {"chosen", "aligned"}
    assert by_reading(rows_of(ma.read(dataset, agent, questions=questions, follow_ups=follow_ups))) == closed


def test_log_of_a_finished_scan_is_taken_and_its_tables_stay(agent: ma.Agent, tmp_path: Path) -> None:
    scan = tmp_path / "scan"
    texts = {"short": "a word", "other": "another word"}
    first = run_local(documents=table_of({"short": "a word"}), questions=["Who?"], output=scan, agent=agent)
    rows = rows_of(ma.read(ray.data.from_arrow(table_of(texts)), agent, questions=["Who?"], log=scan))
    replayed = {row["document_id"]: row["num_replayed_turns"] == row["num_turns"] for row in rows}
    assert replayed == {"short": True, "other": False}
    assert ma.Run.at(scan).answers().equals(first.answers())
    num_turns = logged_turns(scan)
    again = run_local(documents=table_of(texts), questions=["Who?"], output=scan, agent=agent)
    assert {row["document_id"]: row["read_run_id"] for row in again.answers().to_pylist()} == {
        "short": first.run_id,
        "other": rows[0]["read_run_id"],
    }
    assert logged_turns(scan) == num_turns


def test_log_of_a_document_that_grew_has_the_turns_that_were_taken_from_its_last_version(
    text_model: str, tmp_path: Path
) -> None:
    agent, text = agent_of(text_model), "some words " * 100
    for version in (text, text + "and more. " * 30):
        grown = table_of({"grows": version})
        run_local(documents=grown, questions=["Who?"], output=tmp_path, agent=agent)
    turns = pq.read_table(tmp_path / "log/turns")
    assert any(turns["is_copy"].to_pylist())
    (row,) = rows_of(ma.read(ray.data.from_arrow(grown), agent, questions=["Who?"], log=tmp_path))
    assert row["num_replayed_turns"] == row["num_turns"] > 2
    assert logged_turns(tmp_path) == turns.num_rows


def test_stage_stands_between_two_stages_and_leaves_the_session_as_it_is(agent: ma.Agent) -> None:
    timeout = DataContext.get_current().execution_no_progress_timeout_s
    before = ray.data.from_items([{"key": number, "body": f"word {number} " * 20} for number in range(6)])
    doubled = before.map(lambda row: {"key": f"d{row['key']}", "body": row["body"] * 2})
    read = ma.read(doubled, agent, questions=["Who?"], text="body", document_id="key")
    after = read.filter(lambda row: row["document_id"] != "d3").map(lambda row: {"id": row["document_id"]})
    assert before.context.execution_no_progress_timeout_s == timeout
    assert DataContext.get_current().execution_no_progress_timeout_s == timeout
    assert after.context.execution_no_progress_timeout_s == -1
    assert sorted(row["id"] for row in rows_of(after)) == [f"d{key}" for key in (0, 0, 1, 1, 2, 2, 4, 4, 5, 5)]
    assert before.count() == 6


@pytest.mark.s3
def test_log_in_a_bucket_is_kept_and_found_and_its_key_is_in_no_report_of_ray(
    s3_bucket: Location, text_model: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    tasks: list[ReaderTask] = []

    def read_calls(calls: Any, reader: type[AnswerReader], *, task: ReaderTask) -> Any:
        tasks.append(task)
        return executor.read_calls(calls, reader, task=task)

    monkeypatch.setattr(stage, "read_calls", read_calls)
    options = {**s3_bucket.storage_options, "secret": "hunter2"}
    dataset = ray.data.from_arrow(table_of({"short": "a word"}))
    log = f"{s3_bucket.uri}/log"
    first, second = (
        rows_of(ma.read(dataset, agent_of(text_model), questions=["Who?"], log=log, storage_options=options))
        for _ in range(2)
    )
    assert by_reading(second) == by_reading(first)
    assert [row["num_replayed_turns"] for row in (*first, *second)] == [0, 2]
    secret = replace(tasks[0], place=RunConfig(output="s3://key:hunter2@bucket/log", storage_options=options))
    assert "bucket/log" in str(sanitize_for_struct(secret, 10_000))
    assert "hunter2" not in str(sanitize_for_struct(secret, 10_000))


def actor_processes() -> list[psutil.Process]:
    """The reading actors of the Ray that this process started."""
    found = []
    for process in psutil.Process().children(recursive=True):
        try:
            if "Replica" in " ".join(process.cmdline()):
                found.append(process)
        except psutil.Error:  # it has just ended
            continue
    return found


def test_actor_killed_in_mid_reading_is_replaced_and_the_rows_are_the_same(text_model: str, tmp_path: Path) -> None:
    texts: dict[str, str | None] = {f"d{number}": f"{number} and some words " * 150 for number in range(4)}
    dataset = ray.data.from_arrow(table_of(texts))
    agent = agent_of(text_model).model_copy(update={"engine": prompt_dependent_engine.KIND})
    whole = rows_of(ma.read(dataset, agent, questions=["Who?"]))
    slow = agent.model_copy(update={"engine_options": {"turn_seconds": 0.3}})
    log = tmp_path / "log"
    found: list[dict[str, Any]] = []
    read = ma.read(dataset, slow, questions=["Who?"], log=log)
    reading = threading.Thread(target=lambda: found.extend(rows_of(read)), daemon=True)
    reading.start()
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not list(log.glob("log/turns/*.parquet")):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    (actor,) = actor_processes()
    os.kill(actor.pid, signal.SIGKILL)
    reading.join(PATIENCE_SECONDS)
    assert any(row["num_replayed_turns"] for row in found)
    assert by_reading(found) == by_reading(whole)


@pytest.mark.parametrize(
    ("rows", "says"),
    [
        ([{"key": "a", "text": "a"}], "no column 'document_id'; its columns: 'key', 'text'"),
        ([{"document_id": "a", "text": "a"}, {"document_id": "a", "text": "b"}], "document_id 'a' is there twice"),
    ],
)
def test_wrong_rows_of_a_lazy_stage_are_refused_with_the_errors_own_type(
    agent: ma.Agent, rows: list[dict[str, Any]], says: str
) -> None:
    lazy = ray.data.from_items([0]).map_batches(lambda _: pa.Table.from_pylist(rows), batch_format="pyarrow")
    with pytest.raises(InputError, match=says):
        rows_of(ma.read(lazy, agent, questions=["Who?"]))


class OneBrokenReader(AnswerReader):
    """The engine of one replica can't start, also when Ray starts the replica again."""

    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        vars(replicas)["RESTART_SECONDS"] = 0.1
        broken, actor = Path(task.place.output) / "broken", process.writer  # type: ignore[union-attr]
        with contextlib.suppress(FileExistsError), broken.open("x") as file:
            file.write(actor)
        if broken.read_text() == actor:
            self._start_engine = self.fail  # type: ignore[method-assign]

    async def fail(self) -> Engine:
        raise EngineStartError("this GPU is broken")


def test_replica_that_can_not_start_costs_itself_each_time_that_the_dataset_is_consumed(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    read_calls = executor.read_calls
    monkeypatch.setattr(stage, "read_calls", lambda calls, _, *, task: read_calls(calls, OneBrokenReader, task=task))
    texts: dict[str, str | None] = {f"d{number}": f"{number} and some words " * 50 for number in range(20)}
    dataset = ray.data.from_arrow(table_of(texts)).repartition(20)
    read = ma.read(dataset, agent_of(text_model), questions=["Who?"], log=tmp_path, pool=ma.PoolConfig(replicas=2))
    for _ in range(2):
        assert {row["document_id"] for row in rows_of(read) if row["status"] == "ok"} == set(texts)
        (tmp_path / "broken").unlink()


def test_engine_that_can_not_start_is_raised_where_the_dataset_is_consumed(text_model: str) -> None:
    openai = ma.OpenAIConfig(base_url="http://127.0.0.1:9/v1", max_retries=0)
    agent = agent_of(text_model).model_copy(update={"engine": "openai", "openai": openai})
    read = ma.read(ray.data.from_arrow(table_of({"a": "a"})), agent, questions=["Who?"])
    with pytest.raises(MemagentError, match="can't be reached") as raised:
        rows_of(read)
    assert isinstance(raised.value, EngineStartError)


@pytest.mark.parametrize(
    ("how", "kind", "says"),
    [
        ({"questions": [{"question": "Who?", "doc_id": "d"}]}, InputError, "did you mean 'document_id'"),
        ({"questions": [7]}, InputError, "number 1: this is a int"),
        ({"questions": ["Who?"], "text": "body"}, InputError, "no column 'body'; its columns: 'document_id', 'text'"),
        ({"questions": ["Who?"], "carry": ["status"]}, InputError, "a column 'status' of its own"),
        ({"questions": ["Who?"], "carry": [""]}, SettingsError, "carry_columns.*this is empty"),
        ({"questions": ["Who?"], "log": "{folder}"}, OutputError, "holds other files"),
    ],
)
def test_wrong_call_is_refused_before_anything_is_read(
    agent: ma.Agent, tmp_path: Path, how: dict[str, Any], kind: type[Exception], says: str
) -> None:
    (tmp_path / "a.txt").write_text("mine")
    how = {name: str(tmp_path) if value == "{folder}" else value for name, value in how.items()}
    with pytest.raises(kind, match=says):
        ma.read(ray.data.from_arrow(table_of(TEXTS)), agent, **how)
