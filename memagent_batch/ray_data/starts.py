"""Which replicas of a run have started, and what one does whose engine failed to. Lives on the board's event loop."""

import asyncio
from collections import Counter
from collections.abc import Callable
from enum import StrEnum

MAX_STARTS = 3
"""Starts of a replica while others can read; the engine tries again by itself where its process was killed."""

OTHERS_SECONDS = 60.0
"""Longest wait of a replica that failed for others to begin their start."""

START_SECONDS = 1800.0
"""Longest wait for others that start; a cluster may have to add nodes for them."""


class NextStep(StrEnum):
    """What a replica does after a start."""

    READ = "read"
    """Takes documents. The first one gets the error of a start that failed: no other replica can read, or this one has
    documents already, which Ray Data gives to no other."""
    START_AGAIN = "start again"
    """Others can read, so it tries again."""
    GIVE_UP = "give up"
    """It has tried often enough."""


class Starts:
    """The starts of a run's replicas."""

    def __init__(self) -> None:
        """No replica has begun."""
        self._starting = set[str]()
        self._ready = set[str]()
        self._have_read = set[str]()
        self._failures = Counter[str]()
        self._have_settled = False
        self._changed = asyncio.Condition()

    async def begin(self, replica: str) -> None:
        """A replica begins to start, perhaps again."""
        async with self._changed:
            self._starting.add(replica)
            self._ready.discard(replica)
            self._changed.notify_all()

    async def end(self, replica: str, *, num_replicas: int, has_failed: bool) -> NextStep:
        """A start ended; returns when it is clear what follows.

        Ready replicas wait for one another: the first one would take all the longest documents.

        Args:
            replica: its id, the same after Ray has started it again.
            num_replicas: replicas that the run begins with.
            has_failed: whether its engine can't start.
        """
        async with self._changed:
            self._starting.discard(replica)
            self._failures[replica] = self._failures[replica] + 1 if has_failed else 0
            if has_failed:
                self._ready.discard(replica)
            else:
                self._ready.add(replica)
                self._have_read.add(replica)
            self._changed.notify_all()
            if not has_failed:
                await self._until(lambda: self._are_settled(num_replicas), seconds=START_SECONDS)
                self._have_settled = True
                self._changed.notify_all()
                return NextStep.READ
            await self._until(lambda: bool(self._ready) or self._are_settled(num_replicas), seconds=OTHERS_SECONDS)
            await self._until(lambda: bool(self._ready) or not self._starting, seconds=START_SECONDS)
            if not self._ready:
                return NextStep.READ
            if self._failures[replica] < MAX_STARTS:
                return NextStep.START_AGAIN
            return NextStep.READ if replica in self._have_read else NextStep.GIVE_UP

    def _are_settled(self, num_replicas: int) -> bool:
        num_begun = len(self._starting | self._ready | self._failures.keys())
        return self._have_settled or (not self._starting and num_begun >= num_replicas)

    async def _until(self, condition: Callable[[], bool], *, seconds: float) -> None:
        """Waits for the condition, and no longer than this."""
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait_for(condition)
        except TimeoutError:
            return
