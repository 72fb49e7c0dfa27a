"""The reading stage of a program's own pipeline: tokenised rows of a dataset in, rows of `answers` out."""

import asyncio
from functools import cached_property

import pyarrow as pa

from memagent_batch.documents.document_index import CARRY_PREFIX
from memagent_batch.executors.actor import ReaderProcess, ReaderTask
from memagent_batch.executors.reader import Reader
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.runs.projection import Origin, PartDocument, answer_row, answers_table, carried_columns
from memagent_batch.runs.results import with_votes
from memagent_batch.runs.tables import AnswerRow
from memagent_batch.store.turn_log.question_list import AskedQuestion
from memagent_batch.store.turn_log.rows import ClosedRow, OutcomeRow


class AnswerReader(Reader):
    """A `Reader` whose readings become rows of `answers` at once; turns that the log holds are replayed."""

    def __init__(self, task: ReaderTask, process: ReaderProcess) -> None:
        super().__init__(task, process)
        self._origin = Origin(
            run_id=task.run_id,
            fingerprint=task.fingerprint,
            model=task.agent.model,
            extraction=task.agent.extraction,
        )

    async def __call__(self, batch: pa.Table) -> pa.Table:
        """Reads a document for all its questions; in: a row of `CALL`, out: rows of `ANSWERS` and the carried columns.

        Never raises for what concerns a reading alone.
        """
        documents = planned_documents(batch)
        answers = await asyncio.gather(*map(self._answers, documents))
        names = carried_columns(pa.schema(list(batch.schema.field("documents").type.value_type)))
        carried = [document.carried for document, rows in zip(documents, answers, strict=True) for _ in rows]
        return answers_table(
            [row for rows in answers for row in rows],
            carried={name: [values[CARRY_PREFIX + name] for values in carried] for name in names},
        )

    async def _answers(self, document: PlannedDocument) -> list[AnswerRow]:
        """The rows of a document; one without a text is read for no question."""
        has_text = bool(document.document_hash)
        described: PartDocument = {
            "document_id": document.document_id,
            "document_hash": document.document_hash or None,
            "error": None if has_text else str(document.document.error),
            "error_type": None,
            "readings": [],
        }
        readings: list[tuple[int, int, OutcomeRow | None, ClosedRow | None]] = [
            (question, sample, None, None) for question, sample in document.readings
        ]
        if has_text:
            ended = await self.read([document])
            readings = [(each.question, each.outcome["sample"], each.outcome, each.closed) for each in ended]
        rows = [
            answer_row(described, self._asked[question], outcome, sample=sample, origin=self._origin, closed=closed)
            for question, sample, outcome, closed in readings
        ]
        return with_votes(rows)

    @cached_property
    def _asked(self) -> list[AskedQuestion]:
        rows: list[AskedQuestion] = self._task.load_questions().to_pylist()
        return rows
