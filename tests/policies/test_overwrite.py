from collections.abc import Sequence

from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import Memory
from memagent_batch.testing import PROMPTS
from memagent_batch.types import Completion, Document, FinishReason, Outcome, Prompt, Writes
from tests.policies.token_documents import QUESTION, document_of

END = 99
ANSWER = Completion(token_ids=[70, END], text="the answer", finish_reason=FinishReason.STOP)


def written(token_ids: list[int], text: str, finish_reason: FinishReason = FinishReason.STOP) -> Completion:
    return Completion(token_ids=token_ids, text=text, finish_reason=finish_reason)


async def read(document: Document, completions: Sequence[Completion]) -> tuple[Outcome, list[Prompt]]:
    """Reads with a model that says these completions in turn."""
    prompts: list[Prompt] = []

    async def turns(prompt: Prompt) -> Completion:
        prompts.append(prompt)
        return completions[len(prompts) - 1]

    policy = OverwritePolicy(chunk_tokens=5, memory_tokens=4, answer_tokens=6)
    return await policy.read(document, QUESTION, prompts=PROMPTS, turns=turns), prompts


async def test_overwrite_reading_passes_each_memory_on_token_for_token() -> None:
    updates = [written([60, 61, END], "first"), written([62, END], "second")]
    _, prompts = await read(document_of(8), [*updates, ANSWER])
    assert [list(prompt.token_ids) for prompt in prompts] == [
        [1, 50, 51, 2, 8, 9, 3, 100, 101, 102, 103, 104, 4],
        [1, 50, 51, 2, 60, 61, 3, 105, 106, 107, 4],
        [5, 50, 51, 6, 62, 7],
    ]


async def test_overwrite_reading_asks_with_its_budgets_and_the_place_of_each_chunk() -> None:
    document = document_of(8)
    _, prompts = await read(document, [written([60], "a"), written([61], "b"), ANSWER])
    assert [prompt.max_tokens for prompt in prompts] == [4, 4, 6]
    assert [prompt.span for prompt in prompts] == [*(chunk.span for chunk in document.chunks(5)), None]
    assert [prompt.writes for prompt in prompts] == [Writes.MEMORY, Writes.MEMORY, None]


async def test_overwrite_outcome_holds_response_reason_and_last_memory() -> None:
    outcome, _ = await read(document_of(8), [written([60, END], "first"), written([62, END], "second"), ANSWER])
    assert outcome == Outcome(
        response="the answer", finish_reason=FinishReason.STOP, memory=Memory(token_ids=[62], text="second")
    )


async def test_overwrite_completion_cut_at_its_budget_is_the_memory_as_far_as_it_goes() -> None:
    cut = written([60, 61, 62, 63], "as far as it", FinishReason.LENGTH)
    outcome, prompts = await read(document_of(3), [cut, ANSWER])
    assert outcome.memory == Memory(token_ids=[60, 61, 62, 63], text="as far as it")
    assert list(prompts[-1].token_ids) == [5, 50, 51, 6, 60, 61, 62, 63, 7]
