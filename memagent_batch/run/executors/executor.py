"""Where a job's work is done: in this process, or by Ray. Both write the same tables."""

import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager
from typing import Protocol, TypeVar

import pyarrow as pa

from memagent_batch.config.job import ExecutorKind, JobConfig, RunConfig
from memagent_batch.errors import SettingsError
from memagent_batch.run.executors.ray.metrics import is_exported
from memagent_batch.run.executors.reader import Reader, ReaderTask
from memagent_batch.run.executors.reports import Board

LOCAL_BYTES = 64 << 20
"""Most bytes of files with which `auto` needs no Ray: some seconds of indexing and tokenising in one process."""
LOCAL_FILES = 2000

WorkItem = TypeVar("WorkItem")
Tokenise = Callable[[pa.Table], Iterator[pa.Table]]
"""A batch of planned documents in, tables of `CALL` out."""


class Executor(Protocol):
    """Does the work of a flow."""

    @property
    def num_cpus(self) -> int:
        """CPUs that `map` may use."""

    def session(self, job: JobConfig | None = None, *, reads: bool = True) -> AbstractContextManager[None]:
        """What all other methods need; with a job also a place for its engine, which starts if it `reads`."""

    def map(
        self,
        function: Callable[[WorkItem], pa.Table | Iterable[pa.Table]],
        items: Iterable[WorkItem],
        *,
        is_heavy: bool = False,
    ) -> Iterator[pa.Table]:
        """The tables that a function makes of each item.

        Both must pickle. A call that `is_heavy` takes a whole CPU for long.
        """

    def start_board(self) -> Board:
        """Where the readers of one call of `read` report to."""

    def read(
        self, batches: Iterable[pa.Table], *, tokenise: Tokenise, reader: type[Reader], task: ReaderTask
    ) -> AbstractContextManager[Iterator[pa.Table]]:
        """Gives each row that `tokenise` makes of the batches to a reader, and yields the tables that it returns.

        Each reader has its own engine and reads many rows at once. At the end of the block the engines stop.
        """


def choose_executor(
    kind: ExecutorKind, *, num_files: int, num_bytes: int, most_files: int = LOCAL_FILES, why_ray: str | None = None
) -> Executor:
    """The executor of a job.

    `why_ray`: why the job needs Ray, if it does.

    Raises:
        SettingsError: `local` was asked for, and the job needs Ray.
    """
    if kind is ExecutorKind.AUTO:
        is_small = num_files <= most_files and num_bytes <= LOCAL_BYTES
        kind = ExecutorKind.LOCAL if is_small and not why_ray and not is_on_ray() else ExecutorKind.RAY
    if kind is ExecutorKind.LOCAL and why_ray:
        raise SettingsError(f"executor: local runs one engine in this process, and {why_ray}; set executor to ray")
    if kind is ExecutorKind.LOCAL:  # Ray is imported only where it is used, since that takes a second
        from memagent_batch.run.executors.local import LocalExecutor

        return LocalExecutor()
    from memagent_batch.run.executors.ray.executor import RayExecutor

    return RayExecutor()


def is_on_ray() -> bool:
    """Whether a cluster is named, or this process is part of one."""
    return "RAY_ADDRESS" in os.environ or is_exported()


def why_ray(run: RunConfig) -> str | None:
    """Why a job can't run in one process, if it can't."""
    if run.pool.replicas > 1 or run.pool.max_replicas is not None:
        return "pool asks for several replicas"
    return None
