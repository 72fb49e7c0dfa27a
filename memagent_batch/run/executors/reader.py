"""The reading stage: tokenised documents in, one row for each reading that ended out.

A reader starts one engine, reads many documents at once with it, and keeps what is finished in the turn log. It stops
with its engine: Ray replaces an actor that died and gives the next one the same documents, which go on from the log.
"""

import asyncio
import contextlib
import gc
import os
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property, partial
from typing import NoReturn

import pyarrow as pa

from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.follow_ups import FollowUpConfig
from memagent_batch.config.job import LogConfig, PoolConfig, RunConfig
from memagent_batch.data.store.turn_log.files import BATCHES_FOLDER
from memagent_batch.data.store.turn_log.index import ReadingKey, read_outcomes, reading_key, scan_turn_files
from memagent_batch.data.store.turn_log.rows import ClosedRow, OutcomeRow, outcome_row
from memagent_batch.data.store.turn_log.turns import DocumentTurns, LoggedTurns
from memagent_batch.data.store.turn_log.writer import TurnLogWriter
from memagent_batch.errors import EngineDeadError, EngineRefusedError, NotReadError, ReplicaLostError, StorageError
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.loop.engines.engine import Completer, Engine
from memagent_batch.loop.follow_ups.prompts import guide_kinds
from memagent_batch.run.executors.reports import Board, ReadingShare, Reporter
from memagent_batch.run.parts import ENDED, EndedRow
from memagent_batch.run.reading.agent import LoadedAgent, Questions, make_agent
from memagent_batch.run.reading.documents import PlannedDocument, planned_documents
from memagent_batch.run.reading.follow_ups import FollowUps, Tracer, close_reading, make_follow_ups, unclosed
from memagent_batch.run.reading.places import TURNS_AT_ONCE, EqualTurns, Suspects, TurnPlaces
from memagent_batch.run.reading.read import FollowUpsOnly, Reading, ReadingTurns, read
from memagent_batch.run.wiring import make_engine, make_output, require_reader
from memagent_batch.types import Completion, Prompt, Status

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


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedReading:
    """A reading that ended, or could not be read now."""

    document: PlannedDocument
    question: int
    """Row of the question list."""
    outcome: OutcomeRow
    closed: ClosedRow | None = None


class Reader:
    """Many readings at once on one event loop; lives as long as its engine."""

    agent: LoadedAgent
    questions: Questions
    engine: Completer
    follow_ups: FollowUps | None
    """What closes readings; None where nothing is asked after their answers."""
    log: TurnLogWriter
    reporter: Reporter
    suspects: Suspects
    places: TurnPlaces

    def __init__(self, task: ReaderTask, process: ReaderProcess = ReaderProcess()) -> None:
        """Takes the task; all that may fail begins with `start`, since Ray loses what an actor raises here."""
        self.task = task
        self._process = process
        self._loop: asyncio.AbstractEventLoop | None = None
        self._started_engine: Engine | None = None
        self._lost: _LostEngine | None = None
        self._start: asyncio.Task[None] | None = None
        self._background: list[asyncio.Task[None]] = []
        self._death: asyncio.Task[None] | None = None
        self._output = None if task.place is None else make_output(task.place)
        writer_id = f"{process.writer}{uuid.uuid4().hex[:12]}"
        replicas = task.pool.most_replicas
        self.log = TurnLogWriter(
            self._output, run_id=task.run_id, writer_id=writer_id, settings=task.log, replicas=replicas
        )
        self.equal_turns = EqualTurns()
        process.on_sigterm(self._leave)

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document, or some small ones, for all their questions; in: a row of `CALL`, out: rows of `ENDED`.

        Never raises for what concerns a reading alone.
        """
        return pa.Table.from_pylist(list(map(_ended_row, await self.read(planned_documents(batch)))), schema=ENDED)

    async def read(self, documents: Sequence[PlannedDocument]) -> list[FinishedReading]:
        """The readings of some documents, each ended and durable."""
        await self.start()
        shared = [_DocumentReadings(self, document) for document in documents]
        finished = [self._read(of_document, asked) for of_document in shared for asked in of_document.asked()]
        return [each for of_address in await asyncio.gather(*finished) for each in of_address]

    async def _read(self, shared: "_DocumentReadings", asked: "_Asked") -> list[FinishedReading]:
        """Reads a document for one question, in a place among the readings in flight."""
        sampling, reporter, address = self.task.agent.sampling, self.reporter, asked.address
        reporter.waiting += 1
        async with self._slots:
            reporter.waiting -= 1
            reporter.in_flight += 1
            turns = ReadingTurns(
                engine=FollowUpsOnly(self.engine) if asked.is_answered else self.engine,
                address=address,
                document_id=shared.document.document_id,
                seed=sampling.seed,
                is_sampled=sampling.temperature > 0,
                from_log=await shared.turns_of(address, is_answered=asked.is_answered),
                log=self.log,
                suspects=self.suspects,
                equal=self.equal_turns if self.task.is_planned and not asked.is_answered else EqualTurns(),
                places=self.places,
                document=shared.number,
            )
            share = shared.share(asked)
            try:
                result = await self._result(shared.document, asked, turns=turns, share=share)
            except EngineDeadError as error:
                await self._die(error)
            except EngineRefusedError:
                await self.flush()
                raise
            reporter.in_flight -= 1
            if result.reading.status is not Status.NOT_READ:
                share.end()
        return await self._end(shared.document, asked, result)

    async def _result(
        self, document: PlannedDocument, asked: "_Asked", *, turns: ReadingTurns, share: ReadingShare
    ) -> "_Result":
        """Reads, or replays what the log holds, and asks what is asked after the answer."""
        question, turns.observe = self.questions[asked.rows[0]], share.count_turn
        if self.follow_ups is None:
            return _Result(reading=await read(document.document, question, agent=self.agent, turns=turns))
        turns.observe = tracer = Tracer(self.agent.prompts, share.count_turn)
        reading = await read(document.document, question, agent=self.agent, turns=turns)
        closed: dict[str, ClosedRow] = {}
        for row in asked.rows:
            fingerprint = self.follow_ups.of_type(self.questions.types[row])
            if fingerprint is None or fingerprint in closed:
                continue
            if reading.status is Status.OK:
                try:
                    closed[fingerprint] = await close_reading(
                        reading,
                        self.questions.types[row],
                        question=question.text,
                        document=document.document,
                        sentences=document.sentences,
                        trace=tracer.trace,
                        follow_ups=self.follow_ups,
                        turns=turns,
                    )
                except NotReadError as error:
                    return _Result(reading=reading, closed=closed, not_closed=error)
            elif asked.is_answered and reading.status is Status.FAILED:
                closed[fingerprint] = unclosed(reading)
        return _Result(reading=reading, closed=closed)

    async def _end(self, document: PlannedDocument, asked: "_Asked", result: "_Result") -> list[FinishedReading]:
        """Keeps and reports how a reading ended; returns when that and its turns are durable."""
        log, reporter, reading, address = self.log, self.reporter, result.reading, asked.address
        keeps = reading.status is not Status.NOT_READ and not asked.is_answered
        if not self.task.is_planned and reading.counts.num_turns == reading.counts.num_replayed_turns > 0:
            keeps = False  # nothing was asked: the log says which run read it
        kept = [log.record_outcome(address, reading.to_row())] if keeps else [log.settle()]
        for fingerprint, closed in result.closed.items():
            kept.append(log.record_follow_ups(replace(address, fingerprint=fingerprint), closed))
        durable = asyncio.gather(*kept)
        if reporter.in_flight == 0:
            log.flush_soon()
        await durable
        shown = result.shown(is_answered=asked.is_answered)
        for row in asked.rows:
            reporter.count_reading(shown.status)
            if shown.status is not Status.OK:
                reporter.add_failure(
                    document_id=document.document_id,
                    question_id=self.questions[row].question_id,
                    sample=address.sample,
                    is_failed=shown.status is Status.FAILED,
                    error_type=shown.error_type,
                    error_message=shown.error_message,
                )
        if reporter.in_flight == 0:
            await reporter.settle()
        outcome = outcome_row(address, shown.to_row(), run_id=self.task.run_id)
        of_type = self.follow_ups.of_type if self.follow_ups else lambda _: None
        return [
            FinishedReading(
                document=document,
                question=row,
                outcome=outcome,
                closed=result.closed.get(of_type(self.questions.types[row]) or ""),
            )
            for row in asked.rows
        ]

    async def start(self) -> None:
        """Starts once, at the first call; every caller waits for it, and gets the error that kept it from starting.

        Raises:
            EngineStartError: the engine can't start.
        """
        self._start = self._start or asyncio.ensure_future(self._start_all())
        await asyncio.shield(self._start)

    async def _start_all(self) -> None:
        task = self.task
        self._loop = asyncio.get_running_loop()
        self._files = require_reader(task.agent, fingerprint=task.fingerprint)
        self.agent = make_agent(task.agent, self._files)
        self.questions = Questions(task.load_questions(), fingerprint=task.fingerprint)
        self.follow_ups = None
        self._fingerprints = [task.fingerprint]
        if task.follow_ups is not None:
            self.follow_ups = make_follow_ups(task.follow_ups, task.agent, fingerprint=task.fingerprint)
            self._fingerprints += self.follow_ups.of_turns(self.questions.types)
        self.suspects = Suspects(await task.board.deaths())
        self._turn_files = await self._find_turn_files()
        policy = task.agent.policy.kind
        self.reporter = Reporter(
            board=task.board, log=self.log, run_id=task.run_id, model=self.agent.model, policy=policy
        )
        self._slots = asyncio.Semaphore(task.pool.readings_in_flight)
        self.places = TurnPlaces(task.pool.turns_in_flight or max(TURNS_AT_ONCE, task.pool.readings_in_flight))
        self.engine = self._lost or await self._start_engine()
        self._background = [asyncio.create_task(self.reporter.report())]
        if task.is_bounded:
            self._background.append(asyncio.create_task(self._close_at_bound()))
        gc.freeze()  # a collection that looks through vLLM's and torch's objects too stops all readings for 0.3 s

    async def _start_engine(self) -> Engine:
        num_replicas = self.task.pool.most_replicas
        engine = self._started_engine = make_engine(self.task.agent, files=self._files, num_replicas=num_replicas)
        if self._output is not None:
            engine.keep_in(self._output / BATCHES_FOLDER, flush=self.log.flush)
        if self._process.is_replacement or await self.task.board.has_turns():
            await engine.rejoin()  # the run has had an engine that was up, here or in another actor
        else:
            await engine.start()
        if self.follow_ups is not None:
            types = filter(None, set(self.questions.types))
            await engine.require_guides(guide_kinds(self.follow_ups.config, types))
        self.reporter.count_engine_start(engine, is_replacement=self._process.is_replacement)
        return engine

    async def _find_turn_files(self) -> Mapping[str, Sequence[str]]:
        """Turn files by document hash and by document id: those of this run, beside those that are given.

        A plan has named all others, so a replacement looks for those of its own actor.
        """
        task = self.task
        if self._output is None:
            return {}
        is_other = task.is_repeated or not task.is_planned
        begins = task.run_id if is_other else f"{task.run_id}-{self._process.writer}"
        look = partial(scan_turn_files, self._output, fingerprints=self._fingerprints, begins=begins)
        files, before = await asyncio.to_thread(look), await asyncio.to_thread(task.load_turn_files)
        return {**before, **{name: sorted({*new, *before.get(name, ())}) for name, new in files.items()}}

    async def logged_turns(self, document: PlannedDocument) -> DocumentTurns | None:
        """Turns of a document, in all its versions; None if the log has none."""
        names = (document.document_hash, document.document_id)
        files = sorted({*document.turn_files, *(file for name in names for file in self._turn_files.get(name, ()))})
        if not files or self._output is None:
            return None
        load = partial(
            DocumentTurns,
            fingerprints=self._fingerprints,
            document_hash=document.document_hash,
            document_id=document.document_id,
        )
        return await asyncio.to_thread(load, self._output, files)

    async def outcomes(self, document: PlannedDocument) -> Mapping[ReadingKey, OutcomeRow]:
        """How the readings of a document ended whose follow-up questions are missing."""
        if not document.outcome_files or self._output is None:
            return {}
        hashes = [document.document_hash]
        load = partial(read_outcomes, fingerprint=self.task.fingerprint, document_hashes=hashes)
        return await asyncio.to_thread(load, self._output, document.outcome_files)

    async def _close_at_bound(self) -> None:
        """Starts no further turn once the run has met a bound; those in flight end, and are kept."""
        bound = await self.task.board.bound_met()
        self.places.close(f"the run starts no further turn ({bound}); the same command goes on")

    async def _die(self, error: EngineDeadError) -> NoReturn:
        """Keeps what is finished, and which turns were in flight; then stops the engine, and the process of an actor.

        Raises:
            EngineDeadError: the engine has stopped, and this is the driver's own process.
        """
        self.reporter.count_engine_death(error)
        self._death = self._death or asyncio.ensure_future(self._shut_down())
        await asyncio.shield(self._death)
        raise error

    @property
    def has_died(self) -> bool:
        """Whether the engine has died."""
        return self._death is not None

    async def _shut_down(self) -> None:
        self._cancel_background()
        try:
            await self.task.board.put_deaths(self.suspects.at_death)
            with contextlib.suppress(TimeoutError):  # what was not written is read again
                await asyncio.wait_for(self.log.flush(), timeout=LAST_FLUSH_SECONDS)
        finally:
            if self._started_engine is not None:
                await self._process.end(self._started_engine)

    def give_up(self, problem: str) -> None:
        """Makes readings end unread for this reason where they need the engine, which can't start. Reports nothing."""
        self._start, self._lost = None, _LostEngine(problem)
        self.task = replace(self.task, board=Board())

    async def close(self) -> None:
        """Keeps what is finished, for a while if the store is slow, and stops the engine."""
        gc.unfreeze()
        if self._start is not None:
            self._start.cancel()
        self._cancel_background()
        await self.flush()
        if self._started_engine is not None:
            await self._process.end(self._started_engine)

    async def flush(self) -> None:
        """Keeps what is finished, for a while if the store is slow; another error stops the run, and is reported."""
        with contextlib.suppress(StorageError, TimeoutError):
            await asyncio.wait_for(self.log.flush(), LAST_FLUSH_SECONDS)

    def _cancel_background(self) -> None:
        for task in self._background:
            task.cancel()

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


class _LostEngine:
    """Stands for an engine that can't start again."""

    def __init__(self, problem: str) -> None:
        self._problem = problem

    async def complete(self, prompt: Prompt, *, seed: int) -> Completion:
        raise ReplicaLostError(self._problem)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One reading of a document, for one row of the question list or several: the same text, of several types."""

    address: ReadingAddress
    rows: Sequence[int]
    is_answered: bool
    """Whether the log holds how it ended; it is replayed then, and closed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result:
    reading: Reading
    closed: Mapping[str, ClosedRow] = field(default_factory=dict)
    """What was asked after its answer, by the fingerprint of what was asked."""
    not_closed: NotReadError | None = None
    """What kept the rest from being asked now; the next run asks."""

    def shown(self, *, is_answered: bool) -> Reading:
        """The reading as this run counts and shows it.

        One that is answered and can't be closed now is not read: the next run closes it. One that the log holds and no
        longer can replay has its answer all the same.
        """
        error = self.not_closed
        if error is None:
            return replace(self.reading, status=Status.OK) if is_answered and self.closed else self.reading
        return replace(
            self.reading, status=Status.NOT_READ, error_type=type(error).__name__, error_message=str(error), error=error
        )


class _DocumentReadings:
    """What the readings of one document have in common."""

    def __init__(self, reader: Reader, document: PlannedDocument) -> None:
        """Takes the document; the log is not opened before a reading of it begins."""
        self._reader = reader
        self.document = document
        self.number = reader.places.begin_document()

    def asked(self) -> list[_Asked]:
        """Its readings: rows of the question list with one address are one."""
        rows: dict[ReadingAddress, list[int]] = {}
        document, is_answered = self.document, set[ReadingAddress]()
        for readings in (document.readings, document.follow_up_readings):
            for row, sample in readings:
                address = self._reader.questions.address(row, document_hash=document.document_hash, sample=sample)
                if readings is document.follow_up_readings and address not in rows:
                    is_answered.add(address)
                rows.setdefault(address, []).append(row)
        return [
            _Asked(address=address, rows=of_address, is_answered=address in is_answered)
            for address, of_address in rows.items()
        ]

    def share(self, asked: _Asked) -> ReadingShare:
        """How much of a reading is done; it has the bytes of the document once for each row of the question list."""
        num_bytes = self.document.num_bytes * len(asked.rows)
        return ReadingShare(self._reader.reporter, num_bytes=num_bytes, most_turns=lambda: self._most_turns)

    @cached_property
    def _most_turns(self) -> int:
        return self._reader.agent.cost(self.document.document).num_turns

    async def turns_of(self, address: ReadingAddress, *, is_answered: bool) -> Mapping[str, LoggedTurns]:
        """Turns that the log holds for a reading, by fingerprint; of one that was answered, those that it had."""
        from_log = await asyncio.shield(self._from_log)
        if from_log is None:
            return {}
        turns = await asyncio.to_thread(from_log.of_reading, address.question_hash, address.sample)
        outcomes = await asyncio.shield(self._outcomes) if is_answered else {}
        if (outcome := outcomes.get(reading_key(address))) is not None:
            turns[address.fingerprint] = turns[address.fingerprint].of_outcome(outcome)
        return turns

    @cached_property
    def _from_log(self) -> asyncio.Task[DocumentTurns | None]:
        """Turns of the document that the log holds; read once."""
        return asyncio.ensure_future(self._reader.logged_turns(self.document))

    @cached_property
    def _outcomes(self) -> asyncio.Task[Mapping[ReadingKey, OutcomeRow]]:
        """How its answered readings ended; read once."""
        return asyncio.ensure_future(self._reader.outcomes(self.document))


def _ended_row(finished: FinishedReading) -> EndedRow:
    status = str(finished.outcome["status"])
    not_read = finished.outcome if status == Status.NOT_READ else None
    return {"document_id": finished.document.document_id, "status": status, "not_read": not_read}
