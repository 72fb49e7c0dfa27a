"""The reading stage: tokenised documents in, one row for each ended reading out."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import chain

import pyarrow as pa

from memagent_batch.data.store.turn_log.index import ReadingKey, reading_key
from memagent_batch.data.store.turn_log.rows import ClosedRow, OutcomeRow, outcome_row
from memagent_batch.data.store.turn_log.turns import DocumentTurns, LoggedTurns
from memagent_batch.errors import EngineDeadError, EngineRefusedError, NotReadError
from memagent_batch.logs import EventKind
from memagent_batch.loop.addresses import ReadingAddress
from memagent_batch.run.executors.actor import ActorLife, StartedActor
from memagent_batch.run.executors.progress.reporter import ReadingShare, Reporter
from memagent_batch.run.parts import ENDED, EndedRow
from memagent_batch.run.reading.documents import PlannedDocument, planned_documents
from memagent_batch.run.reading.follow_ups import Tracer, close_reading, unclosed
from memagent_batch.run.reading.read import Reading, read
from memagent_batch.run.reading.turns import FollowUpsOnly, ReadingTurns
from memagent_batch.types import Status, cost_of


@dataclass(frozen=True, slots=True, kw_only=True)
class FinishedReading:
    """A reading that ended, or could not be read now."""

    document: PlannedDocument
    question: int
    outcome: OutcomeRow
    closed: ClosedRow | None = None


class Reader(ActorLife):
    """Many readings at once on one event loop; lives as long as its engine."""

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document, or some small ones, for all their questions; in: a row of `CALL`, out: rows of `ENDED`.

        Never raises for what concerns a reading alone.
        """
        ended = await self.read(planned_documents(batch))
        return pa.Table.from_pylist([_ended_row(each) for each in ended], schema=ENDED)

    async def read(self, documents: Sequence[PlannedDocument]) -> list[FinishedReading]:
        """The readings of some documents, each ended and durable."""
        actor = await self.start()
        shared = [_DocumentReadings(actor, document) for document in documents]
        ended = await asyncio.gather(
            *(self._read(actor, of_document, asked) for of_document in shared for asked in of_document.asked())
        )
        return list(chain.from_iterable(ended))

    async def _read(self, actor: StartedActor, shared: "_DocumentReadings", asked: "_Asked") -> list[FinishedReading]:
        """Reads a document for one question, in a place among the readings in flight."""
        reporter, document_hash = actor.reporter, shared.document.document_hash
        question, sample = asked.rows[0], asked.sample
        address = actor.questions.address(question, document_hash=document_hash, sample=sample)
        reporter.waiting += 1
        async with actor.slots:
            reporter.waiting -= 1
            reporter.in_flight += 1
            turns = ReadingTurns(
                engine=FollowUpsOnly(actor.engine) if asked.is_answered else actor.engine,
                address=address,
                document_id=shared.document.document_id,
                seed=self._task.agent.sampling.seed,
                is_sampled=self._task.agent.sampling.temperature > 0,
                from_log=await shared.turns_of(address, is_answered=asked.is_answered),
                log=actor.log,
                suspects=actor.suspects,
                places=actor.places,
                document=shared.number,
            )
            share = shared.share(asked)
            try:
                result = await self._result(actor, shared.document, asked, turns=turns, share=share)
            except EngineDeadError as error:
                await self.die(actor, error)
            except EngineRefusedError:
                await self.flush()
                raise
            reporter.in_flight -= 1
            if result.reading.status is not Status.NOT_READ:
                share.end()
        return await self._end(actor, shared.document, asked, address, result)

    async def _result(
        self,
        actor: StartedActor,
        document: PlannedDocument,
        asked: "_Asked",
        *,
        turns: ReadingTurns,
        share: ReadingShare,
    ) -> "_Result":
        """Reads, or replays what the log holds, and asks what is asked after the answer."""
        question, turns.observe = actor.questions[asked.rows[0]], share.count_turn
        if actor.follow_ups is None:
            return _Result(reading=await read(document.document, question, agent=actor.agent, turns=turns))
        turns.observe = tracer = Tracer(actor.agent.prompts, share.count_turn)
        reading = await read(document.document, question, agent=actor.agent, turns=turns)
        closed: dict[str, ClosedRow] = {}
        for row in asked.rows:
            fingerprint = actor.follow_ups.of_type(actor.questions.types[row])
            if fingerprint is None or fingerprint in closed:
                continue
            if reading.status is Status.OK:
                try:
                    closed[fingerprint] = await close_reading(
                        reading,
                        actor.questions.types[row],
                        question=question.text,
                        document=document.document,
                        sentences=document.sentences,
                        trace=tracer.trace,
                        follow_ups=actor.follow_ups,
                        turns=turns,
                    )
                except NotReadError as error:
                    return _Result(reading=reading, closed=closed, not_closed=error)
            elif asked.is_answered and reading.status is Status.FAILED:
                closed[fingerprint] = unclosed(reading)
        return _Result(reading=reading, closed=closed)

    async def _end(
        self,
        actor: StartedActor,
        document: PlannedDocument,
        asked: "_Asked",
        address: ReadingAddress,
        result: "_Result",
    ) -> list[FinishedReading]:
        """Keeps and reports how a reading ended; returns when that and its turns are durable."""
        log, reporter, reading = actor.log, actor.reporter, result.reading
        keeps = reading.status is not Status.NOT_READ and not asked.is_answered
        if not self._task.is_planned and reading.counts.num_turns == reading.counts.num_replayed_turns > 0:
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
                question_id = actor.questions[row].question_id
                report_failure(reporter, document.document_id, question_id, address.sample, shown)
        if reporter.in_flight == 0:
            await reporter.settle()
        outcome = outcome_row(address, shown.to_row(), run_id=self._task.run_id)
        return [
            FinishedReading(
                document=document,
                question=row,
                outcome=outcome,
                closed=result.closed.get(actor.follow_ups.of_type(actor.questions.types[row]) or "")
                if actor.follow_ups
                else None,
            )
            for row in asked.rows
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Asked:
    """One reading of a document, for one row of the question list or several: the same text, of several types."""

    rows: Sequence[int]
    sample: int
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

    def __init__(self, actor: StartedActor, document: PlannedDocument) -> None:
        """Takes the document; the log is not opened before a reading of it begins."""
        self._actor = actor
        self.document = document
        self.number = actor.places.begin_document()

    def asked(self) -> list[_Asked]:
        """Its readings: rows of the question list with one address are one."""
        rows: dict[ReadingAddress, list[int]] = {}
        document, is_answered = self.document, set[ReadingAddress]()
        for readings in (document.readings, document.follow_up_readings):
            for row, sample in readings:
                address = self._actor.questions.address(row, document_hash=document.document_hash, sample=sample)
                if readings is document.follow_up_readings and address not in rows:
                    is_answered.add(address)
                rows.setdefault(address, []).append(row)
        return [
            _Asked(rows=of_address, sample=address.sample, is_answered=address in is_answered)
            for address, of_address in rows.items()
        ]

    def share(self, asked: _Asked) -> ReadingShare:
        """How much of a reading is done; it has the bytes of the document once for each row of the question list."""
        return ReadingShare(
            self._actor.reporter,
            num_bytes=self.document.num_bytes * len(asked.rows),
            most_turns=lambda: self._most_turns,
        )

    @cached_property
    def _most_turns(self) -> int:
        agent = self._actor.agent
        return cost_of(agent.policy, agent.prompts, self.document.document).num_turns

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
        return asyncio.ensure_future(self._actor.logged_turns(self.document))

    @cached_property
    def _outcomes(self) -> asyncio.Task[Mapping[ReadingKey, OutcomeRow]]:
        """How its answered readings ended; read once."""
        return asyncio.ensure_future(self._actor.outcomes(self.document))


def _ended_row(ended: FinishedReading) -> EndedRow:
    status = str(ended.outcome["status"])
    not_read = ended.outcome if status == Status.NOT_READ else None
    return {"document_id": ended.document.document_id, "status": status, "not_read": not_read}


def report_failure(reporter: Reporter, document_id: str, question_id: str, sample: int, reading: Reading) -> None:
    """Adds a line on a reading without an answer to the driver's log."""
    is_failed = reading.status is Status.FAILED
    end = "failed" if is_failed else "not read"
    error = f"{reading.error_type}: {reading.error_message}"
    reporter.add_event(
        EventKind.READING_FAILED if is_failed else EventKind.READING_NOT_READ,
        f"reading {end}: document {document_id!r}, question {question_id!r}: {error}",
        document_id=document_id,
        question_id=question_id,
        sample=sample,
        error_type=reading.error_type,
        error_message=reading.error_message,
    )
