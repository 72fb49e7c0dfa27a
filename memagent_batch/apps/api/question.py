"""Questions as a program gives them: texts, `Question`s, mappings of the same fields, or the path of a list."""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike
from typing import Any

import pyarrow as pa

from memagent_batch.config.storage import Options
from memagent_batch.data.documents.questions import read_questions, type_fields
from memagent_batch.data.store.location import Location, absolute
from memagent_batch.errors import InputError
from memagent_batch.loop.follow_ups.answer_types import ValueType


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """A question with its own id, or for one document."""

    question: str
    question_id: str | None = None
    """Its id; made of the text by default."""
    document_id: str | None = None
    """The one document that it is asked of; every document by default."""
    references: Sequence[str] | None = None
    type: ValueType | None = None
    """The type that its answer is asked for as: `Bool()`, `Label("a", "b")`, `Labels(...)`, `Number(unit="EUR")`,
    `Date()`, `Json(model_or_schema)`; none by default."""


GivenQuestions = str | PathLike[str] | Iterable[str | Question | Mapping[str, Any]]
"""The path or URI of a question list, or questions."""


def question_table(questions: GivenQuestions, *, storage_options: Options) -> pa.Table:
    """A question list, a table of `QUESTION_SCHEMA`.

    Raises:
        InputError: a file or value can't be used, or a question is there twice; names it.
    """
    if isinstance(questions, str | PathLike):
        return read_questions(Location(uri=question_place(questions), storage_options=storage_options), ask=())
    table = read_questions(None, ask=_question_fields(questions), place="questions, number")
    if not table.num_rows:
        raise InputError("questions: there is none; give at least one")
    return table


def question_place(questions: str | PathLike[str]) -> str:
    """The path or URI of a question list.

    Raises:
        InputError: it is a question: words with a question mark behind them, which no pattern of a path has.
    """
    if isinstance(questions, str) and re.search(r"\s\S+\?\s*$", questions):
        raise InputError(f"questions: {questions!r} is not a list's path; give a question in a list: [{questions!r}]")
    return absolute(questions)


def _question_fields(questions: Iterable[str | Question | Mapping[str, Any]]) -> Iterator[str | Mapping[str, Any]]:
    for number, question in enumerate(questions, start=1):
        if isinstance(question, Question):
            yield {
                "question": question.question,
                "question_id": question.question_id,
                "document_id": question.document_id,
                "references": question.references,
                **type_fields(question.type),
            }
        elif isinstance(question, str | Mapping):
            yield question
        else:
            raise InputError(
                f"questions, number {number}: this is a {type(question).__name__}; give a text, a Question or a mapping"
            )
