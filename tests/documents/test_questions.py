import csv
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.feather as feather
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.api.inputs import question_table
from memagent_batch.data.documents.document_index import INDEX_SCHEMA
from memagent_batch.data.documents.questions import (
    NO_TYPE,
    QUESTION_SCHEMA,
    missing_documents,
    read_questions,
    type_fields,
    value_types,
)
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, ValueTypeError
from memagent_batch.loop.addresses import text_hash
from memagent_batch.loop.follow_ups.answer_types import Bool, Label, Number

PARTY = '{"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}'
ROWS: list[dict[str, Any]] = [
    {"question_id": "1", "document_id": None, "question": "a, b?", "references": ["x", "y"], **NO_TYPE},
    {"question_id": "2", "document_id": "d", "question": 'c\n"d"?', "references": None, **NO_TYPE},
    {"question_id": "3", "question": "e?", **NO_TYPE, "answer_type": "label", "labels": ["low", "high, or more"]},
    {"question_id": "4", "question": "f?", **NO_TYPE, "answer_type": "number", "unit": "EUR", "not_stated": False},
    {"question_id": "5", "question": "g?", **NO_TYPE, "answer_type": "json", "schema": PARTY, "not_stated": True},
]
ROWS[2:] = [{"document_id": None, "references": None, **row} for row in ROWS[2:]]


def _read(path: Path, *ask: str) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = read_questions(Location(uri=str(path)), ask=ask).to_pylist()
    return rows


def _write(path: Path) -> None:
    table = pa.Table.from_pylist(ROWS, schema=QUESTION_SCHEMA)
    match path.suffix:
        case ".parquet":
            pq.write_table(table, path)
        case ".arrow":
            feather.write_feather(table, str(path))
        case ".jsonl":
            path.write_text("".join(json.dumps(row) + "\n" for row in ROWS))
        case ".csv":
            with path.open("w", newline="") as stream:
                writer = csv.DictWriter(stream, fieldnames=list(ROWS[0]))
                writer.writeheader()
                for row in ROWS:
                    writer.writerow({name: _cell(value) for name, value in row.items()})


def _cell(value: object) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    return json.dumps(value) if isinstance(value, list) else str(value or "")


@pytest.mark.parametrize("ending", ["parquet", "arrow", "jsonl", "csv"])
def test_read_questions_all_columns_are_the_same_in_every_format(ending: str, tmp_path: Path) -> None:
    _write(tmp_path / f"q.{ending}")
    table = read_questions(Location(uri=str(tmp_path / f"q.{ending}")), ask=())
    assert table.schema.equals(QUESTION_SCHEMA)
    assert table.to_pylist() == ROWS


@pytest.mark.parametrize(
    ("name", "data", "expected"),
    [
        (
            "q.txt",
            "\ufeffWho? \r\n\n \nWas ist\u2028das?",
            [{"question": "Who?", "question_id": f"q-{text_hash('Who?')[:12]}"}, {"question": "Was ist\u2028das?"}],
        ),
        (
            "q.jsonl",
            '{"question_id": 5, "document_id": 7, "question": "a", "references": "r"}',
            [{"question_id": "5", "document_id": "7", "question": "a", "references": ["r"], **NO_TYPE}],
        ),
        ("q.csv", "id,question\nlaw,Which law governs it?\n", [{"question_id": "law"}]),
        ("q.tsv", 'id\tquestion\nlaw\t"Which ""law"", of two?"\n', [{"question": 'Which "law", of two?'}]),
        (
            "q.csv",
            "question,answer_type,labels\nRisk?,label,low | high\nWho?,,\n",
            [{"answer_type": "label", "labels": ["low", "high"]}, {"answer_type": None, "labels": None}],
        ),
        (
            "documents.csv",
            "document_id,text,question\na,Long.,Who?\nb,Short.,When?\n",
            [{"document_id": "a", "question": "Who?"}, {"document_id": "b", "question": "When?"}],
        ),
    ],
    ids=[
        "one a line",
        "integers, and one reference",
        "column `id`",
        "tabs",
        "labels between bars",
        "of its own document each",
    ],
)
def test_read_questions_takes_each_as_it_is_written(
    name: str, data: str, expected: list[dict[str, Any]], tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data.encode())
    rows = _read(tmp_path / name)
    assert [{column: row[column] for column in some} for row, some in zip(rows, expected, strict=True)] == expected


def test_read_questions_asked_ones_come_after_the_file(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("a")
    assert [row["question"] for row in _read(tmp_path / "q.txt", "b", "c")] == ["a", "b", "c"]


def test_read_questions_neither_file_nor_asked_is_an_empty_table() -> None:
    table = read_questions(None, ask=())
    assert table.num_rows == 0
    assert table.schema.equals(QUESTION_SCHEMA)


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("q.txt", b"a\xff", "q.txt: invalid UTF-8 at byte 2"),
        ("q.txt", b"a\nb\na\n", "twice for every document: .*line 1.*line 3"),
        ("q.xlsx", b"", r"q\.xlsx: no known file ending"),
        ("q.csv", b"question,doc_id\na,d\n", "q.csv: .* no column 'doc_id'; did you mean 'document_id'"),
        ("q.tsv", b"question\tDocument ID\na\td\n", "did you mean 'document_id'"),
        ("q.csv", b"Question,question_id\na,d\n", "'Question'; did you mean 'question'"),
        ("q.csv", b"question,qid\na,d\n", "'qid'; did you mean 'question_id'"),
        ("q.jsonl", b'{"question": "a"}\n{"question": "b", "lables": "x"}', "'lables'; did you mean 'labels'"),
        ("q.jsonl", b'{"question": "a"}\n{"question": null}', "line 2.*'question' is null"),
        ("q.jsonl", b'{"question": "a", "references": [1.5]}', "'references' holds float"),
        ("q.jsonl", b'{"question": "a", "type": "bridge"}\n{"question": "b", "type": "date"}', "line 2.*'answer_type'"),
        ("q.csv", b"question,document_id\na,d\na,d\n", "twice for document_id 'd': .*line 2 and .*line 3"),
        ("q.csv", b"question,document_id\na,d\na,\n", "asked of every document .*for document_id 'd' as well"),
    ],
)
def test_read_questions_bad_file_is_refused_with_place_and_remedy(
    name: str, data: bytes, message: str, tmp_path: Path
) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(InputError, match=message):
        _read(tmp_path / name)


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("q.csv", "document_id,question,text,answer,doc_id\nd,Who?,Long.,Ann,1\n"),
        (
            "q.jsonl",
            '{"question": "Who?", "document_id": "d", "text": "t", "answer": 1}\n{"question": "b", "doc_id": 1}',
        ),
    ],
)
def test_read_questions_other_columns_are_ignored_with_one_warning(
    name: str, data: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / name).write_text(data)
    assert _read(tmp_path / name)[0]["document_id"] == "d"
    (warning,) = caplog.messages
    assert "ignored, since a question list has no such columns: 'text', 'answer', 'doc_id'" in warning


def test_read_questions_of_a_program_follow_the_rule_of_files(caplog: pytest.LogCaptureFixture) -> None:
    rows = [{"question": "Who?", "topic": "a"}, {"question": "When?", "topic": "b", "source": "c"}]
    assert read_questions(None, ask=rows)["question"].to_pylist() == ["Who?", "When?"]
    (warning,) = caplog.messages
    assert "no such columns: 'topic', 'source'" in warning
    for row, meant in (({"doc_id": "d"}, "'document_id'"), ({"type": "bool"}, "'answer_type'")):
        with pytest.raises(InputError, match=f"ask, question 1: .*{meant}"):
            read_questions(None, ask=[{"question": "Who?", **row}])


@pytest.mark.parametrize("prefix", ["delta://", ""])
def test_read_questions_of_a_delta_table_are_those_of_its_newest_version(prefix: str, tmp_path: Path) -> None:
    from deltalake import DeltaTable, write_deltalake

    rows = [{"question_id": name, "question": f"{name}?", "kind": name} for name in "abc"]
    write_deltalake(f"{tmp_path}/q", pa.Table.from_pylist(rows), partition_by=["kind"])
    DeltaTable(f"{tmp_path}/q").delete("question_id = 'b'")
    read = read_questions(Location(uri=f"{prefix}{tmp_path}/q"), ask=())
    assert sorted(read["question_id"].to_pylist()) == ["a", "c"]
    assert read_questions(Location(uri=f"delta://{tmp_path}/q@0"), ask=()).num_rows == 3
    DeltaTable(f"{tmp_path}/q").delete()
    with pytest.raises(InputError, match="holds no questions"):
        read_questions(Location(uri=f"{prefix}{tmp_path}/q"), ask=())


def test_read_questions_asked_one_that_the_file_has_is_refused(tmp_path: Path) -> None:
    (tmp_path / "q.txt").write_text("a")
    with pytest.raises(InputError, match=r"line 1.*ask, question 1"):
        _read(tmp_path / "q.txt", "a")


def _index(*ids: str) -> pa.Table:
    rows = [{"document_id": name, "path": "f", "format": "text", "start": 0, "stop": 0, "num_bytes": 0} for name in ids]
    return pa.Table.from_pylist(rows, schema=INDEX_SCHEMA)


def test_missing_documents_are_those_that_are_not_there_and_refused_only_where_none_is() -> None:
    ids = pa.chunked_array([["x", "d"], ["y", "x"]], pa.large_string())
    assert missing_documents(ids, _index("c", "d"), refusal="none") == ["x", "y"]
    assert missing_documents(ids, _index("c")) == ["x", "d", "y"]
    with pytest.raises(InputError, match=r"none of 3 such as 'x' among 1"):
        missing_documents(ids, _index("c"), refusal="none of {num} such as {first!r} among {documents}")
    assert missing_documents(ids.slice(0, 0), _index(), refusal="none") == []


def test_schema_may_stand_as_an_object_in_a_jsonl_file(tmp_path: Path) -> None:
    row = {"question": "Who?", "answer_type": "json", "schema": json.loads(PARTY)}
    (tmp_path / "q.jsonl").write_text(json.dumps(row))
    (value_type,) = value_types(read_questions(Location(uri=str(tmp_path / "q.jsonl")), ask=()))
    assert value_type is not None
    assert json.loads(value_type.schema) == json.loads(PARTY)


@pytest.mark.parametrize(
    ("row", "problem"),
    [
        ({"answer_type": "label"}, "labels: there is none; name those"),
        ({"labels": ["a"]}, "labels: the question has no answer_type"),
        ({"answer_type": "number"}, "unit: the list has units, and this number none"),
    ],
)
def test_wrong_type_is_refused_with_its_row(row: dict[str, Any], problem: str, tmp_path: Path) -> None:
    rows = [{"question": "How much?", "answer_type": "number", "unit": "EUR"}, {"question": "Which?", **row}]
    (tmp_path / "q.jsonl").write_text("\n".join(map(json.dumps, rows)))
    with pytest.raises(ValueTypeError) as raised:
        read_questions(Location(uri=str(tmp_path / "q.jsonl")), ask=())
    place, _, message = str(raised.value).partition(", line 2: ")
    assert place.endswith("/q.jsonl")
    assert problem in message


@pytest.mark.parametrize(
    ("questions", "problem"),
    [
        ([], "questions: there is none; give at least one"),
        (["Who?", " "], "questions, number 2: it is empty"),
        (["Who?", 7], "questions, number 2: this is a int; give a text, a Question or a mapping"),
        (
            [{"question": "Who?", "answer_type": "bool", "not_stated": "maybe"}],
            "questions, number 1: column 'not_stated' is 'maybe'; write true or false",
        ),
    ],
)
def test_question_of_a_program_is_refused_by_its_number(questions: Any, problem: str) -> None:
    with pytest.raises(InputError, match=problem):
        question_table(questions, storage_options={})


def test_questions_of_a_job_file_may_have_types() -> None:
    table = read_questions(None, ask=["Who?", {"question": "Is it?", "question_id": "is", "answer_type": "bool"}])
    assert table["question_id"].to_pylist()[1] == "is"
    assert value_types(table) == [None, Bool()]
    with pytest.raises(ValueTypeError, match="ask, question 1: answer_type: 'boolean' is not one of"):
        read_questions(None, ask=[{"question": "Is it?", "answer_type": "boolean"}])


def test_type_fields_give_the_type_again() -> None:
    for value_type in (None, Bool(not_stated=False), Label("a", "b"), Number(unit="days")):
        assert value_types(read_questions(None, ask=[{"question": "q?", **type_fields(value_type)}])) == [value_type]
