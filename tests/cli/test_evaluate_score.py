import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.evaluation.suite import SCORES, SUITE_FORMAT, SUITE_QUESTIONS


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task at two lengths, three questions each; its answers are one right, one wrong, and so on."""
    folder = tmp_path / "suite"
    folder.mkdir()
    questions = [
        {
            "question_id": "q",
            "document_id": f"d{number}",
            "question": "Who?",
            "references": [f"fox {number}"],
            "task": "niah",
            "length_tokens": 1000 if number < 3 else 2000,
            "metric": "ruler_all",
            "is_absent": False,
        }
        for number in range(6)
    ]
    pq.write_table(pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS), folder / "questions.parquet")
    (folder / "suite.json").write_text(json.dumps({"format": SUITE_FORMAT}))
    answers: list[dict[str, Any]] = [
        {"document_id": "d0", "status": "ok", "answer": "Fox 0."},
        {"document_id": "d1", "status": "ok", "answer": "dog"},
        {"document_id": "d2", "status": "failed", "answer": None},
        {"document_id": "d3", "status": "ok", "answer": "fox 3"},
        {"document_id": "d4", "status": "ok", "answer": None},
        {"document_id": "else", "status": "ok", "answer": "fox"},
    ]
    pq.write_table(pa.Table.from_pylist([{"question_id": "q"} | row for row in answers]), tmp_path / "answers.parquet")
    return folder


def evaluate_score(suite: Path, *arguments: str) -> int:
    answers = str(suite.parent / "answers.parquet")
    return cli.main(["evaluate", "score", "--answers", answers, "--suite", str(suite), *arguments])


def test_evaluate_score_table_has_every_reading_in_its_n(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_score(suite, "--variant", "mine") == 0
    said = capsys.readouterr()
    assert [line.split() for line in said.out.splitlines()[1:]] == [
        ["mine", "niah", "1,000", "3", "0.333", "0.061", "to", "0.792", "1", "0", "0"],
        ["mine", "niah", "2,000", "3", "0.333", "0.061", "to", "0.792", "0", "1", "1"],
        ["mine", "all", "tasks", "-", "6", "0.333", "0.097", "to", "0.700", "1", "1", "1"],
    ]
    assert "1 answers to questions that the suite does not ask" in said.err


def test_evaluate_score_json_and_output_hold_the_same(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert evaluate_score(suite, "--json", "--output", str(suite.parent / "scores.parquet")) == 0
    cells = json.loads(capsys.readouterr().out)["cells"]
    assert [(cell["length_tokens"], cell["n"], cell["num_failed"]) for cell in cells] == [(1000, 3, 1), (2000, 3, 0)]
    scores = pq.read_table(suite.parent / "scores.parquet")
    assert scores.schema.equals(SCORES)
    assert sum(scores["score"].to_pylist()) == 2.0


def test_evaluate_score_by_a_metric_of_rulers_counts_what_no_box_holds(
    suite: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = [
        {"document_id": f"d{n}", "question_id": "q", "answer": None, "response": f"It is fox {n}."} for n in range(6)
    ]
    pq.write_table(pa.Table.from_pylist(rows), suite.parent / "answers.parquet")
    assert evaluate_score(suite, "--json") == 0
    assert {cell["score"] for cell in json.loads(capsys.readouterr().out)["cells"]} == {1.0}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--suite=gone"], "gone: no such file or folder; check the path"),
        (["--answers=gone"], "no such file or folder"),
    ],
)
def test_evaluate_score_bad_argument_is_one_line(
    suite: Path, arguments: list[str], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert evaluate_score(suite, *arguments) == 2
    said = capsys.readouterr().err
    assert message in said
    assert said.count("\n") == 1


def test_evaluate_score_unfit_questions_are_refused(suite: Path, capsys: pytest.CaptureFixture[str]) -> None:
    questions = pq.read_table(suite / "questions.parquet")
    renamed = questions.set_column(1, SUITE_QUESTIONS.field("document_id"), pa.array([f"x{n}" for n in range(6)]))
    pq.write_table(renamed, suite / "questions.parquet")
    assert evaluate_score(suite) == 2
    assert "answers of another suite: 6 of 6" in capsys.readouterr().err
    pq.write_table(questions.slice(0, 0), suite / "questions.parquet")
    assert evaluate_score(suite) == 2
    assert "the suite is empty" in capsys.readouterr().err
