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

from memagent_batch.domain.follow_ups.answer_types import Number
from memagent_batch.domain.texts.escapes import is_formula
from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.pages.spreadsheets import MAX_XLSX_CHARACTERS, WIDTHS, write_readings, write_spreadsheet
from memagent_batch.review.sheet import unquoted
from memagent_batch.review.sign_offs import append_sign_offs, reading_hash
from memagent_batch.runs.results import results_schema
from memagent_batch.runs.tables import ANSWERS
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes

NAMESPACE = {"x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1+1", "＝1+1", "- a point"]
WITHIN = ["due;=1+1", 'due;"=1"; then', "due; \"' =1", "a\t+1", "a\nb\r\n\n-1+1", "a;;\t@SUM(A1);=2", "x;＝1"]
"""Texts of which a spreadsheet that splits at `;` or a tab makes a cell with a formula."""
PLAIN = ["-5", "-5.25", "a=1", "1+1", "", 'quo"te, comma\nline', "<b>&amp;", "<r><t>raw</t></r>", "_x0041_", "\x00\x1b"]

ROW: dict[str, Any] = {
    "answer": "",
    "number": -1.5,
    "yes": True,
    "none": None,
    "list": ["a", "b"],
    "document_id": "a.pdf",
    "question_id": "who",
    "sample": 0,
    "question": "Who?",
    "status": "ok",
    **dict.fromkeys(("error_message", "error_type", "value_status", "value", "value_number", "value_unit")),
    "confidence": 0.5,
    "answer_type": None,
    "support": None,
    "source_unread": None,
}
Run = tuple[Location, Any]


def write_run(output: Location, *parts: list[dict[str, Any]], results: pa.Table | None = None) -> Run:
    """An output with these rows of `answers`, a list a file, and with `results`; and its manifest."""
    files: dict[str, list[str]] = {"answers": [f"answers/{number}.parquet" for number in range(len(parts))]}
    for file, rows in zip(files["answers"], parts, strict=True):
        (output / file).write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))
    made: list[dict[str, Any]] = [{"answers_file": file, "evidence_file": None} for file in files["answers"]]
    if results is not None:
        (output / "results/a.parquet").write_bytes(parquet_bytes(results))
        files["results"], made[0]["results_file"] = ["results/a.parquet"], "results/a.parquet"
    return output, {"counts": {"answers_rows": sum(map(len, parts))}, "files": files, "parts": made}


def csv_rows(file: Path) -> list[dict[str, str]]:
    with file.open(encoding="utf-8-sig", newline="") as stream:
        return [*csv.DictReader(stream)]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """A run whose answers are all of the texts, in two files."""
    texts = [*FORMULAS, *PLAIN, "long" * 10_000, "🦊" * 20_000]
    rows = [{**ROW, "answer": text} for text in texts]
    return write_run(Location(uri=str(tmp_path / "out")), rows[:5], rows[5:])


def texts_of(run: Run) -> list[str]:
    tables = [pa.parquet.read_table((run[0] / name).path) for name in run[1]["files"]["answers"]]
    return [text for table in tables for text in table["answer"].to_pylist()]


def cells_of(file: Path, *, sheet_number: int) -> list[list[str | None]]:
    """Text of each cell of a sheet, with Excel's escapes undone."""
    with zipfile.ZipFile(file) as book:
        sheet = ElementTree.fromstring(book.read(f"xl/worksheets/sheet{sheet_number}.xml"))
    assert sheet.findall(".//x:f", NAMESPACE) == []
    return [
        ["".join(cell.itertext()) for cell in row.findall("x:c", NAMESPACE)]
        for row in sheet.findall(".//x:row", NAMESPACE)
    ]


def test_xlsx_holds_every_text_as_text(run: Run, tmp_path: Path) -> None:
    file = tmp_path / "a.xlsx"
    write_spreadsheet(*run, file=file)
    head, *rows = cells_of(file, sheet_number=2)
    assert head == list(ROW)
    shown = {"\x00\x1b": "_x0000__x001B_", "_x0041_": "_x005F_x0041_", "\r=1": "_x000D_=1"}
    for row, text in zip(rows[:-2], texts_of(run), strict=False):
        assert row[0] == shown.get(text, text)


def test_xlsx_has_a_sheet_for_people_with_what_needs_a_look_first(tmp_path: Path) -> None:
    rows = [
        {**ROW, "document_id": "fine", "answer": "Ann", "support": "supported"},
        {**ROW, "document_id": "scan", "status": "failed", "value_status": "not_read", "error_message": "needs_ocr"},
        {**ROW, "document_id": "denied", "answer": "Bob", "support": "contradicted"},
    ]
    results, file = pa.table({"document_id": ["fine"], "who": ["Ann"]}), tmp_path / "a.xlsx"
    write_spreadsheet(*write_run(Location(uri=str(tmp_path / "out")), rows, results=results), file=file)
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
def signed_run(tmp_path: Path) -> Run:
    """A run that asked for the rent. Three of its answers are signed, and one document was not asked."""
    output = Location(uri=str(tmp_path / "out"))
    value = {"value_status": "ok", "value": "30.0", "value_number": 30.0, "value_unit": "EUR", "answer_type": "number"}
    rent = dict.fromkeys(ANSWERS.names) | ROW | {"question_id": "rent", "question": "Which rent?", "answer": "30 EUR"}
    rows = [rent | value | {"document_id": name} | changes for name, changes in RENTS.items()]
    rows = [row | {"value_number": None if row["value"] is None else 30.0} for row in rows]
    rows.append(rows[0] | {"document_id": "varied", "sample": 1})
    types = {"rent": ("Which rent?", Number(unit="EUR")), "who": ("Who?", None)}
    cells = [{"document_id": row["document_id"], "rent": row["value_number"], "who": None} for row in rows[:-1]]
    results = pa.Table.from_pylist([*cells, {"document_id": "not asked"}], schema=results_schema(types))
    signed: Any = {"signed_by": "Ada", "signed_at": datetime(2026, 11, 27, tzinfo=UTC), "comment": None}
    signed["withdrawn"] = False
    for row, (decision, correction) in zip(rows[1:4], DECIDED, strict=True):
        signed |= {name: row[name] for name in ("document_id", "question_id", "sample")}
        signed |= {"reading_hash": reading_hash(row), "decision": decision, "correction": correction}
        append_sign_offs(output, [signed])
    return write_run(output, rows, results=results)


def test_results_show_what_was_signed_and_say_in_words_why_there_is_no_value(signed_run: Run, tmp_path: Path) -> None:
    write_spreadsheet(*signed_run, file=tmp_path / "a.xlsx")
    assert cells_of(tmp_path / "a.xlsx", sheet_number=1) == [
        ["document_id", "rent (EUR)", "who"],
        ["stated", "30", "not asked"],
        ["corrected", "45.5", "not asked"],
        ["rejected", "rejected", "not asked"],
        ["accepted", "not stated", "not asked"],
        ["absent", "not stated", "not asked"],
        ["scan", "not read", "not asked"],
        ["odd", "invalid", "not asked"],
        ["unasked", "invalid", "not asked"],
        ["varied", "samples differ", "not asked"],
        ["not asked", "not asked", "not asked"],
    ]


def test_csv_has_the_signed_value_of_each_reading_with_unit_and_state(signed_run: Run, tmp_path: Path) -> None:
    write_readings(*signed_run, file=tmp_path / "a.csv")
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
    rows = [{**ROW, "answer": text, "document_id": text, "number": None} for text in (*FORMULAS, *WITHIN)]
    write_readings(*write_run(Location(uri=str(tmp_path / "out")), rows), file=tmp_path / "a.csv")
    sheet = (tmp_path / "a.csv").read_bytes().decode("utf-8-sig")
    assert formulas_in(sheet, delimiter=delimiter) == []
    assert formulas_in(sheet.replace("'", ""), delimiter=delimiter), "the test would see one"
    assert [unquoted(row["answer"]) for row in csv_rows(tmp_path / "a.csv")] == [*FORMULAS, *WITHIN]


def test_xlsx_cuts_a_text_that_no_cell_holds_with_a_note(run: Run, tmp_path: Path) -> None:
    write_spreadsheet(*run, file=tmp_path / "a.xlsx")
    long, foxes = (row[0] or "" for row in cells_of(tmp_path / "a.xlsx", sheet_number=2)[-2:])
    assert long.endswith(" … cut: 40,000 characters in all; answers/ has them")
    assert len(long) == MAX_XLSX_CHARACTERS
    assert foxes.startswith("🦊🦊")
    assert len(foxes.encode("utf-16-le")) // 2 <= MAX_XLSX_CHARACTERS
    assert "20,000 characters in all" in foxes


def test_xlsx_of_more_rows_than_a_sheet_holds_is_refused(run: Run, tmp_path: Path) -> None:
    run[1]["counts"]["answers_rows"] = 1_048_576
    with pytest.raises(OutputError, match=r"1,048,576 answers.*Parquet"):
        write_spreadsheet(*run, file=tmp_path / "a.xlsx")
    assert not (tmp_path / "a.xlsx").exists()


def test_xlsx_without_its_extra_is_refused(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(SettingsError, match=r"pip install 'memagent-batch\[xlsx\]'"):
        write_spreadsheet(*run, file=tmp_path / "answers.xlsx")
