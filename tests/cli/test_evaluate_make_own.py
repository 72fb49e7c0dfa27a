"""`evaluate make --from-questions`: a user's own questions are a suite like any other."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.evaluation.suite import SUITE_QUESTIONS, read_suite_questions
from memagent_batch.store.location import Location

DOCUMENTS = [
    {"id": "a", "body": "The plan costs 12 EUR.\r\nIt ends in May. 🦊"},
    {"id": "b", "body": "The plan costs 15 EUR."},
    {"id": "unasked", "body": "Nothing."},
]
GOLD: list[dict[str, Any]] = [
    {"question_id": "price", "document_id": "a", "question": "What is the price?", "references": ["12", "twelve"]},
    {"question_id": "price", "document_id": "b", "question": "What is the price?", "references": ["15"]},
    {"document_id": "b", "question": "When does it end?", "references": "not stated"},
]
Make = Callable[..., int]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def make(tmp_path: Path) -> Make:
    """Runs the command over the documents and a list of questions; returns the exit code."""
    documents = write_lines(tmp_path / "lake.jsonl", DOCUMENTS)

    def run(*arguments: str, gold: list[dict[str, Any]] = GOLD) -> int:
        questions = write_lines(tmp_path / "gold.jsonl", gold)
        columns = ["--input.document-id-column", "id", "--input.text-column", "body"]
        suite = ["--output", str(tmp_path / "suite"), "--from-questions", str(questions)]
        return cli.main(["evaluate", "make", *suite, "--documents", str(documents), *columns, *arguments])

    return run


def test_own_questions_are_a_suite_with_the_documents_that_they_ask_about(make: Make, tmp_path: Path) -> None:
    assert make() == 0

    rows = read_suite_questions(Location(uri=str(tmp_path / "suite"))).to_pylist()
    assert [(row["document_id"], row["task"], row["metric"], row["is_absent"]) for row in rows] == [
        ("a", "price", "sub_em", False),
        ("b", "price", "sub_em", False),
        ("b", "gold", "sub_em", True),
    ]
    assert rows[0]["references"] == ["12", "twelve"]
    assert rows[2]["gold_spans"] == []
    documents = pq.read_table(tmp_path / "suite" / "documents").to_pylist()
    assert documents == [{"document_id": row["id"], "text": row["body"]} for row in DOCUMENTS[:2]]


def test_own_question_without_a_document_is_asked_of_every_one(make: Make, tmp_path: Path) -> None:
    assert (
        make("--metric", "em", gold=[{"question_id": "q", "question": "Which currency?", "references": ["EUR"]}]) == 0
    )

    rows = read_suite_questions(Location(uri=str(tmp_path / "suite"))).to_pylist()
    assert [(row["document_id"], row["task"], row["metric"]) for row in rows] == [
        (name, "q", "em") for name in ("a", "b", "unasked")
    ]


def test_own_suite_again_does_nothing_and_with_other_questions_is_refused(
    make: Make, capsys: pytest.CaptureFixture[str]
) -> None:
    assert make() == 0
    assert make() == 0
    assert "holds this suite already" in capsys.readouterr().out
    assert make(gold=[GOLD[0] | {"references": ["13"]}]) == 2
    assert "made with other questions_sha256" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("changed", "arguments", "warned"),
    [
        ({}, [], True),
        ({}, ["--metric", "em"], False),
        ({"references": ["fourteen"]}, [], False),
        ({"answer_type": "number", "references": ["12"]}, [], False),
    ],
)
def test_own_question_with_a_short_reference_is_warned_of_where_containing_it_is_right(
    make: Make, capsys: pytest.CaptureFixture[str], changed: dict[str, Any], arguments: list[str], warned: bool
) -> None:
    assert make(*arguments, gold=[GOLD[0] | changed]) == 0
    assert ("question_id 'price': a wrong answer may contain the reference '12'" in capsys.readouterr().err) is warned


def test_own_typed_questions_are_scored_by_their_values(make: Make, tmp_path: Path) -> None:
    typed = {"answer_type": "number", "unit": "EUR", "metric": "ignored"}
    assert make(gold=[GOLD[0] | typed | {"references": ["12.0"]}, GOLD[2]]) == 0

    number, absent = read_suite_questions(Location(uri=str(tmp_path / "suite"))).to_pylist()
    assert (number["metric"], number["answer_type"], number["unit"]) == ("value", "number", "EUR")
    assert (absent["metric"], absent["answer_type"]) == ("sub_em", None)


@pytest.mark.parametrize(
    ("gold", "arguments", "message"),
    [
        ([GOLD[0] | {"references": None}], [], "question_id 'price' of document_id 'a' has no reference"),
        ([GOLD[0], GOLD[1] | {"document_id": "gone"}], [], "no document has the id 'gone'; correct it, or add"),
        ([GOLD[0] | {"answer_type": "number"}], [], "its reference is not a number: 'twelve' is not a number"),
        (GOLD, ["--lengths", "1K"], "--lengths: it does not belong to --from-questions"),
        (GOLD, ["--tasks", "vt"], "--tasks: it does not belong to --from-questions"),
        (GOLD, ["--input.text-column", "title"], "no column 'title'"),
    ],
)
def test_own_suite_that_cannot_be_made_is_refused_and_leaves_nothing(
    make: Make,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    gold: list[dict[str, Any]],
    arguments: list[str],
    message: str,
) -> None:
    assert make(*arguments, gold=gold) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "suite").exists()


def test_own_suite_is_scored_like_any_other(make: Make, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert make() == 0
    questions = pq.read_table(tmp_path / "suite" / "questions.parquet")
    assert questions.schema.equals(SUITE_QUESTIONS)
    told = ["12 EUR", "16", "Not stated."]
    keys = questions.select(["document_id", "question_id"])
    pq.write_table(keys.append_column("answer", pa.array(told)), tmp_path / "answers.parquet")
    capsys.readouterr()
    arguments = ["--answers", str(tmp_path / "answers.parquet"), "--suite", str(tmp_path / "suite"), "--json"]
    assert cli.main(["evaluate", "score", *arguments]) == 0
    scores = json.loads(capsys.readouterr().out)
    assert {(cell["task"], cell["score"]) for cell in scores["cells"]} == {("price", 0.5), ("gold", 1.0)}
    assert scores["measures"][0]["absent_right"]["share"] == 1.0
    assert scores["measures"][0]["present_lost"]["share"] == 0.0
