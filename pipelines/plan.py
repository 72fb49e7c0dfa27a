"""Read and plan: which documents and questions there are, refused here where they can't be read."""

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import ray

from memagent_batch.budgets import closing_costs
from memagent_batch.config import AgentConfig, JobConfig, SourceConfig
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.domain.readings import Cost, Policy
from memagent_batch.errors import InputError
from memagent_batch.evaluation.needles.taught import warn_of_untaught
from memagent_batch.files.location import Location
from memagent_batch.inputs.documents import (
    index_schema,
    require_readable,
    require_reported,
    require_unique_ids,
    with_missing,
)
from memagent_batch.inputs.findings import log_documents, warn_of_bad_files, warn_of_missing
from memagent_batch.inputs.lake.known import IndexedTable, known_files, known_rows, shards_without
from memagent_batch.inputs.questions import inline_type, missing_documents
from memagent_batch.inputs.samples import sample_documents
from memagent_batch.inputs.shards import Shard
from memagent_batch.log.index import TurnIndex, scan_log
from memagent_batch.logs import step
from memagent_batch.plugins import make_policy
from memagent_batch.ray_data.index import indexed_shards
from memagent_batch.ray_data.session import CPU_SHARE, ray_session
from memagent_batch.ray_data.tokenise import CountedDocument, count_tokens
from memagent_batch.reading.closed import Closing
from memagent_batch.reading.question_lengths import require_questions_fit
from memagent_batch.runs.history import PastRun, last_hashes, last_run, read_kept_index
from memagent_batch.runs.plan import Plan, count_pending
from memagent_batch.runs.question_lists import AskedDocument, QuestionLists, compare_ways
from memagent_batch.runs.results import result_questions
from memagent_batch.wiring import make_documents, make_output, make_prompt_tokens, make_tokenizer
from pipelines.check import Checked, Inputs, read_inputs


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


class LargestDocument(TypedDict):
    """The longest document to read."""

    document_id: str
    tokens: int


class ClosingPrice(TypedDict):
    """Turns and tokens that are asked after the answers of the readings to do and to close, at most."""

    closing_turns_at_most: int
    closing_prompt_tokens_at_most: int
    closing_completion_tokens_at_most: int


class PlanPrice(TypedDict):
    """Documents, turns and tokens of the readings to do.

    `documents_read_before` have changed since the last finished run. Turns of their last versions are taken where
    prompts are the same; `turns` and tokens count them all, since only reading shows which.
    """

    documents_to_read: int
    documents_read_before: int
    document_tokens: int
    largest_document: LargestDocument | None
    turns: int
    prompt_tokens_at_least: int
    prompt_tokens_at_most: int
    completion_tokens_at_most: int


class PlanSummary(PlanCounts, PlanPrice, ClosingPrice):
    """What `memagent plan` prints."""

    question_lists: QuestionLists | None


def plan_checked(checked: Checked) -> PlanSummary:
    """What `answer` would read and cost; writes nothing."""
    job, output = checked.job, make_output(checked.job)
    with ray_session():
        plan = make_plan(job, inputs=checked.inputs, closing=checked.closing)
        with step("counting tokens"):
            index = scan_plan(output, plan, reader_fingerprint=checked.reader.fingerprint)
            held_for = last_versions(last_run(output), plan, index=index, agent=job.agent)
            bundles = list(plan.pending(index, retry_failed=job.retry_failed, last_hashes=held_for))
            documents = _lengths(bundles, agent=job.agent, sources=job)
            return {
                **summarise_plan(plan, index, bundles),
                **_price(plan, documents, bundles, agent=job.agent),
                **_closing_price(plan, bundles, agent=job.agent),
                "question_lists": compare_ways(_asked_documents(plan, documents, agent=job.agent), job.agent),
            }


def scan_plan(output: Location, plan: Plan, *, reader_fingerprint: str) -> TurnIndex:
    """What the log holds of a plan."""
    return scan_log(
        output, reader_fingerprint=reader_fingerprint, closings=plan.closings, closing_turns=plan.closing_turns
    )


def last_versions(before: PastRun | None, plan: Plan, *, index: TurnIndex, agent: AgentConfig) -> dict[str, str]:
    """Hashes of the last versions of changed documents, whose turns may be taken, by document_id.

    Sampled readings take none: their draws come from seeds of the text that is read, and so a reading is the same
    whatever was read before it.
    """
    return last_hashes(before, plan.documents, index=index) if agent.sampling.temperature == 0 else {}


def make_plan(job: JobConfig, *, inputs: Inputs | None = None, closing: Closing | None = None) -> Plan:
    """Indexes the documents in parallel, and joins them with the questions.

    Args:
        job: All knobs.
        inputs: What `read_inputs` found, where that is known.
        closing: What is asked after each answer; None for nothing, whatever types the questions have.

    Raises:
        InputError: a file, column or row can't be used; names it.
    """
    inputs = inputs or read_inputs(job)
    found = inputs.found
    table = IndexedTable.found(found, settings=job.input)
    kept = read_kept_index(make_output(job)) if table is not None and table.files else None
    questions, index = inputs.questions, index_documents(found.shards, sources=job, table=table, kept=kept)
    require_readable(index)
    require_reported(index, questions=questions, settings=job.input)
    require_unique_ids(index, documents=make_documents(job)[0])
    missing = missing_documents(questions, index)
    sample = sample_documents(index, limit=job.limit, seed=job.limit_seed)
    plan = Plan(
        sample.taken if job.limit else with_missing(index, missing),
        questions,
        samples=job.agent.sampling.samples,
        as_lists=make_policy(job.agent).reads_lists,
        inline_type=inline_type(job.input),
        closing=closing,
        table=table,
        outside=sample.outside,
    )
    if not plan.questions.num_rows:
        raise InputError("no question is asked: the question list is empty, and no document brings one")
    require_questions_fit(plan.questions, job.agent)
    if closing is not None:
        result_questions(plan.questions)
    log_documents(index, inputs.found)
    warn_of_bad_files(index)
    warn_of_missing(missing)
    warn_of_untaught(plan.questions["question"].to_pylist(), agent=job.agent)
    return plan


def index_documents(
    shards: Sequence[Shard], *, sources: SourceConfig, table: IndexedTable | None = None, kept: pa.Table | None = None
) -> pa.Table:
    """The index of all shards, made in parallel; a table of `index_schema`.

    Args:
        shards: The files.
        sources: How to read them.
        table: The table of a lake that they are, if they are one.
        kept: The index that the last run kept of it: what it has of the same files is not made again.

    Raises:
        InputError: a file, column or row can't be used, or there is no document; names it.
    """
    schema = index_schema(sources.input)
    tables = [schema.empty_table()]
    if table is not None and kept is not None and kept.schema.equals(schema):
        known = known_files(kept, table, settings=sources.input)
        tables, shards = [known_rows(kept, known).cast(schema)], shards_without(shards, known)
    num_files = len({path for shard in shards for path in shard.paths})
    with step(f"indexing the documents: {num_files:,} file{'s' if num_files != 1 else ''}"):
        tables += [indexed.cast(schema) for indexed in indexed_shards(shards, sources=sources)]
    index = pa.concat_tables(tables).combine_chunks()
    if table is not None or sources.input.order_columns:  # the same order, however much of it was made again
        index = index.sort_by([(name, "ascending") for name in ("path", "start", "stop", "document_id")])
    if not index.num_rows:
        raise InputError(f"documents: the files at {', '.join(sources.documents)} hold no document")
    return index


def summarise_plan(plan: Plan, index: TurnIndex, bundles: list[pa.Table]) -> PlanCounts:
    """Counts the readings in plan and log."""
    counts, pending = plan.counts(index), count_pending(bundles)
    errors = plan.documents["error"]
    num_missing = len(errors) - plan.num_documents
    return {
        "documents": plan.num_documents,
        "missing_documents": num_missing,
        "unreadable_documents": len(errors) - errors.null_count - num_missing,
        "questions": plan.questions.num_rows,
        "readings": counts.asked,
        "readings_done": counts.done,
        "readings_failed": counts.failed,
        "readings_to_do": pending.readings - pending.closings,
        "readings_to_close": pending.closings,
    }


def _price(
    plan: Plan, documents: Sequence[CountedDocument], bundles: Sequence[pa.Table], *, agent: AgentConfig
) -> PlanPrice:
    """What the readings to do take."""
    prompts, policy = make_prompt_tokens(agent), make_policy(agent)
    largest = max(documents, key=lambda row: row["num_tokens"], default=None)
    costs = [times for row in documents for times in _costs(plan, row, policy=policy, prompts=prompts)]
    turns = sum(times * cost.num_turns for times, cost in costs)
    most = sum(times * cost.num_prompt_tokens for times, cost in costs)
    least = sum(
        times * (cost.num_prompt_tokens if cost.min_prompt_tokens is None else cost.min_prompt_tokens)
        for times, cost in costs
    )
    slots = agent.policy.question_tokens + agent.policy.memory_tokens
    return {
        "documents_to_read": len(documents),
        "documents_read_before": sum(len(bundle["last_hash"].drop_null()) for bundle in bundles),
        "document_tokens": sum(row["num_tokens"] for row in documents),
        "largest_document": {"document_id": largest["document_id"], "tokens": largest["num_tokens"]}
        if largest
        else None,
        "turns": turns,
        "prompt_tokens_at_least": least,
        "prompt_tokens_at_most": most + turns * slots,
        "completion_tokens_at_most": sum(times * cost.num_completion_tokens for times, cost in costs),
    }


def _asked_documents(plan: Plan, documents: Sequence[CountedDocument], *, agent: AgentConfig) -> list[AskedDocument]:
    """The documents to read with the lengths of all their questions."""
    if all(len(plan.question_rows(row["document_id"])) < 2 for row in documents):
        return []
    tokenizer = make_tokenizer(agent)
    lengths = [len(tokenizer.encode(text)) for text in plan.questions["question"].to_pylist()]
    bound = plan.questions["document_id"].is_valid().to_pylist()
    asked = []
    for row in documents:
        rows = plan.question_rows(row["document_id"])
        asked.append(
            AskedDocument(
                num_tokens=row["num_tokens"],
                questions=[lengths[each] for each in rows] * plan.samples,
                num_lists=len({bound[each] for each in rows}) * plan.samples,
            )
        )
    return asked


def _closing_price(plan: Plan, bundles: list[pa.Table], *, agent: AgentConfig) -> ClosingPrice:
    """What closing turns take where each is asked, with every budget at its full length."""
    turns = prompt_tokens = completion_tokens = 0
    costs = {
        each: closing_costs(plan.closing.turns.plan, agent, value_type=each) if plan.closing else ()
        for each in set(plan.types)
    }
    for row, count in _asked_rows(bundles).items() if plan.closing else ():
        for cost in costs[plan.types[row]]:
            turns += count
            prompt_tokens += count * cost.num_prompt_tokens
            completion_tokens += count * cost.num_completion_tokens
    return {
        "closing_turns_at_most": turns,
        "closing_prompt_tokens_at_most": prompt_tokens,
        "closing_completion_tokens_at_most": completion_tokens,
    }


def _asked_rows(bundles: list[pa.Table]) -> Counter[int]:
    """How often each row of the question list is to be read or closed."""
    counts: Counter[int] = Counter()
    for bundle in bundles:
        for name in ("readings", "closings"):
            rows = pc.struct_field(pc.list_flatten(bundle[name]), "question").value_counts()
            counts.update({row["values"]: row["counts"] for row in rows.to_pylist()})
    return counts


def _lengths(bundles: list[pa.Table], *, agent: AgentConfig, sources: SourceConfig) -> list[CountedDocument]:
    """The documents to read; those that are only closed are left out."""
    bundles = [bundle.filter(pc.greater(pc.list_value_length(bundle["readings"]), 0)) for bundle in bundles]
    bundles = [bundle.combine_chunks() for bundle in bundles if bundle.num_rows]
    if not bundles:
        return []
    rows = ray.data.from_arrow(bundles).map_batches(
        count_tokens,
        fn_kwargs={"agent": agent, "sources": sources},
        batch_size=None,
        batch_format="pyarrow",
        num_cpus=CPU_SHARE,
    )
    return [row for batch in rows.iter_batches(batch_size=None, batch_format="pyarrow") for row in batch.to_pylist()]


def _costs(plan: Plan, row: CountedDocument, *, policy: Policy, prompts: PromptTokens) -> list[tuple[int, Cost]]:
    """What the readings of a document cost, and how many cost that: after a shared pass the others only answer."""
    whole = Cost(
        num_chunks=row["num_chunks"],
        num_turns=row["num_turns"],
        num_prompt_tokens=row["num_prompt_tokens"],
        num_completion_tokens=row["num_completion_tokens"],
        min_prompt_tokens=row["min_prompt_tokens"],
    )
    answer = policy.cost(prompts, num_tokens=0)
    num_passes = min(plan.num_passes(row["document_id"]), row["num_readings"])
    return [(num_passes, whole), (row["num_readings"] - num_passes, answer)]
