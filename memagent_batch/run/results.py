"""The table `results`: one row a document, one typed column a question; votes of several samples, doubts of values."""

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import date
from typing import Any

import pyarrow as pa

from memagent_batch.data.documents.questions import NO_TYPE, TypeFields, value_type_of, value_types
from memagent_batch.data.store.columns import column
from memagent_batch.data.store.turn_log.question_list import AskedQuestion
from memagent_batch.errors import InputError
from memagent_batch.loop.follow_ups.answer_types import AnswerType, ValueType
from memagent_batch.loop.follow_ups.doubts import find_doubt
from memagent_batch.loop.follow_ups.values import TypedValue, ValueStatus, values_equal, vote
from memagent_batch.run.evidence import How
from memagent_batch.run.tables import DOCUMENT_ID, AnswerRow, EvidenceRow, ReadingIds, reading_ids
from memagent_batch.types import Status

MAX_RESULT_COLUMNS = 1000
"""Most questions of a list that has a table `results`: each is a column, and more of them slow its readers down."""
_NO_COLUMN_MARKS = frozenset(" ,;{}()\n\t=")
"""What Delta and Spark refuse in the name of a column."""
_SIMPLE_TYPES: Mapping[AnswerType, pa.DataType] = {
    AnswerType.TEXT: pa.string(),
    AnswerType.BOOL: pa.bool_(),
    AnswerType.LABEL: pa.string(),
    AnswerType.LABELS: pa.list_(pa.string()),
    AnswerType.NUMBER: pa.float64(),
    AnswerType.DATE: pa.date32(),
}
_JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def with_votes(answers: Sequence[AnswerRow]) -> list[AnswerRow]:
    """Rows of `answers` with their column `votes`; all samples of a document and question are among them."""
    samples: dict[tuple[str, str], list[AnswerRow]] = {}
    for row in answers:
        samples.setdefault((row["document_id"], row["question_id"]), []).append(row)
    return [{**row, "votes": _share(row, samples[row["document_id"], row["question_id"]])} for row in answers]


def with_doubts(
    answers: Iterable[AnswerRow],
    questions: Iterable[AskedQuestion],
    *,
    chosen: Mapping[ReadingIds, Sequence[str | None]] | None = None,
) -> list[AnswerRow]:
    """Rows of `answers` with their column `value_doubt`.

    Args:
        answers: the rows.
        questions: the question of each row.
        chosen: texts of the sentences that answers rest on, None for one that could not be fetched; None if evidence
            was not asked for.
    """
    types: dict[str, ValueType | None] = {}
    rows = []
    for row, question in zip(answers, questions, strict=True):
        key = json.dumps([question.get(name) for name in NO_TYPE])
        if key not in types:
            types[key] = value_type_of(question)
        doubt = _doubt_of(row, types[key], chosen=chosen)
        rows.append(row if doubt is None else {**row, "value_doubt": doubt})
    return rows


def _doubt_of(
    row: AnswerRow, value_type: ValueType | None, *, chosen: Mapping[ReadingIds, Sequence[str | None]] | None
) -> str | None:
    value = _value(row)
    if value is None or value_type is None or row["status"] != Status.OK:
        return None
    texts = None if chosen is None or row["num_evidence"] is None else chosen.get(reading_ids(row), ())
    sentences = None if texts is None or None in texts else [text for text in texts if text is not None]
    response = row["response"] or ""
    answer, notes = row["answer"] or response, f"{response}\n{row['memory'] or ''}"
    has_answer = row["answer"] is not None
    doubt = find_doubt(value, value_type, answer=answer, has_answer=has_answer, notes=notes, sentences=sentences)
    return None if doubt is None else doubt.value


def chosen_texts(evidence: Iterable[EvidenceRow]) -> dict[ReadingIds, list[str | None]]:
    """The texts of the sentences that each answer rests on, of rows of `evidence`."""
    texts: dict[ReadingIds, list[str | None]] = {}
    for row in evidence:
        if row["how"] == How.CHOSEN:
            texts.setdefault(reading_ids(row), []).append(row["text"])
    return texts


def values_of(rows: Iterable[AnswerRow]) -> list[TypedValue]:
    """The values of rows that have one."""
    return [value for row in rows if (value := _value(row)) is not None]


def _share(row: AnswerRow, samples: Sequence[AnswerRow]) -> float | None:
    """Share of all samples, those without a value included, that have the value of this one."""
    own = _value(row)
    if len(samples) < 2 or own is None or own.status is ValueStatus.INVALID:
        return None
    return sum(values_equal(own, value) for value in values_of(samples)) / len(samples)


def _value(row: AnswerRow) -> TypedValue | None:
    if row["value_status"] is None:
        return None
    return TypedValue(
        status=ValueStatus(row["value_status"]),
        value=row["value"],
        boolean=row["value_bool"],
        number=row["value_number"],
        label=row["value_label"],
    )


class ResultQuestion(TypeFields):
    """A question of the table, as plain values."""

    question: str


def results_schema(questions: Mapping[str, tuple[str, ValueType | None]]) -> pa.Schema:
    """The schema of `results` for a question list.

    A question without a type has its answer as text.
    """
    columns = [
        column(question_id, arrow_type(value_type), text, unit=value_type.unit if value_type else "", nullable=True)
        for question_id, (text, value_type) in questions.items()
    ]
    return pa.schema([DOCUMENT_ID, *columns])


def arrow_type(value_type: ValueType | None) -> pa.DataType:
    """The Arrow type of a question's column."""
    if value_type is None:
        return pa.string()
    if value_type.type is AnswerType.JSON:
        return _json_type(value_type.sent_schema())
    return _SIMPLE_TYPES[value_type.type]


def _json_type(schema: Mapping[str, Any]) -> pa.DataType:
    """Structs and lists as the schema names them; what may be of several types is JSON text."""
    schemas = [each for each in schema.get("anyOf", [schema]) if each.get("type") != "null"]
    if len(schemas) != 1 or "anyOf" in schemas[0]:
        return pa.string()
    (only,) = schemas
    kind = only.get("type")
    if "enum" in only:
        return pa.string()
    if kind == "object" and only.get("properties"):
        return pa.struct([pa.field(name, _json_type(part)) for name, part in only["properties"].items()])
    if kind == "array":
        return pa.list_(_json_type(only.get("items", {})))
    return _JSON_TYPES.get(str(kind), pa.string())


def result_questions(questions: pa.Table) -> dict[str, ResultQuestion]:
    """The questions of a list that has a table `results`; none where no question asks for a type, or too many do.

    Raises:
        InputError: two questions of one id ask for other types, or an id can't be the name of a column.
    """
    if not any(value_types(questions)):
        return {}
    found: dict[str, ResultQuestion] = {}
    for row in questions.select(["question_id", "question", *NO_TYPE]).to_pylist():
        question_id = row.pop("question_id")
        first = found.setdefault(question_id, row)
        if first != {**row, "question": first["question"]} and value_type_of(first) != value_type_of(row):
            raise InputError(
                f"question_id {question_id!r} asks for {first['answer_type'] or 'no type'} of one document and for "
                f"another type of another one ({row['answer_type'] or 'none'}); give each type a question_id of its own"
            )
    if len(found) > MAX_RESULT_COLUMNS:
        return {}
    _require_column_names(found)
    return found


def _require_column_names(question_ids: Iterable[str]) -> None:
    """Refuses ids that can't be columns beside each other: SQL ignores case, and Delta and Spark refuse some marks."""
    names = {DOCUMENT_ID.name: DOCUMENT_ID.name}
    for name in question_ids:
        other = names.setdefault(name.casefold(), name)
        mark = next((mark for mark in name if mark in _NO_COLUMN_MARKS), "")
        why = f"holds {mark!r}" if mark else f"differs from {other!r} in case alone" if other != name else ""
        if name == DOCUMENT_ID.name:
            why = "is a column of its own"
        if why:
            raise InputError(
                f"question_id {name!r} can't be a column of the table `results`, which typed questions have: it {why}; "
                "choose another one, of letters, digits, - and _"
            )


def results_table(
    document_ids: Sequence[str], answers: Sequence[AnswerRow], *, questions: Mapping[str, ResultQuestion]
) -> pa.Table:
    """One row for each document; of several samples the value that most have, and null if two are as frequent.

    Rows of `answers` of one document and question come one after another.
    """
    types = {name: value_type_of(question) for name, question in questions.items()}
    schema = results_schema({name: (questions[name]["question"], types[name]) for name in questions})
    samples: dict[tuple[str, str], list[AnswerRow]] = {}
    for row in answers:
        samples.setdefault((row["document_id"], row["question_id"]), []).append(row)
    rows = [
        {
            DOCUMENT_ID.name: document_id,
            **{
                name: _result_cell(samples.get((document_id, name), []), types[name], schema.field(name).type)
                for name in types
            },
        }
        for document_id in document_ids
    ]
    return pa.Table.from_pylist(rows, schema=schema)


def _result_cell(samples: Sequence[AnswerRow], value_type: ValueType | None, kind: pa.DataType) -> Any:
    if value_type is None:
        return samples[0]["answer"] if samples else None
    values = values_of(samples)
    chosen = vote(values) if values else None
    if chosen is None or chosen.value is None:
        return None
    value = json.loads(chosen.value)
    if value_type.type is AnswerType.DATE:
        return date.fromisoformat(value)
    return json_cell(value, kind)


def json_cell(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as a cell of this type: text where the column has no other form for it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: json_cell(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [json_cell(each, kind.value_type) for each in (value if isinstance(value, list) else [value])]
    if pa.types.is_floating(kind):
        return float(value)  # Arrow refuses whole numbers that a double rounds
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value
