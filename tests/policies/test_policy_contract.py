"""What every policy keeps to, whatever its algorithm. A new policy is added by giving its settings here."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.policies.direct import RetrievePolicy, TruncatePolicy
from memagent_batch.loop.policies.overwrite import GatedPolicy, OverwritePolicy
from memagent_batch.loop.policies.parallel import ParallelPolicy
from memagent_batch.plugins import POLICIES
from memagent_batch.run.reading.agent import LoadedAgent
from memagent_batch.testing import ASKED_TOKENS, PROMPTS, FakeModel, PolicyContract, document_of, run_policy
from memagent_batch.types import Completion, FinishReason, Policy, Prompt

CHUNK_TOKENS = 12
"""Longest chunk that the policies are given."""


INSTANCES: dict[str, Policy] = {
    "overwrite": OverwritePolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=4, answer_tokens=6),
    "gated": GatedPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=4, answer_tokens=6),
    "parallel": ParallelPolicy(chunk_tokens=CHUNK_TOKENS, memory_tokens=10, answer_tokens=6),
    "truncate": TruncatePolicy(chunk_tokens=CHUNK_TOKENS, answer_tokens=6),
    "retrieve": RetrievePolicy(chunk_tokens=CHUNK_TOKENS, answer_tokens=6, passage_tokens=3, overlap_tokens=1),
}
KINDS = sorted(INSTANCES)
MEMORY_KINDS = ["gated", "overwrite", "parallel"]
"""Kinds that answer from a memory."""
WHOLE_KINDS = ["gated", "overwrite", "parallel"]
"""Kinds that show every chunk. A policy that skips some is not among them."""
UPDATE_KINDS = ["gated", "overwrite"]
"""Kinds that rewrite one memory, by a turn `update/N` for each chunk."""
STOPPING_KINDS = ["parallel"]
"""Kinds that may stop before the turns that they cost at most."""


class ThinkingModel(FakeModel):
    """Thinks before it writes, and is cut off in its thoughts at the turns of these paths."""

    def __init__(self, *, cut: Sequence[str] = ()) -> None:
        super().__init__()
        self._cut = cut

    async def complete(self, prompt: Prompt) -> Completion:
        completion = await super().complete(prompt)
        if prompt.path in self._cut:
            return replace(completion, text="<think>secret \\boxed{1}", finish_reason=FinishReason.LENGTH)
        return replace(completion, text=f"<think>secret</think>\n\n{completion.text}")


def with_chunks(kind: str, chunk_tokens: int) -> Policy:
    """The instance under contract with chunks of this length, and no overlap."""
    policy: Any = INSTANCES[kind]
    smaller = {"passage_tokens": 1, "overlap_tokens": 0} if kind == "retrieve" else {}
    return cast(Policy, replace(policy, chunk_tokens=chunk_tokens, **smaller))


class TestOverwrite(PolicyContract):
    kind = "overwrite"

    def policy(self, chunk_tokens: int) -> Policy:
        return with_chunks(self.kind, chunk_tokens)


class TestGated(TestOverwrite):
    kind = "gated"


class TestParallel(TestOverwrite):
    kind = "parallel"


class TestTruncate(TestOverwrite):
    kind = "truncate"


class TestRetrieve(TestOverwrite):
    kind = "retrieve"


def test_every_policy_has_an_instance_under_contract() -> None:
    assert sorted(POLICIES.built_in) == KINDS
    assert all(INSTANCES[kind].kind == kind for kind in KINDS)


@pytest.mark.parametrize("kind", WHOLE_KINDS)
def test_policy_that_skips_nothing_shows_every_token_of_the_document_to_the_model(kind: str) -> None:
    _, prompts = run_policy(with_chunks(kind, 5), document_of(23))
    shown = {token for prompt in prompts for token in prompt.token_ids}
    assert set(range(100, 123)) <= shown


@pytest.mark.parametrize("kind", sorted({*KINDS} - {*STOPPING_KINDS}))
@given(num_tokens=st.integers(0, 60), chunk_tokens=st.integers(1, CHUNK_TOKENS))
def test_policy_that_never_stops_early_costs_what_it_said(kind: str, num_tokens: int, chunk_tokens: int) -> None:
    policy = with_chunks(kind, chunk_tokens)
    _, prompts = run_policy(policy, document_of(num_tokens))
    cost = policy.cost(PROMPTS, num_tokens=num_tokens)
    assert (cost.num_turns, cost.num_completion_tokens) == (len(prompts), sum(prompt.max_tokens for prompt in prompts))
    assert [prompt.kind in ("answer", "direct") for prompt in prompts] == [False] * (len(prompts) - 1) + [True]


@pytest.mark.parametrize("kind", WHOLE_KINDS)
def test_policy_shows_whole_rows_of_a_document_with_breaks_and_says_what_that_costs(kind: str) -> None:
    policy, document = with_chunks(kind, 5), replace(document_of(23), breaks=(3, 4, 7, 9, 16, 22))
    _, prompts = run_policy(policy, document)
    spans = {prompt.span.index: prompt.span for prompt in prompts if prompt.span}
    ranges = [(spans[index].token_start, spans[index].token_end) for index in range(len(spans))]
    assert ranges == [(0, 4), (4, 9), (9, 14), (14, 16), (16, 21), (21, 23)]
    agent = LoadedAgent(policy=policy, prompts=PROMPTS, encode=str.encode, question_tokens=10, model="m")
    cost = agent.cost(document)
    assert (cost.num_chunks, cost.num_turns >= len(prompts)) == (6, True)
    assert cost.num_chunks > agent.cost(document_of(23)).num_chunks


@pytest.mark.parametrize("kind", KINDS)
def test_policy_of_a_model_that_thinks_passes_on_what_it_says_afterwards(kind: str) -> None:
    model = ThinkingModel()
    outcome = asyncio.run(
        with_chunks(kind, 5).read(document_of(23), ASKED_TOKENS, prompts=PROMPTS, turns=model.complete)
    )
    assert outcome.response.startswith("text ")
    assert outcome.memory.text.startswith("text ") == (kind in MEMORY_KINDS)
    later = [prompt for prompt in model.prompts[1:] if not prompt.path.startswith("read/1/")]
    shown = [bytes(token for token in prompt.token_ids if token < 128) for prompt in later]
    assert all(b"text " in prompt and b"secret" not in prompt for prompt in shown)


@pytest.mark.parametrize("kind", KINDS)
def test_policy_of_a_model_that_is_cut_off_in_its_thoughts_has_no_response(kind: str) -> None:
    model = ThinkingModel(cut=["answer", "direct"])
    outcome = asyncio.run(INSTANCES[kind].read(document_of(0), ASKED_TOKENS, prompts=PROMPTS, turns=model.complete))
    assert (outcome.response, outcome.finish_reason) == ("", FinishReason.LENGTH)


@pytest.mark.parametrize("kind", UPDATE_KINDS)
def test_policy_with_a_memory_keeps_it_where_the_model_is_cut_off_in_its_thoughts(kind: str) -> None:
    model, policy = ThinkingModel(cut=["update/1", "update/2"]), with_chunks(kind, 5)
    outcome = asyncio.run(policy.read(document_of(15), ASKED_TOKENS, prompts=PROMPTS, turns=model.complete))
    first = ThinkingModel()
    asyncio.run(policy.read(document_of(5), ASKED_TOKENS, prompts=PROMPTS, turns=first.complete))
    assert model.prompts[-1] == first.prompts[-1]
    assert outcome.memory.text.startswith("text ")
