"""The main job: read -> plan -> tokenise -> read documents -> write. Every reading asked for gets exactly one row."""

from functools import partial
from typing import Any

import pyarrow as pa
import ray

from memagent_batch.errors import SupersededError
from memagent_batch.ray_data.leaving import OrderlyLeave
from memagent_batch.ray_data.metrics import RunMetrics
from memagent_batch.ray_data.pool import actor_pool, replica_gpus
from memagent_batch.ray_data.progress import ProgressLine, start_board
from memagent_batch.ray_data.reader import Reader, ReaderTask
from memagent_batch.ray_data.session import CPU_SHARE, ray_session
from memagent_batch.ray_data.tokenise import tokenise
from memagent_batch.ray_data.write import write_tables
from memagent_batch.settings import Settings
from memagent_batch.storage.calls import group_documents
from memagent_batch.storage.claim import clear_tables, remove_tables, require_claim
from memagent_batch.storage.history import keep_last_run, recorded_plan
from memagent_batch.storage.manifest import claim_output
from memagent_batch.storage.plan import Plan, count_pending
from memagent_batch.storage.turn_index import TurnIndex, scan_log
from memagent_batch.wiring import identify_reader, make_output
from pipelines.close import Run, begin_run, close_run
from pipelines.plan import make_plan


def answer(settings: Settings) -> dict[str, Any]:
    """Reads every document for its questions and returns the manifest.

    Raises:
        UsageError: the user's mistake, found before an engine starts.
        CountsError: the tables do not hold one row for each reading.
        SupersededError: a newer attempt has claimed the output.
    """
    output = make_output(settings)
    claim_output(output, settings)
    reader = identify_reader(settings)
    try:
        with ray_session():
            plan = make_plan(settings)
            metrics = RunMetrics(settings)
            run = begin_run(output, settings, reader=reader, plan=plan)
            before = keep_last_run(output)
            metrics.start()
            index = scan_log(output, reader_fingerprint=reader.fingerprint)
            bundles = list(plan.pending(index, retry_failed=settings.retry_failed))
            read_documents(bundles, settings=settings, run=run, metrics=metrics)
            index = scan_log(output, reader_fingerprint=reader.fingerprint)
            clear_tables(output, run_id=run.run_id)
            reports = write(plan, index, run=run)
            manifest = close_run(run, reports=reports, recorded=recorded_plan(plan, index), before=before)
            metrics.close()
            return manifest
    except SupersededError:
        remove_tables(output, run_id=run.run_id)
        raise


def read_documents(bundles: list[pa.Table], *, settings: Settings, run: Run, metrics: RunMetrics) -> None:
    """Reads what the log does not answer yet, in this order. Every reading is in the log when this returns."""
    if not bundles:
        return
    calls = group_documents(bundles, readings_in_flight=settings.pool.replicas * settings.pool.readings_in_flight)
    board = start_board()
    task = ReaderTask(
        settings=settings,
        run_id=run.run_id,
        reader_fingerprint=run.reader.fingerprint,
        board=board,
    )
    rows = (
        ray.data.from_arrow(list(calls))
        .map_batches(
            tokenise, fn_kwargs={"settings": settings}, batch_size=None, batch_format="pyarrow", num_cpus=CPU_SHARE
        )
        .repartition(target_num_rows_per_block=1)
        .map_batches(
            Reader,
            fn_constructor_args=(task,),
            batch_size=1,
            batch_format="pyarrow",
            compute=actor_pool(settings.pool),
            num_cpus=settings.pool.cpus_per_replica,
            num_gpus=replica_gpus(settings),
        )
    )
    pending = count_pending(bundles)
    with (
        ProgressLine(board, metrics=metrics, run_id=run.run_id, asked=run.asked, pending=pending),
        OrderlyLeave(board, require_claim=partial(require_claim, run.output, run_id=run.run_id)),
    ):
        for _ in rows.iter_batches(batch_size=None, batch_format="pyarrow"):
            pass


def write(plan: Plan, index: TurnIndex, *, run: Run) -> list[dict[str, Any]]:
    """Projects plan and log into the tables; returns a report for each part."""
    rows = ray.data.from_arrow(run.parts(plan, index)).map_batches(
        partial(write_tables, projection=run.projection),  # Ray Data reports the values of `fn_kwargs`, secrets too
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=CPU_SHARE,
    )
    return [row for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow") for row in batch.to_pylist()]
