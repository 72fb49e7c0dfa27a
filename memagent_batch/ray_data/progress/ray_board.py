"""The board as a Ray actor: between the readers' processes and the driver."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import ray

from memagent_batch.ray_data.progress.board import ProgressBoard, Report
from memagent_batch.ray_data.starts import NextStep, Starts
from memagent_batch.reading.suspects import TurnKey

BOARD_ANSWER_SECONDS = 10.0
"""Longest wait for the board in one look; the next look waits for the same answer.

A run that leaves looks three times before it is ended by force."""


class BoardActor(ProgressBoard):
    """A Ray actor; replicas wait for one another at it."""

    def __init__(self) -> None:
        """Nothing has been reported, and no replica has begun."""
        super().__init__()
        self._starts = Starts()
        self._run_ended = asyncio.Event()
        self._shared: asyncio.Future[ray.ObjectRef] | None = None

    async def begin_start(self, replica: str) -> None:
        """A replica begins to start; see `Starts`."""
        await self._starts.begin(replica)

    async def end_start(self, replica: str, *, num_replicas: int, problem: str | None) -> NextStep:
        """What a replica does whose start ended; see `Starts`."""
        return await self._starts.end(replica, num_replicas=num_replicas, has_failed=problem is not None)

    async def end_run(self) -> None:
        """The readings have ended."""
        self._run_ended.set()

    async def run_ended(self) -> None:
        """Returns once the readings have ended."""
        await self._run_ended.wait()

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def bound_met(self) -> str:
        """The setting of the bound that the run has met; returns once it has."""
        return await super().bound_met()

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def share(self, make: Callable[[], Any]) -> list[ray.ObjectRef]:
        """What `make` returns, for all callers; it is called at the first of them, and again if it raised."""
        if self._shared is None or (self._shared.done() and self._shared.exception() is not None):
            self._shared = asyncio.ensure_future(asyncio.to_thread(lambda: ray.put(make())))
        return [await asyncio.shield(self._shared)]


@dataclass(slots=True, kw_only=True)
class RayBoard:
    """The `Board` of a run on Ray. Mutable: the driver's keeps the look that the actor has not answered yet."""

    handle: Any
    """Actor handle of the BoardActor."""
    _answer: Any = field(default=None, init=False, repr=False)

    def put(self, report: Report) -> Awaitable[None]:
        """Adds a reader's report; it is on its way when this returns, and lost if the board has gone."""
        return _settled(self.handle.put.remote(report))

    def stop_turns(self, bound: str) -> None:
        """The run has met the bound of this setting; said again at each look, since the actor may restart."""
        self.handle.stop_turns.remote(bound)

    def may_start_turns(self) -> bool:
        """Whether the run has met no bound yet."""
        return bool(ray.get(self.handle.may_start_turns.remote()))

    async def bound_met(self) -> str:
        """The setting of the bound that the run has met; returns once it has."""
        return str(await self.handle.bound_met.remote())

    async def has_turns(self) -> bool:
        """Whether any reader has reported a turn, as far as the board answers."""
        with contextlib.suppress(ray.exceptions.RayError):
            return bool(await self.handle.has_turns.remote())
        return False

    async def put_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Adds turns that were under way when an engine died."""
        await self.handle.put_deaths.remote(turns)

    async def deaths(self) -> Sequence[TurnKey]:
        """All that were added."""
        turns: Sequence[TurnKey] = await self.handle.deaths.remote()
        return turns

    async def share(self, make: Callable[[], Any]) -> Any:
        """What `make` returns, which the actor calls once for all readers."""
        try:
            (made,) = await self.handle.share.remote(make)
        except ray.exceptions.RayTaskError as error:
            raise error.cause from None
        return await made

    def take(self) -> Report | None:
        """What the readers reported since the last look; None if the board does not answer."""
        self._answer = self._answer or self.handle.take.remote()
        try:
            report: Report = ray.get(self._answer, timeout=BOARD_ANSWER_SECONDS)
        except TimeoutError:
            return None
        except ray.exceptions.RayError:  # the board restarts, or the cluster is going down: the run itself reports that
            self._answer = None
            return None
        self._answer = None
        return report


async def _settled(sent: Any) -> None:
    with contextlib.suppress(ray.exceptions.RayError):
        await sent


def start_board() -> RayBoard:
    """A board as an actor that takes no CPU."""
    return RayBoard(handle=ray.remote(num_cpus=0, max_restarts=-1)(BoardActor).remote())
