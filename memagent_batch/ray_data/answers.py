"""The reading stage of a program of the user's: tokenised rows of a dataset in, rows of `answers` out."""

from functools import cached_property

import pyarrow as pa

from memagent_batch.log.index import Row
from memagent_batch.ray_data.actor import ReaderTask
from memagent_batch.ray_data.reader import Reader
from memagent_batch.reading.documents import PlannedDocument, planned_documents
from memagent_batch.runs.tables import Origin, answer_row, answers_schema, carried_columns


class AnswerReader:
    """Ray Data UDF: a `Reader` whose readings become rows of `answers` at once."""

    def __init__(self, task: ReaderTask) -> None:
        """Takes the task; nothing is started before the first document that has a text."""
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
        unreadable = [document for document in documents if not document.document_hash]
        readable = [document for document in documents if document.document_hash]
        ended = await self._reader.read(readable) if readable else []
        rows = [
            *[self._row(document, *reading, outcome=None) for document in unreadable for reading in document.readings],
            *[self._row(each.document, each.question, each.outcome["sample"], outcome=each.outcome) for each in ended],
        ]
        carried = carried_columns(pa.schema(list(batch.schema.field("documents").type.value_type)))
        return pa.Table.from_pylist(rows, schema=answers_schema(carried))

    def _row(self, document: PlannedDocument, question: int, sample: int, *, outcome: Row | None) -> Row | None:
        error = None if document.document_hash else document.document.error
        described = {
            "document_id": document.document_id,
            "document_hash": document.document_hash or None,
            "error": error and str(error),
            "error_type": None,
            **document.carried,
        }
        return answer_row(described, self._questions[question], sample, outcome, origin=self._origin)

    @cached_property
    def _questions(self) -> list[Row]:
        rows: list[Row] = self._task.load_questions().to_pylist()
        return rows
