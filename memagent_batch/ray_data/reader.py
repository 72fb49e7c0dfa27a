"""The reading stage of Ray Data: tokenised documents in, one row for each ended reading out."""

import asyncio
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import pyarrow as pa

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Status
from memagent_batch.errors import EngineDeadError, EngineRefusedError
from memagent_batch.log.index import ReadingKey
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.log.writer import outcome_row
from memagent_batch.logs import EventKind
from memagent_batch.ray_data.actor import ActorLife, ReaderTask, StartedActor
from memagent_batch.ray_data.reporter import Reporter
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ListTurns, LoggedTurns, ReadingTurns
from memagent_batch.runs.parts import ENDED, EndedRow


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """A reading that ended, or could not be read now."""

    document: PlannedDocument
    """What was read."""
    question: int
    """Row of the question list."""
    outcome: OutcomeRow
    """How it ended, as a row of `OUTCOME_LOG`."""


class Reader:
    """Ray Data UDF: many readings at once on one event loop; lives as long as its engine."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; nothing is started before the first document."""
        self._task = task
        self._life = ActorLife(task)

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document, or some small ones, for all their questions; in: a row of `CALL`, out: rows of `ENDED`.

        Never raises for what concerns a reading alone.
        """
        ended = await self.read(planned_documents(batch))
        return pa.Table.from_pylist([_ended_row(each) for each in ended], schema=ENDED)

    async def read(self, documents: Sequence[PlannedDocument]) -> list[Ended]:
        """The readings of some documents, each ended and durable."""
        actor = await self._life.start()
        readings = [
            self._read(actor, shared, question, sample)
            for shared in [_DocumentReadings(actor, document) for document in documents]
            for question, sample in shared.document.readings
        ]
        return await asyncio.gather(*readings)

    async def held_outcomes(self, document: PlannedDocument) -> Mapping[ReadingKey, OutcomeRow]:
        """How readings of the document ended before; needs no engine."""
        return await (await self._life.held()).outcomes(document)

    async def _read(self, actor: StartedActor, shared: "_DocumentReadings", question: int, sample: int) -> Ended:
        """Reads a document for one question, in a place among the readings in flight."""
        planned, reporter = shared.document, actor.reporter
        address = actor.questions.address(question, document_hash=planned.document_hash, sample=sample)
        list_address = actor.questions.list_address(question, document_hash=planned.document_hash, sample=sample)
        list_turns = shared.list_turns[list_address or address]
        reporter.waiting += 1
        async with list_turns.place(actor.slots):
            reporter.waiting -= 1
            reporter.in_flight += 1
            turns = ReadingTurns(
                engine=actor.engine,
                address=address,
                seed=self._task.agent.sampling.seed,
                held=await asyncio.shield(shared.held),
                journal=actor.journal,
                places=actor.places,
                list_address=list_address,
                list_turns=list_turns,
                counts_list=actor.questions.counts_list(question),
                observe=reporter.count_turn,
            )
            try:
                reading = await read(planned.document, actor.questions[question], agent=actor.agent, turns=turns)
            except EngineDeadError as error:
                await self._life.die(actor, error)
            except EngineRefusedError:
                await self._life.flush(actor)
                raise
            reporter.in_flight -= 1
        return await self._end(actor, planned, address, reading, question=question)

    async def _end(
        self,
        actor: StartedActor,
        document: PlannedDocument,
        address: ReadingAddress,
        reading: Reading,
        *,
        question: int,
    ) -> Ended:
        """Keeps and reports how a reading ended; returns when that and its turns are durable."""
        log, reporter, row = actor.journal.log, actor.reporter, reading.to_row()
        is_read = reading.status is not Status.NOT_READ
        durable = asyncio.ensure_future(log.record_outcome(address, row) if is_read else log.settle())
        if reporter.in_flight == 0:
            log.flush_soon()
        await durable
        reporter.count_reading(reading.status)
        if reading.status is not Status.OK:
            question_id = actor.questions[question].question_id
            report_failure(reporter, document.document_id, question_id, address.sample, reading)
        if reporter.in_flight == 0:
            await reporter.settle()
        return Ended(document=document, question=question, outcome=outcome_row(address, row, run_id=self._task.run_id))


class _DocumentReadings:
    """What the readings of one document have in common."""

    def __init__(self, actor: StartedActor, document: PlannedDocument) -> None:
        """Takes the document; the log is not opened before a reading of it begins."""
        self._actor = actor
        self.document = document
        self.list_turns = defaultdict[ReadingAddress, ListTurns](ListTurns)
        """Turns that readings of a question list share, by the address of the list."""

    @cached_property
    def held(self) -> asyncio.Task[LoggedTurns]:
        """Turns of the document that the log holds, read once."""
        return asyncio.ensure_future(self._actor.held.turns(self.document))


def _ended_row(ended: Ended) -> EndedRow:
    """A row of `ENDED`."""
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
