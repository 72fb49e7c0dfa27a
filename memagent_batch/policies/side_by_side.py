"""Turns that don't need each other's completions, asked side by side."""

import asyncio
from array import array
from collections.abc import Iterable
from dataclasses import replace

from memagent_batch.domain.turns import Completion, PlacedTurns, Prompt, Turns

MOST_TURNS = 256
"""Turns that one reading has under way at once where no number of places is known: as many as an actor runs by default.
"""


async def side_by_side(prompts: Iterable[Prompt], *, turns: Turns) -> list[Completion]:
    """The completions of the prompts, in their order. The first failure cancels the other turns.

    A prompt of 5,000 tokens takes 20 kB as an array and 200 kB as a list, so it is made when its turn can start, and
    its list is dropped at once. A reading then holds the prompts of its turns in the engine, and of one that waits.

    Args:
        prompts: the prompts; each is made when its turn is about to be asked.
        turns: the model.

    Raises:
        ExceptionGroup: what the turns that failed raised.
    """
    asked: list[asyncio.Task[Completion]] = []
    unfinished: set[asyncio.Task[Completion]] = set()
    async with asyncio.TaskGroup() as group:
        for prompt in prompts:
            prompt = replace(prompt, token_ids=array("i", prompt.token_ids))
            task = group.create_task(_ask(prompt, turns=turns))
            asked.append(task)
            unfinished.add(task)
            task.add_done_callback(unfinished.discard)
            if isinstance(turns, PlacedTurns):
                await turns.room()
            elif len(unfinished) == MOST_TURNS:
                await asyncio.wait(unfinished, return_when=asyncio.FIRST_COMPLETED)
    return [task.result() for task in asked]


async def _ask(prompt: Prompt, *, turns: Turns) -> Completion:
    return await turns(prompt)
