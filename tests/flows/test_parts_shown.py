"""Policies that show the model a part of a document: what they don't find is `not_read`, from the row to the page."""

import json
from pathlib import Path
from typing import Any

import pytest
import yaml

import memagent_batch as ma
from memagent_batch.apps.review.sign_offs import reading_hash
from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.run import projection
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.manifest import unread_line
from tests import unstating_engine
from tests.jobs import put_texts, small_settings
from tests.tables import table_rows

TEXTS = {"long.txt": "It rained, and no fee was named. " * 40, "short.txt": "No fee is named."}
PRICE = {"question_id": "price", "question": "How high is the fee?", "answer_type": "number"}
FREE = {"question_id": "free", "question": "Who signed?"}
WHERE = "value_status in ('not_stated', 'not_read')"
PART_SHOWN = "not read: the model was shown "


def settings_of(folder: Path, model: str, *, kind: str = "retrieve", **settings: Any) -> dict[str, Any]:
    """Settings of a job whose engine finds nothing; a prompt shows 50 tokens."""
    engine = {"engine": unstating_engine.KIND, "allow_code": True, "ask": [PRICE, FREE]}
    policy = {"kind": kind, "passage_tokens": 20, **settings.pop("policy", {})}
    return small_settings(folder, model, **{**engine, "follow_ups": {"evidence": True}, "policy": policy, **settings})


def rows_of(folder: Path, run: str = "run", question: str = "price") -> dict[str, dict[str, Any]]:
    """The rows of `answers` to a question, sample 0, by the document's name without its ending."""
    rows = table_rows(str(folder / run), "answers")
    return {row["document_id"][:-4]: row for row in rows if row["question_id"] == question and not row["sample"]}


@pytest.fixture(scope="module", params=["retrieve", "truncate"])
def scanned(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Path:
    """A folder with a finished run of a policy that shows a part of the long document, and all of the short one."""
    folder = tmp_path_factory.mktemp("shown")
    put_texts(folder / "in", TEXTS)
    answer(job_of(**settings_of(folder, text_model, kind=request.param)))
    return folder


def test_document_that_was_shown_in_part_is_not_read_and_a_short_one_not_stated(scanned: Path) -> None:
    rows = rows_of(scanned)
    assert {name: row["value_status"] for name, row in rows.items()} == {"long": "not_read", "short": "not_stated"}
    assert 0 < rows["long"]["coverage"] < 1 == rows["short"]["coverage"]
    assert {row["value_status"] for row in rows_of(scanned, question="free").values()} == {None}, "no type, no status"
    assert main(["verify", str(scanned / "run")]) == 0


def test_terminal_spreadsheet_and_page_say_how_much_was_shown(
    scanned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, shown = str(scanned / "run"), f"{PART_SHOWN}{100 * rows_of(scanned)['long']['coverage']:.1f} % of the text"
    assert main(["show", run, "long.txt", "price"]) == 0
    assert shown in " ".join(capsys.readouterr().out.split())
    assert main(["export", run, "--to", "csv"]) == 0
    (line,) = (line for line in (scanned / "run/export/answers.csv").read_text().splitlines() if PART_SHOWN in line)
    assert line.count(shown.removeprefix("not read: ")) == 2, "as the value, and in the column of what was not read"
    assert ",not read," in line
    assert main(["page", run, "--to", str(tmp_path / "page")]) == 0
    needs = json.loads((tmp_path / "page/summary.json").read_text())["items"]
    assert {item["question"] for item in needs} == {"Who signed?"}, "the policy was chosen: its gaps need no look"
    cells, documents = (
        [page.read_text() for page in (tmp_path / "page").rglob(name)]
        for name in ("rows/*/*.html", "documents/*/*.html")
    )
    assert sum(shown in page for page in cells) == 1
    assert sum(f'outcome-not" dir="auto">{shown}' in page for page in documents) == 1
    assert not any("source" in line for page in documents for line in page.splitlines() if "not read" in line)


def test_command_says_how_many_answers_are_of_a_part_and_ends_with_zero(
    scanned: Path, text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(settings_of(scanned, text_model, output=f"{tmp_path}/run")))
    assert main(["answer", "--config", str(file), "--allow-code"]) == 0
    shown = capsys.readouterr()
    counts = json.loads(shown.out)
    assert (counts["num_unread"], counts["num_unread_documents"], counts["num_unread_failed"]) == (1, 0, 0)
    assert f"0 failed; {unread_line(counts)}" in shown.err
    assert unread_line(counts) == "1 answer not_read: the model was shown a part of the text"


@pytest.mark.parametrize("overlap_tokens", [0, 7])
@pytest.mark.parametrize("kind", ["overwrite", "gated", "parallel"])
def test_policies_that_show_every_chunk_cover_exactly_all(
    kind: str, overlap_tokens: int, text_model: str, tmp_path: Path
) -> None:
    put_texts(tmp_path / "in", TEXTS)
    policy = {"overlap_tokens": overlap_tokens, "chunk_tokens": 43}
    manifest = answer(job_of(**settings_of(tmp_path, text_model, kind=kind, policy=policy, ask=[PRICE])))
    rows = rows_of(tmp_path)
    assert {(row["value_status"], row["coverage"]) for row in rows.values()} == {("not_stated", 1.0)}
    assert rows["long"]["num_chunks"] > 5
    assert (manifest["unread"]["num_unread"], unread_line(manifest["unread"])) == (0, "")


def test_second_pass_reads_what_was_shown_in_part_whole(scanned: Path, text_model: str, tmp_path: Path) -> None:
    again = {"again_from": str(scanned / "run"), "again_where": WHERE, "output": str(tmp_path / "second")}
    manifest = answer(job_of(**settings_of(scanned, text_model, kind="parallel", **again)))
    assert manifest["counts"]["asked"] == 2
    merged = ma.merged_answers([str(scanned / "run"), str(tmp_path / "second")]).to_pylist()
    assert {row["value_status"] for row in merged if row["question_id"] == "price"} == {"not_stated"}


def test_samples_that_were_shown_a_part_agree_and_have_no_result(text_model: str, tmp_path: Path) -> None:
    put_texts(tmp_path / "in", TEXTS)
    sampling = {"samples": 3, "temperature": 0.5}
    answer(job_of(**settings_of(tmp_path, text_model, sampling=sampling)))
    assert (rows_of(tmp_path)["long"]["value_status"], rows_of(tmp_path)["long"]["votes"]) == ("not_read", 1.0)
    assert [row["price"] for row in table_rows(str(tmp_path / "run"), "results")] == [None, None]


def test_finished_run_of_an_older_version_shows_it_without_reading_again(
    text_model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    put_texts(tmp_path / "in", TEXTS)
    job = job_of(**settings_of(tmp_path, text_model))
    with monkeypatch.context() as older:
        older.setattr(projection, "PROJECTION", projection.PROJECTION - 1)
        older.setattr(projection, "stated", lambda status, **_: status)
        answer(job)
    before = rows_of(tmp_path)
    assert {row["value_status"] for row in before.values()} == {"not_stated"}
    assert answer(job)["changes"]["readings"]["read"] == 0
    after = rows_of(tmp_path)
    assert {name: row["value_status"] for name, row in after.items()} == {"long": "not_read", "short": "not_stated"}
    signed = {name: (reading_hash(before[name]), reading_hash(after[name])) for name in after}
    assert {name: one == other for name, (one, other) in signed.items()} == {"long": False, "short": True}
