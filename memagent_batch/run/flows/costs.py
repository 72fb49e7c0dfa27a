"""What the readings to do cost: tokens and turns, counted in a sample of their documents or in all of them."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypedDict

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.logs import log_step
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.estimate import Estimate, Population, Sample, draw_documents, pending_documents
from memagent_batch.run.executors.executor import Executor
from memagent_batch.run.executors.tokenise import count_tokens

ESTIMATED = ("document_tokens", "turns", "prompt_tokens_at_least", "prompt_tokens_at_most", "completion_tokens_at_most")
"""Sums over the documents to read that a plan shows."""
TASK_DOCUMENTS = 64
"""Documents of a sample that one task counts at least; fewer would decode the same row groups again and again."""
TASKS_PER_CPU = 2


class LargestDocument(TypedDict):
    """The longest document to read."""

    document_id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCosts:
    """What the documents to read cost."""

    num_documents: int
    num_counted: int
    """Documents whose tokens were counted; the others are estimated by them."""
    sums: Mapping[str, Estimate]
    """The sums of `ESTIMATED`, and `shared_tokens`, which all but the first question about a document share."""
    largest: LargestDocument | None


def estimate_costs(
    batches: Sequence[pa.Table], *, job: JobConfig, documents: StoredDocuments, executor: Executor, is_exact: bool
) -> PendingCosts:
    """Counts the tokens of a random sample of the documents to read; of all if they are few, or `is_exact`.

    The largest document by its bytes is always counted.
    """
    population, largest = Population(), pa.table({})
    for rows in pending_documents(batches):
        population.add(rows["num_bytes"].to_numpy())
        first = rows.slice(int(np.argmax(rows["num_bytes"].to_numpy())), 1)
        if not largest.num_rows or first["num_bytes"][0].as_py() > largest["num_bytes"][0].as_py():
            largest = first
    num_documents, num_drawn = population.size, int(population.allocate().sum())
    is_exact = is_exact or num_drawn == num_documents
    log_step(
        f"counting the tokens of {quantity(num_documents, 'document')}"
        if is_exact
        else f"counting the tokens of {num_drawn:,} of {num_documents:,} documents, drawn at random by size"
    )
    count = partial(count_tokens, agent=job.agent, documents=documents)
    work: Iterable[pa.Table] = (rows.combine_chunks() for rows in pending_documents(batches))
    if not is_exact:
        sample = pa.concat_tables(draw_documents(pending_documents(batches), population, seed=job.limit_seed))
        work = _tasks(sample, num_tasks=TASKS_PER_CPU * executor.num_cpus)
    sample_sums = Sample((*ESTIMATED, "shared_tokens"))
    for counted in executor.map(count, work):
        sample_sums.add(_with_costs(counted, agent=job.agent))
    longest = [row for table in executor.map(count, [largest] if num_documents else []) for row in table.to_pylist()]
    return PendingCosts(
        num_documents=num_documents,
        num_counted=sample_sums.num_documents,
        sums=sample_sums.estimate(population),
        largest={"document_id": longest[0]["document_id"], "tokens": longest[0]["num_tokens"]} if longest else None,
    )


def _with_costs(counted: pa.Table, *, agent: AgentConfig) -> pa.Table:
    """Adds to the counts of documents (`COUNTED`) what all readings of each of them take."""
    readings, turns = counted["num_readings"], pc.multiply(counted["num_readings"], counted["num_turns"])
    fewest = pc.coalesce(counted["min_prompt_tokens"], counted["num_prompt_tokens"])
    memory = pc.multiply(turns, agent.policy.question_tokens + agent.policy.memory_tokens)
    costs = {
        "document_tokens": counted["num_tokens"],
        "turns": turns,
        "prompt_tokens_at_least": pc.multiply(readings, fewest),
        "prompt_tokens_at_most": pc.add(pc.multiply(readings, counted["num_prompt_tokens"]), memory),
        "completion_tokens_at_most": pc.multiply(readings, counted["num_completion_tokens"]),
        "shared_tokens": pc.multiply(pc.subtract(readings, 1), counted["num_tokens"]),
    }
    return pa.table({"num_bytes": counted["num_bytes"], **costs})


def _tasks(sample: pa.Table, *, num_tasks: int) -> Iterator[pa.Table]:
    """The drawn documents in the order of their files, in about equal tables."""
    ordered = sample.sort_by([("file", "ascending"), ("row_group", "ascending")]).combine_chunks()
    rows = max(TASK_DOCUMENTS, -(-ordered.num_rows // num_tasks))
    yield from (ordered.slice(start, rows) for start in range(0, ordered.num_rows, rows))
