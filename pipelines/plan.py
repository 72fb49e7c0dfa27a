"""Read and plan: which documents and questions there are, refused here where they can't be read."""

from collections import Counter
from collections.abc import Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc
import ray

from memagent_batch.budgets import closing_costs
from memagent_batch.config import AgentConfig, JobConfig, SourceConfig
from memagent_batch.domain.escalation import Doubt
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
from memagent_batch.inputs.questions import inline_type, missing_documents
from memagent_batch.inputs.shards import Shard
from memagent_batch.log.index import TurnIndex, scan_log
from memagent_batch.log.schemas import OUTCOME_LOG
from memagent_batch.logs import step
from memagent_batch.plugins import make_policy
from memagent_batch.ray_data.session import CPU_SHARE, ray_session
from memagent_batch.ray_data.tokenise import CountedDocument, count_tokens, index_shards
from memagent_batch.reading.closed import Closing
from memagent_batch.reading.escalation import Escalation
from memagent_batch.reading.question_lengths import require_questions_fit
from memagent_batch.runs.escalation import doubtful_readings
from memagent_batch.runs.manifest import read_manifest
from memagent_batch.runs.plan import Plan, Work, count_pending
from memagent_batch.runs.results import result_questions
from memagent_batch.wiring import make_documents, make_output, make_prompt_tokens
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


class PlanPrice(ClosingPrice):
    """Documents, turns and tokens of the readings to do."""

    documents_to_read: int
    document_tokens: int
    largest_document: LargestDocument | None
    turns: int
    prompt_tokens_at_least: int
    prompt_tokens_at_most: int
    completion_tokens_at_most: int


class SecondLookPrice(TypedDict):
    """What the second reader takes, if each reading that the first has not answered yet turns out doubtful."""

    doubtful: int
    """Readings that the log shows to be doubtful."""
    readings_to_do: int
    """Of these, those that are left to read again."""
    readings_at_most: int
    """Those, and all that the first reader has still to read or close."""
    turns_at_most: int
    prompt_tokens_at_most: int
    completion_tokens_at_most: int
    closing_turns_at_most: int
    closing_prompt_tokens_at_most: int
    closing_completion_tokens_at_most: int
    last_share: float | None
    """Share of the readings of the last finished run that were doubtful; None where none was looked at."""


class SecondLookPlan(TypedDict, total=False):
    """There where doubtful readings are read again."""

    second_look: SecondLookPrice


class PlanSummary(PlanCounts, PlanPrice, SecondLookPlan):
    """What `memagent plan` prints."""


def plan_checked(checked: Checked) -> PlanSummary:
    """What `answer` would read and cost; writes nothing."""
    job, output = checked.job, make_output(checked.job)
    with ray_session():
        plan = make_plan(job, inputs=checked.inputs, closing=checked.closing)
        with step("counting tokens"):
            index = scan_plan(output, plan, reader_fingerprint=checked.reader.fingerprint)
            bundles = list(plan.pending(index, retry_failed=job.retry_failed))
            price = _price(plan, bundles, agent=job.agent, sources=job)
            again = _second_look(plan, index, checked)
            return {**summarise_plan(plan, index, bundles), **price, **again}


def find_doubtful(
    plan: Plan, index: TurnIndex, escalation: Escalation, *, job: JobConfig, not_read: pa.Table
) -> dict[Work, Doubt]:
    """The readings that the second reader reads again; see `doubtful_readings`."""
    columns = [not_read[name].to_pylist() for name in ("document_hash", "question_hash", "sample")]
    return doubtful_readings(
        plan,
        index,
        output=make_output(job),
        doubts=escalation.doubts,
        extraction=job.agent.extraction,
        not_read=frozenset(zip(*columns, strict=True)),
    )


def scan_plan(output: Location, plan: Plan, *, reader_fingerprint: str) -> TurnIndex:
    """What the log holds of a plan."""
    return scan_log(
        output, reader_fingerprint=reader_fingerprint, closings=plan.closings, closing_turns=plan.closing_turns
    )


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
    questions, index = inputs.questions, index_documents(inputs.found.shards, sources=job)
    require_readable(index)
    require_reported(index, questions=questions, settings=job.input)
    require_unique_ids(index, documents=make_documents(job)[0])
    missing = missing_documents(questions, index)
    plan = Plan(
        with_missing(index, missing),
        questions,
        samples=job.agent.sampling.samples,
        as_lists=make_policy(job.agent).reads_lists,
        inline_type=inline_type(job.input),
        closing=closing,
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


def index_documents(shards: Sequence[Shard], *, sources: SourceConfig) -> pa.Table:
    """The index of all shards, made in parallel; a table of `index_schema`.

    Raises:
        InputError: a file, column or row can't be used, or there is no document; names it.
    """
    num_files = sum(len(shard.paths) for shard in shards)
    with step(f"indexing the documents: {num_files:,} file{'s' if num_files != 1 else ''}"):
        rows = ray.data.from_items([{"shard": shard} for shard in shards], override_num_blocks=len(shards)).map_batches(
            index_shards, fn_kwargs={"sources": sources}, batch_size=1, num_cpus=CPU_SHARE
        )
        schema = index_schema(sources.input)
        tables = [table.cast(schema) for table in rows.iter_batches(batch_size=None, batch_format="pyarrow")]
    index = pa.concat_tables([schema.empty_table(), *tables]).combine_chunks()
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


def _second_look(plan: Plan, index: TurnIndex, checked: Checked) -> SecondLookPlan:
    """What the second reader takes at most, where there is one."""
    escalation, job, output = checked.escalation, checked.job, make_output(checked.job)
    if escalation is None:
        return {}
    second = plan.for_second_reader(closing=escalation.closing)
    looked = scan_plan(output, second, reader_fingerprint=escalation.reader.fingerprint)
    doubtful = find_doubtful(plan, index, escalation, job=job, not_read=OUTCOME_LOG.empty_table())
    again = {*doubtful, *plan.open_work(index, retry_failed=job.retry_failed)}
    bundles = list(second.pending(looked, retry_failed=job.retry_failed, only=again))
    price = _price(second, bundles, agent=escalation.agent, sources=job)
    left = list(second.pending(looked, retry_failed=job.retry_failed, only=doubtful))
    manifest = read_manifest(output)
    last = manifest.get("second_look") if manifest else None
    return {
        "second_look": {
            "doubtful": len(doubtful),
            "readings_to_do": count_pending(left).readings,
            "readings_at_most": count_pending(bundles).readings,
            "turns_at_most": price["turns"],
            "prompt_tokens_at_most": price["prompt_tokens_at_most"],
            "completion_tokens_at_most": price["completion_tokens_at_most"],
            "closing_turns_at_most": price["closing_turns_at_most"],
            "closing_prompt_tokens_at_most": price["closing_prompt_tokens_at_most"],
            "closing_completion_tokens_at_most": price["closing_completion_tokens_at_most"],
            "last_share": last["share"] if last else None,
        }
    }


def _price(plan: Plan, bundles: list[pa.Table], *, agent: AgentConfig, sources: SourceConfig) -> PlanPrice:
    """What the readings to do take. Tokenises the documents once."""
    documents = _lengths(bundles, agent=agent, sources=sources)
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
        "document_tokens": sum(row["num_tokens"] for row in documents),
        "largest_document": {"document_id": largest["document_id"], "tokens": largest["num_tokens"]}
        if largest
        else None,
        "turns": turns,
        "prompt_tokens_at_least": least,
        "prompt_tokens_at_most": most + turns * slots,
        "completion_tokens_at_most": sum(times * cost.num_completion_tokens for times, cost in costs),
        **_closing_price(plan, bundles, agent=agent),
    }


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
    whole = policy.cost(prompts, num_tokens=row["num_tokens"])
    answer = policy.cost(prompts, num_tokens=0)
    num_passes = min(plan.num_passes(row["document_id"]), row["num_readings"])
    return [(num_passes, whole), (row["num_readings"] - num_passes, answer)]
