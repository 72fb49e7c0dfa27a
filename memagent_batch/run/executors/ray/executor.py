"""The executor of a cluster: Ray Data runs the tasks, and an actor pool the readers.

`mapped` and `read_calls` are stages of a program's own pipeline too.
"""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from itertools import chain, islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import ray
from ray.data import ActorPoolStrategy, Dataset
from ray.util import placement_group, remove_placement_group

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.errors import ReplicaLostError, RunFailedError, SettingsError
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.plugins import engine_settings
from memagent_batch.run.executors.executor import Tokenise, WorkItem
from memagent_batch.run.executors.ray.board import RayBoard, start_board
from memagent_batch.run.executors.ray.replicas import Replica, RunNotice
from memagent_batch.run.executors.ray.session import CPU_SHARE, START_SECONDS, own_error, ray_session
from memagent_batch.run.executors.reader import Reader, ReaderTask
from memagent_batch.run.executors.reports import Board

log = logging.getLogger(__name__)

MAX_PASSES = 3
"""Passes over the documents of replicas that were given up; what is lost in the last one is for the next run."""


class RayExecutor:
    """Does the work on the cluster of RAY_ADDRESS, or on its own Ray; see `Executor`."""

    def __init__(self) -> None:
        self._may_grow = True

    @property
    def num_cpus(self) -> int:
        """CPUs of the cluster."""
        return int(ray.cluster_resources().get("CPU", 1))

    @contextmanager
    def session(self, job: JobConfig | None = None, *, reads: bool = True) -> Iterator[None]:
        """Connects to the cluster.

        Raises:
            SettingsError: no node has room for a replica, and none can join. A plan may be made on a machine without
                GPUs.
        """
        with ray_session() as is_own:
            self._may_grow = not is_own
            if job is not None:
                is_elsewhere = not reads and not ray.cluster_resources().get("GPU")
                require_node(job.agent, job.pool, may_grow=is_elsewhere or not is_own)
            yield

    def map(
        self,
        function: Callable[[WorkItem], pa.Table | Iterable[pa.Table]],
        items: Iterable[WorkItem],
        *,
        is_heavy: bool = False,
    ) -> Iterator[pa.Table]:
        """One task for each item; a single light one is done here, since Ray's first task takes 3 s to start."""
        left, num_cpus = iter(items), 1 if is_heavy else CPU_SHARE
        given = list(islice(left, 2))
        if not given or (len(given) == 1 and not is_heavy):
            yield from _each({"item": given}, function=function)
        elif isinstance(given[0], pa.Table):  # of many, the driver holds one at a time
            blocks = [ray.put(table) for table in chain(given, left)]
            yield from _blocks(mapped(ray.data.from_arrow_refs(blocks), function, num_cpus=num_cpus))
        else:
            given += left
            rows = ray.data.from_items([{"item": item} for item in given], override_num_blocks=len(given))
            each = rows.map_batches(partial(_each, function=function), batch_size=1, num_cpus=num_cpus)
            yield from _blocks(each)

    def start_board(self) -> RayBoard:
        """A board as an actor."""
        return start_board()

    @contextmanager
    def read(
        self, batches: Iterable[pa.Table], *, tokenise: Tokenise, reader: type[Reader], task: ReaderTask
    ) -> Iterator[Iterator[pa.Table]]:
        """One engine an actor; Ray replaces an actor that dies with its engine."""
        yield _read_all(list(batches), tokenise=tokenise, reader=reader, task=task, may_grow=self._may_grow)


def _read_all(
    batches: list[pa.Table], *, tokenise: Tokenise, reader: type[Reader], task: ReaderTask, may_grow: bool
) -> Iterator[pa.Table]:
    """Reads all documents, once the cluster has room for a replica; those of replicas that were given up once more.

    Yields rows of `ENDED`.
    """
    require_place(task.agent, task.pool)
    may_grow = may_grow and not replica_gpus(task.agent, task.pool)  # such replicas are as many as there are GPUs
    cpus = ray.cluster_resources().get("CPU", 0.0)
    task = replace(task, pool=with_room_for_tasks(task.pool, cpus=cpus, may_grow=may_grow))
    for number in range(MAX_PASSES):
        lost = set[str]()
        planned = ray.data.from_arrow(batches)
        if task.is_bounded:
            planned = mapped(planned, partial(_unless_stopped, board=task.board))
        for ended in _blocks(read_calls(mapped(planned, tokenise), reader, task=task)):
            if number < MAX_PASSES - 1:
                lost |= _lost_documents(ended)
            yield ended.filter(pc.invert(pc.is_in(ended["document_id"], pa.array(lost, pa.string()))))
        if not lost:
            return
        log.warning(f"the others read {quantity(len(lost), 'document')} of replicas that were given up")
        task = replace(task, is_repeated=True)
        batches = [each.filter(pc.is_in(each["document_id"], pa.array(lost, pa.string()))) for each in batches]
        batches = [each for each in batches if each.num_rows]


def _lost_documents(ended: pa.Table) -> set[str]:
    """Documents of which a reading needs another replica; a table of `ENDED` has all readings of its documents."""
    if ended["not_read"].null_count == ended.num_rows:
        return set()
    is_lost = pc.equal(pc.struct_field(ended["not_read"], "error_type"), ReplicaLostError.__name__)
    return set(ended.filter(is_lost)["document_id"].to_pylist())


def mapped(data: Dataset, function: Callable[[Any], Any], *, num_cpus: float = CPU_SHARE) -> Dataset:
    """The blocks that a function makes of each block, in CPU tasks."""
    return data.map_batches(function, batch_size=None, batch_format="pyarrow", num_cpus=num_cpus)


def _each(
    batch: Mapping[str, Iterable[Any]], *, function: Callable[[Any], pa.Table | Iterable[pa.Table]]
) -> Iterator[pa.Table]:
    for item in batch["item"]:
        made = function(item)
        yield from [made] if isinstance(made, pa.Table) else made


def _blocks(data: Dataset) -> Iterator[pa.Table]:
    try:
        yield from data.iter_batches(batch_size=None, batch_format="pyarrow")
    except ray.exceptions.RayError as error:
        raise own_error(error) from error


def _unless_stopped(batch: pa.Table, *, board: Board) -> pa.Table:
    """Ray Data UDF: the documents of a batch; none once the run has met a bound."""
    return batch if board.may_start_turns() else batch.slice(0, 0)


def read_calls(calls: Dataset, reader: type[Reader], *, task: ReaderTask) -> Dataset:
    """The readings of rows of `CALL`, as the rows that `reader` returns; one engine an actor."""
    calls.context.wait_for_min_actors_s = 0  # replicas wait for one another, and not for one that can't start
    others = calls.context.custom_execution_callback_classes
    calls.context.custom_execution_callback_classes = [*others, partial(RunNotice, task.board)]
    return calls.repartition(target_num_rows_per_block=1).map_batches(
        Replica,
        fn_constructor_args=(reader, task),
        batch_size=1,
        batch_format="pyarrow",
        compute=actor_pool(task.pool),
        num_cpus=task.pool.cpus_per_replica,
        num_gpus=replica_gpus(task.agent, task.pool),
    )


def actor_pool(pool: PoolConfig) -> ActorPoolStrategy:
    """A pool whose actors keep their readings going while finished ones wait for the log.

    Twice as many documents as readings are inside an actor, so that those that wait for a flush hold no place. What is
    given to an actor stays there, so none are queued behind these: at the end one actor would work off its queue while
    another has nothing left. Only a pool that may grow has as many queued as inside, since it grows only where queued
    over running is at least 1.75 (Ray Data 2.60).
    """
    inside = 2 * pool.readings_in_flight
    most = pool.most_replicas
    return ActorPoolStrategy(
        min_size=pool.replicas,
        max_size=most,
        max_tasks_in_flight_per_actor=2 * inside if most > pool.replicas else inside,
        max_concurrent_calls_per_actor=inside,
    )


def replica_gpus(agent: AgentConfig, pool: PoolConfig) -> float:
    """GPUs of one actor: as set, or what the engine takes.

    The cluster is not asked: one that scales from zero shows no GPU before it is asked for one.
    """
    return engine_settings(agent).num_gpus if pool.gpus_per_replica is None else pool.gpus_per_replica


def with_room_for_tasks(pool: PoolConfig, *, cpus: float, may_grow: bool) -> PoolConfig:
    """The pool, with fewer CPUs for each replica if all replicas together would leave too few for other tasks.

    Without those, no document is tokenised, and the run waits for ever.

    Args:
        pool: The pool that the job asks for.
        cpus: CPUs of the cluster.
        may_grow: Whether nodes may join the cluster. If so, the pool stays as it is, and a warning is logged.
    """
    replicas = pool.most_replicas
    if replicas * pool.cpus_per_replica <= cpus - CPU_SHARE:
        return pool
    each = f"pool: {quantity(replicas, 'replica')}, each with pool.cpus_per_replica = {pool.cpus_per_replica:g}"
    taken = f"{each}: too few of {cpus:g} CPUs are left for tokenising"
    if may_grow:
        log.warning(f"{taken}; unless more nodes join, nothing is read: lower pool.cpus_per_replica")
        return pool
    share = int(max(cpus - 2 * CPU_SHARE, cpus / 2) / replicas * 10_000) / 10_000  # Ray counts in such steps
    log.warning(f"{taken}; {share:g} are reserved for each replica")
    return pool.model_copy(update={"cpus_per_replica": share})


def require_node(agent: AgentConfig, pool: PoolConfig, *, may_grow: bool) -> None:
    """Checks that a node has as many GPUs as a replica takes; warns if such a node may still join the cluster.

    Raises:
        SettingsError: none has, and none can join; says what to lower.
    """
    needed = replica_gpus(agent, pool)
    most = max((node["Resources"].get("GPU", 0) for node in ray.nodes() if node["Alive"]), default=0)
    if needed <= most:
        return
    message = f"a replica takes {needed:g} GPUs of one node, and the largest node has {most:g}"
    if not may_grow:
        raise SettingsError(
            f"pool: {message}; lower vllm.tensor_parallel_size or vllm.pipeline_parallel_size (their product is what a "
            "replica takes) or pool.gpus_per_replica, or run on a larger machine"
        )
    log.warning(f"{message}; the run waits up to {START_SECONDS:g} s for a larger one to join the cluster")


def require_place(agent: AgentConfig, pool: PoolConfig) -> None:
    """Waits until the cluster has room for one replica; a cluster that may grow adds a node for it.

    Raises:
        RunFailedError: it has none for `START_SECONDS`.
    """
    needs = {"CPU": pool.cpus_per_replica, "GPU": replica_gpus(agent, pool)}
    needs = {name: number for name, number in needs.items() if number}
    if not needs:
        return
    group = placement_group([needs])
    try:
        if not group.wait(timeout_seconds=START_SECONDS):
            wanted = " and ".join(f"{number:g} {name}s" for name, number in needs.items())
            raise RunFailedError(
                f"no node of the cluster had room for a replica ({wanted}) for {START_SECONDS:g} s; add one, or "
                "lower pool.cpus_per_replica, pool.gpus_per_replica or vllm.tensor_parallel_size. The same command "
                "goes on from the log"
            )
    finally:
        remove_placement_group(group)
