"""The questions of a run: a list asked of every document, rows bound to one document, or given on the command line."""

import difflib
import json
import logging
from collections import Counter
from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.data_files import DataFile, column_names, read_records, read_text
from memagent_batch.data.documents.formats.formats import Format, format_ending, format_of
from memagent_batch.data.documents.formats.records import (
    ColumnKind,
    InputColumn,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
)
from memagent_batch.data.documents.lake.table import table_name
from memagent_batch.data.documents.lake.tables import documents_place, find_table
from memagent_batch.data.documents.listing import is_delta_folder, list_files
from memagent_batch.data.documents.scope import is_in_slice
from memagent_batch.data.store.columns import Column as TableColumn
from memagent_batch.data.store.columns import arrow_schema
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, ValueTypeError
from memagent_batch.logs import EventKind
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.follow_ups.answer_types import LABEL_MARK, AnswerType, ValueType, parse_value_type

log = logging.getLogger(__name__)


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
_ALL_COLUMNS = (*_COLUMNS, _MEANT)
_NUM_PLAIN = 5
"""The columns before those of the type."""
_LIKENESS = 0.82
"""How alike, from 0 to 1, an unknown column and a known one are at most, unless one is meant to be the other."""
_NUM_ABBREVIATION = 3
"""Fewest letters of an abbreviation, such as `qid`."""


def read_questions(
    location: Location | None, *, ask: Iterable[str | Mapping[str, object]], place: str = "ask, question"
) -> pa.Table:
    """Reads the question list and adds the questions of the command line, of a job file or of a program.

    Those are texts, which are asked of every document, or mappings with the fields of a list's row; errors call them by
    `place` and their number. Columns of other names are ignored with a warning, unless a name looks misspelt.

    Returns:
        A table of `QUESTION_SCHEMA`; without rows where neither was given.

    Raises:
        InputError: a file, column or row can't be read, the name of a column looks misspelt, the list is empty, or a
            question is there twice.
        ValueTypeError: a question asks for a type that can't be; names the row and the column.
    """
    ignored = dict[str, None]()
    questions = _question_table(_placed_questions(location, ask=ask, place=place, ignored=ignored))
    if ignored:
        names = ", ".join(map(repr, ignored))
        there = ", ".join(column.name for column in _COLUMNS)
        log.warning(
            f"questions: ignored, since a question list has no such columns: {names}; it may have {there}",
            extra={"event": EventKind.COLUMNS_IGNORED, "names": [*ignored]},
        )
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


def are_in_slice(
    document_ids: pa.ChunkedArray, settings: InputConfig, *, files: Container[str] = frozenset()
) -> pa.BooleanArray:
    """Returns for each document id whether it is in `input.slice`; a null, for all documents, is in each one.

    Args:
        document_ids: Ids of documents that may be there or not.
        settings: The settings of the job.
        files: Names of all document files: their attachments are in the slice of their file.
    """
    if settings.slice is None:
        return pa.array([True] * len(document_ids), pa.bool_())
    ids = document_ids.to_pylist()
    return pa.array([each is None or is_in_slice(settings, _file_of(each, files)) for each in ids], pa.bool_())


def _file_of(document_id: str, files: Container[str]) -> str:
    """The file that a document is read from, whose name its id begins with; the id itself if there is none."""
    name = document_id
    while name and name not in files:
        name = name.rpartition("/")[0]
    return name or document_id


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
    location: Location | None, *, ask: Iterable[str | Mapping[str, object]], place: str, ignored: dict[str, None]
) -> Iterator[tuple[str, QuestionRow]]:
    """All questions with their places, for a person; of an asked one a number, since texts may be long.

    Adds the columns that no question list has to `ignored`.
    """
    if location is not None:
        yield from _read_question_files(location, ignored=ignored)
    for number, question in enumerate(ask, start=1):
        where = f"{place} {number}"
        if isinstance(question, str) and not question.strip():
            raise InputError(f"{where}: it is empty; write one or leave it out")
        fields = {"question": question} if isinstance(question, str) else question
        ignored |= dict.fromkeys(_unknown_columns([*map(str, fields)], where=where))
        yield where, _listed_question(_field_values(fields, where=where), where=where)


def _field_values(fields: Mapping[str, object], *, where: str) -> list[Value]:
    return [column_value(fields.get(column.name), column=column, where=where) for column in _ALL_COLUMNS]


def _unknown_columns(names: Sequence[str], *, where: str) -> list[str]:
    """Those of the columns of a file or row that no question list has.

    Raises:
        InputError: a column that is missing may be meant by one of them.
    """
    known = {column.name for column in _ALL_COLUMNS}
    missing = known.difference(names, {"id", "question_id"} if {"id", "question_id"} & {*names} else ())
    unknown = [name for name in names if name not in known]
    for name in unknown:
        meant = max(missing, key=lambda other: _likeness(name, other), default="")
        if meant and _likeness(name, meant) > _LIKENESS:
            raise InputError(
                f"{where}: a question list has no column {name!r}; did you mean {meant!r}? Rename it, or drop it if it "
                "says something else"
            )
    return unknown


def _likeness(name: str, known: str) -> float:
    """How alike, from 0 to 1, two names are: 1 if one differs in case or separators alone, or abbreviates the other."""
    plain, other = ("".join(filter(str.isalnum, each)).casefold() for each in (name, known))
    letters = iter(other)
    is_part = all(letter in letters for letter in plain)  # in this order
    if len(plain) >= _NUM_ABBREVIATION and is_part and (plain[0], plain[-1]) == (other[0], other[-1]):
        return 1.0
    return difflib.SequenceMatcher(None, plain, other).ratio()


def _read_question_files(location: Location, *, ignored: dict[str, None]) -> Iterator[tuple[str, QuestionRow]]:
    place = documents_place(location.uri, location.storage_options)
    if table_name(location.uri) or (not format_ending(place.path) and is_delta_folder(place)):
        yield from _listed_questions(_read_table(place, ignored=ignored))
        return
    for listed in list_files(location):
        place = location.at(listed.path)
        format_ = format_of(listed.name, where=place.uri, remedy="write the questions in one of these formats")
        if format_ is Format.TEXT:
            yield from _read_text(place)
            continue
        file = DataFile(location=place, format=format_)
        ignored |= dict.fromkeys(_unknown_columns(column_names(file), where=place.uri))
        yield from _listed_questions(read_records(file, columns=_ALL_COLUMNS))


def _read_table(place: Location, *, ignored: dict[str, None]) -> Iterator[Record]:
    """The rows of a table of a lake."""
    table = find_table(place)
    if table is None:
        return
    for lake_file in table.files:
        ignored |= dict.fromkeys(_unknown_columns([*table.columns], where=str(place)))
        file = DataFile(
            location=place.at(lake_file.path),
            format=Format.TABLE,
            keys=lake_file.values,
            lake_file=lake_file,
            lake_columns=table.columns,
            lake_uri=place.uri,
        )
        yield from read_records(file, columns=_ALL_COLUMNS)


def _listed_questions(records: Iterable[Record]) -> Iterator[tuple[str, QuestionRow]]:
    return ((record.where, _listed_question(record.values, where=record.where)) for record in records)


def _read_text(location: Location) -> Iterator[tuple[str, QuestionRow]]:
    text = read_text(location)
    if isinstance(text, Unreadable):
        raise InputError(f"{location.uri}: {text.reason}; write the file as UTF-8")
    for number, line in enumerate(text.split("\n"), start=1):
        if line.strip():
            where = f"{location.uri}, line {number}"
            yield where, _listed_question(_field_values({"question": line.strip()}, where=where), where=where)


def _listed_question(values: Sequence[Value], *, where: str) -> QuestionRow:
    *values, meant = values
    if isinstance(meant, str) and meant in set(AnswerType):
        raise InputError(
            f"{where}: column 'type' is {meant!r}; call it 'answer_type', or otherwise if it says something else"
        )
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
