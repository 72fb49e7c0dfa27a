"""What the readings to do cost: tokens and turns, counted in a sample of their documents or in all of them.

A sample is drawn at random from strata of documents of about equal size, so that few documents say much of all.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, TypedDict

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.data.documents.stored import StoredDocuments
from memagent_batch.logs import log_step
from memagent_batch.loop.engines.engine import BatchLimits
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.executors.executor import Executor
from memagent_batch.run.executors.tokenise import count_tokens
from memagent_batch.types import Cost

ESTIMATED = ("document_tokens", "turns", "prompt_tokens_at_least", "prompt_tokens_at_most", "completion_tokens_at_most")
"""Sums over the documents to read that a plan shows."""
SAMPLE_DOCUMENTS = 1_000
"""Documents of a sample. More are counted only where each stratum needs its least."""
SAMPLE_BYTES = 16 << 20
"""Text of a sample, about: some four million tokens, which take seconds."""
LEAST_OF_STRATUM = 3
"""Documents drawn of each stratum: with fewer nobody knows how much they differ."""
STRATA_PER_DOUBLING = 2
"""Strata between a size and its double."""
MAX_STRATA = 128
SUMMED = (*ESTIMATED, "shared_tokens", "steps", "steps_at_most")
"""All sums over the documents to read."""
NORMAL_95 = 1.96
"""Standard errors on either side of an estimate in a 95 % interval."""
TASK_DOCUMENTS = 64
"""Documents of a sample that one task counts at least; fewer would decode the same row groups again and again."""
TASKS_PER_CPU = 2

Integers = npt.NDArray[np.int64]


class LargestDocument(TypedDict):
    """The longest document to read."""

    document_id: str
    tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A sum over all documents, and its 95 % interval, which has no width if all were counted."""

    value: int
    low: int
    high: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PendingCosts:
    """What the documents to read cost."""

    num_documents: int
    num_bytes: int
    """Their text, bytes of UTF-8."""
    num_counted: int
    """Documents whose tokens were counted; the others are estimated by them."""
    sums: Mapping[str, Estimate]
    """The sums of `SUMMED`: `shared_tokens` are those that all but the first question about a document share, `steps`
    are turns in a row (`Cost.num_steps`)."""
    largest: LargestDocument | None
    most_steps: tuple[int, int]
    """Most turns in a row of one reading: usually, and at most."""


def estimate_costs(
    batches: Sequence[pa.Table], *, job: JobConfig, documents: StoredDocuments, executor: Executor, is_exact: bool
) -> PendingCosts:
    """Counts the tokens of a random sample of the documents to read; of all if they are few, or `is_exact`.

    The largest document by its bytes is always counted.
    """
    none = np.empty(0, np.int64)
    sizes = np.concatenate([none, *(rows["num_bytes"].to_numpy() for rows in _pending_documents(batches))])
    is_drawn = np.ones(len(sizes), bool) if is_exact else draw_documents(sizes, seed=job.limit_seed)
    num_documents, num_drawn = len(sizes), int(is_drawn.sum())
    work: Iterable[pa.Table] = (rows.combine_chunks() for rows in _pending_documents(batches))
    if num_drawn == num_documents:
        log_step(f"counting the tokens of {quantity(num_documents, 'document')}")
    else:
        log_step(f"counting the tokens of {num_drawn:,} of {num_documents:,} documents, drawn at random by size")
        work = _tasks(_rows_at(batches, np.flatnonzero(is_drawn)), num_tasks=TASKS_PER_CPU * executor.num_cpus)
    count = partial(count_tokens, agent=job.agent, documents=documents)
    sums, most_steps = SampleSums(SUMMED), (0, 0)
    for counted in executor.map(count, work):
        sums.add(_with_costs(counted, agent=job.agent))
        most_steps = _most_steps(counted, most_steps)
    largest = [_rows_at(batches, np.array([sizes.argmax()]))] if num_documents else []
    rows: list[dict[str, Any]] = []
    for counted in executor.map(count, largest):
        rows += counted.to_pylist()
        most_steps = _most_steps(counted, most_steps)
    return PendingCosts(
        num_documents=num_documents,
        num_bytes=int(sizes.sum()),
        num_counted=num_drawn,
        sums=sums.estimate(sizes),
        largest={"document_id": rows[0]["document_id"], "tokens": rows[0]["num_tokens"]} if rows else None,
        most_steps=most_steps,
    )


def count_batches(
    costs: PendingCosts, follow_ups: Cost, *, num_readings: int, steps: int, pool: PoolConfig, limits: BatchLimits
) -> tuple[int, int]:
    """Returns about how many batches the readings to do take, if all that wait are sent together: usually, and at most.

    Without a limit a batch has a turn of every reading, so that the longest reading decides. What exceeds a limit, of
    the pool or of a batch, is sent in further ones.

    `follow_ups`: what follows the answers of all readings, those to close among them; `steps`: the most turns that
    follow one answer.
    """
    replicas, sums = pool.most_replicas, costs.sums
    waves = math.ceil(num_readings / (replicas * pool.readings_in_flight))
    batch_turns = min(limits.num_requests, pool.turns_in_flight or limits.num_requests)
    bytes_a_token = costs.num_bytes / max(1, sums["document_tokens"].value)

    def count(most_steps: int, num_steps: int, num_turns: float, prompt_tokens: int) -> int:
        counts = (
            replicas * (most_steps + steps),
            replicas * waves * (num_steps + follow_ups.num_turns) / max(1, num_readings),
            (num_turns + follow_ups.num_turns) / batch_turns,
            prompt_tokens * bytes_a_token / limits.num_bytes,
        )
        return math.ceil(max(counts))

    steps_at_most, turns_at_most = sums["steps_at_most"].value, sums["turns"].value
    usual_turns = turns_at_most * sums["steps"].value / max(1, steps_at_most)
    usual = count(costs.most_steps[0], sums["steps"].value, usual_turns, sums["prompt_tokens_at_least"].value)
    return usual, count(costs.most_steps[1], steps_at_most, turns_at_most, sums["prompt_tokens_at_most"].value)


def _most_steps(counted: pa.Table, before: tuple[int, int]) -> tuple[int, int]:
    """The most turns in a row of these documents and of those before: usually, and at most."""
    columns = (_steps(counted, name) for name in ("num_steps", "max_steps"))
    usual, most = (max(pc.max(column).as_py() or 0, longest) for column, longest in zip(columns, before, strict=True))
    return usual, most


def _steps(counted: pa.Table, name: str) -> pa.ChunkedArray:
    """Turns in a row of each document; all of them if the policy names no fewer."""
    return pc.coalesce(counted[name], counted["num_turns"])


def find_strata(sizes: Integers) -> Integers:
    """Returns the stratum of each document by its size in bytes."""
    strata = np.floor(STRATA_PER_DOUBLING * np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.asarray(np.minimum(strata, MAX_STRATA - 1))


def draw_documents(sizes: Integers, *, seed: int) -> npt.NDArray[np.bool_]:
    """Returns which documents of these sizes are counted: all of few, else of each stratum by its share of the text.

    Large documents weigh most in what a run costs, and differ most.
    """
    total_bytes, is_drawn = int(sizes.sum()), np.zeros(len(sizes), bool)
    if len(sizes) <= SAMPLE_DOCUMENTS and total_bytes <= SAMPLE_BYTES:
        return ~is_drawn
    random, strata = np.random.default_rng(seed), find_strata(sizes)
    for stratum in np.unique(strata):
        rows = np.flatnonzero(strata == stratum)
        num_bytes = int(sizes[rows].sum())
        share = num_bytes / max(1, total_bytes)
        affordable = share * SAMPLE_BYTES / max(1.0, num_bytes / len(rows))
        num_wanted = max(LEAST_OF_STRATUM, int(np.ceil(min(share * SAMPLE_DOCUMENTS, affordable))))
        is_drawn[random.choice(rows, min(num_wanted, len(rows)), replace=False)] = True
    return is_drawn


class SampleSums:
    """Sums of some quantities over the drawn documents, by stratum; holds no document."""

    def __init__(self, names: Sequence[str]) -> None:
        """Takes the names of the quantities."""
        self._names = tuple(names)
        self._num_documents = np.zeros(MAX_STRATA, np.int64)
        self._sums = np.zeros((len(names), MAX_STRATA))
        self._squares = np.zeros((len(names), MAX_STRATA))

    def add(self, counted: pa.Table) -> None:
        """Adds a row for each drawn document: its `num_bytes`, and a column for each quantity."""
        strata = find_strata(counted["num_bytes"].to_numpy())
        self._num_documents += np.bincount(strata, minlength=MAX_STRATA)
        for row, name in enumerate(self._names):
            values = counted[name].to_numpy().astype(float)
            self._sums[row] += np.bincount(strata, weights=values, minlength=MAX_STRATA)
            self._squares[row] += np.bincount(strata, weights=values**2, minlength=MAX_STRATA)

    def estimate(self, sizes: Integers) -> dict[str, Estimate]:
        """Estimates the sum of each quantity over all documents, of these sizes, that the sample was drawn from."""
        num_all = np.bincount(find_strata(sizes), minlength=MAX_STRATA)
        num_drawn = np.maximum(self._num_documents, 1)
        means = self._sums / num_drawn
        spread = np.maximum(self._squares - num_drawn * means**2, 0.0) / np.maximum(num_drawn - 1, 1)
        variances = num_all**2 * np.maximum(1 - num_drawn / np.maximum(num_all, 1), 0.0) * spread / num_drawn
        totals, margins = (num_all * means).sum(axis=1), NORMAL_95 * np.sqrt(variances.sum(axis=1))
        return {
            name: Estimate(value=round(total), low=max(0, round(total - margin)), high=round(total + margin))
            for name, total, margin in zip(self._names, totals.tolist(), margins.tolist(), strict=True)
        }


def _pending_documents(batches: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields the documents of batches that have readings to do; others have only follow-up questions left."""
    for batch in batches:
        yield batch.filter(pc.greater(pc.list_value_length(batch["readings"]), 0))


def _rows_at(batches: Sequence[pa.Table], numbers: Integers) -> pa.Table:
    """The documents to read with these numbers, ascending, in the order of the batches."""
    drawn, start = [], 0
    for rows in _pending_documents(batches):
        first, end = np.searchsorted(numbers, [start, start + rows.num_rows])
        drawn.append(rows.take(pa.array(numbers[first:end] - start)))
        start += rows.num_rows
    return pa.concat_tables(drawn)


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
        "steps": pc.multiply(readings, _steps(counted, "num_steps")),
        "steps_at_most": pc.multiply(readings, _steps(counted, "max_steps")),
        "shared_tokens": pc.multiply(pc.subtract(readings, 1), counted["num_tokens"]),
    }
    return pa.table({"num_bytes": counted["num_bytes"], **costs})


def _tasks(sample: pa.Table, *, num_tasks: int) -> Iterator[pa.Table]:
    """The drawn documents in the order of their files, in about equal tables."""
    ordered = sample.sort_by([("file", "ascending"), ("row_group", "ascending")]).combine_chunks()
    rows = max(TASK_DOCUMENTS, -(-ordered.num_rows // num_tasks))
    yield from (ordered.slice(start, rows) for start in range(0, ordered.num_rows, rows))
