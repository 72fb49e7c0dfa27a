"""The reading stage of a program's own pipeline: tokenised rows of a dataset in, rows of `answers` out."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from memagent_batch.domain.readings import Status
from memagent_batch.inputs.document_index import CARRY_PREFIX
from memagent_batch.log.index import ReadingKey, reading_key
from memagent_batch.log.question_list import AskedQuestion
from memagent_batch.log.rows import ClosedRow, OutcomeRow
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.reader import Reader
from memagent_batch.ray_data.replicas import this_process
from memagent_batch.reading.agent import Questions
from memagent_batch.reading.closing import Closing
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.runs.projection import Origin, PartDocument, answer_row, answers_table, carried_columns
from memagent_batch.runs.results import with_votes
from memagent_batch.runs.tables import AnswerRow

Outcomes = Mapping[tuple[int, int], tuple[OutcomeRow | None, ClosedRow | None]]
"""How readings ended, and what was asked after their answers, by the row of the question list and the sample; None
where the document has no text, and where nothing was asked."""


class AnswerReader:
    """Ray Data UDF: a `Reader` whose readings become rows of `answers` at once."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; no engine is started before the first reading that the log does not hold."""
        self._task = task
        self._reader = Reader(task, this_process())
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
        outcomes = await self._outcomes(document) if has_text else dict.fromkeys(document.readings, (None, None))
        described: PartDocument = {
            "document_id": document.document_id,
            "document_hash": document.document_hash or None,
            "error": None if has_text else str(document.document.error),
            "error_type": None,
            "readings": [],
        }
        rows = [
            answer_row(described, self._rows[question], outcome, sample=sample, origin=self._origin, closed=closed)
            for (question, sample), (outcome, closed) in outcomes.items()
        ]
        return with_votes(rows)

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
        closed = await self._closed(document, held, keys=keys)
        opened = [reading for reading, each in closed.items() if each is None and self._is_open(reading, held)]
        left = [reading for reading in document.readings if reading not in held]
        work = replace(document, readings=left, closings=opened, ended_by=[held[each]["line"] for each in opened])
        ended = await self._reader.read([work]) if left or opened else []
        found: dict[tuple[int, int], tuple[OutcomeRow | None, ClosedRow | None]] = {
            reading: (row, closed[reading]) for reading, row in held.items()
        }
        for each in ended:
            reading = (each.question, each.outcome["sample"])
            is_held = reading in held and each.outcome["status"] != Status.NOT_READ
            found[reading] = (held[reading] if is_held else each.outcome, each.closed)
        return found

    async def _closed(
        self,
        document: PlannedDocument,
        held: Mapping[tuple[int, int], OutcomeRow],
        *,
        keys: Mapping[tuple[int, int], ReadingKey],
    ) -> dict[tuple[int, int], ClosedRow | None]:
        """What the log holds of what was asked after the answers of these readings."""
        if self._closing is None or not held:
            return dict.fromkeys(held)
        logged = await self._reader.held_closings(document)
        return {
            reading: logged.get(self._closing.of_type(self._questions.types[reading[0]]) or "", {}).get(keys[reading])
            for reading in held
        }

    def _is_open(self, reading: tuple[int, int], held: Mapping[tuple[int, int], OutcomeRow]) -> bool:
        """Whether something is to be asked after the answer of a reading that the log holds."""
        asks = self._closing is not None and self._closing.of_type(self._questions.types[reading[0]]) is not None
        return asks and held[reading]["status"] == Status.OK

    @cached_property
    def _closing(self) -> Closing | None:
        return self._task.make_closing()

    @cached_property
    def _questions(self) -> Questions:
        return Questions(self._task.load_questions(), reader_fingerprint=self._task.reader_fingerprint)

    @cached_property
    def _rows(self) -> list[AskedQuestion]:
        rows: list[AskedQuestion] = self._task.load_questions().to_pylist()
        return rows
