"""The policies without a memory: what of the document their one prompt shows."""

from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.chunking import Chunk, chunk_spans
from memagent_batch.domain.prompts import Memory, PromptTokens, Slot, TokenTemplate
from memagent_batch.domain.readings import Policy
from memagent_batch.domain.turns import Completion, FinishReason, Prompt
from memagent_batch.policies.direct import DirectTurn
from memagent_batch.policies.retrieve import RetrievePolicy
from memagent_batch.policies.truncate import TruncatePolicy

GAP = (7, 7)
QUESTION = [50, 51]
SLOTS = TokenTemplate(pieces=(Slot.QUESTION, Slot.MEMORY))
PROMPTS = PromptTokens(
    update=SLOTS,
    answer=SLOTS,
    direct=TokenTemplate(pieces=(Slot.CHUNK,)),
    first_memory=Memory(token_ids=(8, 9), text="none"),
    control_token_ids=frozenset(),
    encode=str.encode,
    gap=GAP,
)
TURN = DirectTurn(chunk_tokens=12, answer_tokens=6)


def chunks_of(num_tokens: int) -> list[Chunk]:
    """A document of the tokens 100, 101, ..., in chunks of 12 with an overlap of 2."""
    spans = chunk_spans(range(num_tokens), num_chars=num_tokens, chunk_tokens=12, overlap_tokens=2)
    return [Chunk(span=span, token_ids=range(100 + span.token_start, 100 + span.token_end)) for span in spans]


async def shown_by(policy: Policy, num_tokens: int) -> list[int]:
    """What the one prompt shows of the document."""
    prompts: list[Prompt] = []

    async def generate(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        return Completion(token_ids=[1], text="said", finish_reason=FinishReason.STOP)

    outcome = await policy.read(chunks_of(num_tokens), QUESTION, prompts=PROMPTS, generate=generate)
    assert (outcome.response, outcome.memory.text) == ("said", "")
    (prompt,) = prompts
    return list(prompt.token_ids)


def retrieve(nearest: Sequence[int], *, passage_tokens: int = 3, overlap_tokens: int = 0) -> RetrievePolicy:
    """Ranks passages by the first token that they hold of `nearest`."""

    def rank(passages: Sequence[Sequence[int]], question: Sequence[int]) -> list[float]:
        return [
            float(max((len(nearest) - nearest.index(token) for token in passage if token in nearest), default=0))
            for passage in passages
        ]

    return RetrievePolicy(turn=TURN, passage_tokens=passage_tokens, overlap_tokens=overlap_tokens, rank=rank)


async def test_truncate_document_that_fits_is_shown_whole() -> None:
    assert await shown_by(TruncatePolicy(turn=TURN), 12) == list(range(100, 112))


async def test_truncate_long_document_shows_head_and_tail_with_a_gap() -> None:
    assert await shown_by(TruncatePolicy(turn=TURN), 40) == [100, 101, 102, 103, 104, *GAP, 135, 136, 137, 138, 139]


async def test_retrieve_document_that_fits_is_shown_whole() -> None:
    assert await shown_by(retrieve([], passage_tokens=6), 9) == list(range(100, 109))


async def test_retrieve_shows_the_nearest_passages_in_the_order_of_the_document() -> None:
    assert await shown_by(retrieve([131, 110]), 40) == [109, 110, 111, *GAP, 130, 131, 132]


async def test_retrieve_without_any_match_shows_the_first_passages() -> None:
    assert await shown_by(retrieve([]), 40) == [100, 101, 102, 103, 104, 105]


async def test_retrieve_passages_that_overlap_are_shown_as_one() -> None:
    assert await shown_by(retrieve([105, 106], overlap_tokens=1), 40) == [104, 105, 106, 107, 108]


@pytest.mark.parametrize("policy", [TruncatePolicy(turn=TURN), retrieve([120, 103], overlap_tokens=1)])
@given(num_tokens=st.integers(0, 80))
async def test_direct_policy_shows_no_more_than_its_budget(policy: Policy, num_tokens: int) -> None:
    assert len(await shown_by(policy, num_tokens)) <= TURN.chunk_tokens
