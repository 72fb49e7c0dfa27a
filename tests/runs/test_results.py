"""The table of results: one typed column a question."""

import pyarrow as pa
import pytest

from memagent_batch.domain.closing.answer_types import Bool, Date, Json, Label, Labels, Number, ValueType
from memagent_batch.runs.results import json_cell, results_schema

PARTY = {
    "type": "object",
    "properties": {"name": {"type": "string"}, "shares": {"type": "array", "items": {"type": "integer"}}},
    "required": ["name", "shares"],
}


@pytest.mark.parametrize(
    ("value_type", "kind"),
    [
        (None, pa.string()),
        (ValueType(), pa.string()),
        (Bool(), pa.bool_()),
        (Label("a", "b"), pa.string()),
        (Labels("a", "b"), pa.list_(pa.string())),
        (Number(unit="EUR"), pa.float64()),
        (Date(), pa.date32()),
        (Json(PARTY), pa.struct([("name", pa.string()), ("shares", pa.list_(pa.int64()))])),
        (Json({"anyOf": [{"type": "integer"}, {"type": "null"}]}), pa.int64()),
        (Json({"anyOf": [{"type": "integer"}, {"type": "string"}]}), pa.string()),
    ],
)
def test_results_schema_has_a_nullable_column_of_the_type(value_type: ValueType | None, kind: pa.DataType) -> None:
    schema = results_schema({"q-1": ("Who?", value_type)})
    assert schema.names == ["document_id", "q-1"]
    assert schema.field("q-1").type.equals(kind)
    assert schema.field("q-1").nullable


def test_results_schema_unit_stands_in_the_metadata() -> None:
    field = results_schema({"price": ("How much?", Number(unit="EUR"))}).field("price")
    assert field.metadata == {b"description": b"How much?", b"unit": b"EUR"}


def test_json_cell_value_of_several_types_is_json_text() -> None:
    kind = pa.struct([("a", pa.string()), ("b", pa.list_(pa.int64()))])
    assert json_cell({"a": {"x": 1}, "b": [1, 2]}, kind) == {"a": '{"x": 1}', "b": [1, 2]}
    assert json_cell({"a": None, "b": None}, kind) == {"a": None, "b": None}
