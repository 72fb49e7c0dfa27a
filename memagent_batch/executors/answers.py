"""The reading stage of a program's own pipeline: tokenised rows of a dataset in, rows of `answers` out."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property

import pyarrow as pa

from memagent_batch.documents.document_index import CARRY_PREFIX
from memagent_batch.domain.readings import Status
from memagent_batch.executors.actor import ReaderTask
from memagent_batch.executors.ray.replicas import this_process
from memagent_batch.executors.reader import Reader
from memagent_batch.reading.agent import Questions
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.reading.follow_ups import FollowUps
from memagent_batch.runs.projection import Origin, PartDocument, answer_row, answers_table, carried_columns
from memagent_batch.runs.results import with_votes
from memagent_batch.runs.tables import AnswerRow
from memagent_batch.store.turn_log.index import ReadingKey, reading_key
from memagent_batch.store.turn_log.question_list import AskedQuestion
from memagent_batch.store.turn_log.rows import ClosedRow, OutcomeRow

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
        from_log = {reading: logged[key] for reading, key in keys.items() if key in logged}
        closed = await self._closed(document, from_log, keys=keys)
        opened = [reading for reading, each in closed.items() if each is None and self._is_open(reading, from_log)]
        left = [reading for reading in document.readings if reading not in from_log]
        work = replace(
            document, readings=left, follow_up_readings=opened, ended_by=[from_log[each]["line"] for each in opened]
        )
        ended = await self._reader.read([work]) if left or opened else []
        found: dict[tuple[int, int], tuple[OutcomeRow | None, ClosedRow | None]] = {
            reading: (row, closed[reading]) for reading, row in from_log.items()
        }
        for each in ended:
            reading = (each.question, each.outcome["sample"])
            is_logged = reading in from_log and each.outcome["status"] != Status.NOT_READ
            found[reading] = (from_log[reading] if is_logged else each.outcome, each.closed)
        return found

    async def _closed(
        self,
        document: PlannedDocument,
        from_log: Mapping[tuple[int, int], OutcomeRow],
        *,
        keys: Mapping[tuple[int, int], ReadingKey],
    ) -> dict[tuple[int, int], ClosedRow | None]:
        """What the log holds of what was asked after the answers of these readings."""
        if self._follow_ups is None or not from_log:
            return dict.fromkeys(from_log)
        logged = await self._reader.logged_follow_ups(document)
        return {
            reading: logged.get(self._follow_ups.of_type(self._questions.types[reading[0]]) or "", {}).get(
                keys[reading]
            )
            for reading in from_log
        }

    def _is_open(self, reading: tuple[int, int], from_log: Mapping[tuple[int, int], OutcomeRow]) -> bool:
        """Whether something is to be asked after the answer of a reading that the log holds."""
        asks = self._follow_ups is not None and self._follow_ups.of_type(self._questions.types[reading[0]]) is not None
        return asks and from_log[reading]["status"] == Status.OK

    @cached_property
    def _follow_ups(self) -> FollowUps | None:
        return self._task.make_follow_ups()

    @cached_property
    def _questions(self) -> Questions:
        return Questions(self._task.load_questions(), fingerprint=self._task.fingerprint)

    @cached_property
    def _rows(self) -> list[AskedQuestion]:
        rows: list[AskedQuestion] = self._task.load_questions().to_pylist()
        return rows
