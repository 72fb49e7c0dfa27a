"""Turns that don't need each other's completions, asked side by side."""

import asyncio
from array import array
from collections.abc import Iterable
from dataclasses import replace

from memagent_batch.domain.turns import Completion, PlacedTurns, Prompt, Turns

MOST_TURNS = 256
"""Turns that one reading has under way at once where no number of places is known: as many as an actor runs by default.

Each holds its prompt while it waits for a place in the engine: 5 MiB a reading with prompts of 5,000 tokens, at 4 bytes
each."""


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
            completions[number] = await turns(replace(prompt, token_ids=array("i", prompt.token_ids)))

    async with asyncio.TaskGroup() as group:
        for _ in range(_most_at_once(turns)):
            group.create_task(ask())
    return [completions[number] for number in range(len(completions))]


def _most_at_once(turns: Turns) -> int:
    """One reading can take all places of its engine, and prepares no prompt beyond."""
    places = turns.most_at_once if isinstance(turns, PlacedTurns) else None
    return places or MOST_TURNS
