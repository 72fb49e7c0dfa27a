"""Turns of one process that have the same prompt: one of them asks the engine, and the others take its completion.

Contracts from one template have chunks of the same text. A policy that reads chunks apart from each other, such as
`parallel`, sends the same prompt for each of these.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from memagent_batch.types import Completion

KEPT_TOKENS = 500_000
"""Tokens of the completions that are kept: some 30 MB. Those that were not used for longest are dropped."""
LEAST_TOKENS = 25
"""What a shorter completion counts as: of those at most 20,000 are kept."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EqualKey:
    """What equal turns have in common."""

    fingerprint: str
    kind: str
    prompt_hash: str
    max_tokens: int


class EqualTurns:
    """The completions of greedy turns of a process, whatever document they were asked for."""

    def __init__(self) -> None:
        self._kept: OrderedDict[EqualKey, Completion] = OrderedDict()
        self._num_tokens = 0
        self._under_way: dict[EqualKey, asyncio.Future[None]] = {}

    async def complete(
        self, key: EqualKey, ask: Callable[[], Awaitable[Completion]], *, may_keep: Callable[[Completion], bool]
    ) -> Completion:
        """The completion of an equal turn, marked as replayed, or what `ask` returns.

        While an equal turn is under way, this one waits for it; if that one fails, it asks itself.

        Args:
            key: The turn.
            ask: Asks the engine; may raise, which concerns the caller alone.
            may_keep: Whether others may have a completion.
        """
        while (completion := self._find(key)) is None:
            if (other := self._under_way.get(key)) is None:
                return await self._ask(key, ask, may_keep=may_keep)
            await asyncio.wait([other])
        return replace(completion, replayed=True)

    def _find(self, key: EqualKey) -> Completion | None:
        if key in self._kept:
            self._kept.move_to_end(key)
        return self._kept.get(key)

    async def _ask(
        self, key: EqualKey, ask: Callable[[], Awaitable[Completion]], *, may_keep: Callable[[Completion], bool]
    ) -> Completion:
        ended = self._under_way[key] = asyncio.get_running_loop().create_future()
        try:
            completion = await ask()
            if may_keep(completion):
                self._keep(key, completion)
            return completion
        finally:
            del self._under_way[key]
            ended.set_result(None)

    def _keep(self, key: EqualKey, completion: Completion) -> None:
        self._kept[key] = completion
        self._num_tokens += _size(completion)
        while self._num_tokens > KEPT_TOKENS:
            self._num_tokens -= _size(self._kept.popitem(last=False)[1])


def _size(completion: Completion) -> int:
    return max(LEAST_TOKENS, len(completion.token_ids))
