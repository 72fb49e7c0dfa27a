"""The policies without a memory: what of the document their one prompt shows."""

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.policies import direct
from memagent_batch.loop.policies.direct import RetrievePolicy, TruncatePolicy
from memagent_batch.loop.prompts import Slot, TokenTemplate
from memagent_batch.loop.texts.words import WORD_FORM, WordIndex
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Policy, Prompt, QuestionTokens
from tests.policies.token_documents import PROMPTS as PLAIN
from tests.policies.token_documents import document_of

GAP = (7, 7)
PROMPTS = replace(PLAIN, direct=TokenTemplate(pieces=(Slot.CHUNK,)), gap=GAP)
CHUNK_TOKENS = 12
TRUNCATE = TruncatePolicy(chunk_tokens=CHUNK_TOKENS, answer_tokens=6)


async def shown_by(
    policy: Policy, num_tokens: int, *, question: Sequence[int] = (), breaks: Sequence[int] = ()
) -> list[int]:
    """What the one prompt shows of the document for a question of such tokens."""
    prompts: list[Prompt] = []

    async def turns(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        return Completion(token_ids=[1], text="said", finish_reason=FinishReason.STOP)

    asked = QuestionTokens(token_ids=question)
    document = replace(document_of(num_tokens), breaks=breaks)
    outcome = await policy.read(document, asked, prompts=PROMPTS, turns=turns)
    assert (outcome.response, outcome.memory.text) == ("said", "")
    (prompt,) = prompts
    return list(prompt.token_ids)


RETRIEVE = RetrievePolicy(chunk_tokens=CHUNK_TOKENS, answer_tokens=6, passage_tokens=3)
OVERLAPPING = replace(RETRIEVE, overlap_tokens=1)


@pytest.mark.parametrize(
    ("policy", "num_tokens", "question", "shown"),
    [
        (TRUNCATE, 12, [], list(range(100, 112))),
        (TRUNCATE, 40, [], [100, 101, 102, 103, 104, *GAP, 135, 136, 137, 138, 139]),
        (replace(RETRIEVE, passage_tokens=6), 9, [], list(range(100, 109))),
        (RETRIEVE, 40, [131, 110], [109, 110, 111, *GAP, 130, 131, 132]),
        (RETRIEVE, 40, [], [100, 101, 102, 103, 104, 105]),
        (OVERLAPPING, 40, [105, 107], [104, 105, 106, 107, 108]),
    ],
    ids=["truncate whole", "head and tail", "retrieve whole", "nearest passages", "no match", "overlapping passages"],
)
async def test_direct_policy_shows_what_fits_or_what_matters_with_gaps(
    policy: Policy, num_tokens: int, question: list[int], shown: list[int]
) -> None:
    assert await shown_by(policy, num_tokens, question=question) == shown


@pytest.mark.parametrize(
    ("policy", "shown"),
    [(TRUNCATE, [100, 101, 102, 103, *GAP, 137, 138, 139]), (RETRIEVE, [109, 110, *GAP, 131, 132])],
)
async def test_direct_policy_cuts_where_chunks_close(policy: Policy, shown: list[int]) -> None:
    breaks = (4, 7, 9, 11, 13, 31, 33, 37)
    assert await shown_by(policy, 40, question=[131, 110], breaks=breaks) == shown


@pytest.mark.parametrize("policy", [TRUNCATE, OVERLAPPING])
@given(num_tokens=st.integers(0, 80))
async def test_direct_policy_shows_no_more_than_its_budget(policy: Policy, num_tokens: int) -> None:
    assert len(await shown_by(policy, num_tokens, question=[120, 103])) <= CHUNK_TOKENS


@pytest.mark.parametrize("policy", [TRUNCATE, OVERLAPPING])
@pytest.mark.parametrize(("num_tokens", "num_chunks"), [(0, 0), (12, 1), (40, 4)])
def test_direct_policy_counts_the_chunks_that_a_memory_would_be_written_from(
    policy: Policy, num_tokens: int, num_chunks: int
) -> None:
    assert policy.cost(PROMPTS, num_tokens=num_tokens).num_chunks == num_chunks


PASSAGES = [
    "The grass is green and the sky is blue.",
    "The access code of Copper-Falcon is 7318265.",
    "The access code of quiet harbour is 1111111.",
    "",
]


def scores_of(question: str, passages: list[str] = PASSAGES) -> list[float]:
    index = WordIndex([WORD_FORM.findall(passage.lower()) for passage in passages])
    return index.scores(WORD_FORM.findall(question.lower()))


def test_bm25_passage_with_the_rarest_words_of_the_question_is_nearest() -> None:
    scores = scores_of("What is the access code of copper-falcon?")
    assert len(scores) == len(PASSAGES)
    assert max(scores) == scores[1] > scores[2] > scores[0] > scores[3] == 0


async def test_retrieve_indexes_a_document_once_for_all_its_questions(
    tiny_tokenizer: Tokenizer, monkeypatch: pytest.MonkeyPatch
) -> None:
    made = list[int]()

    class CountedIndex(WordIndex):
        def __init__(self, passages: Any) -> None:
            made.append(len(passages))
            super().__init__(passages)

    monkeypatch.setattr(direct, "WordIndex", CountedIndex)
    policy = RetrievePolicy(chunk_tokens=40, answer_tokens=8, passage_tokens=20)
    prompts = replace(PROMPTS, decode=tiny_tokenizer.decode)
    texts = [" ".join(PASSAGES), " ".join(reversed(PASSAGES))]
    documents = [tiny_tokenizer.document(text) for text in texts]
    questions = [tiny_tokenizer.encode(question) for question in ("Copper-Falcon", "harbour", "grass", "harbour")]
    asked = [(document, question) for document in documents for question in questions]
    parts = await asyncio.gather(*[policy.parts(document, question, prompts=prompts) for document, question in asked])
    assert len(made) == 2
    for (document, question), ranges in zip(asked, parts, strict=True):
        direct._indexes.clear()
        assert await policy.parts(document, question, prompts=prompts) == ranges
    assert len({str(ranges) for ranges in parts}) > 1


def test_bm25_number_alone_finds_its_passage_and_passages_without_words_score_nothing() -> None:
    scores = scores_of("7318265")
    assert [score > 0 for score in scores] == [False, True, False, False]
    assert scores_of("What?", ["...", "  "]) == [0.0, 0.0]
