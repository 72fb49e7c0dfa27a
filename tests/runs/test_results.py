"""The table of results, and what several samples say together."""

from typing import Any

import pyarrow as pa
import pytest

from memagent_batch.data.documents.questions import NO_TYPE, read_questions, type_fields
from memagent_batch.errors import InputError
from memagent_batch.loop.follow_ups.answer_types import Bool, Date, Json, Label, Labels, Number, ValueType
from memagent_batch.run.projection import NOT_CLOSED
from memagent_batch.run.results import (
    MAX_RESULT_COLUMNS,
    json_cell,
    result_questions,
    results_schema,
    results_table,
    with_votes,
)

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


def sample(number: int, value: str | None, *, status: str | None = "ok", **columns: Any) -> Any:
    ids = {"document_id": "d", "question_id": "q", "sample": number, "answer": f"answer {number}"}
    return {**NOT_CLOSED, **ids, "value": value, "value_status": status, "votes": None, **columns}


def asked_for(value_type: ValueType, *, question_id: str = "q") -> Any:
    """The columns of one question of a type."""
    asked = [{"question_id": question_id, "question": "?", **type_fields(value_type)}]
    return result_questions(read_questions(None, ask=asked))


def test_votes_are_the_share_of_samples_with_the_same_value() -> None:
    rows = with_votes([sample(0, "5"), sample(1, "5.0"), sample(2, "6"), sample(3, None, status="invalid")])
    assert [row["votes"] for row in rows] == [0.5, 0.5, 0.25, None]


def test_votes_of_samples_that_failed_count_as_samples_without_the_value() -> None:
    failed = [sample(number, None, status=None, answer=None) for number in range(1, 5)]
    rows = with_votes([sample(0, "true", answer="yes"), *failed])
    assert [row["votes"] for row in rows] == [0.2, None, None, None, None]


def test_one_sample_and_a_question_without_a_type_have_no_votes() -> None:
    assert with_votes([sample(0, "5")])[0]["votes"] is None
    assert [row["votes"] for row in with_votes([sample(0, None, status=None)] * 2)] == [None, None]


def test_votes_of_samples_that_were_not_read_are_as_those_of_not_stated() -> None:
    statuses = ["not_read", "not_read", "not_stated", "invalid"]
    rows = with_votes([sample(number, None, status=status) for number, status in enumerate(statuses)])
    assert [row["votes"] for row in rows] == [0.75, 0.75, 0.75, None]


@pytest.mark.parametrize(
    ("values", "result"), [(["5", "6", "6.0"], 6.0), (["5", "6"], None), ([None, None, "5"], None), ([], None)]
)
def test_results_hold_the_value_that_most_samples_have(values: list[str | None], result: float | None) -> None:
    rows = [sample(number, value, status="ok" if value else "not_stated") for number, value in enumerate(values)]
    table = results_table(["d", "other"], rows, questions=asked_for(Number()))
    assert table.to_pylist() == [{"document_id": "d", "q": result}, {"document_id": "other", "q": None}]


def test_results_of_json_are_structs_whose_parts_may_be_null() -> None:
    schema = {"type": "object", "properties": {"name": {"type": "string"}, "age": {"type": "integer"}}}
    table = results_table(["d"], [sample(0, '{"name":"Ann","age":null}')], questions=asked_for(Json(schema)))
    assert table.schema.field("q").type == pa.struct([("name", pa.string()), ("age", pa.int64())])
    assert table["q"].to_pylist() == [{"name": "Ann", "age": None}]


@pytest.mark.parametrize(
    ("kind", "written", "cell"), [("number", "10000000000000001", 1e16), ("number", "5", 5.0), ("integer", "5.0", 5)]
)
def test_results_of_json_hold_numbers_however_they_are_written(kind: str, written: str, cell: float) -> None:
    questions = asked_for(Json({"type": kind, "maximum": 10**18}))
    table = results_table(["d"], [sample(0, written)], questions=questions)
    assert table["q"].to_pylist() == [cell]


def test_result_questions_of_one_id_have_one_type() -> None:
    rows = [
        {"question_id": "q", "question": "?", "document_id": name, **type_fields(value_type)}
        for name, value_type in (("a", Number()), ("b", Label("x", "y")))
    ]
    with pytest.raises(InputError, match="question_id 'q' asks for number of one document"):
        result_questions(read_questions(None, ask=rows))
    rows[1] |= type_fields(Number())
    assert list(result_questions(read_questions(None, ask=rows))) == ["q"]


def test_result_questions_are_none_without_a_type_or_for_too_many() -> None:
    assert result_questions(read_questions(None, ask=[{"question": "?", **NO_TYPE}])) == {}
    many = [{"question": f"{number}?", **type_fields(Number())} for number in range(MAX_RESULT_COLUMNS + 1)]
    assert result_questions(read_questions(None, ask=many)) == {}


@pytest.mark.parametrize("question_id", ["document_id", "Document_ID", "a,b", "a b", "a=b", "Q"])
def test_result_questions_whose_id_can_not_be_a_column_are_refused(question_id: str) -> None:
    rows = [{"question": f"{name}?", "question_id": name, **type_fields(Number())} for name in ("q", question_id)]
    with pytest.raises(InputError, match=f"question_id '{question_id}' can't be a column.*choose another one"):
        result_questions(read_questions(None, ask=rows))
    rows = [{"question": row["question"], "question_id": row["question_id"]} for row in rows]
    assert result_questions(read_questions(None, ask=rows)) == {}  # without types there is no such table
