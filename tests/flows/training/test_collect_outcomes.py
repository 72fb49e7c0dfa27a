"""Collected rollouts on the simulated engine, whose responses are all the same: what becomes of each sample."""

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.training.collect import collect, sampled_job, write_rollouts_table
from memagent_batch.apps.training.rollouts_table import RolloutsRecord, read_rollouts_record
from memagent_batch.config.job import JobConfig
from memagent_batch.data.store.delta import OutputTable, RunNumber
from memagent_batch.data.store.location import Location
from memagent_batch.errors import CountsError, InputError, SettingsError, SupersededError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.run.executors.local import LocalExecutor
from memagent_batch.run.flows.check import check
from memagent_batch.run.flows.plan import ingest_sources, make_plan
from memagent_batch.run.history import require_manifest, run_number_of
from memagent_batch.run.tables import ROLLOUTS_TABLE, RUNS_TABLE
from memagent_batch.run.wiring import make_output
from tests.faults.killed_job import KilledJob, Role
from tests.flows.training import drawing_engine
from tests.flows.training.collected import NOISE, rows_of, write_inputs
from tests.jobs import small_job, small_settings

LOCAL = LocalExecutor()


def settings_of(folder: Path, model: str, **rollouts: Any) -> JobConfig:
    inputs = {name: str(folder / f"{name}.parquet") for name in ("documents", "questions")}
    return small_job(folder, model, **inputs, rollouts={"group_size": 3, **rollouts}, allow_code=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class Collected:
    folder: Path
    """Its inputs, and its output in `run`."""
    job: JobConfig
    record: RolloutsRecord


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Path:
    folder = tmp_path_factory.mktemp("finished")
    write_inputs(folder, {"d": NOISE, "e": NOISE * 2}, references=["simulated"])
    collect(settings_of(folder, text_model))
    return folder


@pytest.fixture
def collected(finished: Path, tmp_path: Path, text_model: str) -> Collected:
    folder = shutil.copytree(finished, tmp_path / "copy")
    job = settings_of(folder, text_model).model_copy(update={"adopt_output": True})
    return Collected(folder=folder, job=job, record=read_rollouts_record(make_output(job)))


def table_again(job: JobConfig) -> RolloutsRecord:
    """`rollouts` once more, of the run that is there."""
    checked = replace(check(sampled_job(job)), follow_ups=None, executor=LOCAL)
    return write_rollouts_table(
        make_plan(checked, ingest_sources(checked)), require_manifest(make_output(job)), checked=checked
    )


def test_collect_takes_the_turns_that_led_to_the_outcome(collected: Collected) -> None:
    output = collected.folder / "run"
    rows = rows_of(output)
    log = output / "log" / "turns"
    turns = pq.read_table(log)
    later = [{**row, "run_id": f"9{row['run_id'][1:]}", "token_ids": row["token_ids"][:1]} for row in turns.to_pylist()]
    first = [row for row in later if row["path"] == rows[0]["kind"] + "/0"]
    assert first
    name = f"{first[0]['run_id']}-other.parquet"
    pq.write_table(pa.Table.from_pylist(first, schema=turns.schema), log / name)
    assert table_again(collected.job)["counts"] == collected.record["counts"]
    assert rows_of(output) == rows


def test_collect_names_samples_that_ended_but_can_not_be_replayed(collected: Collected) -> None:
    for log in (collected.folder / "run" / "log" / "turns").glob("*.parquet"):
        turns = pq.read_table(log)
        is_answer = pc.equal(turns["path"], "answer")
        is_gone = pc.or_(pc.equal(turns["sample"], 1), pc.and_(is_answer, pc.equal(turns["sample"], 0)))
        is_gone = pc.and_(is_gone, pc.equal(turns["document_hash"], text_hash(NOISE)))
        pq.write_table(turns.filter(pc.invert(is_gone)), log)
    missing = "document 'd', question 'q', sample 0: NotLoggedError: answer; document 'd', question 'q', sample 1"
    with pytest.raises(CountsError, match=missing):
        table_again(collected.job)


def test_collect_superseded_leaves_the_newer_rollouts_alone(collected: Collected) -> None:
    output = make_output(collected.job)
    runs, rollouts = OutputTable(output=output, name=RUNS_TABLE), OutputTable(output=output, name=ROLLOUTS_TABLE)
    number = run_number_of(output, collected.record["run_id"]).number + 1
    runs.commit(run=RunNumber(number=number, run_id="9-newer"), schema=runs.schema())
    before = rollouts.version()
    with pytest.raises(SupersededError):
        table_again(collected.job)
    assert rollouts.version() == before
    assert read_rollouts_record(output) == collected.record


async def test_rollouts_are_written_where_an_event_loop_runs_as_in_a_notebook(collected: Collected) -> None:
    assert table_again(collected.job)["counts"] == collected.record["counts"]


def test_collect_with_another_number_of_samples_is_refused(tmp_path: Path, text_model: str) -> None:
    job = settings_of(tmp_path, text_model)
    other = job.with_agent(
        job.agent.model_copy(update={"sampling": job.agent.sampling.model_copy(update={"samples": 5})})
    )
    with pytest.raises(SettingsError, match=r"sampling\.samples is 5, rollouts\.group_size 3"):
        sampled_job(other)


def test_collect_with_a_reward_of_the_user_marks_the_samples_it_fails_on(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE, "unread": None}, references=["x"])
    settings = {"reward": "tests.training.rewards_of_mine:raises"}
    job = settings_of(tmp_path, text_model, **settings).model_copy(update={"max_failed_share": 0.5})
    record = collect(job)
    assert record["counts"] == {
        "groups": 2,
        "dropped_groups": 0,
        "samples": 6,
        "failed_samples": 3,
        "samples_without_reward": 3,
        "rows": 3 + sum(row["turn"] is not None for row in rows_of(tmp_path / "run")),
        "tokens": 0,
    }
    assert record["mean_reward"] is None
    ended = [row for row in rows_of(tmp_path / "run") if row["status"] == "ok"]
    assert {row["reward_error"] for row in ended} == {"KeyError: 'score'"}
    assert not any(any(row["response_mask"]) for row in ended)
    failed = [row for row in rows_of(tmp_path / "run") if row["status"] == "failed"]
    assert [(row["document_id"], row["sample"], row["turn"]) for row in failed] == [
        ("unread", sample, None) for sample in range(3)
    ]


def test_collect_leaves_out_groups_that_teach_nothing_where_asked(collected: Collected, text_model: str) -> None:
    kept = collected.record
    assert (kept["counts"]["groups"], kept["counts"]["dropped_groups"], kept["mean_reward"]) == (2, 0, 1.0)
    assert {row["advantage"] for row in rows_of(collected.folder / "run")} == {0.0}
    dropping = settings_of(collected.folder, text_model, drop_equal=True)
    dropped = collect(dropping.model_copy(update={"adopt_output": True}))
    assert (dropped["counts"]["dropped_groups"], dropped["counts"]["rows"]) == (2, 0)
    assert rows_of(collected.folder / "run") == []


def test_collect_rewards_cut_samples_as_asked_without_another_turn(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE}, references=["simulated"])
    files = []
    for overlong, reward in (("keep", 1.0), ("zero", 0.0), ("mask", None)):
        job = settings_of(tmp_path, text_model, overlong=overlong)
        cut = job.agent.policy.model_copy(update={"memory_tokens": 5})
        collect(job.with_agent(job.agent.model_copy(update={"policy": cut})))
        rows = rows_of(tmp_path / "run")
        assert {row["reward"] for row in rows} == {reward}
        assert {mark for row in rows for mark in row["response_mask"]} == {0 if reward is None else 1}
        files.append({path.name for path in (tmp_path / "run" / "log" / "turns").iterdir()})
    assert files[0] == files[1] == files[2]


def test_collect_without_any_reference_is_refused(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE}, references=None)
    with pytest.raises(InputError, match="no question has references"):
        collect(settings_of(tmp_path, text_model))
    assert not (tmp_path / "run/answers").exists()


@pytest.mark.slow
def test_collect_killed_in_the_middle_ends_with_the_same_rows(tmp_path: Path, text_model: str) -> None:
    write_inputs(tmp_path, {"d": NOISE * 8, "e": NOISE * 9, "unread": None}, references=[drawing_engine.RIGHT])
    inputs = {name: str(tmp_path / f"{name}.parquet") for name in ("documents", "questions")}
    engine = {"engine": drawing_engine.KIND, "engine_options": {"turn_seconds": 0.1}}
    settings = small_settings(tmp_path, text_model, **inputs, **engine, pool={"readings_in_flight": 2})
    (tmp_path / "job.json").write_text(json.dumps({**settings, "max_failed_share": 0.5}))
    alone, killed = tmp_path / "alone", tmp_path / "killed"
    arguments = ["--config", str(tmp_path / "job.json"), "--allow-code", "--rollouts.group-size", "3", "--output"]
    with KilledJob([*arguments, str(alone)], output=alone, command="collect") as job:
        job.start()
        assert job.finish() == 0, job.last_words()
    with KilledJob([*arguments, str(killed)], output=killed, command="collect") as job:
        job.start()
        assert job.wait_until(lambda: any((killed / "log" / "turns").glob("*.parquet"))), job.last_words()
        job.kill(Role.DRIVER, job.require(Role.DRIVER))
        assert not (killed / "rollouts").exists()
        job.start()
        assert job.finish() == 0, job.last_words()
    first, second = ([{**row, "run_id": ""} for row in rows_of(output)] for output in (alone, killed))
    assert first == second
    one, other = (read_rollouts_record(Location(uri=str(output))) for output in (alone, killed))
    assert one["counts"] == other["counts"]
