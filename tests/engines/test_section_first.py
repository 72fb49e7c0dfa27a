import asyncio

import pytest

from memagent_batch.domain.prompts import AnswerForm, Slot
from memagent_batch.domain.turns import Prompt
from memagent_batch.engines.vllm.engine import VllmEngine
from memagent_batch.prompts.built_in import BUILT_IN_PROMPTS
from memagent_batch.tokens.tokenizer import Tokenizer

SECTION = "Nothing was said of any number, and the wind went on over the hills. " * 60
SECTION_TOKENS = 640


@pytest.mark.vllm
@pytest.mark.asyncio(loop_scope="session")
@pytest.mark.parametrize(("name", "is_served"), [("section-first", True), ("default", False)])
async def test_vllm_computes_a_section_once_for_questions_side_by_side_where_it_stands_first(
    vllm_greedy: VllmEngine, tiny_tokenizer: Tokenizer, name: str, is_served: bool
) -> None:
    prompts = tiny_tokenizer.prompt_tokens(BUILT_IN_PROMPTS[name], answer_form=AnswerForm.BOXED)
    section = tiny_tokenizer.encode(name + SECTION)[:SECTION_TOKENS]
    asked = [
        Prompt(
            path="update/0",
            kind="update",
            token_ids=prompts.update.fill(
                {
                    Slot.QUESTION: tiny_tokenizer.encode(f"{number} times what?"),
                    Slot.MEMORY: prompts.first_memory.token_ids,
                    Slot.CHUNK: section,
                }
            ),
            max_tokens=4,
        )
        for number in range(4)
    ]
    completions = await asyncio.gather(*(vllm_greedy.complete(prompt, seed=0) for prompt in asked))
    cached = sorted(completion.num_cached_prompt_tokens for completion in completions)
    assert [tokens > SECTION_TOKENS * 0.75 for tokens in cached] == [False, *[is_served] * 3]
