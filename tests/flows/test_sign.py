"""Readings that are signed off, and what opens them again."""

import csv
import json
import re
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.pages.readings import NEEDS
from memagent_batch.apps.pages.site import CONTEXT_CHARS, SIGN_SHEET_COLUMNS, write_site
from memagent_batch.apps.pages.spreadsheets import write_readings
from memagent_batch.apps.review.sign_offs import (
    SIGNED_FOLDER,
    SignOff,
    SignOffs,
    has_answer,
    read_sign_offs,
    reading_hash,
    signed_words,
)
from memagent_batch.cli.main import main
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, UsageError
from memagent_batch.run.history import find_run
from tests.pages.reviewed_run import Scan, write_scan
from tests.pages.test_spreadsheets import cells_of
from tests.runs.written_runs import rewrite_answers
from tests.tables import table_rows

FAILED = "Calder & Voss 2020/001"
LATER = "20261123T010000.000Z.cccc"
"""A run after those that are written."""


@pytest.fixture
def scan(tmp_path: Path) -> Location:
    """A scan of four contracts; the question who signs has failed for the second one."""
    return write_scan(tmp_path, Scan(num_documents=4, failed=frozenset({1})))


def sign(scan: Location, *words: str) -> int:
    return main(["review", "sign", scan.uri, *words])


def written_sheet(folder: Path, *rows: dict[str, Any], **cells: str) -> Path:
    """`signed.csv` as the page saves it, with rows of `answers`: what was read is accepted, the rest rejected."""
    file = folder / "signed.csv"
    with file.open("w", encoding="utf-8-sig", newline="") as stream:
        writer = csv.DictWriter(stream, SIGN_SHEET_COLUMNS)
        writer.writeheader()
        for row in rows:
            values = {
                **{name: str(row.get(name, "")) for name in SIGN_SHEET_COLUMNS},
                "reading_hash": reading_hash(row),
                "decision": "accept" if has_answer(row) else "reject",
            }
            writer.writerow(values | {"signed_by": "Ada", "signed_at": "2026-11-25T08:00:00.123Z", **cells})
    return file


def rows_of(scan: Location, document: str = FAILED) -> list[dict[str, Any]]:
    return [row for row in table_rows(scan.uri, "answers") if row["document_id"] == document]


def signed_rows(scan: Location) -> list[tuple[dict[str, Any], SignOff]]:
    """Rows of `answers` that are signed off, with their sign-offs."""
    signed = SignOffs(scan)
    return [(row, by) for row in table_rows(scan.uri, "answers") if (by := signed.of(row))]


def replace_rows(scan: Location, **changes: Any) -> None:
    """Writes a run with other values in the answers of the document whose reading failed."""
    rewrite_answers(scan, LATER, lambda rows: [row | changes if row["document_id"] == FAILED else row for row in rows])


def sign_document(scan: Location, folder: Path, *, question: str = "", **cells: str) -> int:
    """Signs the answers of a document whose reading failed, to one question or all."""
    rows = [row for row in rows_of(scan) if question in ("", row["question_id"])]
    return sign(scan, str(written_sheet(folder, *rows, **cells)))


def summary(scan: Location) -> dict[str, Any]:
    write_site([scan], scan / "page", context_chars=CONTEXT_CHARS, is_large_allowed=False)
    said: dict[str, Any] = json.loads((scan / "page/summary.json").read_bytes())
    return said


def test_signed_reading_needs_no_look_and_page_and_sheet_say_who_signed(
    scan: Location, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    before = summary(scan)
    assert sign_document(scan, tmp_path, question="signatory", comment="<b>on paper") == 0
    assert json.loads(capsys.readouterr().out) == {"added": 1, "of_other_runs": 0, "signed": 1, "readings": 20}
    after = summary(scan)
    assert (after["num_needs"], after["num_signed"]) == (before["num_needs"] - 1, 1)
    assert "reading it failed" not in after["needs"]
    assert "answers need a look (1 signed off)" in (scan / "page/summary.txt").read_bytes().decode()
    pages = [Path(path).read_text() for path in (scan / "page").files() if "/documents/" in path]
    (page,) = [page for page in pages if "<dt>signed off</dt>" in page]
    assert "rejected by Ada, 20" in page
    assert "&lt;b&gt;on paper" in page
    assert main(["export", scan.uri, "--to", "xlsx", "--into", str(tmp_path / "a.xlsx")]) == 0
    assert any(
        (cells[-1] or "").startswith("rejected by Ada, 20") for cells in cells_of(tmp_path / "a.xlsx", sheet_number=1)
    )


@pytest.mark.parametrize(
    ("column", "value", "is_open"),
    [
        ("answer", "another", True),
        ("document_hash", "0" * 64, True),
        ("support", "partly", True),
        ("model", "m", False),
    ],
)
def test_signed_reading_is_open_again_if_what_was_signed_changes(
    scan: Location, tmp_path: Path, column: str, value: str, is_open: bool
) -> None:
    assert sign_document(scan, tmp_path) == 0
    assert len(signed_rows(scan)) == 5
    replace_rows(scan, **{column: value})
    num_signed = len(signed_rows(scan))
    assert num_signed == (0 if is_open else 5)
    sign_offs, rows = SignOffs(scan), table_rows(scan.uri, "answers")
    assert sum(sign_offs.before(row) is not None for row in rows) == 5 - num_signed


def test_sheet_and_screen_say_first_that_a_correction_is_open_again(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sign_document(scan, tmp_path, question="signatory", decision="correct", correction="Jana") == 0
    replace_rows(scan, document_hash="0" * 64)
    write_readings(find_run(scan), file=tmp_path / "readings.csv")
    first = next(csv.DictReader((tmp_path / "readings.csv").open(encoding="utf-8-sig")))
    assert (first["needs a look"], first["document"]) == (NEEDS[0], FAILED)
    assert first["signed off"].startswith("open again; before: corrected to “Jana” by Ada")
    capsys.readouterr()
    assert main(["show", str(scan), FAILED, "signatory"]) == 0
    assert "has changed; before: corrected to “Jana” by Ada" in " ".join(capsys.readouterr().out.split())


def test_what_was_signed_can_be_taken_back_and_nothing_is_lost(scan: Location, tmp_path: Path) -> None:
    for decision, minute in (("reject", 1), ("withdraw", 2)):
        assert sign_document(scan, tmp_path, decision=decision, signed_at=f"2026-11-25T08:0{minute}:00Z") == 0
    assert signed_rows(scan) == []
    assert len(read_sign_offs(scan)) == 10


def test_sheet_that_was_edited_and_kept_its_times_stands_in_place_of_the_earlier_one(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for correction in ("Jana", "Jan", "Jan"):
        assert sign_document(scan, tmp_path, question="signatory", decision="correct", correction=correction) == 0
    printed = capsys.readouterr().out.replace("}\n{", "},{")
    assert [each["added"] for each in json.loads(f"[{printed}]")] == [1, 1, 0]
    ((_, by),) = signed_rows(scan)
    assert by["correction"] == "Jan"
    assert sign_document(scan, tmp_path, question="signatory", decision="correct", correction="Jana") == 0
    ((_, by),) = signed_rows(scan)
    assert by["correction"] == "Jan", "the first sheet was taken in before"


@pytest.mark.parametrize(
    ("cells", "shown"),
    [({"decision": "correct", "correction": "Jana <b>"}, "Jana &lt;b&gt;"), ({"decision": "reject"}, "rejected")],
)
def test_page_shows_what_was_decided_in_place_of_the_answer(
    scan: Location, tmp_path: Path, cells: dict[str, str], shown: str
) -> None:
    document = next(row["document_id"] for row in table_rows(scan.uri, "answers") if row["document_id"] != FAILED)
    (row,) = [row for row in rows_of(scan, document) if row["question_id"] == "signatory"]
    assert sign(scan, str(written_sheet(tmp_path, row, **cells))) == 0
    summary(scan)
    pages = [Path(path).read_text() for path in (scan / "page").files() if "/documents/" in path]
    (page,) = [page for page in pages if "<dt>the model read</dt>" in page]
    section = page.partition(">signatory<")[2].partition("</section>")[0]
    assert re.search(r'class="value said outcome-\w+" dir="auto">([^<]*)<', section)[1] == shown  # type: ignore[index]
    assert f'<dt>the model read</dt><dd class="said" dir="auto">{row["answer"]}' in section
    assert "support-" not in section.partition('class="evidence"')[0]
    rows = [Path(path).read_text() for path in (scan / "page/rows").files()]
    assert any(shown.replace("&lt;", "\\u003c").replace("&gt;", "\\u003e") in text for text in rows)


@pytest.mark.parametrize(
    ("question", "cells", "said"),
    [
        ("signatory", {"decision": "correct", "correction": "Jana"}, "corrected to “Jana” by Ada, 20"),
        ("notice-period", {"decision": "correct", "correction": "60 days"}, "corrected to “60” by Ada, 20"),
        ("end-date", {"decision": "correct", "correction": "not stated"}, "corrected to “not stated” by Ada, 20"),
        ("", {"decision": "reject"}, "rejected by Ada, 20"),
    ],
)
def test_answer_that_is_wrong_is_corrected_or_rejected(
    scan: Location, tmp_path: Path, question: str, cells: dict[str, str], said: str
) -> None:
    assert sign_document(scan, tmp_path, question=question, **cells) == 0
    assert {signed_words(by, row)[: len(said)] for row, by in signed_rows(scan)} == {said}


def test_sign_offs_of_a_file_that_lacks_a_column_are_refused_with_a_remedy(scan: Location, tmp_path: Path) -> None:
    assert sign_document(scan, tmp_path) == 0
    (file,) = (scan / SIGNED_FOLDER).files()
    pq.write_table(pq.read_table(file).drop_columns(["signed_by"]), file)
    with pytest.raises(OutputError, match="restore it"):
        read_sign_offs(scan)


def test_sheet_of_the_page_is_taken_once(scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sheet = written_sheet(tmp_path, rows_of(scan)[0], comment="'=1, two")
    for added in (1, 0):
        assert sign(scan, str(sheet)) == 0
        assert json.loads(capsys.readouterr().out) == {"added": added, "of_other_runs": 0, "signed": 1, "readings": 20}
    ((_, signed),) = signed_rows(scan)
    assert (signed["signed_by"], signed["comment"], signed["decision"]) == ("Ada", "=1, two", "accept")


def test_sign_offs_of_documents_whose_ids_look_alike_are_each_of_their_own(scan: Location, tmp_path: Path) -> None:
    first, second, *_ = sorted({row["document_id"] for row in table_rows(scan.uri, "answers")})
    rewrite_answers(
        scan,
        LATER,
        lambda rows: [row | {"document_id": f"{first} "} if row["document_id"] == second else row for row in rows],
    )
    rows = table_rows(scan.uri, "answers")
    alike = [row for row in rows if row["document_id"] in (first, f"{first} ")]
    assert sign(scan, str(written_sheet(tmp_path, *alike))) == 0
    assert {(row["document_id"], by["document_id"]) for row, by in signed_rows(scan)} == {
        (row["document_id"], row["document_id"]) for row in alike
    }


@pytest.mark.parametrize("end", ["\xad", "\u202e", " "])
def test_sheet_of_the_page_is_taken_if_ids_have_characters_that_nobody_sees(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], end: str
) -> None:
    scan = write_scan(tmp_path, Scan(num_documents=1, failed=frozenset(), hostile=end))
    summary(scan)
    (page,) = [Path(path).read_text() for path in (scan / "page").files() if "/documents/" in path]
    (site,) = re.findall('<script type="application/json" id="site">(.*?)</script>', page)
    shown = json.loads(site)["readings"][0]
    (row,) = (each for each in table_rows(scan.uri, "answers") if reading_hash(each) == shown["hash"])
    sheet = written_sheet(tmp_path, row, document_id=shown["doc"], question_id=shown["question"])
    assert sign(scan, str(sheet)) == 0
    assert json.loads(capsys.readouterr().out) == {"added": 1, "of_other_runs": 0, "signed": 1, "readings": 5}
    ((_, signed),) = signed_rows(scan)
    assert (signed["document_id"], signed["question_id"]) == (row["document_id"], row["question_id"])


@pytest.mark.parametrize(
    ("cells", "said"),
    [
        ({"signed_by": ""}, "signed.csv, line 2: nobody is named"),
        ({"reading_hash": "1"}, "signed.csv, line 2: reading_hash or sample is not as the page wrote it"),
        ({"signed_at": "noon"}, "signed.csv, line 2: signed_at 'noon' is not a time"),
        ({"decision": "maybe"}, "signed.csv, line 2: decision is accept, reject, withdraw, or correct"),
        ({"question_id": "nonsense"}, "line 2: the last run asked no question 'nonsense' of document 'Calder & Voss"),
        ({"decision": "correct", "correction": "Peru"}, "line 2: correction: 'Peru' is not one of Germany, England"),
    ],
)
def test_row_that_can_not_be_taken_is_named_and_none_is_added(
    scan: Location, tmp_path: Path, cells: dict[str, str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sign(scan, str(written_sheet(tmp_path, rows_of(scan)[0], **cells))) == UsageError.exit_code
    assert said in capsys.readouterr().err
    assert read_sign_offs(scan) == []


@pytest.mark.parametrize("changes", [{}, {"status": "ok", "answer": "I can't say.", "value_status": "not_read"}])
def test_reading_without_an_answer_can_be_rejected_or_corrected_and_not_accepted(
    scan: Location, tmp_path: Path, changes: dict[str, Any], capsys: pytest.CaptureFixture[str]
) -> None:
    replace_rows(scan, **changes)
    assert sign_document(scan, tmp_path, question="signatory", decision="accept") == UsageError.exit_code
    said = f"signed.csv, line 2: no answer to question 'signatory' of document {FAILED!r} was read, so there is none to"
    assert said in capsys.readouterr().err
    assert read_sign_offs(scan) == []
    for cells in ({"decision": "withdraw"}, {"decision": "correct", "correction": "Jana"}, {"decision": "reject"}):
        assert sign_document(scan, tmp_path, question="signatory", **cells) == 0


def test_row_of_another_run_is_kept_and_said_to_be_one(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert sign(scan, str(written_sheet(tmp_path, rows_of(scan)[0], reading_hash="0" * 32))) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"added": 1, "of_other_runs": 1, "signed": 0, "readings": 20}
    assert "1 row signs readings of another run" in said.err


def test_sheet_that_excel_saved_with_semicolons_is_taken_and_its_lines_are_counted(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sheet = written_sheet(tmp_path, rows_of(scan)[0])
    whole = sheet.read_text(encoding="utf-8-sig").replace(",", ";")
    sheet.write_text(whole, encoding="utf-8-sig")
    assert sign(scan, str(sheet)) == 0
    sheet.write_text(f"sep=;\r\n{whole.replace('Ada', '')}", encoding="utf-8-sig")
    assert sign(scan, str(sheet)) == UsageError.exit_code
    assert "line 3: nobody is named" in capsys.readouterr().err


@pytest.mark.parametrize("is_renamed_first", [False, True])
def test_document_that_was_renamed_keeps_its_sign_off(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str], is_renamed_first: bool
) -> None:
    sheet = written_sheet(tmp_path, rows_of(scan)[0])
    for step in ("rename", "sign") if is_renamed_first else ("sign", "rename"):
        if step == "rename":
            replace_rows(scan, document_id="renamed.pdf")
        else:
            assert sign(scan, str(sheet)) == 0
    said = f"accepted by Ada, 2026-11-25, of the same text in {FAILED}"
    assert [signed_words(by, renamed) for renamed, by in signed_rows(scan)] == [said]
    assert json.loads(capsys.readouterr().out)["of_other_runs"] == 0


def test_hash_of_a_reading_is_of_its_source_file_too_where_not_all_was_read(scan: Location) -> None:
    def num_hashes(row: dict[str, Any], **changes: list[str]) -> int:
        (name, values) = next(iter(changes.items()))
        return len({reading_hash({**row, name: value}) for value in values})

    row = rows_of(scan)[0]
    assert num_hashes(row, source_hash=["a", "b"]) == 1
    assert num_hashes({**row, "source_unread": "needs_ocr: an image"}, source_hash=["a", "b"]) == 2
    unread = {**row, "status": "failed", "answer": None, "document_hash": None, "source_hash": None}
    assert num_hashes(unread, document_id=["a", "b"]) == 2
    assert num_hashes({**unread, "source_hash": "f"}, document_id=["a", "b"]) == 1


def test_row_of_a_document_that_is_gone_is_not_taken_and_the_others_are(
    scan: Location, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    here, gone = rows_of(scan)[:2]
    sheet = written_sheet(tmp_path, here, {**gone, "document_id": "gone", "document_hash": "0" * 64})
    assert sign(scan, str(sheet)) == 0
    said = capsys.readouterr()
    assert json.loads(said.out) == {"added": 1, "of_other_runs": 1, "signed": 1, "readings": 20}
    assert "1 row is of a document that this output does not have any more: not imported" in said.err
    assert [row["document_id"] for row in read_sign_offs(scan)] == [here["document_id"]]
