"""`evaluate` over a user's own questions with references."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.evaluation.scores import ANSWER_COLUMNS, score_answers
from memagent_batch.apps.evaluation.suite import own_suite
from memagent_batch.cli import main as cli
from memagent_batch.data.store.location import Location
from memagent_batch.loop.scores import Metric
from tests.evaluation.test_scores import answer
from tests.jobs import small_arguments

DOCUMENTS = [
    {"id": "a", "body": "The plan costs 12 EUR.\r\nIt ends in May. 🦊"},
    {"id": "b", "body": "The plan costs 15 EUR."},
    {"id": "unasked", "body": "Nothing."},
]
GOLD: list[dict[str, Any]] = [
    {"question_id": "price", "document_id": "a", "question": "What is the price?", "references": ["12", "twelve"]},
    {"question_id": "price", "document_id": "b", "question": "What is the price?", "references": ["15"]},
    {"question_id": "end", "document_id": "b", "question": "When does it end?", "references": "not stated"},
]
ANSWERS = {"document_id": ["a", "b", "b"], "question_id": ["price", "price", "end"]}
Score = Callable[..., list[dict[str, Any]]]


def write_lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


@pytest.fixture
def score(tmp_path: Path) -> Score:
    """Scores answers against questions; returns a row for each reading."""

    def run(
        answers: dict[str, list[Any]], *, gold: list[dict[str, Any]] = GOLD, metric: Metric = Metric.SUB_EM
    ) -> list[dict[str, Any]]:
        questions = Location(uri=str(write_lines(tmp_path / "gold.jsonl", gold)))
        rows = [dict(zip(answers, cells, strict=True)) for cells in zip(*answers.values(), strict=True)]
        table = pa.Table.from_pylist([answer(0, row.pop("answer"), **row) for row in rows], schema=ANSWER_COLUMNS)
        suite = own_suite(questions, documents=[], metric=metric)
        scored = score_answers(suite.questions_of(table), table, variant="v", samples=1)
        scores: list[dict[str, Any]] = scored.to_pylist()
        return scores

    return run


def test_run_of_own_questions_reads_the_documents_that_they_ask_about(tmp_path: Path, text_model: str) -> None:
    gold = [*GOLD, GOLD[0] | {"question_id": "other", "references": ["simulated"]}]
    columns = {"document_id_column": "id", "text_column": "body"}
    config = small_arguments(tmp_path, text_model, documents="elsewhere", input=columns)
    documents = write_lines(tmp_path / "lake.jsonl", DOCUMENTS)
    places = ["--documents", str(documents), "--questions", str(write_lines(tmp_path / "gold.jsonl", gold))]
    run = ["evaluate", "run", *places, "--output", str(tmp_path / "out"), *config]
    assert cli.main(run) == 0
    rows = pq.read_table(tmp_path / "out" / "scores" / "overwrite.parquet").to_pylist()
    assert [(row["document_id"], row["task"], row["is_absent"], row["score"]) for row in rows] == [
        ("a", "price", False, 0.0),
        ("b", "price", False, 0.0),
        ("b", "gold", True, 0.0),
        ("a", "gold", False, 1.0),
    ]
    write_lines(tmp_path / "gold.jsonl", [gold[-1] | {"references": ["fox"]}])
    assert cli.main(run) == 0
    assert pq.read_table(tmp_path / "out" / "scores" / "overwrite.parquet")["score"].to_pylist() == [0.0]


@pytest.mark.parametrize(
    ("changed", "metric", "warned"),
    [
        ({}, Metric.SUB_EM, True),
        ({}, Metric.EM, False),
        ({"references": ["fourteen"]}, Metric.SUB_EM, False),
        ({"answer_type": "number", "references": ["12"]}, Metric.SUB_EM, False),
    ],
)
def test_own_question_with_a_short_reference_is_warned_of_where_containing_it_is_right(
    score: Score, caplog: pytest.LogCaptureFixture, changed: dict[str, Any], metric: Metric, warned: bool
) -> None:
    told = {name: cells[:1] for name, cells in ANSWERS.items()} | {"answer": ["12"]}
    score(told, metric=metric, gold=[GOLD[0] | changed])
    assert ("question_id 'price': a wrong answer may contain the reference '12'" in caplog.text) is warned


@pytest.mark.parametrize(
    ("gold", "message"),
    [
        ([GOLD[0] | {"references": None}], "question_id 'price' of document_id 'a' has no reference"),
        ([GOLD[0] | {"answer_type": "number"}], "its reference is not a number: 'twelve' is not a number"),
    ],
)
def test_own_questions_that_cannot_be_scored_are_refused_before_anything_is_read(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], gold: list[dict[str, Any]], message: str
) -> None:
    places = ["--documents", "gone", "--questions", str(write_lines(tmp_path / "gold.jsonl", gold))]
    assert cli.main(["evaluate", "run", *places, "--output", str(tmp_path / "out")]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_own_questions_are_scored_like_a_suite(score: Score) -> None:
    rows = score({**ANSWERS, "answer": ["12 EUR", "16", "Not stated."]})
    assert [(row["task"], row["score"]) for row in rows] == [("price", 1.0), ("price", 0.0), ("gold", 1.0)]
    assert [(row["is_absent"], row["abstained"]) for row in rows] == [(False, False), (False, False), (True, True)]
    typed = GOLD[0] | {"answer_type": "number", "unit": "EUR", "references": ["12.0"]}
    everywhere = {"question_id": "q", "question": "Which currency?", "references": ["EUR"]}
    told = {
        "document_id": ["a", "a", "b", "b"],
        "question_id": ["price", "q", "q", "end"],
        "answer": ["12", "EUR", "USD", "May"],
        "value": ["12", None, None, None],
        "value_status": ["ok", None, None, None],
    }
    rows = score(told, metric=Metric.EM, gold=[typed, everywhere, GOLD[2]])
    assert [(row["metric"], row["value_right"], row["score"]) for row in rows] == [
        ("value", True, 1.0),
        ("em", None, 1.0),
        ("em", None, 0.0),
        ("em", None, 0.0),
    ]
