"""Replicas whose engine can't start, in the real pool of Ray Data."""

import asyncio
import contextlib
import itertools
import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.errors import EngineDeadError, EngineStartError, RunFailedError, SettingsError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.run.executors.ray import executor, replicas
from memagent_batch.run.executors.ray.board import NextStep, start_board
from memagent_batch.run.executors.ray.executor import require_node, require_place, with_room_for_tasks
from memagent_batch.run.executors.reader import Reader, ReaderProcess, ReaderTask
from memagent_batch.run.flows import answer as pipeline
from memagent_batch.run.manifest import Manifest
from memagent_batch.types import Completion, Prompt
from tests.jobs import small_job
from tests.tables import rows_in

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the modules of tests

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

PROBLEM = "this GPU is broken"
NUM_DOCUMENTS = 40
TURNS_BEFORE_DEATH = 30


class BrokenReader(Reader):
    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        vars(replicas)["RESTART_SECONDS"] = 0.1
        self.folder = Path(task.place.output).parent  # type: ignore[union-attr]
        self.actor = str(ray.get_runtime_context().get_actor_id())
        (self.folder / f"start-{self.actor}-{os.getpid()}").touch()
        if self.is_broken():
            self._start_engine = self.fail  # type: ignore[method-assign]

    def is_broken(self) -> bool:
        return True

    async def fail(self) -> Engine:
        raise EngineStartError(PROBLEM)


class OneBrokenReader(BrokenReader):
    """The first of the replicas is broken, also when Ray starts it again."""

    def is_broken(self) -> bool:
        try:
            with (self.folder / "broken").open("x") as file:
                file.write(self.actor)
        except FileExistsError:
            pass
        return (self.folder / "broken").read_text() == self.actor


class DyingReader(BrokenReader):
    """The engine of each replica dies after some turns, and can't start again."""

    def is_broken(self) -> bool:
        return (self.folder / f"died-{self.actor}").exists()

    def is_sick(self) -> bool:
        return True

    async def _start_engine(self) -> Engine:
        engine = await super()._start_engine()
        if self.is_sick():
            complete, turns = engine.complete, itertools.count()

            async def complete_some(prompt: Prompt, *, seed: int) -> Completion:
                if next(turns) >= TURNS_BEFORE_DEATH:
                    (self.folder / f"died-{self.actor}").touch()
                    raise EngineDeadError("uncorrectable memory error")
                return await complete(prompt, seed=seed)

            object.__setattr__(engine, "complete", complete_some)
        return engine


class OneDyingReader(DyingReader, OneBrokenReader):
    """The same for the first of the replicas alone."""

    def is_broken(self) -> bool:
        return self.is_sick() and super().is_broken()

    def is_sick(self) -> bool:
        return OneBrokenReader.is_broken(self)


def job_in(folder: Path, model: str, *, num_documents: int = NUM_DOCUMENTS, **pool: object) -> JobConfig:
    rows = [{"document_id": f"d{number}", "text": f"{number} and some words " * 50} for number in range(num_documents)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    return small_job(
        folder,
        model,
        executor="ray",
        documents=str(folder / "documents.parquet"),
        ask=("Who?",),
        simulated={"turn_seconds": 0.01},
        policy={"chunk_tokens": 30},
        pool={"replicas": 2, "cpus_per_replica": 0.1, "readings_in_flight": 2, **pool},
    )


def run(job: JobConfig, reader: type[Reader], monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setattr(pipeline, "Reader", reader)
    return pipeline.answer(job)


def num_starts(folder: Path) -> list[int]:
    actors = [path.name.split("-")[1] for path in folder.glob("start-*")]
    return sorted(actors.count(actor) for actor in set(actors))


def logged_turns(folder: Path) -> Counter[tuple[str, str]]:
    return Counter((row["document_hash"], row["path"]) for row in rows_in(folder / "run" / "log" / "turns"))


@pytest.mark.slow
def test_replica_that_can_not_start_is_given_up_and_the_other_reads_everything(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    manifest = run(job_in(tmp_path, text_model), OneBrokenReader, monkeypatch)
    assert (manifest["counts"]["ok"], manifest["counts"]["not_read"]) == (NUM_DOCUMENTS, 0)
    assert num_starts(tmp_path)[0] == 1
    assert 1 <= num_starts(tmp_path)[1] <= 3
    pids = [int(path.name.split("-")[2]) for path in tmp_path.glob("start-*")]
    deadline = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in pids):
        assert time.monotonic() < deadline, "a replica is left behind"
        time.sleep(0.1)


def test_replicas_whose_board_dies_while_they_wait_go_on_at_the_next_one() -> None:
    board = start_board().handle
    ends = {"num_replicas": 2, "is_new": True, "has_failed": False}
    ray.get(board.begin_start.remote("early", is_new=True))
    early = board.end_start.remote("early", **ends)
    ray.wait([early], timeout=2)  # the board has the call
    ray.kill(board, no_restart=False)
    ray.get(board.begin_start.remote("late", is_new=True))
    late = board.end_start.remote("late", **ends)
    assert ray.get([early, late], timeout=60) == [NextStep.READ, NextStep.READ]


def test_run_of_which_no_replica_can_start_ends_with_the_error(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(EngineStartError, match=f"^{PROBLEM}$"):
        run(job_in(tmp_path, text_model), BrokenReader, monkeypatch)
    assert num_starts(tmp_path) == [1, 1]


@pytest.mark.slow
def test_replica_whose_engine_dies_and_can_not_start_again_costs_no_reading(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    manifest = run(job_in(tmp_path, text_model), OneDyingReader, monkeypatch)
    assert len(list(tmp_path.glob("died-*"))) == 1
    counts = manifest["counts"]
    assert (counts["ok"], counts["failed"], counts["not_read"]) == (NUM_DOCUMENTS, 0, 0)
    assert manifest["replicas_given_up"] == 1
    assert f"failed to start 3 times: {PROBLEM}; the others go on" in caplog.text
    assert "replicas given up since their engine could not start: 1" in caplog.text
    assert set(logged_turns(tmp_path).values()) == {1}, "turns that the log holds were asked again"


@pytest.mark.slow
def test_run_whose_replicas_all_die_and_can_not_start_again_goes_on_with_the_same_command(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path, text_model)
    with pytest.raises(RunFailedError, match=f"can start its engine any more: {PROBLEM}; the same command goes on"):
        run(job, DyingReader, monkeypatch)
    manifest = run(job, Reader, monkeypatch)
    assert manifest["counts"]["ok"] == NUM_DOCUMENTS
    assert set(logged_turns(tmp_path).values()) == {1}


FAULTS = ("can't start", "engine dies", "engine dies", "killed", "killed")
"""What becomes of the first replicas that start; a killed one reads on when Ray has started it again."""


class FaultyReader(DyingReader):
    """One of `FAULTS`, at a random turn, for each of the first replicas."""

    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        folder = Path(task.place.output).parent  # type: ignore[union-attr]
        actor = str(ray.get_runtime_context().get_actor_id())
        self.fault = self.take_fault(folder, actor)
        super().__init__(task, process)

    @staticmethod
    def take_fault(folder: Path, actor: str) -> str:
        """The fault that this replica has, or takes: each goes to one replica, and stays with it."""
        for number, fault in enumerate(FAULTS):
            path = folder / f"fault-{number}"
            with contextlib.suppress(FileExistsError), path.open("x") as file:
                file.write(actor)
            if path.read_text() == actor:
                return fault
        return ""

    def is_broken(self) -> bool:
        return self.fault == "can't start" or super().is_broken()

    def is_sick(self) -> bool:
        return self.fault == "engine dies"

    async def _start_engine(self) -> Engine:
        engine = await super()._start_engine()
        if self.fault == "killed" and not self._process.is_replacement:
            complete, turns, last = engine.complete, itertools.count(), random.randrange(5, 60)

            async def complete_some(prompt: Prompt, *, seed: int) -> Completion:
                if next(turns) == last:
                    (self.folder / f"killed-{self.actor}").touch()
                    os.kill(os.getpid(), signal.SIGKILL)
                return await complete(prompt, seed=seed)

            object.__setattr__(engine, "complete", complete_some)
        return engine


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_five_of_forty_replicas_fail_and_every_reading_is_there(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO")
    job = job_in(tmp_path, text_model, num_documents=400, replicas=40, cpus_per_replica=0.02)
    manifest = run(job, FaultyReader, monkeypatch)
    counts = manifest["counts"]
    assert (counts["ok"], counts["failed"], counts["not_read"]) == (400, 0, 0)
    assert manifest["replicas_given_up"] == FAULTS.count("can't start") + FAULTS.count("engine dies")
    assert len(list(tmp_path.glob("died-*"))) == FAULTS.count("engine dies")
    assert len(list(tmp_path.glob("killed-*"))) == FAULTS.count("killed")
    assert len(num_starts(tmp_path)) >= 40, "not all replicas began"
    assert set(logged_turns(tmp_path).values()) == {1}, "turns that the log holds were asked again"


SMALL_CLUSTER = """
import logging, sys
from pathlib import Path
import ray
logging.basicConfig(level="INFO")
ray.init(num_cpus=2, num_gpus=2, include_dashboard=False, log_to_driver=False)
from memagent_batch.run.executors import progress
from tests.executors.ray.test_failing_replicas import job_in, pipeline
progress.LOG_SECONDS = 0
job = job_in(Path(sys.argv[1]), sys.argv[2], replicas=3, gpus_per_replica=1)
print(pipeline.answer(job)["counts"]["ok"])
"""


@pytest.mark.slow
def test_replicas_that_the_cluster_has_no_room_for_keep_no_others_from_reading(text_model: str, tmp_path: Path) -> None:
    command = [sys.executable, "-c", SMALL_CLUSTER, str(tmp_path), text_model]
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[3])}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, timeout=600, check=False)
    assert done.stdout.split()[-1:] == [str(NUM_DOCUMENTS)], done.stderr[-3000:]
    assert "2 of 3 replicas" in done.stderr


def test_board_that_is_started_again_remembers_the_deaths_of_engines() -> None:
    board, turn = start_board(), (("d" * 64, "q" * 64, 0), "f" * 64, "update/3")
    ray.get(board.handle.put_deaths.remote([turn]))
    first = board.take().board_id
    ray.kill(board.handle, no_restart=False)
    deadline = time.monotonic() + 60
    while board.take().board_id in ("", first) or asyncio.run(board.deaths()) != [turn]:
        assert time.monotonic() < deadline
    ray.get(board.handle.put_deaths.remote([turn]))
    board.take()
    assert asyncio.run(board.deaths()) == [turn, turn]


def test_replica_that_takes_more_gpus_than_any_node_has_is_refused_where_no_node_can_join() -> None:
    too_large = PoolConfig(gpus_per_replica=16)
    with pytest.raises(SettingsError, match=r"takes 16 GPUs of one node.*has 0; lower vllm\.tensor_parallel_size"):
        require_node(AgentConfig(model="tiny"), too_large, may_grow=False)
    require_node(AgentConfig(model="tiny"), too_large, may_grow=True)
    require_node(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=0), may_grow=False)


def test_replicas_that_take_all_cpus_leave_some_for_tasks(caplog: pytest.LogCaptureFixture) -> None:
    pool = PoolConfig(replicas=8)
    assert with_room_for_tasks(pool, cpus=16, may_grow=False) is pool
    assert with_room_for_tasks(pool, cpus=4, may_grow=False).cpus_per_replica == pytest.approx(3 / 8)
    assert with_room_for_tasks(pool, cpus=1, may_grow=False).cpus_per_replica == pytest.approx(1 / 16)
    assert "too few of 1 CPUs are left for tokenising; 0.0625 are reserved for each replica" in caplog.text
    assert with_room_for_tasks(pool, cpus=4, may_grow=True) is pool
    assert "unless more nodes join, nothing is read: lower pool.cpus_per_replica" in caplog.text


def test_replica_that_no_node_has_room_for_ends_the_run_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    require_place(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=0))
    monkeypatch.setattr(executor, "START_SECONDS", 0.5)
    with pytest.raises(RunFailedError, match=r"\(0\.5 CPUs and 16 GPUs\) for 0\.5 s; add"):
        require_place(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=16))
