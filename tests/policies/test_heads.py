"""The policy `heads`: which note a turn writes, and what it sees."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memagent_batch.domain.readings import Outcome
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.policies.heads import HeadsPolicy
from memagent_batch.testing import ASKED_TOKENS, PROMPTS, document_of

GATED = replace(PROMPTS, keep_word="keep")
CHUNK_TOKENS = 5


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
