import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

from memagent_batch.cli import main as cli
from memagent_batch.evaluation.suite import SCORES
from tests.evaluation.test_scoring import answer, question, write_answers
from tests.evaluation.test_suite import write_suite


@pytest.fixture
def suite(tmp_path: Path) -> Path:
    """A suite of one task at two lengths, three questions each; its answers are one right, one wrong, and so on."""
    folder = tmp_path / "suite"
    folder.mkdir()
    lengths = enumerate([1000] * 3 + [2000] * 3)
    write_suite(
        folder, *(question(number, references=[f"fox {number}"], length_tokens=each) for number, each in lengths)
    )
    answers = [answer(0, "Fox 0."), answer(1, "dog"), answer(2, None, status="failed"), answer(3, "fox 3")]
    answers += [answer(4, None), answer(9, "fox")]
    write_answers(tmp_path / "out", answers)
    return folder


def evaluate_score(suite: Path, *arguments: str) -> int:
    return cli.main(["evaluate", "score", "--answers", str(suite.parent / "out"), "--suite", str(suite), *arguments])


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
