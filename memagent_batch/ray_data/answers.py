"""The reading stage of a program's own pipeline: tokenised rows of a dataset in, rows of `answers` out."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from memagent_batch.inputs.documents import CARRY_PREFIX
from memagent_batch.log.index import reading_key
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.schemas import OutcomeRow
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.reader import Reader
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.reading.questions import Questions
from memagent_batch.runs.schemas import AnswerRow
from memagent_batch.runs.tables import Origin, PartDocument, answer_row, answers_table, carried_columns

Outcomes = Mapping[tuple[int, int], OutcomeRow | None]
"""How readings ended, by the row of the question list and the sample; None where the document has no text."""


class AnswerReader:
    """Ray Data UDF: a `Reader` whose readings become rows of `answers` at once."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; no engine is started before the first reading that the log does not hold."""
        self._task = task
        self._reader = Reader(task)
        self._origin = Origin(
            run_id=task.run_id,
            reader_fingerprint=task.reader_fingerprint,
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
        """The rows of a document."""
        has_text = bool(document.document_hash)
        outcomes = await self._outcomes(document) if has_text else dict.fromkeys(document.readings)
        described: PartDocument = {
            "document_id": document.document_id,
            "document_hash": document.document_hash or None,
            "error": None if has_text else str(document.document.error),
            "error_type": None,
            "readings": [],
        }
        return [
            answer_row(described, self._rows[question], outcome, sample=sample, origin=self._origin)
            for (question, sample), outcome in outcomes.items()
        ]

    async def _outcomes(self, document: PlannedDocument) -> Outcomes:
        """How the readings of a document ended: before, by the log, or now."""
        logged = await self._reader.held_outcomes(document)
        keys = {
            (question, sample): reading_key(
                self._questions.address(question, document_hash=document.document_hash, sample=sample)
            )
            for question, sample in document.readings
        }
        held = {reading: logged[key] for reading, key in keys.items() if key in logged}
        left = [reading for reading in document.readings if reading not in held]
        ended = await self._reader.read([replace(document, readings=left)]) if left else []
        return {**held, **{(each.question, each.outcome["sample"]): each.outcome for each in ended}}

    @cached_property
    def _questions(self) -> Questions:
        return Questions(self._task.load_questions(), reader_fingerprint=self._task.reader_fingerprint)

    @cached_property
    def _rows(self) -> list[AskedQuestion]:
        rows: list[AskedQuestion] = self._task.load_questions().to_pylist()
        return rows
