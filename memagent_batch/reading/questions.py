"""The question list of a run, as its readings name it: by row."""

import pyarrow as pa

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.readings import Question
from memagent_batch.inputs.questions import value_types


class Questions:
    """Questions, and the addresses of their readings."""

    def __init__(self, asked: pa.Table, *, reader_fingerprint: str) -> None:
        """Takes the question list (`PlannedQuestions.hashed`) and the reader, which is part of every address."""
        self._asked = asked
        self._reader_fingerprint = reader_fingerprint
        self.types: list[ValueType | None] = value_types(asked)
        """The type that the question in each row asks for."""

    def __getitem__(self, row: int) -> Question:
        """The question in this row."""
        return Question(question_id=self._asked["question_id"][row].as_py(), text=self._asked["question"][row].as_py())

    def address(self, row: int, *, document_hash: str, sample: int) -> ReadingAddress:
        """Where the log keeps the reading of this question."""
        return ReadingAddress(
            document_hash=document_hash,
            question_hash=self._asked["question_hash"][row].as_py(),
            sample=sample,
            reader_fingerprint=self._reader_fingerprint,
        )
