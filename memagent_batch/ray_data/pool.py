"""Size of the actor pool: how many engines, what each takes of the cluster, how much work waits at each."""

import ray
from ray.data import ActorPoolStrategy

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.plugins import engine_config


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
    """GPUs of one actor: as set, or what the engine takes where the cluster has GPUs."""
    if pool.gpus_per_replica is not None:
        return pool.gpus_per_replica
    num_gpus = engine_config(agent).resources().num_gpus
    return num_gpus if num_gpus and ray.cluster_resources().get("GPU") else 0
