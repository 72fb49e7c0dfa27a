"""The question list of a run, as its readings name it: by row."""

import pyarrow as pa

from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.closing.answer_types import ValueType
from memagent_batch.domain.readings import Question
from memagent_batch.inputs.questions import value_types
from memagent_batch.log.question_list import LIST_HASH, first_questions, question_lists


class Questions:
    """Questions, and the addresses of their readings; those of a policy that reads whole lists have two."""

    def __init__(self, asked: pa.Table, *, reader_fingerprint: str) -> None:
        """Takes the question list (`PlannedQuestions.hashed`) and the reader, which is part of every address."""
        self._asked = asked
        self._reader_fingerprint = reader_fingerprint
        self._has_lists = LIST_HASH in asked.schema.names
        self._list_texts = question_lists(asked) if self._has_lists else {}
        self._first_hashes = first_questions(asked) if self._has_lists else frozenset()
        self.types: list[ValueType | None] = value_types(asked)
        """The type that the question in each row asks for."""

    def __getitem__(self, row: int) -> Question:
        """The question in this row."""
        return Question(
            question_id=self._asked["question_id"][row].as_py(),
            text=self._asked["question"][row].as_py(),
            list_text=self._list_texts[self._asked["document_id"][row].as_py()] if self._has_lists else "",
        )

    def address(self, row: int, *, document_hash: str, sample: int) -> ReadingAddress:
        """Where the log keeps the reading of this question."""
        return self._address("question_hash", row, document_hash=document_hash, sample=sample)

    def list_address(self, row: int, *, document_hash: str, sample: int) -> ReadingAddress | None:
        """Where the log keeps what the reading shares with its question list; None where questions are read alone."""
        if not self._has_lists:
            return None
        return self._address(LIST_HASH, row, document_hash=document_hash, sample=sample)

    def counts_list(self, row: int) -> bool:
        """Whether the reading of this question counts the turns of its list: it stands first in it."""
        return self._asked["question_hash"][row].as_py() in self._first_hashes

    def _address(self, column: str, row: int, *, document_hash: str, sample: int) -> ReadingAddress:
        return ReadingAddress(
            document_hash=document_hash,
            question_hash=self._asked[column][row].as_py(),
            sample=sample,
            reader_fingerprint=self._reader_fingerprint,
        )
