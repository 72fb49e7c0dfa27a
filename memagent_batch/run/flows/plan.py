"""Ingest and plan: which documents and questions there are, refused here where they can't be read."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from tempfile import TemporaryDirectory
from typing import TypedDict
from uuid import uuid4

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.document_index import (
    SampledDocuments,
    documents_named,
    log_documents,
    require_readable,
    sample_documents,
    warn_of_bad_files,
    warn_of_missing,
    with_missing,
)
from memagent_batch.data.documents.questions import missing_documents
from memagent_batch.data.store.delta import shared_tables
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import LogIndex, scan_log
from memagent_batch.errors import InputError
from memagent_batch.loop.models.shipped import warn_of_untaught
from memagent_batch.plugins import engine_settings
from memagent_batch.run.budgets import follow_up_cost, require_questions_fit
from memagent_batch.run.claim import SCRATCH_FOLDER
from memagent_batch.run.executors.executor import Executor
from memagent_batch.run.flows.check import CheckedJob
from memagent_batch.run.flows.costs import ESTIMATED, LargestDocument, PendingCosts, count_batches, estimate_costs
from memagent_batch.run.flows.ingest import next_run
from memagent_batch.run.ingest import Ingested, ingest
from memagent_batch.run.plan import Plan, PlanCounts, count_pending
from memagent_batch.run.results import result_questions
from memagent_batch.run.run import writer_of
from memagent_batch.run.second_pass import select_again
from memagent_batch.run.wiring import make_output, make_prompt_tokens, resolve_model
from memagent_batch.types import Cost

_NO_BOUND_DOCUMENT = (
    "questions: none of the document ids that they are bound to ({num}, such as {first!r}) is among the {documents} "
    "documents; correct them, or add documents"
)
_NO_DOCUMENT_AGAIN = (
    "again_where: none of the {num:,} documents that it takes, such as {first!r}, is among the {documents:,} "
    "documents; give the documents that again_from was read of"
)


class PlanSummary(TypedDict):
    """What `memagent plan` prints: counts of the whole run, and what the readings to do take.

    Readings are done, failed, to do, or of a text that another document has too, which is read once for all. Tokens and
    turns of many documents are estimated from `documents_counted` of them; `intervals` has the 95 % intervals then.
    `turns` and tokens count those too that the log may hold, since only reading shows which. `prompt_tokens_shared` are
    those of chunks that an engine with a prefix cache computes once for all questions about them.
    """

    documents: int
    missing_documents: int
    unreadable_documents: int
    questions: int
    readings: int
    readings_done: int
    readings_failed: int
    readings_to_do: int
    readings_of_equal_texts: int
    readings_to_close: int
    documents_to_read: int
    documents_counted: int
    document_tokens: int
    largest_document: LargestDocument | None
    turns: int
    prompt_tokens_at_least: int
    prompt_tokens_at_most: int
    prompt_tokens_shared: int
    completion_tokens_at_most: int
    intervals: Mapping[str, tuple[int, int]]
    follow_up_turns_at_most: int
    follow_up_prompt_tokens_at_most: int
    follow_up_completion_tokens_at_most: int
    batches: tuple[int, int] | None
    """About how many batches the engine sends: usually, and if every chunk has news in every round; None if it sends
    each turn alone."""
    batch_discount: float | None
    """Share of the prices that is saved since turns go in batches, else None."""
    cost: tuple[float, float] | None
    """At least and at most, by the prices of the job, with `intervals` where tokens are estimated; None without."""
    advice: str
    """A setting to change before the job begins, or nothing."""


@shared_tables()
def plan_checked(checked: CheckedJob, *, is_exact: bool = False) -> PlanSummary:
    """Says what `answer` would read and cost; nothing of it stays. `is_exact`: counts the tokens of all documents."""
    job, output, executor = checked.job, make_output(checked.job), checked.executor
    with executor.session(job, reads=False), _scratch_folder(output) as scratch:
        plan = make_plan(checked, ingest_sources(checked, scratch=scratch))
        index = scan_plan(output, plan, fingerprint=checked.reader.fingerprint, executor=executor)
        batches = list(plan.pending(index, retry_failed=job.retry_failed))
        costs = estimate_costs(batches, job=job, documents=plan.stored, executor=executor, is_exact=is_exact)
        counts = plan.counts(index, retry_failed=job.retry_failed)
        return summarise_plan(plan, counts, batches, costs=costs, job=job)


def scan_plan(
    output: Location,
    plan: Plan,
    *,
    fingerprint: str,
    executor: Executor,
    run_id: str = "",
    before: LogIndex | None = None,
) -> LogIndex:
    """What the log holds of a plan; with a run, only its files are read, and added to what it held before it."""
    return scan_log(
        output,
        fingerprint=fingerprint,
        begins=f"{run_id}-" if run_id else "",
        before=before,
        mapped=executor.map,
        follow_up_readings=plan.asked.follow_up_readings,
        follow_up_turns=plan.asked.follow_up_turns,
    )


@contextmanager
def _scratch_folder(output: Location) -> Iterator[Location]:
    """A folder for the documents of a plan, which goes at the end: on this machine, or in the store of the output."""
    if output.is_local:
        with TemporaryDirectory(prefix="memagent-") as local:
            yield Location(uri=local)
        return
    folder = output / SCRATCH_FOLDER / uuid4().hex
    try:
        yield folder
    finally:
        folder.delete()


def ingest_sources(checked: CheckedJob, *, scratch: Location | None = None) -> Ingested:
    """Brings the table `documents` up to date, inside a session of the run's executor.

    With `scratch`, new documents go there, and nothing is committed.

    Raises:
        InputError: a source can't be read, or two documents have one id; names the place.
    """
    run = next_run(make_output(checked.job), writer=writer_of(checked.job))
    return ingest(checked.inputs.sources, executor=checked.executor, run=run, scratch=scratch)


def make_plan(checked: CheckedJob, ingested: Ingested) -> Plan:
    """Joins the documents with the questions; opens no source and reads no text.

    Raises:
        InputError: a column or row can't be used; names it.
    """
    job, questions, follow_ups = checked.job, checked.inputs.questions, checked.follow_ups
    documents = ingested.documents.read_index(job.input)
    index = documents.taken
    known = index if documents.outside is None else pa.concat_tables([index, documents.outside])
    _require_documents(index, job)
    is_slice = job.input.slice is not None  # which may have none of the documents that are asked for
    bound = questions["document_id"].drop_null()
    is_all_bound = len(bound) == questions.num_rows and not is_slice
    missing = missing_documents(bound, known, refusal=_NO_BOUND_DOCUMENT if is_all_bound else None)
    sample = sample_documents(index, limit=job.limit, seed=job.limit_seed)
    elsewhere = missing_documents(checked.inputs.other_documents, known)  # for another slice to say
    again = select_again(job, files=checked.inputs.file_names)
    if again is not None:
        document_ids = pc.unique(again.readings["document_id"])
        sample = documents_named(index, document_ids)
        missing = missing_documents(document_ids, known, refusal=None if is_slice else _NO_DOCUMENT_AGAIN)
    plan = Plan(
        sample.taken if job.limit else with_missing(sample.taken, missing),
        questions,
        samples=job.agent.sampling.samples,
        follow_ups=follow_ups,
        outside=_all_outside(documents, sample, missing=elsewhere),
        stored=ingested.documents,
        lake_versions=ingested.versions,
        again=again,
    )
    require_questions_fit(plan.asked.table, job.agent)
    if follow_ups is not None:
        result_questions(plan.asked.table)
    log_documents(index, num_sources=checked.inputs.sources.num_sources, left_out=ingested.left_out)
    warn_of_bad_files(index)
    warn_of_missing(missing)
    if engine_settings(job.agent).has_weights:
        warn_of_untaught(job.agent.model, plan.asked.table["question"].to_pylist())
    return plan


def summarise_plan(
    plan: Plan, counts: PlanCounts, batches: Sequence[pa.Table], *, costs: PendingCosts, job: JobConfig
) -> PlanSummary:
    """Puts the counts of plan and log beside what the readings to do take where every budget is full."""
    pending = count_pending(batches)
    errors = plan.documents["error"]
    num_missing = len(errors) - plan.num_documents
    sums = costs.sums
    is_estimate = costs.num_counted < costs.num_documents
    follow_ups, follow_up_steps = _follow_up_cost(plan, batches, agent=job.agent)
    limits = engine_settings(job.agent).batch_limits
    num_batches = None
    if limits is not None:
        num_batches = count_batches(
            costs, follow_ups, num_readings=pending.readings, steps=follow_up_steps, pool=job.pool, limits=limits
        )
    begins_with_chunk = make_prompt_tokens(job.agent).update.begins_with_chunk
    at_least = job.cost(
        prompt_tokens=sums["prompt_tokens_at_least"].low,
        cached_tokens=sums["shared_tokens"].low * begins_with_chunk,
        completion_tokens=0,
    )
    at_most = job.cost(
        prompt_tokens=sums["prompt_tokens_at_most"].high + follow_ups.num_prompt_tokens,
        completion_tokens=sums["completion_tokens_at_most"].high + follow_ups.num_completion_tokens,
    )
    return {
        "documents": plan.num_documents,
        "missing_documents": num_missing,
        "unreadable_documents": len(errors) - errors.null_count - num_missing,
        "questions": plan.asked.table.num_rows,
        "readings": counts.asked,
        "readings_done": counts.done,
        "readings_failed": counts.failed,
        "readings_to_do": pending.readings - pending.follow_up_readings,
        "readings_of_equal_texts": counts.waiting - (pending.readings - pending.follow_up_readings),
        "readings_to_close": pending.follow_up_readings,
        "documents_to_read": costs.num_documents,
        "documents_counted": costs.num_counted,
        "document_tokens": sums["document_tokens"].value,
        "largest_document": costs.largest,
        "turns": sums["turns"].value,
        "prompt_tokens_at_least": sums["prompt_tokens_at_least"].value,
        "prompt_tokens_at_most": sums["prompt_tokens_at_most"].value,
        "prompt_tokens_shared": sums["shared_tokens"].value * begins_with_chunk,
        "completion_tokens_at_most": sums["completion_tokens_at_most"].value,
        "intervals": {name: (sums[name].low, sums[name].high) for name in ESTIMATED if is_estimate},
        "follow_up_turns_at_most": follow_ups.num_turns,
        "follow_up_prompt_tokens_at_most": follow_ups.num_prompt_tokens,
        "follow_up_completion_tokens_at_most": follow_ups.num_completion_tokens,
        "batches": num_batches,
        "batch_discount": None if num_batches is None else job.prices.batch_discount,
        "cost": None if at_least is None or at_most is None else (at_least, at_most),
        "advice": _advice(job.agent, costs, begins_with_chunk=begins_with_chunk) if not counts.done else "",
    }


def _advice(agent: AgentConfig, costs: PendingCosts, *, begins_with_chunk: bool) -> str:
    engine, sums = engine_settings(agent), costs.sums
    return engine.advice(
        model=resolve_model(agent.model) if engine.has_weights else agent.model,
        num_prompt_tokens=sums["prompt_tokens_at_least"].value - sums["shared_tokens"].value * begins_with_chunk,
        most_completion_tokens=sums["completion_tokens_at_most"].value,
    )


def _require_documents(index: pa.Table, job: JobConfig) -> None:
    if not index.num_rows:
        part = f" of slice {job.input.slice}: divide the documents into fewer slices" if job.input.slice else ""
        raise InputError(f"documents: the files at {', '.join(job.documents)} hold no document{part}")
    require_readable(index)


def _all_outside(documents: SampledDocuments, sample: SampledDocuments, *, missing: list[str]) -> pa.Table | None:
    """The documents that the run leaves as they are: outside its scope, missing ones among them, or its sample."""
    outside = [each for each in (documents.outside, sample.outside) if each is not None]
    if missing:
        outside.append(with_missing(sample.taken.slice(0, 0), missing))
    return pa.concat_tables(outside) if outside else None


def _follow_up_cost(plan: Plan, batches: Sequence[pa.Table], *, agent: AgentConfig) -> tuple[Cost, int]:
    """What the turns after the answers of all readings to do and to close take at most, and the most after one."""
    counts: Counter[int] = Counter()
    for batch in batches if plan.asked.follow_ups else ():
        for name in ("readings", "follow_ups"):
            rows = pc.struct_field(pc.list_flatten(batch[name]), "question").value_counts()
            counts.update({row["values"]: row["counts"] for row in rows.to_pylist()})
    config = plan.asked.follow_ups.config if plan.asked.follow_ups else FollowUpConfig()
    types = {plan.asked.types[row] for row in counts}
    costs = {each: follow_up_cost(config, agent, value_type=each) for each in types}
    asked = [(costs[plan.asked.types[row]], count) for row, count in counts.items()]
    total = Cost(
        num_chunks=0,
        num_turns=sum(cost.num_turns * count for cost, count in asked),
        num_prompt_tokens=sum(cost.num_prompt_tokens * count for cost, count in asked),
        num_completion_tokens=sum(cost.num_completion_tokens * count for cost, count in asked),
    )
    return total, max((cost.num_turns for cost in costs.values()), default=0)
