"""The stages of Ray Data that a job and a program of the user's have in common: tokenise, then read in actors."""

import logging
from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import ray
from ray.data import ActorPoolStrategy, Dataset
from ray.util import placement_group, remove_placement_group

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.errors import RunFailedError, SettingsError
from memagent_batch.executors.actor import ReaderTask
from memagent_batch.executors.progress.board import Board
from memagent_batch.executors.ray.replicas import Replica, RunNotice
from memagent_batch.executors.ray.session import CPU_SHARE, START_SECONDS
from memagent_batch.executors.reader import Reader
from memagent_batch.executors.tokenise import RowColumns, tokenise, tokenise_rows
from memagent_batch.plugins import engine_settings

log = logging.getLogger(__name__)


def tokenised_plan(
    bundles: Iterable[pa.Table],
    *,
    agent: AgentConfig,
    sources: SourceConfig,
    splits: bool = False,
    bounded_by: Board | None = None,
) -> Dataset:
    """Documents of a plan as rows of `CALL`; their texts are fetched from where the plan found them.

    `bounded_by`: the board that says when the run has met a bound, after which none is fetched; None without bounds.
    """
    planned = ray.data.from_arrow(list(bundles))
    if bounded_by is not None:
        is_left_out = partial(_unless_stopped, board=bounded_by)
        planned = planned.map_batches(is_left_out, batch_size=None, batch_format="pyarrow", num_cpus=CPU_SHARE)
    return planned.map_batches(
        tokenise,
        fn_kwargs={"agent": agent, "sources": sources, "splits": splits},
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=CPU_SHARE,
    )


def _unless_stopped(bundle: pa.Table, *, board: Board) -> pa.Table:
    """Ray Data UDF: the documents of a bundle; none once the run has met a bound."""
    return bundle if board.may_start_turns() else bundle.slice(0, 0)


def tokenised_rows(
    dataset: Dataset,
    *,
    agent: AgentConfig,
    columns: RowColumns,
    asked: Mapping[str | None, Sequence[int]],
    splits: bool = False,
) -> Dataset:
    """Rows of a dataset, which hold their texts, as rows of `CALL`; see `tokenise_rows`."""
    return dataset.map_batches(
        tokenise_rows,
        fn_kwargs={
            "agent": agent,
            "columns": columns,
            "asked": asked,
            "samples": agent.sampling.samples,
            "splits": splits,
        },
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=CPU_SHARE,
    )


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
    most = pool.max_replicas or pool.replicas
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
