"""The executor of a cluster: Ray Data runs the tasks, and an actor pool the readers."""

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

import pyarrow as pa
import ray
from ray.data import Dataset

from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.executors.actor import ReaderTask
from memagent_batch.executors.ray.board import RayBoard, start_board
from memagent_batch.executors.ray.session import CPU_SHARE, own_error, ray_session
from memagent_batch.executors.ray.stages import read_calls, require_node, require_place, tokenised_plan
from memagent_batch.executors.reader import Reader

MAX_GROUPS = 256
"""Most parts that rows are grouped in, each by one task: 40,000 rows of ten million."""

Item = TypeVar("Item")


class RayExecutor:
    """Does the work on the cluster of RAY_ADDRESS, or on its own Ray; see `Executor`."""

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
            if job is not None:
                is_elsewhere = not reads and not ray.cluster_resources().get("GPU")
                require_node(job.agent, job.pool, may_grow=is_elsewhere or not is_own)
            yield

    def map(
        self,
        function: Callable[[Item], pa.Table | Iterable[pa.Table]],
        items: Iterable[Item],
        *,
        is_heavy: bool = False,
    ) -> Iterator[pa.Table]:
        """One task for each item."""
        given, num_cpus = list(items), 1 if is_heavy else CPU_SHARE
        if not given:
            return
        if isinstance(given[0], pa.Table):
            data = _mapped(ray.data.from_arrow(given), function, num_cpus=num_cpus)
        else:
            rows = ray.data.from_items([{"item": item} for item in given], override_num_blocks=len(given))
            data = rows.map_batches(partial(_each, function=function), batch_size=1, num_cpus=num_cpus)
        yield from _tables(data)

    def group(
        self, function: Callable[[pa.Table], Iterable[pa.Table]], tables: Iterable[pa.Table], *, key: str
    ) -> Iterator[pa.Table]:
        """By the hash of the key, in several tasks."""
        given = list(tables)
        if given:
            grouped = ray.data.from_arrow(given).repartition(min(len(given), MAX_GROUPS), keys=[key])
            yield from _tables(_mapped(grouped, function))

    def start_board(self) -> RayBoard:
        """A board as an actor."""
        return start_board()

    @contextmanager
    def read(
        self, bundles: Iterable[pa.Table], *, task: ReaderTask, sources: SourceConfig, splits: bool
    ) -> Iterator[Iterator[pa.Table]]:
        """One engine an actor; Ray replaces an actor that dies with its engine."""
        bounded_by = task.board if task.is_bounded else None
        calls = tokenised_plan(bundles, agent=task.agent, sources=sources, splits=splits, bounded_by=bounded_by)
        yield _placed(read_calls(calls, Reader, task=task), task)


def _placed(rows: Dataset, task: ReaderTask) -> Iterator[pa.Table]:
    """The rows, once the cluster has room for a replica."""
    require_place(task.agent, task.pool)
    yield from _tables(rows)


def _mapped(data: Dataset, function: Callable[[Any], Any], *, num_cpus: float = CPU_SHARE) -> Dataset:
    return data.map_batches(function, batch_size=None, batch_format="pyarrow", num_cpus=num_cpus)


def _each(
    batch: dict[str, Iterable[Any]], *, function: Callable[[Any], pa.Table | Iterable[pa.Table]]
) -> Iterator[pa.Table]:
    for item in batch["item"]:
        made = function(item)
        yield from [made] if isinstance(made, pa.Table) else made


def _tables(data: Dataset) -> Iterator[pa.Table]:
    """The blocks of a dataset, as they are made.

    Raises:
        MemagentError: what a task raised, with its type.
    """
    try:
        yield from data.iter_batches(batch_size=None, batch_format="pyarrow")
    except ray.exceptions.RayError as error:
        raise own_error(error) from error
