"""Size of the actor pool: how many engines, what each takes of the cluster, how much work waits at each."""

import logging

import ray
from ray.data import ActorPoolStrategy
from ray.util import placement_group, remove_placement_group

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.errors import RunFailedError, SettingsError
from memagent_batch.plugins import engine_settings
from memagent_batch.ray_data.starts import START_SECONDS

log = logging.getLogger(__name__)


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
