"""Replicas whose engine can't start, in the real pool of Ray Data."""

import os
import sys
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import ray

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.engines.engine import Engine
from memagent_batch.errors import EngineStartError, RunFailedError, SettingsError
from memagent_batch.executors.actor import ReaderProcess, ReaderTask
from memagent_batch.executors.ray import executor, replicas
from memagent_batch.executors.ray.board import NextStep, start_board
from memagent_batch.executors.ray.executor import require_node, require_place
from memagent_batch.executors.reader import Reader
from memagent_batch.flows import answer as pipeline
from memagent_batch.runs.manifest import Manifest
from tests.jobs import small_job

ray.cloudpickle.register_pickle_by_value(sys.modules[__name__])  # workers do not find the modules of tests

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_here")]

PROBLEM = "this GPU is broken"
NUM_DOCUMENTS = 40


class BrokenReader(Reader):
    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        replicas.RESTART_SECONDS = 0.1
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


def job_in(folder: Path, model: str) -> JobConfig:
    rows = [{"document_id": f"d{number}", "text": f"{number} and some words " * 50} for number in range(NUM_DOCUMENTS)]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    return small_job(
        folder,
        model,
        executor="ray",
        documents=str(folder / "documents.parquet"),
        ask=("Who?",),
        simulated={"turn_seconds": 0.01},
        policy={"chunk_tokens": 30},
        pool={"replicas": 2, "cpus_per_replica": 0.1, "readings_in_flight": 2},
    )


def run(job: JobConfig, reader: type[Reader], monkeypatch: pytest.MonkeyPatch) -> Manifest:
    monkeypatch.setattr(executor, "Reader", reader)
    return pipeline.answer(job)


def num_starts(folder: Path) -> list[int]:
    actors = [path.name.split("-")[1] for path in folder.glob("start-*")]
    return sorted(actors.count(actor) for actor in set(actors))


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


def test_replica_that_takes_more_gpus_than_any_node_has_is_refused_where_no_node_can_join() -> None:
    too_large = PoolConfig(gpus_per_replica=16)
    with pytest.raises(SettingsError, match=r"takes 16 GPUs of one node.*has 0; lower vllm\.tensor_parallel_size"):
        require_node(AgentConfig(model="tiny"), too_large, may_grow=False)
    require_node(AgentConfig(model="tiny"), too_large, may_grow=True)
    require_node(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=0), may_grow=False)


def test_replica_that_no_node_has_room_for_ends_the_run_after_a_while(monkeypatch: pytest.MonkeyPatch) -> None:
    require_place(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=0))
    monkeypatch.setattr(executor, "START_SECONDS", 0.5)
    with pytest.raises(RunFailedError, match=r"\(0\.5 CPUs and 16 GPUs\) for 0\.5 s; add"):
        require_place(AgentConfig(model="tiny"), PoolConfig(gpus_per_replica=16))
