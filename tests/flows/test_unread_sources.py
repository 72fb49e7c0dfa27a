"""From files to answers: what was not read of a source is said in every row, and in the exit code."""

import json
from email.message import EmailMessage
from pathlib import Path
from typing import Any

import pytest
import yaml

from memagent_batch.cli.main import main
from memagent_batch.cli.settings import job_of
from memagent_batch.data.store.location import Location
from memagent_batch.run.comparison import compare_runs
from memagent_batch.run.flows.answer import answer
from memagent_batch.run.history import find_run
from tests import unstating_engine
from tests.convert.files import pdf, written
from tests.ingest.nights import night
from tests.jobs import small_settings
from tests.tables import table_rows

FEE = {"question": "How high is the fee?", "question_id": "fee", "answer_type": "number", "not_stated": True}
SCAN = "q 600 0 0 800 0 0 cm /Im1 Do Q"


def write_files(folder: Path) -> None:
    folder.mkdir()
    mail = EmailMessage()
    mail["From"], mail["Subject"] = "ann@example.com", "Terms"
    mail.set_content("The terms are attached.")
    mail.add_attachment(b"\x7fELF\x00\x01", maintype="application", subtype="x-program", filename="terms.bin")
    (folder / "faint.scan").write_text("There is nothing of a fee here.")
    (folder / "half.pdf").write_bytes(pdf(written("The fee is on the next page."), SCAN))
    (folder / "_draft.pdf").write_bytes(pdf(written("The fee is 5.")))
    (folder / "mail.eml").write_bytes(mail.as_bytes())
    (folder / "nothing.pdf").write_bytes(b"")
    (folder / "scan.pdf").write_bytes(pdf(SCAN))
    (folder / "torn.pdf").write_bytes(b"%PDF-1.7 torn")
    (folder / "whole.pdf").write_bytes(pdf(written("There is nothing of a fee here."), "", written("Nor here.")))


def settings_of(folder: Path, model: str, **settings: Any) -> dict[str, Any]:
    asked = {"ask": [FEE, "Who signed?"], "follow_ups": {"evidence": True}}
    engine = {"engine": unstating_engine.KIND, "allow_code": True}
    return small_settings(folder, model, **{**engine, **asked, "documents": f"{folder}/texts", **settings})


def fee_rows(folder: Path) -> dict[str, dict[str, Any]]:
    """The rows of `answers` to the question of the fee, by document."""
    rows = table_rows(f"{folder}/run", "answers")
    return {row["document_id"]: row for row in rows if row["question_id"] == "fee"}


@pytest.fixture(scope="module")
def scanned(tmp_path_factory: pytest.TempPathFactory, text_model: str) -> Path:
    """A folder of files with a finished run over their texts."""
    folder = tmp_path_factory.mktemp("scanned")
    write_files(folder / "in")
    unsure = {"converter": (".scan=tests.convert.hostile:Unsure",)}
    night(folder / "in", folder / "texts", format="files", ingest=unsure)
    answer(job_of(**settings_of(folder, text_model)))
    return folder


def test_nothing_is_not_stated_unless_all_of_its_source_was_read(scanned: Path) -> None:
    rows = fee_rows(scanned)
    assert {name: (row["status"], row["value_status"]) for name, row in rows.items()} == {
        "faint.scan": ("ok", "not_read"),
        "half.pdf": ("ok", "not_read"),
        "mail.eml": ("ok", "not_read"),
        "mail.eml/1-terms.bin": ("failed", "not_read"),
        "nothing.pdf": ("failed", "not_read"),
        "scan.pdf": ("failed", "not_read"),
        "torn.pdf": ("failed", "not_read"),
        "whole.pdf": ("ok", "not_stated"),
    }
    for row in table_rows(f"{scanned}/run", "answers"):
        if row["document_id"] == "scan.pdf":
            assert (row["status"], row["value_status"], row["num_turns"]) == ("failed", "not_read", 0)
            assert row["error_type"] == "SourceUnreadError"
            assert row["error_message"] == row["source_unread"]
            assert row["source_unread"].startswith("needs_ocr: ")


def test_answers_name_source_and_the_parts_that_were_not_read(scanned: Path) -> None:
    rows = fee_rows(scanned)
    half, whole = rows["half.pdf"], rows["whole.pdf"]
    assert (half["source"], half["source_read"]) == ("half.pdf", 0.5)
    assert len(half["source_hash"]) == 64
    assert half["source_unread"].startswith("needs_ocr: ")
    assert half["source_unread"].endswith("(page 2)")
    assert (whole["source_read"], whole["source_unread"], whole["coverage"]) == (1.0, None, 1.0)
    assert half["coverage"] == 0.5
    mail = rows["mail.eml"]["source_unread"]
    assert mail.startswith("skipped: ")
    assert mail.endswith("(attachment 1-terms.bin)")
    assert rows["mail.eml/1-terms.bin"]["source"] == "mail.eml"


def test_document_that_ocr_may_have_read_wrongly_was_read_and_is_named_to_whoever_checks_its_answers(
    scanned: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = fee_rows(scanned)["faint.scan"]
    why = "needs_review: read by OCR, which is not sure of 'There is nothing of a fee here.'"
    assert (row["source_review"], row["source_unread"], row["source_read"], row["coverage"]) == (why, why, 1.0, 1.0)
    assert main(["show", f"{scanned}/run", "faint.scan"]) == 0
    assert why in " ".join(capsys.readouterr().out.split())
    assert main(["page", f"{scanned}/run", "--to", f"{tmp_path}/pages"]) == 0
    said = json.loads((tmp_path / "pages/summary.json").read_text())
    assert (said["num_review"], said["review"], said["num_unread"]) == (1, {"faint.scan": why}, 7)
    assert f"CHECK AGAINST THE SOURCE\n  faint.scan: {why}" in (tmp_path / "pages/summary.txt").read_text()
    assert "Check against the source" in (tmp_path / "pages/summary.html").read_text()
    documents = [page.read_text() for page in (tmp_path / "pages").rglob("documents/*/*.html")]
    assert sum("check against the source" in page for page in documents) == 1


def test_tables_verify_and_a_second_run_is_the_same(
    scanned: Path, text_model: str, capsys: pytest.CaptureFixture[str]
) -> None:
    first, before = find_run(Location(uri=f"{scanned}/run"), "latest"), table_rows(f"{scanned}/run", "answers")
    assert main(["verify", f"{scanned}/run"]) == 0
    manifest = answer(job_of(**settings_of(scanned, text_model)))
    assert manifest["changes"]["readings"]["read"] == 0
    assert table_rows(f"{scanned}/run", "answers") == before
    second = find_run(Location(uri=f"{scanned}/run"), manifest["run_id"])
    assert [row for table in compare_runs(first, second) for row in table.to_pylist()] == []


def test_exit_code_and_last_line_say_how_many_were_not_read(
    scanned: Path, text_model: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(yaml.safe_dump(settings_of(scanned, text_model, output=f"{tmp_path}/run")))
    assert main(["answer", "--config", str(file), "--allow-code"]) == 7
    shown = capsys.readouterr()
    assert "7 documents were not read to the end, 11 answers not_read" in shown.err.splitlines()[-1]
    assert '"num_unread_documents": 7' in shown.out
