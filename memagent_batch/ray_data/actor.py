"""The life of a reading actor: it starts one engine, keeps what is finished in the turn log, and stops at once.

Ray replaces an actor that died and gives the next one the same documents, which go on from the log.
"""

import asyncio
import contextlib
import os
import threading
import uuid
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any, NoReturn

import ray

from memagent_batch.config import JobConfig
from memagent_batch.engines.engine import Engine, RemoteEngine
from memagent_batch.errors import EngineDeadError, StorageError
from memagent_batch.files.location import Location
from memagent_batch.log.index import read_turns, scan_turn_files
from memagent_batch.log.question_list import read_asked
from memagent_batch.log.writer import TurnLogWriter
from memagent_batch.ray_data.leaving import heed_actor_sigterm
from memagent_batch.ray_data.reporter import Reporter, is_replacement
from memagent_batch.reading.agent import LoadedAgent, make_agent
from memagent_batch.reading.documents import PlannedDocument
from memagent_batch.reading.questions import Questions
from memagent_batch.reading.suspects import Suspects
from memagent_batch.reading.turns import Journal, LoggedTurns
from memagent_batch.wiring import make_engine, make_output, require_reader

BOARD_SECONDS = 30.0
"""Longest wait for the board's answer whether the run is under way."""
LAST_FLUSH_SECONDS = 30.0
"""Longest wait for the log's last flush when the engine has died."""
LAST_STOP_SECONDS = 20.0
"""Longest wait for the end of its processes: vLLM asks them to leave, and kills them after 5 s."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTask:
    """What every reader of a run is given."""

    job: JobConfig
    """All knobs."""
    run_id: str
    """The run."""
    reader_fingerprint: str
    """The reader's identity, part of every address."""
    board: Any
    """Actor handle of the ProgressBoard."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedActor:
    """What an actor reads with once its engine is up."""

    agent: LoadedAgent
    """Policy, prompts and tokeniser."""
    questions: Questions
    """The question list of the run."""
    engine: Engine
    """The engine."""
    journal: Journal
    """The turn log, and the turns under way."""
    reporter: Reporter
    """Counts and events for the driver."""
    slots: asyncio.Semaphore
    """Places of readings in flight."""
    output: Location
    """The run's location."""
    reader_fingerprint: str
    """Whose turns are replayed."""
    run_files: Mapping[str, Sequence[str]]
    """Files of turns by document, which this actor wrote in this run before it was restarted."""

    async def held_turns(self, document: PlannedDocument) -> LoggedTurns:
        """Turns of the document that the log holds: of earlier runs, and of this run's actors before this one."""
        files = sorted({*document.turn_files, *self.run_files.get(document.document_hash, ())})
        if not files:
            return {}
        read = partial(read_turns, reader_fingerprint=self.reader_fingerprint, document_hashes=[document.document_hash])
        return await asyncio.to_thread(read, self.output, files)


class ActorLife:
    """Starts at the first call of the actor, and ends with its engine or its node."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; all that may fail begins with `start`, since Ray loses what an actor raises here."""
        self._task = task
        self._output = make_output(task.job)
        self._writer = writer_before_restarts()
        self._writer_id = f"{self._writer}{uuid.uuid4().hex[:12]}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: TurnLogWriter | None = None
        heed_actor_sigterm(self._leave)

    async def start(self) -> StartedActor:
        """Starts once, at the first call; every caller gets the same, or the error that kept it from starting."""
        return await asyncio.shield(self._started)

    async def die(self, actor: StartedActor, error: EngineDeadError) -> NoReturn:
        """Keeps what is finished, and which turns were under way; then stops the engine and the process."""
        actor.reporter.count_engine_death(error)
        try:
            await asyncio.to_thread(actor.journal.suspects.save, writer_id=self._writer_id)
            await asyncio.wait_for(actor.journal.log.close(), timeout=LAST_FLUSH_SECONDS)
        finally:
            threading.Timer(LAST_STOP_SECONDS, os._exit, args=(1,)).start()
            await actor.engine.stop()  # one that hangs guards itself no more, and would outlive this process
            os._exit(1)

    async def flush(self, actor: StartedActor) -> None:
        """Keeps what is finished before an error stops the run, which is what is reported."""
        with contextlib.suppress(StorageError, TimeoutError):
            await asyncio.wait_for(actor.journal.log.flush(), LAST_FLUSH_SECONDS)

    @cached_property
    def _started(self) -> asyncio.Task[StartedActor]:
        return asyncio.ensure_future(self._start())

    async def _start(self) -> StartedActor:
        task, job = self._task, self._task.job
        self._loop = asyncio.get_running_loop()
        require_reader(job.agent, fingerprint=task.reader_fingerprint)
        agent = make_agent(job.agent)
        asked = read_asked(self._output, run_id=task.run_id)
        log = TurnLogWriter(self._output, run_id=task.run_id, writer_id=self._writer_id, settings=job.log)
        self._log = log
        suspects = Suspects(output=self._output, run_id=task.run_id)
        await asyncio.to_thread(suspects.load)
        run_files = await asyncio.to_thread(
            scan_turn_files,
            self._output,
            reader_fingerprint=task.reader_fingerprint,
            begins=f"{task.run_id}-{self._writer}",
        )
        engine = await self._start_engine()
        reporter = Reporter(
            board=task.board, log=log, run_id=task.run_id, model=job.agent.model, policy=job.agent.policy.kind
        )
        reporter.count_engine_start(engine)
        self._background = asyncio.create_task(reporter.report())
        return StartedActor(
            agent=agent,
            questions=Questions(asked, reader_fingerprint=task.reader_fingerprint),
            engine=engine,
            journal=Journal(log=log, suspects=suspects),
            reporter=reporter,
            slots=asyncio.Semaphore(job.pool.readings_in_flight),
            output=self._output,
            reader_fingerprint=task.reader_fingerprint,
            run_files=run_files,
        )

    async def _start_engine(self) -> Engine:
        engine = make_engine(self._task.job.agent)
        if isinstance(engine, RemoteEngine) and await self._is_under_way():
            await engine.rejoin()
        else:
            await engine.start()
        return engine

    async def _is_under_way(self) -> bool:
        """Whether the run has an engine that was up: in this actor before a restart, or in another one."""
        if is_replacement():
            return True
        with contextlib.suppress(ray.exceptions.RayError, TimeoutError):
            return bool(await asyncio.wait_for(self._task.board.has_turns.remote(), BOARD_SECONDS))
        return False

    def _leave(self) -> None:
        """Called by SIGTERM, in the main thread."""
        if self._loop is None:
            os._exit(1)
        asyncio.run_coroutine_threadsafe(self._flush_and_exit(), self._loop)

    async def _flush_and_exit(self) -> None:
        """Keeps what is finished, then stops the process: Ray starts another one and gives it the same documents."""
        try:
            if self._log is not None:
                await asyncio.wait_for(self._log.flush(), timeout=LAST_FLUSH_SECONDS)
        finally:
            os._exit(1)


def writer_before_restarts() -> str:
    """What begins the names of this actor's log files before and after a restart; empty outside an actor.

    Ray gives a restarted actor the documents that it had, so these are all the files of the run that it needs: with a
    thousand actors beside it, the others' files are too many to look through.
    """
    actor_id = ray.get_runtime_context().get_actor_id() if ray.is_initialized() else None
    return f"{actor_id}-" if actor_id else ""
