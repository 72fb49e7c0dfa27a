"""The policy `heads`: which note a turn writes, what it sees, and what tables and evidence say of the memory."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.domain.addresses import ReadingAddress, text_hash
from memagent_batch.domain.readings import Outcome, Policy
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.policies.heads import HeadsPolicy
from memagent_batch.reading.follow_ups import Tracer
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ReadingTurns, ReplayOnly
from memagent_batch.store.turn_log.turns import read_turns
from memagent_batch.testing import ASKED_TOKENS, PROMPTS, document_of
from tests.policies.token_documents import PROMPTS as SLOTS
from tests.policies.token_documents import document_of as characters_of
from tests.reading.test_read import AGENT, WHO
from tests.runs.test_tables import FIRST_MEMORY, RecordedRun

GATED = replace(PROMPTS, keep_word="keep")
CHUNK_TOKENS = 5
PROMPTS_OF_RUN = replace(SLOTS, first_memory=replace(SLOTS.first_memory, text=FIRST_MEMORY), keep_word="keep")
WRITTEN = ["shelf 8603172", "signed by Ann", "keep", "rent 400"]
"""What the model writes at each chunk."""
MEMORIES = [
    "shelf 8603172",
    "shelf 8603172\nsigned by Ann",
    "shelf 8603172\nsigned by Ann",
    "signed by Ann\nrent 400",
    "signed by Ann\nrent 400",
]
"""The memory of two heads after each turn, the answer included."""
TWO_HEADS = HeadsPolicy(chunk_tokens=5, memory_tokens=40, answer_tokens=8, heads=2)


def read_with(written: Sequence[str], *, heads: int) -> tuple[Outcome, list[str]]:
    """Reads one chunk for each of the texts that the model writes; returns the memories after each turn, too."""
    texts, memories = iter([*written, "answer"]), []

    async def complete(prompt: Prompt) -> Completion:
        text = next(texts)
        completion = Completion(token_ids=list(text.encode()), text=text, finish_reason=FinishReason.STOP)
        if prompt.memory_after is not None:
            memories.append(prompt.memory_after(completion))
        return completion

    policy = HeadsPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=12, answer_tokens=6, heads=heads)
    document = document_of(CHUNK_TOKENS * len(written))
    return asyncio.run(policy.read(document, ASKED_TOKENS, prompts=GATED, turns=complete)), memories


def test_heads_write_the_least_recently_written_note_and_keep_the_others() -> None:
    outcome, memories = read_with(["A", "B", "C", "D"], heads=3)
    assert memories == ["A", "A\nB", "A\nB\nC", "B\nC\nD"]
    assert (outcome.memory.text, bytes(outcome.memory.token_ids).decode()) == ("B\nC\nD", "B\nC\nD")


@pytest.mark.parametrize("nothing", ["keep", "", "<think>cut off"])
def test_heads_keep_all_notes_if_a_chunk_says_nothing_new(nothing: str) -> None:
    _, memories = read_with(["a", nothing, "b", nothing], heads=2)
    assert memories == ["a", "a", "a\nb", "a\nb"]


def test_heads_without_a_note_answer_from_the_first_memory() -> None:
    outcome, memories = read_with(["keep", "keep"], heads=2)
    assert memories == [PROMPTS.first_memory.text] * 2
    assert outcome.memory is PROMPTS.first_memory


def test_one_head_is_gated_and_more_than_tokens_are_refused() -> None:
    assert read_with(["a", "keep", "b"], heads=1)[1] == ["a", "a", "b"]
    with pytest.raises(ValueError, match=r"policy\.heads"):
        HeadsPolicy(chunk_tokens=5, memory_tokens=4, answer_tokens=6, heads=5)


class Writer(ReplayOnly):
    """Writes a text for each chunk, and what it sees for an answer."""

    def __init__(self, texts: Sequence[str]) -> None:
        self._texts = texts

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        text = self._texts[prompt.span.index] if prompt.span else "\\boxed{42}"
        return Completion(token_ids=tuple(text.encode()), text=text, finish_reason=FinishReason.STOP)


def address_of(name: str) -> ReadingAddress:
    return ReadingAddress(document_hash=text_hash(name), question_hash=text_hash("why?"), sample=0, fingerprint="f")


async def read_in(run: RecordedRun, name: str, policy: Policy, **settings: Any) -> Reading:
    """A reading of 20 tokens whose turns and end are logged."""
    turns = ReadingTurns(address=address_of(name), seed=0, log=run.writer, **settings)
    agent = replace(AGENT, policy=policy, prompts=PROMPTS_OF_RUN)
    reading = await read(characters_of(20), WHO, agent=agent, turns=turns)
    await run.writer.record_outcome(turns.address, reading.to_row())
    return reading


def rows_of(run: RecordedRun, name: str) -> list[tuple[str, bool]]:
    rows: list[Mapping[str, Any]] = run.tables(keep_word="keep").memories.to_pylist()
    return [(row["memory"], row["changed"]) for row in rows if row["document_id"] == name]


async def test_memories_show_all_heads_after_each_turn_and_end_with_the_memory_of_the_answer(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a"])
    reading = await read_in(run, "a", TWO_HEADS, engine=Writer(WRITTEN))
    assert rows_of(run, "a") == list(zip(MEMORIES, [True, True, False, True, False], strict=True))
    assert reading.memory == MEMORIES[-1]


async def test_memories_are_the_same_where_turns_come_from_the_log_or_from_an_earlier_version(tmp_path: Path) -> None:
    run = RecordedRun(tmp_path, documents=["a", "b"])
    await read_in(run, "a", TWO_HEADS, engine=Writer(WRITTEN))
    await run.writer.flush()
    files = (run.output / "log" / "turns").files()
    logged = read_turns(run.output, files, fingerprints=["f"], document_hashes=[text_hash("a")])["f"]
    replayed = await read_in(run, "a", TWO_HEADS, engine=ReplayOnly(), from_log=logged)
    changed = await read_in(run, "b", TWO_HEADS, engine=ReplayOnly(), from_log=logged, last_hashes=[text_hash("a")])
    assert (replayed.error, changed.error) == (None, None)
    assert [memory for memory, _ in rows_of(run, "a")] == [memory for memory, _ in rows_of(run, "b")] == MEMORIES


async def test_evidence_leads_to_the_chunk_that_brought_each_head() -> None:
    tracer = Tracer(SLOTS)
    turns = ReadingTurns(engine=Writer(WRITTEN[:2]), address=address_of("a"), seed=0, observe=tracer)
    await read(characters_of(10), WHO, agent=replace(AGENT, policy=TWO_HEADS, prompts=SLOTS), turns=turns)
    sources = tracer.trace.sources(question="What is the shelf?", answer="8603172")
    assert [source.chunk_index for source in sources] == [0, 1]
