import asyncio
from collections.abc import Sequence
from dataclasses import replace

import pytest

from memagent_batch.config.policy import Reread
from memagent_batch.domain.prompts import Memory, PromptTokens, Slot, TokenTemplate
from memagent_batch.domain.readings import QuestionTokens, question_list
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Scope
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.policies.parallel import ParallelPolicy
from memagent_batch.policies.shared import SharedParallelPolicy, SharedPolicy
from tests.policies.token_documents import document_of

PROMPTS = PromptTokens(
    update=TokenTemplate(pieces=((1,), Slot.QUESTION, (2,), Slot.MEMORY, (3,), Slot.CHUNK, (4,))),
    answer=TokenTemplate(pieces=((5,), Slot.QUESTION, (6,), Slot.MEMORY, (7,))),
    direct=TokenTemplate(pieces=((10,), Slot.QUESTION, (11,), Slot.CHUNK, (12,))),
    merge=TokenTemplate(pieces=((13,), Slot.QUESTION, (14,), Slot.MEMORY, (15,), Slot.NOTES, (16,))),
    first_memory=Memory(token_ids=(8, 9), text="none"),
    control_token_ids=frozenset(),
    encode=str.encode,
    decode=str,
)
LIST = [60, 50, 61, 51]
QUESTIONS = [QuestionTokens(token_ids=[own], list_token_ids=LIST) for own in (50, 51)]
SHARED = SharedPolicy(chunk_tokens=2, memory_tokens=4, answer_tokens=6)
SIDE_BY_SIDE = SharedParallelPolicy(chunk_tokens=2, memory_tokens=4, answer_tokens=6, rounds=1)


def prompts_of(policy: OverwritePolicy | ParallelPolicy, question: QuestionTokens) -> list[Prompt]:
    """What a reading of a document of two chunks asks for."""
    prompts: list[Prompt] = []

    async def turns(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        return Completion(token_ids=[70 + len(prompts)], text="m", finish_reason=FinishReason.STOP)

    asyncio.run(policy.read(document_of(3), question, prompts=PROMPTS, turns=turns))
    return prompts


def test_shared_readings_of_a_list_ask_for_the_same_updates_and_for_answers_of_their_own() -> None:
    first, second = (prompts_of(SHARED, question) for question in QUESTIONS)
    assert first[:2] == second[:2]
    assert [list(prompt.token_ids) for prompt in first[:2]] == [
        [1, *LIST, 2, 8, 9, 3, 100, 101, 4],
        [1, *LIST, 2, 71, 3, 102, 4],
    ]
    assert [list(prompts[2].token_ids) for prompts in (first, second)] == [[5, 50, 6, 72, 7], [5, 51, 6, 72, 7]]
    assert [prompt.scope for prompt in first] == [Scope.LIST, Scope.LIST, Scope.QUESTION]


def test_shared_parallel_readings_of_a_list_ask_for_the_same_rounds_and_for_answers_of_their_own() -> None:
    first, second = (prompts_of(SIDE_BY_SIDE, question) for question in QUESTIONS)
    assert [prompt.path for prompt in first] == ["read/1/0", "read/1/1", "merge/1/0/0", "answer"]
    assert first[:3] == second[:3]
    assert list(first[1].token_ids) == [1, *LIST, 2, 8, 9, 3, 102, 4]
    assert [list(prompts[3].token_ids)[:2] for prompts in (first, second)] == [[5, 50], [5, 51]]
    assert [prompt.scope for prompt in first] == [Scope.LIST] * 3 + [Scope.QUESTION]


def test_shared_parallel_ranks_chunks_by_the_list_so_that_all_its_readings_take_the_same() -> None:
    ranked_by: list[list[int]] = []

    def rank(chunks: Sequence[Sequence[int]], wanted: Sequence[int]) -> list[float]:
        ranked_by.append(list(wanted)[: len(LIST)])
        return [0.0] * len(chunks)

    nominated = replace(SIDE_BY_SIDE, rounds=2, reread=Reread.NOMINATED, rank=rank)
    first, second = (prompts_of(nominated, question) for question in QUESTIONS)
    assert ranked_by == [LIST, LIST]
    assert first[:-1] == second[:-1]


def test_shared_reading_of_a_list_of_one_shows_what_overwrite_shows() -> None:
    alone, listed = QuestionTokens(token_ids=[50]), QuestionTokens(token_ids=[50], list_token_ids=[50])
    overwrite = OverwritePolicy(chunk_tokens=2, memory_tokens=4, answer_tokens=6)
    shown = [
        [list(prompt.token_ids) for prompt in prompts_of(policy, question)]
        for policy, question in ((SHARED, alone), (SHARED, listed), (overwrite, alone))
    ]
    assert shown[0] == shown[1] == shown[2]


@pytest.mark.parametrize(
    ("questions", "text"),
    [
        (["Who?"], "Who?"),
        (["Who?", "Who?"], "Who?"),
        (["Who?", "Where?\nSince when?", "Who?"], "1. Who?\n2. Where?\nSince when?"),
    ],
)
def test_question_list_is_numbered_and_has_each_question_once(questions: list[str], text: str) -> None:
    assert question_list(questions) == text
