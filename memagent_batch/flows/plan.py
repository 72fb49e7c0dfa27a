"""Read and plan: which documents and questions there are, refused here where they can't be read."""

from collections.abc import Iterator, Sequence
from functools import partial
from typing import TypedDict

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.errors import InputError
from memagent_batch.evaluation.needles.taught import warn_of_untaught
from memagent_batch.executors.executor import Executor
from memagent_batch.files.location import Location
from memagent_batch.flows.check import Checked, Inputs, read_inputs
from memagent_batch.flows.price import (
    ClosingPrice,
    PlanPrice,
    closing_price,
    document_lengths,
    reading_price,
)
from memagent_batch.inputs.document_index import (
    IndexedTable,
    documents_named,
    index_schema,
    log_documents,
    require_readable,
    require_reported,
    require_unique_ids,
    reuse_index,
    sample_documents,
    warn_of_bad_files,
    warn_of_missing,
    with_missing,
)
from memagent_batch.inputs.documents import index_shard
from memagent_batch.inputs.questions import inline_type, missing_again, missing_documents
from memagent_batch.inputs.rows import group_rows
from memagent_batch.inputs.shards import Shard
from memagent_batch.log.index import TurnIndex, scan_log
from memagent_batch.logs import step
from memagent_batch.reading.closing import Closing
from memagent_batch.reading.question_lengths import require_questions_fit
from memagent_batch.runs.again import select_again
from memagent_batch.runs.history.history import PastRun, last_hashes, last_run, read_kept_index
from memagent_batch.runs.planning.plan import Plan
from memagent_batch.runs.planning.work import count_pending
from memagent_batch.runs.tables.results import result_questions
from memagent_batch.wiring import make_documents, make_output


class PlanCounts(TypedDict):
    """Counts of the whole run, and the readings of it that are left."""

    documents: int
    missing_documents: int
    unreadable_documents: int
    questions: int
    readings: int
    readings_done: int
    readings_failed: int
    readings_to_do: int
    readings_to_close: int


class PlanSummary(PlanCounts, PlanPrice, ClosingPrice):
    """What `memagent plan` prints."""


def plan_checked(checked: Checked) -> PlanSummary:
    """What `answer` would read and cost; writes nothing."""
    job, output, executor = checked.job, make_output(checked.job), checked.executor
    with executor.session(job, reads=False):
        plan = make_plan(job, inputs=checked.inputs, executor=executor, closing=checked.closing)
        with step("counting tokens"):
            index = scan_plan(output, plan, reader_fingerprint=checked.reader.fingerprint)
            before = last_run(output)
            held_for = last_versions(output, before, plan, index=index, agent=job.agent)
            bundles = list(plan.pending(index, retry_failed=job.retry_failed, last_hashes=held_for))
            documents = document_lengths(bundles, agent=job.agent, sources=plan.pinned(job), executor=executor)
            return {
                **summarise_plan(plan, index, bundles),
                **reading_price(documents, bundles, agent=job.agent),
                **closing_price(plan, bundles, agent=job.agent),
            }


def scan_plan(output: Location, plan: Plan, *, reader_fingerprint: str) -> TurnIndex:
    """What the log holds of a plan."""
    return scan_log(
        output,
        reader_fingerprint=reader_fingerprint,
        closings=plan.asked.closings,
        closing_turns=plan.asked.closing_turns,
    )


def last_versions(
    output: Location,
    before: PastRun | None,
    plan: Plan,
    *,
    index: TurnIndex,
    agent: AgentConfig,
) -> dict[str, list[str]]:
    """Hashes of the last versions of changed documents, whose turns may be taken, by document_id; the latest first.

    Sampled readings take none: their draws come from seeds of the text that is read, and so a reading is the same
    whatever was read before it.
    """
    if agent.sampling.temperature:
        return {}
    return last_hashes(output, before, plan.documents, index=index)


def make_plan(
    job: JobConfig,
    *,
    executor: Executor,
    inputs: Inputs | None = None,
    closing: Closing | None = None,
) -> Plan:
    """Indexes the documents in parallel, and joins them with the questions.

    Args:
        job: All knobs.
        executor: What indexes, inside its session.
        inputs: What `read_inputs` found, where that is known.
        closing: What is asked after each answer; None for nothing, whatever types the questions have.

    Raises:
        InputError: a file, column or row can't be used; names it.
    """
    inputs = inputs or read_inputs(job)
    questions, table = inputs.questions, IndexedTable.found(inputs.found, settings=job.input)
    index = _checked_index(job, inputs, table=table, executor=executor)
    missing = missing_documents(questions, index)
    sample = sample_documents(index, limit=job.limit, seed=job.limit_seed)
    again = select_again(job, output=make_output(job))
    if again is not None:
        sample = documents_named(index, again.questions)
        missing = missing_again(again.questions, index)
    plan = Plan(
        sample.taken if job.limit else with_missing(sample.taken, missing),
        questions,
        samples=job.agent.sampling.samples,
        inline_type=inline_type(job.input),
        closing=closing,
        table=table,
        outside=sample.outside,
        places=inputs.found.places,
        again=again,
    )
    if not plan.asked.table.num_rows:
        raise InputError("no question is asked: the question list is empty, and no document brings one")
    require_questions_fit(plan.asked.table, job.agent)
    if closing is not None:
        result_questions(plan.asked.table)
    log_documents(index, inputs.found)
    warn_of_bad_files(index)
    warn_of_missing(missing)
    warn_of_untaught(plan.asked.table["question"].to_pylist(), agent=job.agent)
    return plan


def _checked_index(job: JobConfig, inputs: Inputs, *, table: IndexedTable | None, executor: Executor) -> pa.Table:
    """The index of the documents, where a run can use it.

    Raises:
        InputError: a file, column or row can't be used, or two documents have one id; names it.
    """
    kept = read_kept_index(make_output(job)) if table is not None and table.files else None
    index = index_documents(inputs.found.shards, sources=job, executor=executor, table=table, kept=kept)
    require_readable(index)
    require_reported(index, questions=inputs.questions, settings=job.input)
    require_unique_ids(index, documents=make_documents(job)[0])
    return index


def index_documents(
    shards: Sequence[Shard],
    *,
    sources: SourceConfig,
    executor: Executor,
    table: IndexedTable | None = None,
    kept: pa.Table | None = None,
) -> pa.Table:
    """The index of all shards, made in parallel; a table of `index_schema`.

    Args:
        shards: The files.
        sources: How to read them.
        executor: What indexes.
        table: The table of a lake that they are, if they are one.
        kept: The index that the last run kept of it: what it has of the same files is not made again.

    Raises:
        InputError: a file, column or row can't be used, or there is no document; names it.
    """
    schema = index_schema(sources.input)
    tables = [schema.empty_table()]
    if table is not None and kept is not None and kept.schema.equals(schema):
        reused, shards = reuse_index(kept, table, shards, settings=sources.input)
        tables = [reused.cast(schema)]
    num_files = len({path for shard in shards for path in shard.paths})
    with step(f"indexing the documents: {num_files:,} file{'s' if num_files != 1 else ''}"):
        tables += [indexed.cast(schema) for indexed in _indexed_shards(shards, sources=sources, executor=executor)]
    index = pa.concat_tables(tables).combine_chunks()
    if table is not None or sources.input.order_columns:  # the same order, however much of it was made again
        index = index.sort_by([(name, "ascending") for name in ("path", "start", "stop", "document_id")])
    if not index.num_rows:
        raise InputError(f"documents: the files at {', '.join(sources.documents)} hold no document")
    return index


def _indexed_shards(shards: Sequence[Shard], *, sources: SourceConfig, executor: Executor) -> Iterator[pa.Table]:
    """The index of all shards; of paged tables, the rows of a document become one."""
    index = partial(index_shard, settings=sources.input, storage_options=sources.storage_options)
    rows = executor.map(index, shards)
    if not sources.input.order_columns:
        return rows
    group = partial(group_rows, documents=make_documents(sources)[0], settings=sources.input)
    return executor.group(group, rows, key="document_id")


def summarise_plan(plan: Plan, index: TurnIndex, bundles: list[pa.Table]) -> PlanCounts:
    """Counts the readings in plan and log."""
    counts, pending = plan.counts(index), count_pending(bundles)
    errors = plan.documents["error"]
    num_missing = len(errors) - plan.num_documents
    return {
        "documents": plan.num_documents,
        "missing_documents": num_missing,
        "unreadable_documents": len(errors) - errors.null_count - num_missing,
        "questions": plan.asked.table.num_rows,
        "readings": counts.asked,
        "readings_done": counts.done,
        "readings_failed": counts.failed,
        "readings_to_do": pending.readings - pending.closings,
        "readings_to_close": pending.closings,
    }
