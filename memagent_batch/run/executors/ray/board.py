"""The board as a Ray actor: between the readers' processes and the driver; replicas wait for one another at it."""

import asyncio
import contextlib
import time
import uuid
from collections import Counter
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Any

import ray

from memagent_batch.run.executors.ray.session import START_SECONDS
from memagent_batch.run.executors.reader import MAX_STARTS
from memagent_batch.run.executors.reports import ActorReport, Board, ReplicaCounts
from memagent_batch.run.reading.places import TurnKey

BOARD_ANSWER_SECONDS = 10.0
"""Longest wait for the board in one look; the next look waits for the same answer.

A run that leaves looks three times before it is ended by force."""
BOARD_SECONDS = 30.0
"""Longest wait of a reader for the board's answer."""
OTHERS_SECONDS = 60.0
"""Longest wait of a replica that failed for others to begin their start."""


PLACEMENT_SECONDS = 20.0
"""Time from the start of one replica in which the others begin theirs, unless the cluster has no room for them."""


class NextStep(StrEnum):
    """What a replica does after a start."""

    READ = "read"
    """Takes documents. If its start failed, no other replica can read either, and the first document gets the error."""
    START_AGAIN = "start again"
    """Tries again: it could start before, or others can."""
    GIVE_UP = "give up"
    """It has tried often enough, and others read."""


class Starts:
    """The starts of a run's replicas."""

    def __init__(self) -> None:
        self._begun: dict[str, float] = {}
        self._starting = set[str]()
        self._ready = set[str]()
        self._num_replicas = 0
        self._failures = Counter[str]()
        self._have_settled = False
        self._changed = asyncio.Condition()

    async def begin(self, replica: str, *, is_new: bool = True) -> None:
        """A replica begins to start, perhaps again.

        Nobody waits for one that starts again and is not known: it is of readings that have ended, and Ray is about to
        end it; or this board was started again.
        """
        async with self._changed:
            if not is_new and replica not in self._begun:
                return
            self._begun[replica] = time.monotonic()
            self._starting.add(replica)
            self._ready.discard(replica)
            self._changed.notify_all()

    async def end(self, replica: str, *, num_replicas: int, is_new: bool, has_failed: bool) -> NextStep:
        """A start of a replica ended, its first or another; returns when it is clear what follows.

        A replica that Ray has started again (not `is_new`) has its documents, and waits for nobody. A board that was
        started again does not know it, nor any other; its id is the same then.
        """
        async with self._changed:
            if is_new:
                self._begun.setdefault(replica, time.monotonic())
            self._num_replicas = num_replicas
            self._starting.discard(replica)
            self._failures[replica] = self._failures[replica] + 1 if has_failed else 0
            if has_failed:
                self._ready.discard(replica)
            else:
                self._ready.add(replica)
            self._changed.notify_all()
            if not has_failed:
                if is_new:
                    await self._until_others_are_ready(time.monotonic() - self._begun[replica])
                return NextStep.READ
            return await self._step_after_failure(replica, is_new=is_new)

    def counts(self) -> ReplicaCounts:
        """How many replicas are ready, of how many that were asked for."""
        return ReplicaCounts(ready=len(self._ready), asked=self._num_replicas)

    async def _until_others_are_ready(self, start_seconds: float) -> None:
        """Waits for the other replicas for a while, since the first one to read takes all the longest documents.

        Those that have begun to start may take as long again as this one did; those that the cluster has no room for
        join when they come.
        """
        await self._until(self._have_begun, seconds=PLACEMENT_SECONDS - start_seconds)
        await self._until(
            lambda: self._have_settled or not self._starting, seconds=max(start_seconds, PLACEMENT_SECONDS)
        )
        self._have_settled = True
        self._changed.notify_all()

    async def _step_after_failure(self, replica: str, *, is_new: bool) -> NextStep:
        if is_new or self._failures[replica] >= MAX_STARTS:
            await self._until(lambda: bool(self._ready) or self._have_begun(), seconds=OTHERS_SECONDS)
            await self._until(lambda: bool(self._ready) or not self._starting, seconds=START_SECONDS)
            if not self._ready:
                return NextStep.READ
        return NextStep.START_AGAIN if self._failures[replica] < MAX_STARTS else NextStep.GIVE_UP

    def _have_begun(self) -> bool:
        num_begun = len(self._begun.keys() & (self._starting | self._ready | self._failures.keys()))
        return self._have_settled or num_begun >= self._num_replicas

    async def _until(self, condition: Callable[[], bool], *, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait_for(condition)
        except TimeoutError:
            return


class BoardActor(Board):
    """A Ray actor; replicas wait for one another at it."""

    def __init__(self) -> None:
        super().__init__()
        self._id = uuid.uuid4().hex
        self._starts = Starts()
        self._run_ended, self._all_given = asyncio.Event(), asyncio.Event()

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def begin_start(self, replica: str, *, is_new: bool) -> None:
        """A replica begins to start, for the first time or again; see `Starts`."""
        if is_new:
            await self.begin_run()  # Ray Data makes its replicas before it says that it runs
        await self._starts.begin(replica, is_new=is_new)

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def end_start(self, replica: str, *, num_replicas: int, is_new: bool, has_failed: bool) -> NextStep:
        """What a replica does whose start ended; see `Starts`."""
        return await self._starts.end(replica, num_replicas=num_replicas, is_new=is_new, has_failed=has_failed)

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def begin_run(self) -> None:
        """Readings begin, those of the run or of a dataset that is consumed again: forgets the replicas of others."""
        if self._run_ended.is_set():
            self._starts, self._run_ended, self._all_given = Starts(), asyncio.Event(), asyncio.Event()

    async def end_run(self) -> None:
        """The readings have ended."""
        self._run_ended.set()
        self._all_given.set()

    async def end_documents(self) -> None:
        """The last document was given to a replica."""
        self._all_given.set()

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def documents_ended(self) -> bool:
        """Returns once no more documents are given to replicas: whether the readings still go on."""
        await self._all_given.wait()
        return not self._run_ended.is_set()

    def take(self) -> ActorReport:
        """All reports since the last call, with the state of the replicas."""
        return replace(super().take(), board_id=self._id, replicas=self._starts.counts())

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def put_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Adds the turns that were in flight when an engine died."""
        await super().put_deaths(turns)

    @ray.method(max_task_retries=-1)  # type: ignore[untyped-decorator]
    async def bound_met(self) -> str:
        """The setting of the bound that the run has met; returns once it has."""
        return await super().bound_met()


class RayBoard(Board):
    """The `Board` of a run on Ray, whose state is in an actor. The driver's keeps a look that was not answered yet."""

    def __init__(self, handle: Any) -> None:
        self.handle = handle
        self._look: Any = None
        self._board_id = ""
        self._known_deaths: list[TurnKey] = []

    def put(self, report: ActorReport) -> Coroutine[Any, Any, None]:
        """Adds a reader's report; it is on its way when this returns, and lost if the board has gone."""
        return _answer(self.handle.put.remote(report))

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
        return bool(await _answer(self.handle.has_turns.remote(), otherwise=False))

    async def put_deaths(self, turns: Sequence[TurnKey]) -> None:
        """Adds turns that were in flight when an engine died."""
        await _answer(self.handle.put_deaths.remote(turns))

    async def deaths(self) -> Sequence[TurnKey]:
        """All that were added, as far as the board answers."""
        turns: Sequence[TurnKey] = await _answer(self.handle.deaths.remote(), otherwise=())
        return turns

    def take(self) -> ActorReport:
        """What the readers reported since the last look; nothing if the board does not answer."""
        self._look = self._look or self.handle.take.remote()
        try:
            report: ActorReport = ray.get(self._look, timeout=BOARD_ANSWER_SECONDS)
        except TimeoutError:
            return ActorReport(counts={})
        except ray.exceptions.RayError:  # the board restarts, or the cluster is going down: the run itself reports that
            report = ActorReport(counts={})
        self._look = None
        if self._board_id and report.board_id not in ("", self._board_id):  # Ray has started the board again
            self.handle.restore_deaths.remote(self._known_deaths)
        self._board_id = report.board_id or self._board_id
        self._known_deaths.extend(report.deaths)
        return report


async def _answer(sent: Any, *, otherwise: Any = None) -> Any:
    """What the board answers; `otherwise` if it restarts or hangs."""
    with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
        return await asyncio.wait_for(sent, BOARD_SECONDS)
    return otherwise


def start_board() -> RayBoard:
    """A board as an actor that takes no CPU."""
    return RayBoard(ray.remote(num_cpus=0, max_restarts=-1)(BoardActor).remote())
