import sys
import zipfile
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pyarrow as pa
import pytest

from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.pages.spreadsheets import MAX_XLSX_CHARACTERS, WIDTHS, write_spreadsheet
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes

NAMESPACE = {"x": "http://schemas.openxmlformats.org/spreadsheetml/2006/main"}
FORMULAS = ["=1+1", "+1+1", "-1+1", "@SUM(A1)", "\t=1", "\r=1", "\n=1", "  =1+1", "＝1+1", "- a point"]
PLAIN = ["-5", "-5.25", "a=1", "1+1", "", 'quo"te, comma\nline', "<b>&amp;", "<r><t>raw</t></r>", "_x0041_", "\x00\x1b"]

ROW = {
    "answer": "",
    "number": -1.5,
    "yes": True,
    "none": None,
    "list": ["a", "b"],
    "document_id": "a.pdf",
    "question": "Who?",
    "status": "ok",
    "error_message": None,
    "error_type": None,
    "confidence": 0.5,
    "value_status": None,
    "value": None,
    "value_unit": None,
    "support": None,
    "source_unread": None,
}


@pytest.fixture
def run(tmp_path: Path) -> tuple[Location, Any]:
    """A run whose answers are all of the texts, in two files."""
    output = Location(uri=str(tmp_path / "out"))
    texts = [*FORMULAS, *PLAIN, "long" * 10_000, "🦊" * 20_000]
    rows = [{**ROW, "answer": text} for text in texts]
    (output / "answers/a.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows[:5])))
    (output / "answers/b.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows[5:])))
    files = ["answers/a.parquet", "answers/b.parquet"]
    parts = [{"answers_file": file, "evidence_file": None} for file in files]
    manifest = {"counts": {"answers_rows": len(rows)}, "files": {"answers": files}, "parts": parts}
    return output, manifest


def texts_of(run: tuple[Location, Any]) -> list[str]:
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


def test_xlsx_holds_every_text_as_text(run: tuple[Location, Any], tmp_path: Path) -> None:
    file = tmp_path / "a.xlsx"
    write_spreadsheet(*run, file=file)
    head, *rows = cells_of(file, sheet_number=2)
    assert head == list(ROW)
    shown = {"\x00\x1b": "_x0000__x001B_", "_x0041_": "_x005F_x0041_", "\r=1": "_x000D_=1"}
    for row, text in zip(rows[:-2], texts_of(run), strict=False):
        assert row[0] == shown.get(text, text)


def test_xlsx_has_a_sheet_for_people_with_what_needs_a_look_first(tmp_path: Path) -> None:
    output = Location(uri=str(tmp_path / "out"))
    rows = [
        {**ROW, "document_id": "fine", "answer": "Ann", "support": "supported"},
        {**ROW, "document_id": "scan", "status": "failed", "value_status": "not_read", "error_message": "needs_ocr"},
        {**ROW, "document_id": "denied", "answer": "Bob", "support": "contradicted"},
    ]
    (output / "answers/a.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(rows)))
    results = [{"document_id": "fine", "who": "Ann"}]
    (output / "results/a.parquet").write_bytes(parquet_bytes(pa.Table.from_pylist(results)))
    files = {"answers": ["answers/a.parquet"], "results": ["results/a.parquet"]}
    parts = [{"answers_file": "answers/a.parquet", "evidence_file": None}]
    manifest: Any = {"counts": {"answers_rows": 3}, "files": files, "parts": parts}
    file = tmp_path / "a.xlsx"
    write_spreadsheet(output, manifest, file=file)
    assert cells_of(file, sheet_number=1) == [["document_id", "who"], ["fine", "Ann"]]
    head, *people = cells_of(file, sheet_number=2)
    assert head == list(WIDTHS)
    assert people == [
        ["the evidence contradicts the answer", "denied", "Who?", "Bob", "Bob", "contradicted", "0.5"],
        ["not all of its source was read", "scan", "Who?", "not read", "0.5", "needs_ocr"],
        ["fine", "Who?", "Ann", "Ann", "supported", "0.5"],
    ]
    assert len(cells_of(file, sheet_number=3)) == 4


def test_xlsx_cuts_a_text_that_no_cell_holds_with_a_note(run: tuple[Location, Any], tmp_path: Path) -> None:
    write_spreadsheet(*run, file=tmp_path / "a.xlsx")
    long, foxes = (row[0] or "" for row in cells_of(tmp_path / "a.xlsx", sheet_number=2)[-2:])
    assert long.endswith(" … cut: 40,000 characters in all; answers/ has them")
    assert len(long) == MAX_XLSX_CHARACTERS
    assert foxes.startswith("🦊🦊")
    assert len(foxes.encode("utf-16-le")) // 2 <= MAX_XLSX_CHARACTERS
    assert "20,000 characters in all" in foxes


def test_xlsx_of_more_rows_than_a_sheet_holds_is_refused(run: tuple[Location, Any], tmp_path: Path) -> None:
    run[1]["counts"]["answers_rows"] = 1_048_576
    with pytest.raises(OutputError, match=r"1,048,576 answers.*Parquet"):
        write_spreadsheet(*run, file=tmp_path / "a.xlsx")
    assert not (tmp_path / "a.xlsx").exists()


def test_xlsx_without_its_extra_is_refused(
    run: tuple[Location, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "xlsxwriter", None)
    with pytest.raises(SettingsError, match=r"pip install 'memagent-batch\[xlsx\]'"):
        write_spreadsheet(*run, file=tmp_path / "answers.xlsx")
