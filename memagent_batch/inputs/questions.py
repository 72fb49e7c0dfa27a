"""The questions of a run: a list asked of every document, rows bound to one document, or given on the command line."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats import READERS, Format, format_of
from memagent_batch.inputs.listing import list_files
from memagent_batch.inputs.records import Column, Kind, Presence, Unreadable, Value, convert

QUESTION_SCHEMA = pa.schema(
    [
        pa.field("question_id", pa.large_string(), nullable=False, metadata={"description": "id of the question"}),
        pa.field(
            "document_id",
            pa.large_string(),
            metadata={"description": "document it is asked of; null for every document"},
        ),
        pa.field("question", pa.large_string(), nullable=False, metadata={"description": "the question"}),
        pa.field(
            "references", pa.list_(pa.string()), metadata={"description": "right answers; null where none were given"}
        ),
    ]
)
"""One row for each question and the document that it is bound to, if any."""


class QuestionRow(TypedDict):
    """A row of `QUESTION_SCHEMA`."""

    question_id: str
    document_id: str | None
    question: str
    references: list[str] | None


_QUESTION = Column(name="question", kind=Kind.TEXT, presence=Presence.EVERY)
_COLUMNS = (
    Column(name="question_id", kind=Kind.IDENTIFIER, presence=Presence.OPTIONAL),
    Column(name="document_id", kind=Kind.IDENTIFIER, presence=Presence.OPTIONAL),
    _QUESTION,
    Column(name="references", kind=Kind.REFERENCES, presence=Presence.OPTIONAL),
)


def default_question_id(question: str) -> str:
    """Id of a question that was given without one: the same text has the same id every night."""
    return f"q-{text_hash(question)[:12]}"


def read_questions(location: Location | None, *, ask: Sequence[str]) -> pa.Table:
    """Reads the question list and adds the questions of the command line, which are asked of every document.

    Args:
        location: A Parquet, JSONL, CSV, Arrow or text file (one question a line), or a folder or glob of them.
        ask: Questions given on the command line.

    Returns:
        A table of `QUESTION_SCHEMA`; without rows where neither was given.

    Raises:
        InputError: a file, column or row can't be read, the list is empty, or a question is there twice.
    """
    questions = _question_table(_asked_rows(location, ask=ask))
    if location is not None and not questions.num_rows:
        raise InputError(f"{location.uri} holds no questions; write at least one")
    return questions


def given_questions(questions: Iterable[Mapping[str, object]]) -> pa.Table:
    """The questions of a program as a question list.

    Args:
        questions: Each with `question`, and `question_id`, `document_id` and `references` where it has them.

    Raises:
        InputError: a value can't be used, a question is there twice, or there is none.
    """
    table = _question_table(_given(questions))
    if not table.num_rows:
        raise InputError("questions: there is none; give at least one")
    return table


def _question_table(listed: Iterable[tuple[str, QuestionRow]]) -> pa.Table:
    """A table of `QUESTION_SCHEMA` of questions with their places."""
    rows: dict[tuple[str, str | None], QuestionRow] = {}
    places: dict[tuple[str, str | None], str] = {}
    for where, row in listed:
        key = (row["question_id"], row["document_id"])
        if key in rows:
            raise InputError(
                f"question_id {key[0]!r} is there twice {_audience(key[1])}: {places[key]} and {where}; "
                "give one of them another question_id, or leave it out"
            )
        rows[key], places[key] = row, where
    _require_no_overlap(places)
    return pa.Table.from_pylist(list(rows.values()), schema=QUESTION_SCHEMA)


def missing_documents(questions: pa.Table, index: pa.Table) -> list[str]:
    """The documents that questions are bound to and that are not there, in the order of the list.

    Raises:
        InputError: none of those documents is there: more likely a wrong column than a lake that lost them all.
    """
    bound = questions.filter(pc.is_valid(questions["document_id"]))
    there = pc.is_in(bound["document_id"], index["document_id"].combine_chunks())
    missing = bound.filter(pc.invert(there)).select(["question_id", "document_id"])
    names = list(dict.fromkeys(missing["document_id"].to_pylist()))
    if names and missing.num_rows == bound.num_rows:
        raise InputError(
            f"question {missing['question_id'][0].as_py()!r} is bound to document_id {names[0]!r}, which is not among "
            f"the {index.num_rows} documents, and so are all bound questions ({len(names)} such ids in all); correct "
            "them, or add documents"
        )
    return names


def _asked_rows(location: Location | None, *, ask: Sequence[str]) -> Iterator[tuple[str, QuestionRow]]:
    """All questions with their places, for a person."""
    if location is not None:
        yield from _read_question_files(location)
    for number, question in enumerate(ask, start=1):
        if not question.strip():
            raise InputError(f"--ask, question {number}: it is empty; write one or leave it out")
        where = f"--ask, question {number}"
        yield where, _listed_question((None, None, convert(question, column=_QUESTION, where=where), None))


def _given(questions: Iterable[Mapping[str, object]]) -> Iterator[tuple[str, QuestionRow]]:
    """Questions of a program with their places; a place is a number, since texts may be long."""
    names = [column.name for column in _COLUMNS]
    for number, given in enumerate(questions, start=1):
        where = f"questions, number {number}"
        if strangers := sorted(map(str, given.keys() - set(names))):
            raise InputError(f"{where}: there is no field {strangers[0]!r}; there are {', '.join(names)}")
        yield (
            where,
            _listed_question(
                [
                    convert(given.get(name), column=column, where=where)
                    for name, column in zip(names, _COLUMNS, strict=True)
                ]
            ),
        )


def _read_question_files(location: Location) -> Iterator[tuple[str, QuestionRow]]:
    for file in list_files(location):
        place = location.at(file.path)
        format_ = format_of(file.name, where=place.uri, remedy="write the questions in one of these formats")
        if format_ is Format.TEXT:
            yield from _read_text(place)
            continue
        for record in READERS[format_].read(place, columns=_COLUMNS, groups=None):
            yield record.where, _listed_question(record.values)


def _read_text(location: Location) -> Iterator[tuple[str, QuestionRow]]:
    """One question a line; blank lines are skipped."""
    column = Column(name="question", kind=Kind.DOCUMENT, presence=Presence.SOME)
    for record in READERS[Format.TEXT].read(location, columns=(column,), groups=None):
        text = record.values[0]
        if isinstance(text, Unreadable):
            raise InputError(f"{location.uri}: {text.reason}; write the file as UTF-8")
        for number, line in enumerate(str(text).split("\n"), start=1):
            if line.strip():
                yield f"{location.uri}, line {number}", _listed_question((None, None, line.strip(), None))


def _listed_question(values: Sequence[Value]) -> QuestionRow:
    """The row of a record with the values of `_COLUMNS`."""
    question_id, document_id, question, references = values
    if isinstance(references, str):
        references = [references]
    return {
        "question_id": str(question_id or default_question_id(str(question))),
        "document_id": None if document_id is None else str(document_id),
        "question": str(question),
        "references": references if isinstance(references, list) else None,
    }


def _require_no_overlap(places: Mapping[tuple[str, str | None], str]) -> None:
    """A question that is asked of every document can't be bound to one of them as well under the same id."""
    for (question_id, document_id), where in places.items():
        if document_id is not None and (question_id, None) in places:
            raise InputError(
                f"question_id {question_id!r} is asked of every document ({places[question_id, None]}) and "
                f"{_audience(document_id)} as well ({where}); give one of them another question_id"
            )


def _audience(document_id: str | None) -> str:
    return "for every document" if document_id is None else f"for document_id {document_id!r}"
