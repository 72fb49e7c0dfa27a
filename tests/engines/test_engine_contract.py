"""What engines with a model promise; nothing between the test and the model is faked.

The engine without a model, and a chat API, keep to the contract of `memagent_batch.testing`.
"""

import asyncio
from collections.abc import Sequence

import pytest

from memagent_batch.errors import PromptTooLongError
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.loop.prompt_sets.built_in import DEFAULT_PROMPTS
from memagent_batch.loop.prompts import Slot
from memagent_batch.loop.tokens.tokenizer import Tokenizer
from memagent_batch.types import Completion, FinishReason, Prompt

pytestmark = [pytest.mark.vllm, pytest.mark.asyncio(loop_scope="session")]

NUM_PROMPTS = 12
MODELS = ["vllm", "openai"]


@pytest.fixture(scope="session")
def token_ids(tiny_tokenizer: Tokenizer) -> list[list[int]]:
    prompts = tiny_tokenizer.prompt_tokens(DEFAULT_PROMPTS)
    question = tiny_tokenizer.encode("What is the number of amber-falcon?")
    memories = [tiny_tokenizer.encode(f"The number of amber-falcon is {n}{n + 3}.") for n in range(NUM_PROMPTS)]
    return [prompts.answer.fill({Slot.QUESTION: question, Slot.MEMORY: memory}) for memory in memories]


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_completion_text_is_text_of_its_tokens(
    engine: Engine, token_ids: list[list[int]], tiny_tokenizer: Tokenizer
) -> None:
    for completion in await complete_all(engine, token_ids):
        assert completion.text == tiny_tokenizer.decode(list(completion.token_ids))
        assert completion.num_prompt_tokens in {len(ids) for ids in token_ids}
        assert completion.engine_seconds >= 0


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_completion_ends_with_end_token_or_at_budget_and_says_which(
    engine: Engine, token_ids: list[list[int]], tiny_tokenizer: Tokenizer
) -> None:
    completions = await complete_all(engine, token_ids, max_tokens=2)
    completions += await complete_all(engine, token_ids, max_tokens=64)
    for completion, max_tokens in zip(completions, [2] * NUM_PROMPTS + [64] * NUM_PROMPTS, strict=True):
        ended = completion.token_ids[-1] == tiny_tokenizer.end_token_id
        assert completion.finish_reason == (FinishReason.STOP if ended else FinishReason.LENGTH)
        assert ended or len(completion.token_ids) == max_tokens
    assert {completion.finish_reason for completion in completions} == set(FinishReason)


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_prompt_that_just_fits_window_is_served_and_a_longer_one_refused(
    engine: Engine, token_ids: list[list[int]]
) -> None:
    long = token_ids[0] + [token_ids[0][-1]] * (1000 - len(token_ids[0]))
    completion = await engine.complete(prompt_of(long, max_tokens=24), seed=0)
    assert len(completion.token_ids) <= 24
    with pytest.raises(PromptTooLongError, match="window of 1024"):
        await engine.complete(prompt_of(long, max_tokens=25), seed=0)


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_greedy_many_at_once_equals_one_at_a_time(engine: Engine, token_ids: list[list[int]]) -> None:
    together = await complete_all(engine, token_ids)
    alone = [await engine.complete(prompt_of(ids), seed=7) for ids in token_ids]
    assert [answer.token_ids for answer in together] == [answer.token_ids for answer in alone]


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_repeated_prompt_finds_its_prefix_cached(engine: Engine, token_ids: list[list[int]]) -> None:
    long = prompt_of((token_ids[0] * 10)[:600])
    await engine.complete(long, seed=0)
    again = await engine.complete(long, seed=0)
    assert 0 < again.num_cached_prompt_tokens < 600


@pytest.mark.parametrize("engine", MODELS, indirect=True)
async def test_logprobs_are_one_for_each_token(engine: Engine, token_ids: list[list[int]]) -> None:
    for completion in await complete_all(engine, token_ids):
        assert completion.logprobs is not None
        assert len(completion.logprobs) == len(completion.token_ids)
        assert all(value <= 0 for value in completion.logprobs)


@pytest.mark.parametrize("sampled_engine", MODELS, indirect=True)
async def test_sampling_same_seeds_draw_same_tokens(sampled_engine: Engine, token_ids: list[list[int]]) -> None:
    first = await complete_all(sampled_engine, [token_ids[0]] * NUM_PROMPTS)
    second = await complete_all(sampled_engine, [token_ids[0]] * NUM_PROMPTS)
    assert [answer.token_ids for answer in first] == [answer.token_ids for answer in second]


@pytest.mark.parametrize("sampled_engine", MODELS, indirect=True)
async def test_sampling_other_seeds_draw_other_tokens(sampled_engine: Engine, token_ids: list[list[int]]) -> None:
    noise = [token for ids in token_ids for token in reversed(ids)][:300]
    completions = await complete_all(sampled_engine, [noise] * NUM_PROMPTS)
    assert len({tuple(answer.token_ids) for answer in completions}) > 1


async def complete_all(engine: Engine, token_ids: Sequence[list[int]], *, max_tokens: int = 24) -> list[Completion]:
    prompts = [prompt_of(ids, max_tokens=max_tokens) for ids in token_ids]
    return list(await asyncio.gather(*(engine.complete(prompt, seed=seed) for seed, prompt in enumerate(prompts))))


def prompt_of(token_ids: list[int], *, max_tokens: int = 24) -> Prompt:
    return Prompt(path="answer", kind="answer", token_ids=token_ids, max_tokens=max_tokens)
