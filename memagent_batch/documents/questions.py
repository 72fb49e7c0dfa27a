"""The questions of a run: a list asked of every document, rows bound to one document, or given on the command line."""

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.documents.formats.formats import READERS, Format, format_of
from memagent_batch.documents.formats.records import ColumnKind, InputColumn, Presence, Unreadable, Value, column_value
from memagent_batch.documents.listing import list_files
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.follow_ups.answer_types import LABEL_MARK, AnswerType, ValueType, parse_value_type
from memagent_batch.errors import InputError, ValueTypeError
from memagent_batch.store.columns import Column as TableColumn
from memagent_batch.store.columns import arrow_schema
from memagent_batch.store.location import Location


class TypeFields(TypedDict):
    """The columns of a question list that say which type an answer is asked for as."""

    answer_type: Annotated[str | None, TableColumn("type that the answer is asked for as; null for none")]
    labels: Annotated[list[str] | None, TableColumn("what may be chosen")]
    schema: Annotated[str | None, TableColumn("JSON Schema of the value, as text")]
    unit: Annotated[str | None, TableColumn("unit of the number")]
    not_stated: Annotated[bool | None, TableColumn("whether `not stated` may be answered")]


class _AskedFields(TypedDict):
    question_id: Annotated[str, pa.large_string(), TableColumn("id of the question")]
    document_id: Annotated[
        str | None, pa.large_string(), TableColumn("document it is asked of; null for every document")
    ]
    question: Annotated[str, pa.large_string(), TableColumn("the question")]
    references: Annotated[list[str] | None, TableColumn("right answers; null if none were given")]


class QuestionRow(_AskedFields, TypeFields):
    """One row for each question and the document that it is bound to, if any."""


QUESTION_SCHEMA = arrow_schema(QuestionRow)
NO_TYPE: TypeFields = {"answer_type": None, "labels": None, "schema": None, "unit": None, "not_stated": None}
"""Of a question that asks for none."""

_COLUMNS = (
    InputColumn(name="question_id", kind=ColumnKind.IDENTIFIER, presence=Presence.OPTIONAL),
    InputColumn(name="id", kind=ColumnKind.IDENTIFIER, presence=Presence.OPTIONAL),
    InputColumn(name="document_id", kind=ColumnKind.IDENTIFIER, presence=Presence.OPTIONAL),
    InputColumn(name="question", kind=ColumnKind.TEXT, presence=Presence.EVERY),
    InputColumn(name="references", kind=ColumnKind.REFERENCES, presence=Presence.OPTIONAL),
    InputColumn(name="answer_type", kind=ColumnKind.TEXT, presence=Presence.OPTIONAL),
    InputColumn(name="labels", kind=ColumnKind.REFERENCES, presence=Presence.OPTIONAL),
    InputColumn(name="schema", kind=ColumnKind.CARRIED, presence=Presence.OPTIONAL),
    InputColumn(name="unit", kind=ColumnKind.TEXT, presence=Presence.OPTIONAL),
    InputColumn(name="not_stated", kind=ColumnKind.CARRIED, presence=Presence.OPTIONAL),
)
_MEANT = InputColumn(name="type", kind=ColumnKind.CARRIED, presence=Presence.OPTIONAL)
"""What `answer_type` is easily called."""
_NUM_PLAIN = 5
"""The columns before those of the type."""


def read_questions(
    location: Location | None, *, ask: Iterable[str | Mapping[str, object]], place: str = "ask, question"
) -> pa.Table:
    """Reads the question list and adds the questions of the command line, of a job file or of a program.

    Those are texts, which are asked of every document, or mappings with the fields of a list's row; errors call them by
    `place` and their number.

    Returns:
        A table of `QUESTION_SCHEMA`; without rows where neither was given.

    Raises:
        InputError: a file, column or row can't be read, the list is empty, or a question is there twice.
        ValueTypeError: a question asks for a type that can't be; names the row and the column.
    """
    questions = _question_table(_placed_questions(location, ask=ask, place=place))
    if location is not None and not questions.num_rows:
        raise InputError(f"{location.uri} holds no questions; write at least one")
    return questions


def value_type_of(row: Mapping[str, Any], *, is_unit_asked: bool = False) -> ValueType | None:
    """The type that a row of a question list asks for; None where for none, or the list is older than types.

    Raises:
        ValueTypeError: it can't be asked for.
    """
    fields = {name: row.get(name) for name in NO_TYPE}
    return parse_value_type(fields.pop("answer_type"), **fields, is_unit_asked=is_unit_asked)


def value_types(questions: pa.Table) -> list[ValueType | None]:
    """The type that each row of a question list asks for."""
    if "answer_type" not in questions.schema.names or not pc.any(pc.is_valid(questions["answer_type"])).as_py():
        return [None] * questions.num_rows
    made: dict[str, ValueType | None] = {}
    types = []
    for row in questions.select(list(NO_TYPE)).to_pylist():
        key = json.dumps(row)
        if key not in made:
            made[key] = value_type_of(row)
        types.append(made[key])
    return types


def type_fields(value_type: ValueType | None) -> TypeFields:
    """A type as the columns of a question list."""
    if value_type is None:
        return NO_TYPE
    return {
        "answer_type": value_type.type.value,
        "labels": list(value_type.labels) or None,
        "schema": value_type.schema or None,
        "unit": value_type.unit or None,
        "not_stated": value_type.not_stated,
    }


def _question_table(listed: Iterable[tuple[str, QuestionRow]]) -> pa.Table:
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
    is_unit_asked = any(row["unit"] for row in rows.values())
    for (question_id, document_id), row in rows.items():
        where = places[question_id, document_id]
        if document_id is not None and (question_id, None) in places:
            raise InputError(
                f"question_id {question_id!r} is asked of every document ({places[question_id, None]}) and "
                f"{_audience(document_id)} as well ({where}); give one of them another question_id"
            )
        try:
            value_type_of(row, is_unit_asked=is_unit_asked)
        except ValueTypeError as error:
            raise ValueTypeError(f"{where}: {error}") from None
    return pa.Table.from_pylist(list(rows.values()), schema=QUESTION_SCHEMA)


def asked_types(questions: pa.Table) -> dict[ValueType, str]:
    """The types that a question list asks for, each with the place of the first question that does."""
    found: dict[ValueType, str] = {}
    for question_id, value_type in zip(questions["question_id"].to_pylist(), value_types(questions), strict=True):
        if value_type is not None:
            found.setdefault(value_type, f"question {question_id!r}")
    return found


def most_questions(questions: pa.Table) -> int:
    """The largest number of questions of a list that are asked of one document."""
    counts = Counter(questions["document_id"].to_pylist())
    of_every_document = counts.pop(None, 0)
    return of_every_document + max(counts.values(), default=0)


def rows_of_slice(rows: pa.Table, settings: InputConfig) -> pa.Table:
    """The rows without those of documents in other slices; a question of every document has a null for its id."""
    if settings.slice is None:
        return rows
    taken = [each is None or settings.takes(each) for each in rows["document_id"].to_pylist()]
    return rows.filter(pa.array(taken, pa.bool_()))


def missing_documents(
    document_ids: pa.Array | pa.ChunkedArray, index: pa.Table, *, refusal: str | None = None
) -> list[str]:
    """The ids that no document of an index has, each once, in their order.

    Raises:
        InputError: `refusal`, filled with `num` ids, the `first`, and the number of `documents`, if none of the ids is
            there: more likely a mistake than a lake that lost them all.
    """
    ids = pc.unique(document_ids).cast(index.schema.field("document_id").type)
    is_named = pc.is_in(index["document_id"], value_set=ids)
    found = index["document_id"].filter(is_named).combine_chunks() if len(ids) else ids
    missing: list[str] = ids.filter(pc.invert(pc.is_in(ids, value_set=found))).to_pylist()
    if refusal and missing and len(missing) == len(ids):
        raise InputError(refusal.format(num=len(missing), first=missing[0], documents=index.num_rows))
    return missing


def _placed_questions(
    location: Location | None, *, ask: Iterable[str | Mapping[str, object]], place: str
) -> Iterator[tuple[str, QuestionRow]]:
    """All questions with their places, for a person; of an asked one a number, since texts may be long."""
    if location is not None:
        yield from _read_question_files(location)
    for number, question in enumerate(ask, start=1):
        where = f"{place} {number}"
        if isinstance(question, str) and not question.strip():
            raise InputError(f"{where}: it is empty; write one or leave it out")
        fields = {"question": question} if isinstance(question, str) else question
        yield where, _listed_question(_field_values(fields, where=where), where=where)


def _field_values(fields: Mapping[str, object], *, where: str) -> list[Value]:
    """The values of the columns; refuses fields of other names."""
    names = [column.name for column in _COLUMNS]
    if strangers := sorted(map(str, fields.keys() - set(names))):
        raise InputError(f"{where}: there is no field {strangers[0]!r}; there are {', '.join(names)}")
    return [column_value(fields.get(column.name), column=column, where=where) for column in _COLUMNS]


def _read_question_files(location: Location) -> Iterator[tuple[str, QuestionRow]]:
    for file in list_files(location):
        place = location.at(file.path)
        format_ = format_of(file.name, where=place.uri, remedy="write the questions in one of these formats")
        if format_ is Format.TEXT:
            yield from _read_text(place)
            continue
        for record in READERS[format_].read(place, columns=(*_COLUMNS, _MEANT)):
            *values, meant = record.values
            if isinstance(meant, str) and meant in set(AnswerType):
                raise InputError(
                    f"{record.where}: column 'type' is {meant!r}; call it 'answer_type', or otherwise if it says "
                    "something else"
                )
            yield record.where, _listed_question(values, where=record.where)


def _read_text(location: Location) -> Iterator[tuple[str, QuestionRow]]:
    column = InputColumn(name="question", kind=ColumnKind.DOCUMENT, presence=Presence.SOME)
    for record in READERS[Format.TEXT].read(location, columns=(column,)):
        text = record.values[0]
        if isinstance(text, Unreadable):
            raise InputError(f"{location.uri}: {text.reason}; write the file as UTF-8")
        for number, line in enumerate(str(text).split("\n"), start=1):
            if line.strip():
                where = f"{location.uri}, line {number}"
                yield where, _listed_question(_field_values({"question": line.strip()}, where=where), where=where)


def _listed_question(values: Sequence[Value], *, where: str) -> QuestionRow:
    question_id, other_id, document_id, question, references = values[:_NUM_PLAIN]
    if isinstance(references, str):
        references = [references]
    return {
        "question_id": str(question_id or other_id or f"q-{text_hash(str(question))[:12]}"),
        "document_id": None if document_id is None else str(document_id),
        "question": str(question),
        "references": references if isinstance(references, list) else None,
        **_listed_type(values[_NUM_PLAIN:], where=where),
    }


def _listed_type(values: Sequence[Value], *, where: str) -> TypeFields:
    """The columns of the type; an empty cell of a CSV file is none."""
    answer_type, labels, schema, unit, not_stated = (_none_if_blank(value) for value in values)
    if isinstance(labels, str):
        labels = [label.strip() for label in labels.split(LABEL_MARK)]
    return {
        "answer_type": str(answer_type).strip() if answer_type else None,
        "labels": labels if isinstance(labels, list) else None,
        "schema": None if schema is None else str(schema),
        "unit": None if unit is None else str(unit),
        "not_stated": None if not_stated is None else _truth(str(not_stated), where=where),
    }


def _none_if_blank(value: Value) -> Value:
    return None if isinstance(value, str) and not value.strip() else value


def _truth(text: str, *, where: str) -> bool:
    if text.strip().casefold() not in ("true", "false"):
        raise InputError(f"{where}: column 'not_stated' is {text!r}; write true or false")
    return bool(json.loads(text.strip().casefold()))


def _audience(document_id: str | None) -> str:
    return "for every document" if document_id is None else f"for document_id {document_id!r}"
