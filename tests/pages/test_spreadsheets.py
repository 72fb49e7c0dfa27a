import csv
import io
import sys
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from memagent_batch.apps.pages.spreadsheets import MAX_XLSX_CHARACTERS, WIDTHS, write_readings, write_spreadsheet
from memagent_batch.apps.review.sheet import unquoted
from memagent_batch.apps.review.sign_offs import append_sign_offs, reading_hash
from memagent_batch.data.documents.document_index import SOURCE_COLUMNS
from memagent_batch.data.store.location import Location
from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.loop.follow_ups.answer_types import Number
from memagent_batch.loop.texts.escapes import is_formula
from memagent_batch.run.history import PastRun
from memagent_batch.run.results import results_schema
from memagent_batch.run.tables import ANSWERS
from tests.runs.written_runs import answer_row, questions_of, write_run

NAMESPACE = {"x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1+1", "＝1+1", "- a point"]
WITHIN = ["due;=1+1", 'due;"=1"; then', "due; \"' =1", "a\t+1", "a\nb\r\n\n-1+1", "a;;\t@SUM(A1);=2", "x;＝1"]
"""Texts of which a spreadsheet that splits at `;` or a tab makes a cell with a formula."""
PLAIN = ["-5", "-5.25", "a=1", "1+1", "", 'quo"te, comma\nline', "<b>&amp;", "<r><t>raw</t></r>", "_x0041_", "\x00\x1b"]

CARRIED = {"number": -1.5, "yes": True, "none": None, "list": ["a", "b"]}
TYPES = [("number", pa.float64()), ("yes", pa.bool_()), ("none", pa.string()), ("list", pa.list_(pa.string()))]
SCHEMA = pa.schema([*ANSWERS, *SOURCE_COLUMNS, *TYPES])


def row_of(**columns: Any) -> dict[str, Any]:
    """A row of `answers` with carried columns of other types than text."""
    row = answer_row("a.pdf", "who", run_id="r", text="t", question="Who?", answer="", confidence=0.5)
    return {**row, **CARRIED, **columns}


def put_run(output: Location, *parts: list[dict[str, Any]], results: pa.Table | None = None) -> PastRun:
    """A run with these rows of `answers`, and with `results` beside those of the first part."""
    tables: list[dict[str, Any]] = [{"answers": rows, "memories": [], "evidence": []} for rows in parts]
    schemas = {"answers": SCHEMA}
    if results is not None:
        tables[0]["results"], schemas["results"] = results, results.schema
    questions = questions_of({"who": "Who?", "rent": "Which rent?"})
    return write_run(output, *tables, run_id="r", questions=questions, schemas=schemas)


def csv_rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return [*csv.DictReader(stream)]


@pytest.fixture
def run(tmp_path: Path) -> PastRun:
    """A run whose answers are all of the texts, in two parts."""
    texts = [*FORMULAS, *PLAIN, "long" * 10_000, "🦊" * 20_000]
    rows = [row_of(document_id=f"{number:02d}", answer=text) for number, text in enumerate(texts)]
    return put_run(Location(uri=str(tmp_path / "out")), rows[:5], rows[5:])


def cells_of(file: Path, *, sheet_number: int) -> list[list[str | None]]:
    """Text of each cell of a sheet, with Excel's escapes undone."""
    with zipfile.ZipFile(file) as book:
        sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{sheet_number}.xml"))
    assert sheet.findall(".//x:f", NAMESPACE) == []
    return [
        ["".join(cell.itertext()) for cell in row.findall("x:c", NAMESPACE)]
        for row in sheet.findall(".//x:row", NAMESPACE)
    ]


def test_xlsx_holds_every_text_as_text(run: PastRun, tmp_path: Path) -> None:
    file = tmp_path / "a.xlsx"
    write_spreadsheet(run, file=file)
    head, *rows = cells_of(file, sheet_number=2)
    assert head == [*SCHEMA.names, "evidence"]
    shown = {"\x00\x1b": "_x0000__x001B_", "_x0041_": "_x005F_x0041_", "\r=1": "_x000D_=1"}
    texts = [shown.get(text, text) for text in (*FORMULAS, *PLAIN)]
    assert [text for text, row in zip(texts, rows, strict=False) if text and text not in row] == []
    assert all(row[-3:] == ["-1.5", "1", '["a", "b"]'] for row in rows)


def test_xlsx_has_a_sheet_for_people_with_what_needs_a_look_first(tmp_path: Path) -> None:
    rows = [
        row_of(document_id="fine", answer="Ann", support="supported"),
        row_of(document_id="scan", status="failed", value_status="not_read", error_message="needs_ocr"),
        row_of(document_id="denied", answer="Bob", support="contradicted"),
    ]
    results, file = pa.table({"document_id": ["fine"], "who": ["Ann"]}), tmp_path / "a.xlsx"
    write_spreadsheet(put_run(Location(uri=str(tmp_path / "out")), rows, results=results), file=file)
    assert cells_of(file, sheet_number=1) == [["document_id", "who"], ["fine", "Ann"]]
    head, *people = cells_of(file, sheet_number=2)
    assert head == list(WIDTHS)
    assert people == [
        ["the evidence contradicts the answer", "denied", "Who?", "Bob", "answered", "Bob", "contradicted", "0.5"],
        ["not all of its source was read", "scan", "Who?", "not read", "not read", "0.5", "needs_ocr"],
        ["fine", "Who?", "Ann", "answered", "Ann", "supported", "0.5"],
    ]
    assert len(cells_of(file, sheet_number=3)) == 4


DECIDED = [("correct", "45.5"), ("reject", None), ("accept", None)]
UNREAD = {"status": "failed", "answer": None, "value_status": "not_read", "value": None, "error_message": "needs_ocr"}
RENTS: dict[str, dict[str, Any]] = {
    "stated": {},
    "corrected": {},
    "rejected": {},
    "accepted": {"value_status": "not_stated", "value": None},
    "absent": {"value_status": "not_stated", "value": None},
    "scan": UNREAD,
    "odd": {"value_status": "invalid", "value": None},
    "unasked": {"value_status": None, "value": None, "follow_up_error": "EngineRequestError: refused"},
    "varied": {"value_status": "invalid", "value": None},
}
"""What differs of the answers of some documents to one question; of the last one, another sample has a value."""


@pytest.fixture
def signed_run(tmp_path: Path) -> PastRun:
    """A run that asked for the rent. Three of its answers are signed, and one document was not asked."""
    output = Location(uri=str(tmp_path / "out"))
    value = {"value_status": "ok", "value": "30.0", "value_number": 30.0, "value_unit": "EUR", "answer_type": "number"}
    rent = row_of(question_id="rent", question="Which rent?", answer="30 EUR")
    rows = [rent | value | {"document_id": name, "document_hash": name} | changes for name, changes in RENTS.items()]
    rows = [row | {"value_number": None if row["value"] is None else 30.0} for row in rows]
    rows.append(rows[0] | {"document_id": "varied", "document_hash": "varied", "sample": 1})
    types = {"rent": ("Which rent?", Number(unit="EUR")), "who": ("Who?", None)}
    cells = [{"document_id": row["document_id"], "rent": row["value_number"], "who": None} for row in rows[:-1]]
    results = pa.Table.from_pylist([*cells, {"document_id": "not asked"}], schema=results_schema(types))
    signed: Any = {"signed_by": "Ada", "signed_at": datetime(2026, 11, 27, tzinfo=UTC), "comment": None}
    signed["withdrawn"] = False
    for row, (decision, correction) in zip(rows[1:4], DECIDED, strict=True):
        signed |= {name: row[name] for name in ("document_id", "question_id", "sample")}
        signed |= {"reading_hash": reading_hash(row), "decision": decision, "correction": correction}
        append_sign_offs(output, [signed])
    return put_run(output, rows, results=results)


def test_results_show_what_was_signed_and_say_in_words_why_there_is_no_value(
    signed_run: PastRun, tmp_path: Path
) -> None:
    write_spreadsheet(signed_run, file=tmp_path / "a.xlsx")
    head, *rows = cells_of(tmp_path / "a.xlsx", sheet_number=1)
    assert head == ["document_id", "rent (EUR)", "who"]
    assert sorted(rows) == [
        ["absent", "not stated", "not asked"],
        ["accepted", "not stated", "not asked"],
        ["corrected", "45.5", "not asked"],
        ["not asked", "not asked", "not asked"],
        ["odd", "invalid", "not asked"],
        ["rejected", "rejected", "not asked"],
        ["scan", "not read", "not asked"],
        ["stated", "30", "not asked"],
        ["unasked", "invalid", "not asked"],
        ["varied", "samples differ", "not asked"],
    ]


def test_csv_has_the_signed_value_of_each_reading_with_unit_and_state(signed_run: PastRun, tmp_path: Path) -> None:
    write_readings(signed_run, file=tmp_path / "a.csv")
    rows = {row["document"]: row for row in csv_rows(tmp_path / "a.csv")}
    shown = ("value", "unit", "state", "answer", "signed off")
    assert {name: tuple(row[column] for column in shown) for name, row in rows.items()} == {
        "stated": ("30", "EUR", "answered", "30 EUR", ""),
        "corrected": ("45.5", "EUR", "corrected", "30 EUR", "corrected to “45.5” by Ada, 2026-11-27"),
        "rejected": ("", "", "rejected", "30 EUR", "rejected by Ada, 2026-11-27"),
        "accepted": ("not stated", "", "not stated", "30 EUR", "accepted by Ada, 2026-11-27"),
        "absent": ("not stated", "", "not stated", "30 EUR", ""),
        "scan": ("not read", "", "not read", "", ""),
        "odd": ("invalid", "", "invalid", "30 EUR", ""),
        "unasked": ("30 EUR", "", "invalid", "30 EUR", ""),
        "varied": ("30", "EUR", "answered", "30 EUR", ""),
    }
    assert rows["unasked"]["error"] == "EngineRequestError: refused"


def formulas_in(sheet: str, *, delimiter: str) -> list[str]:
    """Cells that begin a formula in a program with this list separator."""
    cells = [cell for row in csv.reader(io.StringIO(sheet, newline=""), delimiter=delimiter) for cell in row]
    return [cell for cell in cells if is_formula(cell.lstrip("\r\n\t"))]


@pytest.mark.parametrize("delimiter", [",", ";", "\t"])
def test_csv_quotes_what_a_spreadsheet_would_run_whatever_it_splits_at(tmp_path: Path, delimiter: str) -> None:
    texts = sorted((*FORMULAS, *WITHIN))
    rows = [row_of(document_id=text, answer=text, number=None) for text in texts]
    write_readings(put_run(Location(uri=str(tmp_path / "out")), rows), file=tmp_path / "a.csv")
    sheet = (tmp_path / "a.csv").read_bytes().decode("utf-8-sig")
    assert formulas_in(sheet, delimiter=delimiter) == []
    assert formulas_in(sheet.replace("'", ""), delimiter=delimiter), "the test would see one"
    assert [unquoted(row["answer"]) for row in csv_rows(tmp_path / "a.csv")] == texts


def test_xlsx_cuts_a_text_that_no_cell_holds_with_a_note(run: PastRun, tmp_path: Path) -> None:
    write_spreadsheet(run, file=tmp_path / "a.xlsx")
    rows = cells_of(tmp_path / "a.xlsx", sheet_number=2)[-2:]
    long, foxes = (max((cell or "" for cell in row), key=len) for row in rows)
    assert long.endswith(" … cut: 40,000 characters in all; answers/ has them")
    assert len(long) == MAX_XLSX_CHARACTERS
    assert foxes.startswith("🦊🦊")
    assert len(foxes.encode("utf-16-le")) // 2 <= MAX_XLSX_CHARACTERS
    assert "20,000 characters in all" in foxes


def test_xlsx_of_more_rows_than_a_sheet_holds_is_refused(run: PastRun, tmp_path: Path) -> None:
    run.manifest["counts"]["answers_rows"] = 1_048_576
    with pytest.raises(OutputError, match=r"1,048,576 answers.*Parquet"):
        write_spreadsheet(run, file=tmp_path / "a.xlsx")
    assert not (tmp_path / "a.xlsx").exists()


def test_xlsx_without_its_extra_is_refused(run: PastRun, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(SettingsError, match=r"pip install 'memagent-batch\[xlsx\]'"):
        write_spreadsheet(run, file=tmp_path / "answers.xlsx")
