"""`memagent review` from end to end: a run with a known truth, people who label it, and what is said of it."""

import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import memagent_batch as ma
from memagent_batch.apps.review.labels import Purpose, read_label_rows
from memagent_batch.apps.review.population import draw, find_runs, read_population, seed_text
from memagent_batch.apps.review.record import condition_words, latest_estimates
from memagent_batch.apps.review.review import ReviewRequest, import_labels, make_estimate, make_review
from memagent_batch.cli.main import main
from memagent_batch.data.documents.where import Condition
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, SettingsError
from tests.review.labelled_run import MadeRun, fill_sheet, take_in, write_run
from tests.runs.written_runs import rewrite_answers

MADE = MadeRun(num_documents=2000)
ASKED = ReviewRequest(question_id="clause", flagged="value_bool = true", labels="750", with_page=False)
ROLES = (("", "ada"), ("-second", "bo"), ("-third", "cy"))


def label_all(
    output: Path, truth: dict[str, bool], *, error_rate: float = 0.0, asked: ReviewRequest = ASKED, seed: int = 0
) -> Path:
    """Has people label all that `make` hands them, one after another; returns the review's folder."""
    location = Location(uri=str(output))
    folder = output
    for number, (role, reviewer) in enumerate(ROLES):
        made = make_review([location], asked)
        folder = Path(made["folder"])
        sheet = folder / f"labels{role}.csv"
        if sheet.exists():
            data = fill_sheet(sheet, truth, reviewer=reviewer, error_rate=error_rate, seed=10 * seed + number)
            import_labels(location, [take_in(output, data)], reviewer=None)
    return folder


def answers_of(output: Path) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = ma.table(output, "answers").to_pylist()
    return rows


def true_recall(output: Path, truth: dict[str, bool]) -> tuple[float, float]:
    found = [truth[row["document_id"]] for row in answers_of(output) if row["value_bool"]]
    return sum(found) / sum(truth.values()), sum(found) / len(found)


@pytest.mark.parametrize("error_rate", [0.0, 0.02, 0.05])
def test_estimates_cover_the_truth_and_say_how_far_reviewers_agree(
    output: Path, location: Location, error_rate: float
) -> None:
    truth = write_run(output, MADE)
    label_all(output, truth, error_rate=error_rate)
    values, page = make_estimate([location], None, so_far=False)
    measures = values["measures"]
    for name, true in zip(("recall", "precision"), true_recall(output, truth), strict=True):
        assert measures[name]["low"] <= true <= measures[name]["high"], name
    assert values["agreement"]["num_pairs"] >= 75
    assert (values["agreement"]["kappa"] == 1.0) == (error_rate == 0)
    assert "errors of reviewers are not allowed for" in page


def test_estimate_counts_errors_by_confidence(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    label_all(output, truth, asked=replace(ASKED, labels="300", second_share=0.0))
    values, page = make_estimate([location], None, so_far=False)
    rows = answers_of(output)
    for band in values["bands"]:
        answers = [
            row
            for row in rows
            if row["value_bool"] is (band["stratum"] == "flagged") and band["low"] <= row["confidence"] < band["high"]
        ]
        wrong = [row for row in answers if row["value_bool"] != truth[row["document_id"]]]
        assert (band["num_labelled"], band["num_wrong"]) == (len(answers), len(wrong))
        assert band["interval"]["low"] <= len(wrong) / len(answers) <= band["interval"]["high"]
    assert sum(band["num_labelled"] for band in values["bands"]) == sum(row["value_bool"] is not None for row in rows)
    assert {band["stratum"] for band in values["bands"]} == {"flagged", "not_flagged"}
    assert "| not\\_flagged | 0.0 to 0.5 |" in page


def test_estimate_of_documents_with_losses_says_that_it_is_of_their_text_and_what_recall_is_at_worst(
    output: Path, location: Location
) -> None:
    truth = write_run(output, replace(MADE, num_documents=200, num_with_losses=40))
    asked = replace(ASKED, labels="200", second_share=0.0, with_page=True)
    made = make_review([location], asked)
    page, sheet = ((Path(made["folder"]) / name).read_text("utf-8") for name in ("page.html", "labels.csv"))
    assert page.count("page 2: an image without text") == sheet.count("page 2: an image without text") == 40
    assert "doc-00000.pdf" in page
    label_all(output, truth, asked=asked)
    values, said = make_estimate([location], None, so_far=False)
    assert "not of the original files" in said
    assert "40 of the 200 sampled documents were not read to the end (40 of all 200)" in said
    rows = answers_of(output)
    found = [truth[row["document_id"]] for row in rows if row["value_bool"]]
    other = [row for row in rows if not row["value_bool"]]
    num_lossy = sum(row["source_unread"] is not None for row in other)
    missed = num_lossy + sum(truth[row["document_id"]] for row in other if row["source_unread"] is None)
    assert values["num_missed_at_worst"] == num_lossy
    assert values["recall_at_worst"]["value"] == pytest.approx(sum(found) / (sum(found) + missed))


def test_estimate_after_one_of_two_reviewers_warns_and_make_names_the_page_of_the_second(
    output: Path, location: Location, caplog: pytest.LogCaptureFixture
) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    made = make_review([location], replace(ASKED, labels="200", with_page=True))
    assert made["pages"] == {"first": made["page"]}
    import_labels(
        location,
        [take_in(output, fill_sheet(Path(made["folder"]) / "labels.csv", truth, reviewer="ada"))],
        reviewer=None,
    )
    values, said = make_estimate([location], None, so_far=False)
    num_left = values["labels"]["left_second"]
    assert num_left >= 20
    assert f"**{num_left} readings are still to be read by a second person**" in said
    assert f"{num_left} readings still to be read by a second person" in caplog.text
    (shown,) = latest_estimates(location)
    assert shown.num_left_second == num_left
    again = make_review([location], replace(ASKED, labels="200", with_page=True))
    assert again["page"] == again["pages"]["second"] == str(Path(made["folder"]) / "page-second.html")
    assert again["left"]["second"] == num_left


@pytest.mark.parametrize(
    ("condition", "words"),
    [
        ("value_bool = true", "the right answer is yes"),
        ("VALUE_BOOL=FALSE", "the right answer is no"),
        ("value_number is not null", "the document states such a number"),
        ("value  is null", "the document does not answer the question"),
        ("value_number>=1000.5", "the right answer is 1000.5 or more"),
        ("value_number < -3", "the right answer is less than -3"),
        ("value_number between 1 and 5", "the right answer is from 1 to 5"),
        ("value_label = 'it''s'", "the right answer is it's"),
        ("value_label in ('red', 'amber', 'a, b')", "the right answer is red, amber or a, b"),
        ("value_label in ('red')", "the right answer is red"),
        ("value_label not in ('red','amber')", "the right answer is not red or amber"),
        ("answer ~ '(?i)^yes'", "this holds of the right answer: answer ~ '(?i)^yes'"),
        (
            "value_number > 1 or confidence < 0.5",
            "this holds of the right answer: value_number > 1 or confidence < 0.5",
        ),
    ],
)
def test_condition_that_people_decide_is_said_in_plain_words(condition: str, words: str) -> None:
    assert condition_words(Condition(text=condition).spaced) == words


def test_outputs_of_slices_are_reviewed_as_one_scan(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    first, second = (replace(MADE, num_documents=300, run_id=name, hostile=name) for name in ("r1", "r2"))
    folders = [tmp_path / "a" / "out", tmp_path / "b" / "out"]
    truth = write_run(folders[0], first) | write_run(folders[1], second)
    outputs = [Location(uri=str(folder)) for folder in folders]
    made = make_review(outputs, replace(ASKED, labels="300", second_share=0.0, with_page=True))
    assert sum(made["readings"].values()) == 600
    folder = Path(made["folder"])
    assert folder.is_relative_to(folders[0])
    names = pq.read_table(folder / "sample.parquet")["document_id"].to_pylist()
    assert {name[-2:] for name in names} == {"r1", "r2"}
    for number, (role, reviewer) in enumerate(ROLES):
        if (sheet := folder / f"labels{role}.csv").exists():
            data = fill_sheet(sheet, truth, reviewer=reviewer, seed=number)
            import_labels(outputs[0], [take_in(folders[0], data)], reviewer=None)
        make_review(outputs, replace(ASKED, labels="300", second_share=0.0))
    assert main(["review", "estimate", *map(str, folders), "--json"]) == 0
    estimate = json.loads(capsys.readouterr().out)
    found = [true_recall(folder, truth)[0] for folder in folders]
    recall = estimate["measures"]["recall"]
    assert recall["low"] <= sum(found) <= recall["high"]


def test_sample_is_drawn_again_from_the_manifest_by_anyone(output: Path, location: Location) -> None:
    write_run(output, MADE)
    folder = Path(make_review([location], ASKED)["folder"])
    record = json.loads((folder / "review.json").read_text())
    sample = pq.read_table(folder / "sample.parquet").to_pylist()
    population = read_population(find_runs([location]), question_id="clause", flagged=ASKED.condition)
    seed = seed_text(record["seed"], Purpose.VALIDATE)
    assert draw(population.readings, record["drawn"], seed=seed, second_share=0.1).to_pylist() == sample
    assert record["readings"] == population.sizes
    assert sum(population.sizes.values()) == MADE.num_documents


def test_labels_of_night_one_are_used_on_night_two(output: Path, location: Location) -> None:
    truth = write_run(output, MADE)
    first = label_all(output, truth)
    tonight = replace(MADE, num_documents=2100, run_id="20261124T010000.000Z", changed=200)
    truth = write_run(output, tonight)
    made = make_review([location], ASKED)
    assert Path(made["folder"]) != first
    assert 0 < made["left"]["first"] < 200
    label_all(output, truth, seed=1)
    values, _ = make_estimate([location], made["review"], so_far=False)
    recall = values["measures"]["recall"]
    assert recall["low"] <= true_recall(output, truth)[0] <= recall["high"]
    assert len(read_label_rows(location)) < 1100


def test_run_without_typed_values_is_reviewed_by_its_answers(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=400, typed=False))
    asked = replace(ASKED, flagged="answer ~ '(?i)^yes'", labels="300")
    label_all(output, truth, asked=asked)
    values, _ = make_estimate([location], None, so_far=False)
    assert set(values["readings"]) == {"flagged", "not_flagged", "failed", "invalid"}
    with pytest.raises(InputError, match='"value_boool" not found'):
        make_review([location], replace(ASKED, flagged="value_boool = true"))
    untyped = replace(ASKED, flagged="value_number > 3")
    write_run(output, replace(MADE, num_documents=100))
    with pytest.raises(SettingsError, match="'clause' has a value in the columns of 'value_number > 3'"):
        make_review([location], untyped)


def test_labels_given_with_the_answer_in_view_do_not_count(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    asked = replace(ASKED, labels="120", second_share=0.0)
    folder = Path(make_review([location], asked)["folder"])
    sheet = fill_sheet(folder / "labels.csv", truth, reviewer="ada")
    lines = sheet.decode().splitlines(keepends=True)
    place = lines[0].strip().split(",").index("blind")
    rows = [line.split(",") for line in lines]
    for row in rows[1:31]:
        row[place] = "false"
    data = "".join(",".join(row) for row in rows).encode()
    import_labels(location, [take_in(output, data)], reviewer=None)
    with pytest.raises(OutputError, match=r"30 of 120 .* not labelled \(30 with labels given with the answer in view"):
        make_estimate([location], None, so_far=False)
    values, page = make_estimate([location], None, so_far=True)
    assert "30 readings have only labels that were given with the scan's answer in view; these are left out" in page
    assert "**30 readings are not labelled yet**" in page
    assert (values["labels"]["left"], values["labels"]["only_seen"]) == (30, 30)


def test_labels_serve_the_condition_that_they_were_given_by_alone(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    red, same, either = (
        replace(ASKED, labels="120", second_share=0.0, flagged=text)
        for text in ("value_label = 'red'", " value_label='red'", "value_label in ('red', 'green')")
    )
    first = label_all(output, truth, asked=red)
    assert make_review([location], same)["left"]["first"] == 0
    assert make_review([location], either)["left"]["first"] == 120, "a no to red is none to both"
    shutil.rmtree(first)
    assert make_review([location], same)["left"]["first"] == 0, "labels outlive their review"
    other = make_review([location], either)["review"]
    _, page = make_estimate([location], other, so_far=True)
    assert " readings have only labels of another decision" in page


def test_measures_that_rest_on_a_stratum_without_labels_are_not_known(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=400))
    asked = replace(ASKED, labels="flagged=60,not_flagged=0,failed=9,invalid=9", second_share=0.0)
    label_all(output, truth, asked=asked)
    values, page = make_estimate([location], None, so_far=False)
    assert "| recall | not known |" in page
    assert "Error rate: not known" in page
    assert "**Nothing is known of not\\_flagged**: none of its" in page
    measures = values["measures"]
    assert [name for name, each in measures.items() if each["value"] is not None] == ["precision"]


def test_shown_estimates_say_what_was_looked_for_and_what_limits_them(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=400))
    red = "value_label='red'"
    drawn = replace(ASKED, labels="flagged=40,not_flagged=90,failed=5,invalid=0", second_share=0.3)
    estimates = []
    for asked in (drawn, replace(drawn, flagged=red, second_share=0.0)):
        label_all(output, truth, asked=asked, error_rate=0.05)
        estimates += [make_estimate([location], make_review([location], asked)["review"], so_far=False)[0]]
    shown = latest_estimates(location)
    assert [each.decision for each in shown] == ["value_bool = true", "value_label = 'red'"]
    for each, values in zip(shown, estimates, strict=True):
        assert {name: asdict(measure) for name, measure in each.measures.items()} == values["measures"]
        assert [asdict(stratum) for stratum in each.strata] == list(values["strata"])
        assert [stratum.name for stratum in each.strata if stratum.is_unknown] == ["invalid"]


def test_estimate_refuses_labels_to_develop_by(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=500))
    develop = replace(ASKED, labels="100", purpose=Purpose.DEVELOP)
    name = label_all(output, truth, asked=develop).name
    with pytest.raises(OutputError, match="made to develop by"):
        make_estimate([location], name, so_far=False)
    with pytest.raises(OutputError, match=r"no review with purpose 'validate': run `memagent review make`"):
        make_estimate([location], None, so_far=False)
    made = make_review([location], replace(ASKED, labels="100"))
    assert made["left"]["first"] == 100
    values, _ = make_estimate([location], None, so_far=True)
    assert (values["review_id"], values["purpose"]) == (made["review"], "validate")
    make_review([location], replace(ASKED, labels="100", seed=1))
    with pytest.raises(
        SettingsError, match=rf"several with purpose 'validate'; name one of (?!.*{name}).*{made['review']}"
    ):
        make_estimate([location], None, so_far=True)


def test_documents_that_nobody_can_read_are_wrong_and_bound_recall(output: Path, location: Location) -> None:
    truth = write_run(output, replace(MADE, num_documents=100, num_parts=1))
    unreadable = {"document_hash": None, "status": "failed", "answer": None, "value_bool": None}
    rewrite_answers(location, "r2", lambda rows: [row | unreadable for row in rows[:20]] + rows[20:])
    rows = answers_of(output)
    asked = replace(ASKED, labels="100")
    folder = label_all(output, truth, asked=asked)
    assert json.loads((folder / "review.json").read_text())["num_unreadable"] == 20
    values, page = make_estimate([location], None, so_far=False)
    assert sum(values["readings"].values()) == 80
    found = [truth[row["document_id"]] for row in rows if row["value_bool"]]
    right = [truth[row["document_id"]] == row["value_bool"] for row in rows if row["value_bool"] is not None]
    looked_for = sum(truth[row["document_id"]] for row in rows[20:])
    assert values["measures"]["error_rate"]["value"] == pytest.approx(1 - sum(right) / 100)
    worst = values["recall_at_worst"]
    assert worst["value"] == pytest.approx(sum(found) / (looked_for + 20))
    assert worst["high"] < values["measures"]["recall"]["low"]
    assert "If all 20 documents that nobody can read, or that were not read to the end and not found," in page


def test_label_page_has_the_text_of_each_document_and_apart_from_it_answer_and_sentence(
    output: Path, location: Location
) -> None:
    write_run(output, replace(MADE, num_documents=60))
    made = make_review([location], replace(ASKED, labels="60", with_page=True))
    parts = [part.read_text() for part in Path(made["folder"]).glob("documents/*.html")]
    assert len(parts) == made["left"]["first"] > 50
    assert all("First clause of" in part and "is here or not." in part for part in parts)
    answers = [part.read_text() for part in Path(made["folder"]).glob("answers/*.html")]
    assert {"Yes." in part for part in answers} == {True, False}
    assert all(("Yes." in part) == ('"evidence":["The clause of' in part) for part in answers)


ESTIMATED = (
    '{"run_id": "r", "question_id": "q", "decision": "d", "labels": {"left": 0, "left_second": 0}, '
    '"num_unreadable": 0, "num_missed_at_worst": 0, "strata": [], "measures": {}, "recall_at_worst": null}'
)
"""An estimate that lacks its measures."""


@pytest.mark.parametrize("text", ["", '{"strata": [', '{"strata": [{"value": 1}]}', "[]", ESTIMATED])
def test_estimate_that_can_not_be_read_is_named_and_left_out(
    location: Location, text: str, caplog: pytest.LogCaptureFixture
) -> None:
    (location / "review/q-1/estimate.json").write_bytes(text.encode())
    assert latest_estimates(location) == []
    assert "review/q-1/estimate.json is not an estimate of a review" in caplog.text


def test_commands_run_from_make_to_estimate(output: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = write_run(output, replace(MADE, num_documents=300))
    arguments = [str(output), "--question", "clause", "--labels", "120"]
    assert main(["review", "make", *arguments]) == 0
    folder = Path(json.loads(capsys.readouterr().out)["folder"])
    (tmp_path / "labels.csv").write_bytes(fill_sheet(folder / "labels.csv", truth, reviewer=""))
    assert main(["review", "import", str(output), str(tmp_path / "labels.csv")]) == 2
    assert main(["review", "import", str(output), str(tmp_path / "labels.csv"), "--reviewer", "ada"]) == 0
    assert json.loads(capsys.readouterr().out) == {"labels": 120, "added": 120, "reviewers": ["ada"]}
    assert main(["review", "estimate", str(output)]) == 0
    assert "| recall |" in capsys.readouterr().out
    assert main(["review", "estimate", str(output), "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == json.loads((folder / "estimate.json").read_text())
    assert main(["review", "make", str(output), "--question", "other"]) == 2
