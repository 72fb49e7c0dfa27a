"""The plug-in example `pipelines/heads.py`: which note a turn writes, and what the tables say of the memory."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from memagent_batch.config.agent import PolicyConfig
from memagent_batch.errors import SettingsError
from memagent_batch.run.flows.answer import answer
from memagent_batch.testing import ASKED_TOKENS, PROMPTS, PolicyContract, document_of
from memagent_batch.types import Completion, FinishReason, Outcome, Policy, Prompt
from pipelines.heads import HeadsPolicy
from tests.jobs import put_texts, small_job
from tests.tables import table_rows

KIND = "pipelines.heads:HeadsPolicy"
GATED = replace(PROMPTS, keep_word="keep")
CHUNK_TOKENS = 5


class TestHeads(PolicyContract):
    def policy(self, chunk_tokens: int) -> Policy:
        return HeadsPolicy(chunk_tokens=chunk_tokens, memory_tokens=12, answer_tokens=6, heads=3)


def read_with(texts: Sequence[str], *, heads: int) -> tuple[Outcome, list[str]]:
    """Reads one chunk for each of the texts that the model writes; returns the memories after each turn, too."""
    completions, memories = iter([*texts, "answer"]), []

    async def complete(prompt: Prompt) -> Completion:
        text = next(completions)
        completion = Completion(token_ids=list(text.encode()), text=text, finish_reason=FinishReason.STOP)
        if prompt.memory_after is not None:
            memories.append(prompt.memory_after(completion))
        return completion

    policy = HeadsPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=12, answer_tokens=6, heads=heads)
    document = document_of(CHUNK_TOKENS * len(texts))
    return asyncio.run(policy.read(document, ASKED_TOKENS, prompts=GATED, turns=complete)), memories


def test_heads_replace_the_oldest_note_and_keep_the_others() -> None:
    outcome, memories = read_with(["A", "B", "C", "D"], heads=3)
    assert memories == ["A", "A\nB", "A\nB\nC", "B\nC\nD"]
    assert (outcome.memory.text, bytes(outcome.memory.token_ids).decode()) == ("B\nC\nD", "B\nC\nD")


@pytest.mark.parametrize("nothing", ["keep", "", "<think>cut off"])
def test_heads_keep_all_notes_if_a_chunk_says_nothing_new(nothing: str) -> None:
    assert read_with(["a", nothing, "b", nothing], heads=2)[1] == ["a", "a", "a\nb", "a\nb"]
    assert read_with([nothing], heads=2)[0].memory is GATED.first_memory


def test_heads_opened_as_a_plug_in_are_recorded_with_the_whole_memory_after_each_turn(
    text_model: str, tmp_path: Path
) -> None:
    put_texts(tmp_path / "in", {"long.txt": "It rained, and the fee was named. " * 20})
    settings = {"kind": KIND, "settings": {"heads": 2}}
    job = small_job(tmp_path, text_model, ask=["How high is the fee?"], policy=settings, allow_code=True)
    answer(job)
    [row], memories = (table_rows(str(tmp_path / "run"), table) for table in ("answers", "memories"))
    texts = [each["memory"] for each in sorted(memories, key=lambda each: each["turn"])]
    assert (row["status"], row["memory"]) == ("ok", texts[-1])
    assert texts[1] == f"{texts[0]}\n{texts[0]}" == texts[-1]
    wrong = job.with_agent(job.agent.model_copy(update={"policy": PolicyConfig(kind=KIND, settings={"heads": 9999})}))
    with pytest.raises(SettingsError, match=r"policy\.settings\.heads must be 1 or more"):
        answer(wrong)
