"""What the readings of a plan take: documents, turns and tokens, by the lengths of the texts and by every budget."""

from collections import Counter
from collections.abc import Sequence
from functools import partial
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.budgets import closing_cost
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.sources import SourceConfig
from memagent_batch.executors.executor import Executor
from memagent_batch.ray_data.tokenise import CountedDocument, count_tokens
from memagent_batch.runs.plan import Plan


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


def document_lengths(
    bundles: list[pa.Table], *, agent: AgentConfig, sources: SourceConfig, executor: Executor
) -> list[CountedDocument]:
    """The documents to read; those that are only closed are left out."""
    bundles = [bundle.filter(pc.greater(pc.list_value_length(bundle["readings"]), 0)) for bundle in bundles]
    bundles = [bundle.combine_chunks() for bundle in bundles if bundle.num_rows]
    counted = executor.map(partial(count_tokens, agent=agent, sources=sources), bundles)
    return [row for table in counted for row in table.to_pylist()]


def reading_price(
    documents: Sequence[CountedDocument], bundles: Sequence[pa.Table], *, agent: AgentConfig
) -> PlanPrice:
    """What the readings to do take."""
    largest = max(documents, key=lambda row: row["num_tokens"], default=None)
    turns = sum(row["num_readings"] * row["num_turns"] for row in documents)
    most = sum(row["num_readings"] * row["num_prompt_tokens"] for row in documents)
    least = sum(
        row["num_readings"]
        * (row["num_prompt_tokens"] if row["min_prompt_tokens"] is None else row["min_prompt_tokens"])
        for row in documents
    )
    slots = agent.policy.question_tokens + agent.policy.memory_tokens
    return {
        "documents_to_read": len(documents),
        "documents_read_before": sum(map(_num_read_before, bundles)),
        "document_tokens": sum(row["num_tokens"] for row in documents),
        "largest_document": {"document_id": largest["document_id"], "tokens": largest["num_tokens"]}
        if largest
        else None,
        "turns": turns,
        "prompt_tokens_at_least": least,
        "prompt_tokens_at_most": most + turns * slots,
        "completion_tokens_at_most": sum(row["num_readings"] * row["num_completion_tokens"] for row in documents),
    }


def closing_price(plan: Plan, bundles: list[pa.Table], *, agent: AgentConfig) -> ClosingPrice:
    """What closing turns take where each is asked, with every budget at its full length."""
    turns = prompt_tokens = completion_tokens = 0
    costs = {
        each: closing_cost(plan.asked.closing.config, agent, value_type=each)
        for each in set(plan.asked.types)
        if plan.asked.closing
    }
    for row, count in _asked_rows(bundles).items() if plan.asked.closing else ():
        cost = costs[plan.asked.types[row]]
        turns += count * cost.num_turns
        prompt_tokens += count * cost.num_prompt_tokens
        completion_tokens += count * cost.num_completion_tokens
    return {
        "closing_turns_at_most": turns,
        "closing_prompt_tokens_at_most": prompt_tokens,
        "closing_completion_tokens_at_most": completion_tokens,
    }


def _num_read_before(bundle: pa.Table) -> int:
    """Documents of a bundle that have a last version."""
    count: int = pc.sum(pc.greater(pc.list_value_length(bundle["last_hashes"]), 0)).as_py()
    return count


def _asked_rows(bundles: list[pa.Table]) -> Counter[int]:
    """How often each row of the question list is to be read or closed."""
    counts: Counter[int] = Counter()
    for bundle in bundles:
        for name in ("readings", "closings"):
            rows = pc.struct_field(pc.list_flatten(bundle[name]), "question").value_counts()
            counts.update({row["values"]: row["counts"] for row in rows.to_pylist()})
    return counts
