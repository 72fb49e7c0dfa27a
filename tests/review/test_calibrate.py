"""`memagent review calibrate` from end to end: labels of a made-up run teach the condition of a second pass."""

import json
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.documents.where import matching_rows, parse_where
from memagent_batch.errors import OutputError
from memagent_batch.flows.review import ReviewRequest, calibrate, import_labels, make_review
from memagent_batch.review.calibration import ALL_AGAIN
from memagent_batch.review.labels import Purpose
from memagent_batch.store.location import Location
from tests.review.labelled_run import MadeRun, fill_sheet, take_in, write_run
from tests.review.test_review import ASKED

MADE = MadeRun(num_documents=2000, richness=0.3, recall=0.8)
LABELS = "flagged=550,not_flagged=700,invalid=20,failed=40"
DEVELOP = replace(ASKED, purpose=Purpose.DEVELOP, second_share=0.0, labels=LABELS)
RECALL, DELTA = 0.9, 0.05


def label(
    output: Path, truth: dict[str, bool], *, most: int | None = None, seed: int = 0, asked: ReviewRequest = DEVELOP
) -> str:
    """Has one person label what is left; returns the review's id."""
    location = Location(uri=str(output))
    made = make_review([location], asked)
    if made["left"]["first"]:
        data = fill_sheet(Path(made["folder"]) / "labels.csv", truth, reviewer="ada", most=most, seed=seed)
        import_labels(location, [take_in(output, data)], reviewer=None)
    return str(made["review"])


def share_found(output: Path, truth: dict[str, bool], *, up_to: float) -> float:
    """Share of what is looked for that is answered by yes, or looked at."""
    found = []
    for name in json.loads((output / "manifest.json").read_text())["files"]["answers"]:
        for row in pq.read_table(output / name).to_pylist():
            is_looked_at = row["value_bool"] is None or row["confidence"] <= up_to
            found.append(truth[row["document_id"]] and (bool(row["value_bool"]) or is_looked_at))
    return float(sum(found) / sum(truth.values()))


def test_threshold_is_learnt_from_the_uniform_part_of_a_sample_and_finds_its_share(
    output: Path, location: Location
) -> None:
    truth = write_run(output, MADE)
    label(output, truth)
    learnt = calibrate([location], "clause", review_id=None, recall=RECALL, delta=DELTA)
    assert 0.4 < learnt["up_to"] < 0.9
    assert share_found(output, truth, up_to=learnt["up_to"]) >= RECALL
    assert 900 < learnt["num_labels"] < 1150, "more of what was flagged is labelled, and does not count"
    assert learnt["limited_by"] == "not_flagged"
    assert learnt["num_positives"] == pytest.approx(0.3 * learnt["num_labels"], rel=0.15)
    assert learnt["read_again"] == pytest.approx(learnt["up_to"] * 0.7 * MADE.num_documents, rel=0.15)


def test_condition_selects_the_readings_that_the_threshold_has_read_again(output: Path, location: Location) -> None:
    label(output, write_run(output, replace(MADE, value_labels=("red", None))))
    learnt = calibrate([location], "clause", review_id=None, recall=RECALL, delta=DELTA)
    answers = pa.concat_tables(pq.read_table(path) for path in sorted((output / "answers").iterdir()))
    rows = matching_rows(answers, parse_where(learnt["where"]))
    assert len(rows) == learnt["read_again"]
    found = answers.take(pa.array(rows)).to_pylist()
    assert not any(row["value_bool"] for row in found)
    assert {row["status"] for row in found} == {"ok", "failed"}


def test_next_night_learns_on_old_labels(output: Path, location: Location) -> None:
    name = label(output, write_run(output, MADE))
    tonight = replace(MADE, num_documents=2600, run_id="20261124T010000.000Z")
    truth = write_run(output, tonight)
    with pytest.raises(OutputError, match=r"no review with .*'clause'.* run `memagent review make --purpose develop`"):
        calibrate([location], "clause", review_id=None, recall=RECALL, delta=DELTA)
    assert make_review([location], DEVELOP)["left"]["first"] < 400
    with pytest.raises(OutputError, match=r"is of run 20261123T010000\.000Z, the last one is 20261124"):
        calibrate([location], "clause", review_id=name, recall=RECALL, delta=DELTA)
    label(output, truth, seed=48)
    assert calibrate([location], "clause", review_id=None, recall=RECALL, delta=DELTA)["num_labels"] > 900


def test_threshold_is_learnt_of_a_yes_alone(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    other = replace(DEVELOP, flagged="value_label = 'red'", labels="200")
    with pytest.raises(OutputError, match="a review flagged by value_bool = true"):
        calibrate([location], "clause", review_id=label(output, truth, asked=other), recall=RECALL, delta=DELTA)


def test_labels_that_are_too_few_or_of_another_purpose_teach_no_threshold(
    output: Path, location: Location, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = write_run(output, MADE)
    name = label(output, truth, most=60)
    with pytest.raises(OutputError, match="readings that a threshold is learnt from are not labelled"):
        calibrate([location], "clause", review_id=name, recall=RECALL, delta=DELTA)
    few = replace(DEVELOP, seed=1, labels="flagged=40,not_flagged=80,invalid=2,failed=3")
    assert label(output, truth, asked=few) != name
    arguments = ["review", "calibrate", str(output), "--question", "clause", "--recall", "0.9"]
    assert main(arguments) == 2
    assert "has several with purpose 'develop', question_id 'clause', run_id" in capsys.readouterr().err
    arguments += ["--review", label(output, truth, asked=few)]
    assert main([*arguments, "--json"]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["up_to"] == ALL_AGAIN
    assert shown["num_positives"] < shown["fewest_positives"] == 36
    assert main(arguments) == 0
    said = capsys.readouterr().out
    assert "confidence <= 1 is read again: this holds recall 0.9 with delta 0.05" in said
    assert f'--where "{shown["where"]}"' in said
    validate = make_review([location], ASKED)["review"]
    with pytest.raises(OutputError, match="made to validate by"):
        calibrate([location], "clause", review_id=validate, recall=RECALL, delta=DELTA)
    assert main([*arguments, "--recall", "1.5"]) == 2
