"""Answers of second passes, in place of those of the first."""

import json
from pathlib import Path

import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.cli.main import main
from memagent_batch.data.store.location import Location
from tests.runs.recorded_nights import Nights

FOUR_DOCUMENTS: dict[str, str | None] = {"a": "one", "b": "it fails", "c": "three", "d": "four"}


@pytest.fixture
def outputs(tmp_path: Path) -> list[str]:
    """A first pass; a second pass of another reader that read a and b; a third that read c and a changed d."""
    places = [str(tmp_path / name) for name in ("first", "second", "third")]
    first, second, third = (Nights(Location(uri=place)) for place in places)
    first.run(FOUR_DOCUMENTS, {"q": "Who?", "r": "Where?"})
    second.run({"a": "one", "b": "it fails"}, {"q": "Who?"}, reader="g")
    third.run({"b": "it fails", "c": "three", "d": "five"}, {"q": "Who?"}, reader="h", retried=True)
    return places


def test_last_usable_answer_of_the_same_text_stands(outputs: list[str]) -> None:
    merged = ma.merged_answers(outputs)
    rows = {(row["document_id"], row["question_id"]): row for row in merged.to_pylist()}
    assert list(rows) == [(name, question) for name in "abcd" for question in "qr"]
    places = {name: Path(rows[name, "q"]["output"]).name for name in "abcd"}
    assert places == {"a": "second", "b": "third", "c": "third", "d": "first"}
    assert {Path(rows[name, "r"]["output"]).name for name in "abcd"} == {"first"}
    assert rows["a", "q"]["fingerprint"] == "g"
    assert (rows["b", "q"]["status"], rows["b", "q"]["answer"]) == ("ok", "it fails")
    assert rows["b", "r"]["status"] == "failed", "no second pass read it"
    assert rows["d", "q"]["answer"] == "four", "the third read another text"
    alone = ma.merged_answers(outputs[:1])
    columns = ma.merged_answers(outputs).schema.names
    assert columns[-3:] == ["output", "first_value", "first_confidence"]
    answers = ma.table(outputs[0], "answers")
    order = [("document_id", "ascending"), ("question_id", "ascending")]
    assert alone.select(answers.schema.names).to_pylist() == answers.sort_by(order).to_pylist()
    assert alone.schema.field("finished_at").type == answers.schema.field("finished_at").type


@pytest.mark.parametrize("to", ["merged.parquet", "folder"])
def test_results_are_written_as_a_file(
    outputs: list[str], tmp_path: Path, to: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--over", *outputs, "--to", str(tmp_path / to)]) == 0
    said = json.loads(capsys.readouterr().out)
    assert (said["rows"], said["of_second_passes"]) == (8, 3)
    file = Path(said["file"])
    assert file == (tmp_path / to / "answers.parquet" if to == "folder" else tmp_path / to)
    read = pq.read_table(file)
    assert read.to_pylist() == ma.merged_answers(outputs).to_pylist()


def test_password_of_the_place_of_results_is_not_printed(
    outputs: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--over", *outputs, "--to", "memory://ada:s3cret@box/merged.parquet"]) == 0
    assert json.loads(capsys.readouterr().out)["file"] == "memory://box/merged.parquet"


def test_results_of_an_output_without_a_run_are_refused(
    outputs: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["results", "--over", outputs[0], str(tmp_path / "gone"), "--to", str(tmp_path / "x.parquet")]) == 2
    assert "nothing is at" in capsys.readouterr().err
    assert main(["results", "--over", outputs[0], "--to", str(tmp_path / "x.parquet")]) == 2
    assert "at least one second pass" in capsys.readouterr().err
    assert not (tmp_path / "x.parquet").exists()
