"""Replicas of an engine in Ray Data's pool: one that can't start costs itself, not the run.

Ray Data gives documents to an actor whose constructor has returned, and can't take them back. So the constructor starts
the engine, and returns once the replica can read. One that can't start, or start again, stays in its constructor, where
it gets no documents, and keeps its GPU from the next actor. Once all documents are given out it returns, and those that
it has from before come back unread; the executor gives them to others. If no replica can start, all return, and the
first document gets the error, which ends the run.
"""

import asyncio
import os
import signal
import threading
import time
import warnings
from collections.abc import Callable
from typing import Any, cast

import pyarrow as pa
import ray

from memagent_batch.errors import EngineStartError, MemagentError, RunFailedError
from memagent_batch.logs import EventKind
from memagent_batch.loop.engines.engine import Engine
from memagent_batch.run.executors.ray.board import NextStep, RayBoard
from memagent_batch.run.executors.ray.metrics import GIVEN_UP
from memagent_batch.run.executors.reader import (
    LAST_STOP_SECONDS,
    MAX_STARTS,
    RESTART_SECONDS,
    Reader,
    ReaderProcess,
    ReaderTask,
)
from memagent_batch.run.executors.reports import ActorReport, Board, Event

TELL_SECONDS = 5.0
"""Pause before the board is told the same again."""


class ActorProcess(ReaderProcess):
    """That of an actor, which ends with its engine; Ray starts another one with the same documents."""

    __slots__ = ()

    def on_sigterm(self, leave: Callable[[], None]) -> None:
        """Calls `leave` when the process gets SIGTERM, as when its node is removed."""
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, lambda number, frame: leave())

    async def end(self, engine: Engine) -> None:
        """Stops the engine and the process."""
        threading.Timer(LAST_STOP_SECONDS, os._exit, args=(1,)).start()
        try:
            await engine.stop()  # one that hangs guards itself no more, and would outlive this process
        finally:
            os._exit(1)


def this_process() -> ReaderProcess:
    """That of this actor; the driver's own outside actors.

    Ray gives a restarted actor the documents that it had, so of the run's files it needs those of this actor alone:
    with a thousand actors beside it, the others' files are too many to look through.
    """
    context = ray.get_runtime_context() if ray.is_initialized() else None
    if context is None or context.get_actor_id() is None:
        return ReaderProcess()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a name that Ray uses itself here
        is_replacement = bool(context.was_current_actor_reconstructed)
    return ActorProcess(is_replacement=is_replacement, writer=f"{context.get_actor_id()}-")


class Replica:
    """Ray Data UDF: a `Reader` on its own event loop, whose engine starts before the first document."""

    def __init__(self, reader: type[Reader], task: ReaderTask) -> None:
        self._task = task
        self._process = this_process()
        self._reader = reader(task, self._process)
        self._error: MemagentError | None = None
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True, name="reading").start()
        asyncio.run_coroutine_threadsafe(self._start(), self._loop).result()

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads documents; see `Reader`.

        Raises:
            RunFailedError: engines could start before, and none can any more.
        """
        if self._error is not None:
            raise self._error
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(self._reader(batch), self._loop))

    async def _start(self) -> None:
        """Starts the engine. An error is kept for the first document, unless other replicas can read."""
        task = self._task
        board, replica = cast(RayBoard, task.board).handle, ray.get_runtime_context().get_actor_id()
        is_new, num_replicas = not self._process.is_replacement, task.pool.replicas
        await board.begin_start.remote(replica, is_new=is_new)
        problem = None
        try:
            await self._reader.start()
        except EngineStartError as error:
            problem = str(error)
        except MemagentError:
            pass  # `Reader` raises it again at the first document
        ended = {"num_replicas": num_replicas, "is_new": is_new, "has_failed": problem is not None}
        step = await board.end_start.remote(replica, **ended)
        if step is NextStep.START_AGAIN:
            await asyncio.sleep(RESTART_SECONDS)
            os._exit(1)  # Ray starts the actor again, on another GPU if one is free
        if step is NextStep.GIVE_UP:
            given_up = f"a replica is given up: its engine failed to start {MAX_STARTS} times: {problem}"
            event = Event(kind=EventKind.REPLICA_GIVEN_UP, message=f"{given_up}; the others go on")
            counts = {} if task.is_repeated else {GIVEN_UP: 1}  # in a later pass it is the same GPU as before
            await board.put.remote(ActorReport(counts=counts, events=[event]))
            if not await board.documents_ended.remote():
                os._exit(1)
            self._reader.give_up(given_up)
        elif problem is not None and await task.board.has_turns():
            self._error = RunFailedError(
                f"no replica can start its engine any more: {problem}; the same command goes on from the log"
            )


def _has_given_all(executor: Any) -> bool:
    """Whether all documents are given to replicas, by what a streaming executor of Ray Data 2.60 keeps."""
    return all(
        operator._inputs_complete and not state.total_enqueued_input_blocks()
        for operator, state in executor._topology.items()
        if f"({Replica.__name__})" in operator.name
    )


class RunNotice:
    """Tells the board when Ray Data begins to run a dataset, and when it ends, so that replicas that were given up end.

    An `ExecutionCallback` of Ray Data.
    """

    def __init__(self, board: Board) -> None:
        self._board = cast(RayBoard, board).handle
        self._told_at = 0.0

    def before_execution_starts(self, executor: object) -> None:
        """A dataset may run again: replicas of its last run have gone."""
        ray.get(self._board.begin_run.remote())

    def on_execution_step(self, executor: Any) -> None:
        """Tells again and again when all documents are given out, since the board may be started again."""
        if time.monotonic() - self._told_at >= TELL_SECONDS and _has_given_all(executor):
            self._told_at = time.monotonic()
            self._board.end_documents.remote()

    def after_execution_succeeds(self, executor: object) -> None:
        """All is read, or the consumer wants no more."""
        self._board.end_run.remote()

    def after_execution_fails(self, executor: object, error: Exception) -> None:
        """The run has stopped."""
        self._board.end_run.remote()
