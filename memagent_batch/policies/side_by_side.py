"""Turns that don't need each other's completions, asked side by side."""

import asyncio
from collections.abc import Iterable

from memagent_batch.domain.turns import Completion, Prompt, Turns

MOST_TURNS = 512
"""Turns that one reading has under way at once: more than an engine runs, and few enough that prompts, which are made
when they are asked, never take the memory of a whole document."""


async def side_by_side(prompts: Iterable[Prompt], *, turns: Turns) -> list[Completion]:
    """The completions of the prompts, in their order. The first failure cancels the other turns.

    Args:
        prompts: the prompts; each is made when its turn is about to be asked.
        turns: the model.

    Raises:
        ExceptionGroup: what the turns that failed raised.
    """
    waiting = enumerate(prompts)
    completions: dict[int, Completion] = {}

    async def ask() -> None:
        for number, prompt in waiting:
            completions[number] = await turns(prompt)

    async with asyncio.TaskGroup() as group:
        for _ in range(MOST_TURNS):
            group.create_task(ask())
    return [completions[number] for number in range(len(completions))]
