"""The life of a reading actor: it starts one engine, keeps what is finished in the turn log, and stops at once.

Ray replaces an actor that died and gives the next one the same documents, which go on from the log.
"""

import asyncio
import contextlib
import gc
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NoReturn, Self

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import LogConfig, PoolConfig, RunConfig
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import ReadingKey, read_outcomes, scan_turn_files
from memagent_batch.data.store.turn_log.rows import OutcomeRow
from memagent_batch.data.store.turn_log.turns import DocumentTurns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import EngineDeadError, ReplicaLostError, StorageError
from memagent_batch.loop.engines.engine import Engine, EngineContext
from memagent_batch.loop.follow_ups.prompts import guide_kinds
from memagent_batch.run.executors.progress.board import Board
from memagent_batch.run.executors.progress.reporter import Reporter
from memagent_batch.run.reading.agent import LoadedAgent, Questions, make_agent
from memagent_batch.run.reading.documents import PlannedDocument
from memagent_batch.run.reading.follow_ups import FollowUps, make_follow_ups
from memagent_batch.run.reading.places import TURNS_AT_ONCE, TurnPlaces
from memagent_batch.run.reading.suspects import Suspects
from memagent_batch.run.wiring import make_engine, make_output, require_reader
from memagent_batch.types import Completion, Prompt

MAX_STARTS = 3
"""Starts in a row of an engine that could start before, or of one replica beside others that can read."""
RESTART_SECONDS = 5.0
"""Pause before another start: what holds the GPU's memory may be a process that is ending."""
LAST_STOP_SECONDS = 20.0
"""Longest wait for the end of an engine's processes: vLLM asks them to leave, and kills them after 5 s."""
LAST_FLUSH_SECONDS = 30.0
"""Longest wait for the log's last flush when the engine has died."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderTask:
    """What every reader of a run is given."""

    agent: AgentConfig
    pool: PoolConfig
    """The actors: readings and turns that each keeps going at once."""
    run_id: str
    fingerprint: str
    tokenizer_sha256: str | None = None
    """Hash of the tokeniser that the run began with, for what is tokenised outside the readers."""
    board: Board
    place: RunConfig | None
    """Where the turn log is; None keeps nothing. Not a Location: Ray Data's reports show dataclasses value by value."""
    log: LogConfig
    load_questions: Callable[[], pa.Table]
    """Gives the question list with its hashes; a job's is in its log."""
    is_planned: bool = True
    """Whether a plan names the log files of each document."""
    is_repeated: bool = False
    """Whether this run has read of these documents already, so that its log has turns of them."""
    load_turn_files: Callable[[], Mapping[str, Sequence[str]]] = dict
    """Gives turn files of earlier runs by document hash and by document id, where no plan names them."""
    follow_ups: FollowUpConfig | None = None
    """What is asked after each answer; None for nothing, whatever types the questions have."""
    is_bounded: bool = False
    """Whether the board may say that the run has met a bound."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StartedActor:
    """What an actor reads with once its engine is up."""

    agent: LoadedAgent
    questions: Questions
    engine: Engine
    log: TurnLogWriter
    suspects: Suspects
    reporter: Reporter
    slots: asyncio.Semaphore
    places: TurnPlaces
    output: Location | None
    """Where the log is; None where nothing is kept."""
    fingerprints: Sequence[str]
    """Fingerprints of the reader and of its follow-up questions."""
    turn_files: Mapping[str, Sequence[str]]
    """Turn files by document hash and by document id, beside those that a planned document names."""
    follow_ups: FollowUps | None
    """What closes readings; None where nothing is asked after their answers."""

    async def logged_turns(self, document: PlannedDocument) -> DocumentTurns | None:
        """Turns of a document, in all its versions; None if the log has none."""
        names = (document.document_hash, document.document_id)
        files = sorted({*document.turn_files, *(file for name in names for file in self.turn_files.get(name, ()))})
        if not files or self.output is None:
            return None
        load = partial(
            DocumentTurns,
            fingerprints=self.fingerprints,
            document_hash=document.document_hash,
            document_id=document.document_id,
        )
        return await asyncio.to_thread(load, self.output, files)

    async def outcomes(self, document: PlannedDocument) -> Mapping[ReadingKey, OutcomeRow]:
        """How the readings of a document ended whose follow-up questions are missing."""
        if not document.outcome_files or self.output is None:
            return {}
        load = partial(read_outcomes, fingerprint=self.fingerprints[0], document_hashes=[document.document_hash])
        return await asyncio.to_thread(load, self.output, document.outcome_files)


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderProcess:
    """The driver's own process, which lives on when an engine dies; see `ActorProcess` for that of an actor."""

    is_replacement: bool = False
    """Whether an earlier reader of the same documents has gone."""
    writer: str = ""
    """What begins the names of the log files of this reader and of those that it replaces."""

    def on_sigterm(self, leave: Callable[[], None]) -> None:
        """Calls `leave` at SIGTERM; the driver's process has a way of its own to leave."""

    async def end(self, engine: Engine) -> None:
        """Stops an engine that has died, and what can't live without it."""
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(engine.stop(), LAST_STOP_SECONDS)


class LostEngine(Engine):
    """Stands for an engine that can't start again."""

    kind = "lost"
    takes_guides = True

    def __init__(self, problem: str) -> None:
        self._problem = problem

    def open(self, context: EngineContext) -> Self:
        """Does nothing."""
        return self

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        """Never completes.

        Raises:
            ReplicaLostError: the engine can't start again.
        """
        raise ReplicaLostError(self._problem)

    def identity(self) -> Mapping[str, Any]:
        """Nothing."""
        return {}


class ActorLife:
    """Starts at the first call of the actor, and ends with its engine or its node."""

    def __init__(self, task: ReaderTask, process: ReaderProcess = ReaderProcess()) -> None:
        """Takes the task; all that may fail begins with `start`, since Ray loses what an actor raises here."""
        self._task = task
        self._process = process
        self._writer_id = f"{process.writer}{uuid.uuid4().hex[:12]}"
        self._loop: asyncio.AbstractEventLoop | None = None
        self._log: TurnLogWriter | None = None
        self._engine: Engine | None = None
        self._lost: LostEngine | None = None
        self._started: asyncio.Task[StartedActor] | None = None
        self._background: list[asyncio.Task[None]] = []
        self._death: asyncio.Task[None] | None = None
        process.on_sigterm(self._leave)

    async def start(self) -> StartedActor:
        """Starts once, at the first call; every caller gets the same, or the error that kept it from starting.

        Raises:
            EngineStartError: the engine can't start.
        """
        self._started = self._started or asyncio.ensure_future(self._start())
        return await asyncio.shield(self._started)

    async def die(self, actor: StartedActor, error: EngineDeadError) -> NoReturn:
        """Keeps what is finished, and which turns were in flight; then stops the engine, and the process of an actor.

        Raises:
            EngineDeadError: the engine has stopped, and this is the driver's own process.
        """
        actor.reporter.count_engine_death(error)
        self._death = self._death or asyncio.ensure_future(self._shut_down(actor))
        await asyncio.shield(self._death)
        raise error

    def give_up(self, problem: str) -> None:
        """Makes readings end unread for this reason where they need the engine, which can't start. Reports nothing."""
        self._started, self._lost = None, LostEngine(problem)
        self._task = replace(self._task, board=Board())

    async def close(self) -> None:
        """Keeps what is finished, for a while if the store is slow, and stops the engine."""
        gc.unfreeze()
        if self._started is not None:
            self._started.cancel()
        self._cancel_background()
        await self.flush()
        if self._engine is not None:
            await self._process.end(self._engine)

    @property
    def has_died(self) -> bool:
        """Whether the engine has died."""
        return self._death is not None

    async def flush(self) -> None:
        """Keeps what is finished, for a while if the store is slow; another error stops the run, and is reported."""
        if self._log is not None:
            with contextlib.suppress(StorageError, TimeoutError):
                await asyncio.wait_for(self._log.flush(), LAST_FLUSH_SECONDS)

    async def _start(self) -> StartedActor:
        task = self._task
        self._loop = asyncio.get_running_loop()
        require_reader(task.agent, fingerprint=task.fingerprint)
        agent, closes = make_agent(task.agent), task.follow_ups
        follow_ups = make_follow_ups(closes, task.agent, fingerprint=task.fingerprint) if closes else None
        questions = Questions(task.load_questions(), fingerprint=task.fingerprint)
        output = None if task.place is None else make_output(task.place)
        log = TurnLogWriter(
            output, run_id=task.run_id, writer_id=self._writer_id, settings=task.log, replicas=task.pool.most_replicas
        )
        self._log = log
        suspects = Suspects(await task.board.deaths())
        fingerprints = [task.fingerprint, *(follow_ups.of_turns(questions.types) if follow_ups else ())]
        turn_files = await self._turn_files(output, fingerprints) if output is not None else {}
        engine = self._lost or await self._start_engine()
        if follow_ups is not None:
            await engine.require_guides(guide_kinds(follow_ups.config, filter(None, set(questions.types))))
        reporter = Reporter(
            board=task.board, log=log, run_id=task.run_id, model=agent.model, policy=task.agent.policy.kind
        )
        reporter.count_engine_start(engine, is_replacement=self._process.is_replacement)
        places = TurnPlaces(task.pool.turns_in_flight or max(TURNS_AT_ONCE, task.pool.readings_in_flight))
        background = [reporter.report(), *([_close_at_bound(places, board=task.board)] if task.is_bounded else [])]
        self._background = [asyncio.create_task(each) for each in background]
        gc.freeze()  # a collection that looks through vLLM's and torch's objects too stops all readings for 0.3 s
        return StartedActor(
            agent=agent,
            questions=questions,
            engine=engine,
            log=log,
            suspects=suspects,
            reporter=reporter,
            slots=asyncio.Semaphore(task.pool.readings_in_flight),
            places=places,
            output=output,
            fingerprints=fingerprints,
            turn_files=turn_files,
            follow_ups=follow_ups,
        )

    async def _turn_files(self, output: Location, fingerprints: Sequence[str]) -> Mapping[str, Sequence[str]]:
        """Turn files by document hash and by document id: those of this run, beside those that are given.

        A plan has named all others, so a replacement looks for those of its own actor.
        """
        task = self._task
        is_other = task.is_repeated or not task.is_planned
        begins = task.run_id if is_other else f"{task.run_id}-{self._process.writer}"
        look = partial(scan_turn_files, output, fingerprints=fingerprints, begins=begins)
        files, before = await asyncio.to_thread(look), await asyncio.to_thread(task.load_turn_files)
        return {**before, **{name: sorted({*new, *before.get(name, ())}) for name, new in files.items()}}

    async def _shut_down(self, actor: StartedActor) -> None:
        """Keeps what there is to keep after the engine's death, and stops it."""
        self._cancel_background()
        try:
            await self._task.board.put_deaths(actor.suspects.at_death)
            with contextlib.suppress(TimeoutError):  # what was not written is read again
                await asyncio.wait_for(actor.log.flush(), timeout=LAST_FLUSH_SECONDS)
        finally:
            await self._process.end(actor.engine)

    def _cancel_background(self) -> None:
        for task in self._background:
            task.cancel()

    async def _start_engine(self) -> Engine:
        engine = self._engine = make_engine(self._task.agent)
        if self._process.is_replacement or await self._task.board.has_turns():
            await engine.rejoin()  # the run has had an engine that was up, here or in another actor
        else:
            await engine.start()
        return engine

    def _leave(self) -> None:
        """Called by SIGTERM, in the main thread."""
        if self._loop is None:
            os._exit(1)
        asyncio.run_coroutine_threadsafe(self._flush_and_exit(), self._loop)

    async def _flush_and_exit(self) -> None:
        """Keeps what is finished, then stops the process: Ray starts another one and gives it the same documents."""
        try:
            await self.flush()
        finally:
            os._exit(1)


async def _close_at_bound(places: TurnPlaces, *, board: Board) -> None:
    """Starts no further turn once the run has met a bound; those in flight end, and are kept."""
    bound = await board.bound_met()
    places.close(f"the run starts no further turn ({bound}); the same command goes on")
