"""The table `results`: one row a document, one typed column a question. What people open in a spreadsheet."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa

from memagent_batch.domain.closing.answer_types import AnswerType, ValueType
from memagent_batch.files.columns import column
from memagent_batch.runs.schemas import DOCUMENT_ID

MAX_RESULT_COLUMNS = 1000
"""Most questions of a list that has a table `results`: each is a column, and more of them slow its readers down."""

_SIMPLE_TYPES: Mapping[AnswerType, pa.DataType] = {
    AnswerType.TEXT: pa.string(),
    AnswerType.BOOL: pa.bool_(),
    AnswerType.LABEL: pa.string(),
    AnswerType.LABELS: pa.list_(pa.string()),
    AnswerType.NUMBER: pa.float64(),
    AnswerType.DATE: pa.date32(),
}
_JSON_TYPES = {"string": pa.string(), "integer": pa.int64(), "number": pa.float64(), "boolean": pa.bool_()}


def results_schema(questions: Mapping[str, tuple[str, ValueType | None]]) -> pa.Schema:
    """The schema of `results` for a question list.

    Args:
        questions: text and type by question_id, in the order of the columns; a question without a type has its answer
            as text.
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


def json_cell(value: Any, kind: pa.DataType) -> Any:
    """A JSON value as a cell of this type: text where the column has no other form for it."""
    if value is None:
        return None
    if pa.types.is_struct(kind):
        return {field.name: json_cell(value.get(field.name), field.type) for field in kind}
    if pa.types.is_list(kind):
        return [json_cell(each, kind.value_type) for each in _sequence(value)]
    if pa.types.is_string(kind) and not isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    return value


def _sequence(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else [value]
