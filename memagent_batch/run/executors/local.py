"""The executor of one process: an asyncio loop in a thread, with the same reader, log and tables as on Ray."""

import asyncio
import sys
import threading
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, redirect_stdout
from functools import partial
from itertools import chain, takewhile
from queue import SimpleQueue
from typing import Self

import pyarrow as pa

from memagent_batch.config.job import JobConfig
from memagent_batch.errors import EngineDeadError, EngineStartError, RunFailedError
from memagent_batch.logs import quiet_libraries
from memagent_batch.run.executors.executor import Tokenise, WorkItem
from memagent_batch.run.executors.leaving import FORCED_EXIT, terminable
from memagent_batch.run.executors.reader import (
    LAST_FLUSH_SECONDS,
    LAST_STOP_SECONDS,
    MAX_STARTS,
    RESTART_SECONDS,
    Reader,
    ReaderProcess,
    ReaderTask,
)
from memagent_batch.run.executors.reports import Board

CLOSE_SECONDS = LAST_FLUSH_SECONDS + LAST_STOP_SECONDS + 5
"""Longest wait for the end of the readings that a run leaves."""


class LocalExecutor:
    """Does all work in this process; see `Executor`."""

    @property
    def num_cpus(self) -> int:
        """One: items come one after the other."""
        return 1

    @contextmanager
    def session(self, job: JobConfig | None = None, *, reads: bool = True) -> Iterator[None]:
        """While it is open, SIGTERM raises, and all that libraries print goes to stderr."""
        with FORCED_EXIT, redirect_stdout(sys.stderr), terminable():
            yield

    def map(
        self,
        function: Callable[[WorkItem], pa.Table | Iterable[pa.Table]],
        items: Iterable[WorkItem],
        *,
        is_heavy: bool = False,
    ) -> Iterator[pa.Table]:
        """One item after the other."""
        for item in items:
            made = function(item)
            yield from [made] if isinstance(made, pa.Table) else made

    def start_board(self) -> Board:
        """A board in this process."""
        return Board()

    @contextmanager
    def read(
        self, batches: Iterable[pa.Table], *, tokenise: Tokenise, reader: type[Reader], task: ReaderTask
    ) -> Iterator[Iterator[pa.Table]]:
        """One engine, which is started again when it has died."""
        planned = takewhile(lambda _: task.board.may_start_turns(), batches)
        calls = chain.from_iterable(map(tokenise, planned))
        with quiet_libraries(), Readings(calls, partial(reader, task), task.pool.readings_in_flight) as readings:
            yield iter(readings)


class Readings:
    """Readings on an event loop in its own thread, so that the main thread can leave at any time."""

    def __init__(
        self, calls: Iterator[pa.Table], make_reader: Callable[[ReaderProcess], Reader], readings_in_flight: int
    ) -> None:
        self._calls, self._make_reader = calls, make_reader
        self._num_given = 2 * readings_in_flight
        """Calls inside the reader: more than are in flight, since some of them wait for the log."""
        self._coming: asyncio.Future[pa.Table | None] | None = None
        self._unfinished: dict[int, pa.Table] = {}
        self._num_calls = 0
        self._reader = make_reader(ReaderProcess())
        self._ended: SimpleQueue[pa.Table | BaseException | None] = SimpleQueue()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True, name="reading")

    def __enter__(self) -> Self:
        self._thread.start()
        self._reading = asyncio.run_coroutine_threadsafe(self._read_all(), self._loop)
        self._reading.add_done_callback(self._note_end)
        return self

    def __iter__(self) -> Iterator[pa.Table]:
        """Rows of `ENDED`, as readings end."""
        while (ended := self._ended.get()) is not None:
            if isinstance(ended, BaseException):
                raise ended
            yield ended

    def __exit__(self, *error: object) -> None:
        """Leaves what is in flight; what is finished is in the log then, and the engine has stopped.

        While a store or an engine hangs, or loads a model, nobody waits for longer: the thread then ends by itself, or
        with the process.
        """
        self._reading.cancel()
        closing = asyncio.run_coroutine_threadsafe(self._close(), self._loop)
        closing.add_done_callback(lambda _: self._loop.call_soon_threadsafe(self._loop.stop))
        self._thread.join(CLOSE_SECONDS)
        if not self._thread.is_alive():
            self._loop.close()
            closing.result()

    def _note_end(self, reading: "Future[None]") -> None:
        self._ended.put(None if reading.cancelled() else reading.exception())

    async def _read_all(self) -> None:
        """Reads all calls; after the death of an engine, those that are unfinished by the next one.

        That ends: a turn that was in flight at too many deaths is given up.
        """
        while True:
            try:
                async with asyncio.TaskGroup() as group:
                    await self._feed(group)
                return
            except BaseExceptionGroup as errors:
                first = errors.exceptions[0]
                if not (isinstance(first, EngineDeadError) and self._reader.has_died):
                    raise first from None
            await self._replace_reader()

    async def _replace_reader(self) -> None:
        """Puts a reader in place of one whose engine has died.

        Raises:
            RunFailedError: its engine can't start, though it could before.
        """
        for number in range(MAX_STARTS):
            await asyncio.sleep(RESTART_SECONDS if number else 0)
            self._reader = self._make_reader(ReaderProcess(is_replacement=True))
            try:
                await self._reader.start()
                return
            except EngineStartError as error:
                problem = error
                await self._reader.close()
        raise RunFailedError(
            f"the engine died and failed to start again {MAX_STARTS} times: {problem}; the same command goes on from "
            "the log"
        ) from problem

    async def _feed(self, group: asyncio.TaskGroup) -> None:
        """Gives the reader its calls, those that a dead reader has left first."""
        inside = asyncio.Semaphore(self._num_given)
        again = iter(list(self._unfinished))
        while True:
            await inside.acquire()
            number = next(again, None) or await self._next_call()
            if number is None:
                return
            group.create_task(self._read(number, inside))

    async def _next_call(self) -> int | None:
        """Number of the next call, from 1. One that a dead reader had asked for goes to the next reader."""
        if self._coming is None:
            self._coming = asyncio.ensure_future(asyncio.to_thread(next, self._calls, None))
        call = await asyncio.shield(self._coming)
        self._coming = None
        if call is None:
            return None
        self._num_calls += 1
        self._unfinished[self._num_calls] = call
        return self._num_calls

    async def _read(self, number: int, inside: asyncio.Semaphore) -> None:
        self._ended.put(await self._reader(self._unfinished[number]))
        del self._unfinished[number]
        inside.release()

    async def _close(self) -> None:
        await self._reader.close()
        others = asyncio.all_tasks() - {asyncio.current_task()}
        for task in others:
            task.cancel()
        await asyncio.gather(*others, return_exceptions=True)
