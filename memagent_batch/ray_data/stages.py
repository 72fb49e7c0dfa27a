"""The stages of Ray Data that a job and a program of the user's have in common: tokenise, then read."""

from collections.abc import Iterable, Mapping, Sequence
from functools import partial

import pyarrow as pa
import ray
from ray.data import Dataset

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.answers import AnswerReader
from memagent_batch.ray_data.pool import actor_pool, replica_gpus
from memagent_batch.ray_data.progress.board import Board
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.replicas import Replica
from memagent_batch.ray_data.session import CPU_SHARE
from memagent_batch.ray_data.tokenise import RowColumns, tokenise, tokenise_rows


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


def read_calls(
    calls: Dataset, reader: type[Reader] | type[AnswerReader], *, task: ReaderTask, pool: PoolConfig
) -> Dataset:
    """The readings of rows of `CALL`, as the rows that `reader` returns; one engine an actor."""
    starts_first = issubclass(reader, Reader)  # an `AnswerReader` needs no engine for what the log holds
    if starts_first:
        calls.context.wait_for_min_actors_s = 0  # replicas wait for one another, and not for one that can't start
    return calls.repartition(target_num_rows_per_block=1).map_batches(
        Replica if starts_first else reader,
        fn_constructor_args=(reader, task) if starts_first else (task,),
        batch_size=1,
        batch_format="pyarrow",
        compute=actor_pool(pool),
        num_cpus=pool.cpus_per_replica,
        num_gpus=replica_gpus(task.agent, pool),
    )
