"""The reading stage of Ray Data: tokenised documents in, one row for each ended reading out."""

import asyncio
from collections import defaultdict
from functools import cached_property

import pyarrow as pa

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.readings import Status
from memagent_batch.errors import EngineDeadError, EngineRefusedError
from memagent_batch.log.writer import outcome_row
from memagent_batch.logs import EventKind
from memagent_batch.ray_data.actor import ActorLife, ReaderTask, StartedActor
from memagent_batch.ray_data.reporter import Reporter
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.reading.read import Reading, read
from memagent_batch.reading.turns import ListTurns, LoggedTurns, ReadingTurns
from memagent_batch.runs.parts import ENDED, EndedRow


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
        actor = await self._life.start()
        readings = [
            self._read(actor, shared, question, sample)
            for shared in [_DocumentReadings(actor, document) for document in planned_documents(batch)]
            for question, sample in shared.document.readings
        ]
        return pa.Table.from_pylist(await asyncio.gather(*readings), schema=ENDED)

    async def _read(self, actor: StartedActor, shared: "_DocumentReadings", question: int, sample: int) -> EndedRow:
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
                seed=self._task.job.agent.sampling.seed,
                held=await asyncio.shield(shared.held),
                journal=actor.journal,
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
    ) -> EndedRow:
        """Keeps and reports how a reading ended; returns its row of `ENDED` when that and its turns are durable."""
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
        not_read = None if is_read else outcome_row(address, row, run_id=self._task.run_id)
        return {"document_id": document.document_id, "status": str(reading.status), "not_read": not_read}


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
        return asyncio.ensure_future(self._actor.held_turns(self.document))


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
