"""`memagent review calibrate` from end to end: labels of a made-up run teach a threshold, which the next run reads."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.cli.main import main
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.answer_types import Bool
from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.files.location import Location
from memagent_batch.flows.calibrate import calibrate
from memagent_batch.flows.review import Asked, import_labels, make_review
from memagent_batch.inputs.questions import given_questions
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, read_asked, with_hashes
from memagent_batch.review.calibration.threshold import ALL, Target
from memagent_batch.review.labels.label import Purpose
from memagent_batch.review.sample.record import rule_of
from memagent_batch.runs.escalation.thresholds import THRESHOLD_FORMAT, Thresholds, read_thresholds
from memagent_batch.runs.manifest import require_manifest
from memagent_batch.runs.record.confidences import read_confidences
from tests.review.labelled_run import FINGERPRINT, QUESTION, MadeRun, fill_sheet, take_in, write_run
from tests.review.test_review import ASKED

MADE = MadeRun(num_documents=2000, richness=0.3, recall=0.8)
LABELS = "flagged=550,not_flagged=700,invalid=20,failed=40"
DEVELOP = replace(ASKED, purpose=Purpose.DEVELOP, second_share=0.0, labels=LABELS)
TARGET = Target(recall=0.9, delta=0.05)


def label(
    output: Path, truth: dict[str, bool], *, most: int | None = None, seed: int = 0, asked: Asked = DEVELOP
) -> str:
    """Has one person label what is left; returns the review's id."""
    location = Location(uri=str(output))
    made = make_review(location, asked)
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


def test_threshold_is_learnt_from_the_uniform_part_of_a_sample_and_finds_its_share(tmp_path: Path) -> None:
    output = tmp_path / "out"
    truth = write_run(output, MADE)
    label(output, truth)
    learnt = calibrate(Location(uri=str(output)), None, target=TARGET)
    threshold = learnt["threshold"]
    assert 0.4 < threshold["up_to"] < 0.9
    assert share_found(output, truth, up_to=threshold["up_to"]) >= TARGET.recall
    assert 900 < threshold["num_labels"] < 1150, "more of what was flagged is labelled, and does not count"
    assert learnt["limited_by"] == "not_flagged"
    assert threshold["num_positives"] == pytest.approx(0.3 * threshold["num_labels"], rel=0.15)
    assert learnt["looked_at"] == pytest.approx(threshold["up_to"] * 0.7 * MADE.num_documents, rel=0.15)
    assert learnt["before"] is None
    confidence: Any = threshold["confidence"]
    assert confidence["error"]["gap"] > 2 * confidence["error_calibrated"]["gap"], "it was drawn by lot"
    output_ = Location(uri=str(output))
    known: Any = {"recall": 0.9, "delta": 0.05, "reader_fingerprint": FINGERPRINT, "closings": {Bool(): MADE.closing}}
    asked = given_questions([{"question_id": "clause", "question": QUESTION, "answer_type": "bool"}])
    thresholds = read_thresholds(output_, **known)
    thresholds.require(asked)
    assert thresholds.up_to == {text_hash(QUESTION): threshold["up_to"]}
    others: list[tuple[dict[str, Any], str]] = [
        ({"reader_fingerprint": "g"}, "another reader"),
        ({"closings": {Bool(): "d"}}, "another form of its value"),
        ({"closings": {Bool(not_stated=False): MADE.closing, Bool(): "d"}}, "another form of its value"),
        ({"recall": 0.95}, "recall 0.9, delta 0.05"),
    ]
    for other, message in others:
        with pytest.raises(SettingsError, match=f"question 'clause': its threshold was learnt for {message}"):
            read_thresholds(output_, **{**known, **other}).require(asked)
    for other, _ in (*others[:2], others[3]):
        assert not read_thresholds(output_, **{**known, **other}).up_to


def test_worth_of_a_confidence_is_shown_for_the_questions_and_the_reader_that_it_was_learnt_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    output, location = tmp_path / "out", Location(uri=str(tmp_path / "out"))
    truth = write_run(output, MADE)
    label(output, truth)
    confidence: Any = calibrate(location, None, target=TARGET)["threshold"]["confidence"]
    assert [each["confidence"] for each in confidence["worth"]] == [0.5, 0.75, 0.9, 0.99]
    asked = read_asked(location, run_id=MADE.run_id)
    reclosed = asked.drop_columns([CLOSING_FINGERPRINT]).append_column(CLOSING_FINGERPRINT, pa.array(["d"]))
    reworded = with_hashes(given_questions([{"question_id": "clause", "question": "Has it?"}]), as_lists=False)
    manifest = require_manifest(location)
    (text,) = read_confidences(location, manifest, questions=asked)
    share = confidence["worth"][2]["share_right"]
    assert text.startswith(f"clause, by {confidence['num_labels']:,} labels: share of answers that are right")
    assert f"{100 * share:.1f} % at 90 %" in text
    assert read_confidences(location, manifest, questions=reworded) == []
    assert read_confidences(location, manifest, questions=reclosed) == [], "its confidence comes of other turns"
    other: Any = {**manifest, "reader_fingerprint": "another"}
    assert read_confidences(location, other, questions=asked) == []
    assert caplog.text == ""
    (output / "review/thresholds/damaged.json").write_text("[")
    assert read_confidences(location, manifest, questions=asked) == [text], "the other ones are whole"
    assert "damaged.json is damaged or of an older version, and its confidence is not shown" in caplog.text
    place = output / f"review/thresholds/{text_hash(QUESTION)}.json"
    older = json.loads(place.read_text())
    del older["confidence"]["worth"]
    place.write_text(json.dumps(older))
    assert read_confidences(location, manifest, questions=asked) == []


def test_target_is_refused_for_a_question_without_a_threshold_and_not_for_one_that_is_not_asked() -> None:
    learnt: Any = {"format": THRESHOLD_FORMAT, "recall": 0.9, "delta": 0.05, "reader_fingerprint": "r", "up_to": 0.7}
    learnt["closing_fingerprint"] = "c"
    gone: Any = {**learnt, "reader_fingerprint": "another"}
    thresholds = Thresholds(
        place="out",
        recall=0.9,
        delta=0.05,
        reader_fingerprint="r",
        closings={Bool(): "c"},
        learnt={text_hash("A?"): learnt, "gone": gone},
    )
    first, second, free = (
        {"question_id": "a", "question": "A?", "answer_type": "bool"},
        {"question_id": "b", "question": "A, in other words?", "answer_type": "bool"},
        {"question_id": "c", "question": "Who?", "answer_type": "text"},
    )
    thresholds.require(given_questions([first, free]))
    assert thresholds.up_to == {text_hash("A?"): 0.7}
    older: Any = {"format": "memagent-threshold/0", "reader_fingerprint": "r"}
    with pytest.raises(SettingsError, match=r"question 'a': its threshold was learnt by another version; .*calibrate"):
        replace(thresholds, learnt={text_hash("A?"): older}).require(given_questions([first]))
    with pytest.raises(SettingsError, match=r"question 'b': no threshold was learnt for its wording at out.*calibrate"):
        thresholds.require(given_questions([first, second]))


def test_next_night_learns_on_old_labels_and_says_where_the_reader_has_drifted(tmp_path: Path) -> None:
    output, location = tmp_path / "out", Location(uri=str(tmp_path / "out"))
    truth = write_run(output, MADE)
    label(output, truth)
    first = calibrate(location, None, target=TARGET)["threshold"]
    tonight = replace(MADE, num_documents=2600, run_id="20261124T010000.000Z")
    truth = write_run(output, tonight)
    made = make_review(location, DEVELOP)
    assert made["left"]["first"] < 400
    with pytest.raises(OutputError, match=r"is of run 20261123T010000\.000Z, the last one is 20261124"):
        calibrate(location, first["review_id"], target=TARGET)
    label(output, truth, seed=48)
    learnt = calibrate(location, made["review"], target=TARGET)
    drift = learnt["before"]
    assert drift is not None
    assert (drift["up_to"], drift["has_drifted"]) == (first["up_to"], False)
    assert 0 < drift["num_positives"] < learnt["threshold"]["num_positives"]
    worse = replace(tonight, num_documents=3400, run_id="20261125T010000.000Z", recall=0.2)
    truth = write_run(output, worse)
    label(output, truth, seed=96)
    drift = calibrate(location, make_review(location, DEVELOP)["review"], target=TARGET)["before"]
    assert drift is not None
    assert drift["has_drifted"]
    write_run(output, replace(worse, closing="d"))
    again = make_review(location, DEVELOP)["review"]
    assert calibrate(location, again, target=TARGET)["before"] is None, "its confidence comes of other turns"


def test_threshold_is_learnt_of_the_condition_however_it_is_written(tmp_path: Path) -> None:
    output, location = tmp_path / "out", Location(uri=str(tmp_path / "out"))
    truth = write_run(output, replace(MADE, num_documents=300))
    written = replace(DEVELOP, rule=rule_of("value_bool=true", by=None, unsure_below=None), labels="200")
    assert calibrate(location, label(output, truth, asked=written), target=TARGET)["threshold"]["num_labels"] > 100
    other = replace(written, rule=rule_of("value_label = 'red'", by=None, unsure_below=None))
    with pytest.raises(OutputError, match="a review flagged by value_bool = true"):
        calibrate(location, label(output, truth, asked=other), target=TARGET)


def test_labels_that_are_too_few_or_of_another_purpose_teach_no_threshold(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output, location = tmp_path / "out", Location(uri=str(tmp_path / "out"))
    truth = write_run(output, MADE)
    name = label(output, truth, most=60)
    with pytest.raises(OutputError, match="readings that a threshold is learnt from are not labelled"):
        calibrate(location, name, target=TARGET)
    few = replace(DEVELOP, seed=1, labels="flagged=40,not_flagged=80,invalid=2,failed=3")
    assert label(output, truth, asked=few) != name
    review = ["--review", label(output, truth, asked=few)]
    assert main(["review", "calibrate", str(output), "--recall", "0.9", *review]) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["threshold"]["up_to"] == ALL
    assert shown["threshold"]["num_positives"] < shown["fewest_positives"] == 36
    fewest = replace(DEVELOP, seed=2, labels="flagged=1,not_flagged=2,invalid=1,failed=1")
    confidence: Any = calibrate(location, label(output, truth, asked=fewest), target=TARGET)["threshold"]["confidence"]
    assert confidence["num_labels"] < 5
    assert confidence["error_calibrated"] is None
    validate = make_review(location, ASKED)["review"]
    with pytest.raises(OutputError, match="made to validate by"):
        calibrate(location, validate, target=TARGET)
    assert main(["review", "calibrate", str(output), "--recall", "1.5"]) == 2
