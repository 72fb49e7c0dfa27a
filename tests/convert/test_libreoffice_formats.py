"""Cells in 60 number formats: what is read of them is what LibreOffice displays, or a note tells the difference."""

import csv
import io
import re
import subprocess
from datetime import datetime, timedelta
from pathlib import Path

import pytest
import xlsxwriter

from memagent_batch.data.ingest.readers.converter import Part
from memagent_batch.data.ingest.readers.sheets import SheetsConverter

pytestmark = pytest.mark.system

Value = float | str
Cell = tuple[str | int, Value]
"""Its format, and what is stored in it."""

NUMBERS: tuple[Value, ...] = (0, 1, 2, -1, 0.5, -0.25, 1234.5, -1234.567, 12345678, 0.123456789, 99.995, 250000)
NUMBERS += (-2500000, 0.0001234, 3.14159265358979, 5551234567)
NUMBER_FORMATS = (
    *("0", "0.00", "#,##0", "#,##0.00", "0%", "0.00%", "0.0###", "?0.0?", "#.##"),  # digits
    *("0000", "000-00-0000", "(000) 000-0000", "[<=9999999]000-0000;(000) 000-0000", "+0 00 000"),  # zeros and masks
    *("#,##0,", '0.0,,"M"', '0.0"%"', '#,##0" pcs."'),  # thousands, millions, units
    *("0.00E+00", "##0.0E+0", "0.000E-000"),  # exponents
    *("# ?/?", "# ??/??", "?/?", "# ??/16"),  # fractions
    *("[$€-407] #,##0.00", "#,##0.00 [$€-40C]", "[$$-409]#,##0.00;[Red]-[$$-409]#,##0.00"),  # currencies
    *("[$CHF-807] #,##0.00", "_-[$£-809]* #,##0.00_-"),
    *('_(* #,##0.00_);_(* (#,##0.00);_(* "-"??_);_(@_)', "#,##0.00_);[Red](#,##0.00)"),  # accounts
    '_-* #,##0.00 [$€-407]_-;-* #,##0.00 [$€-407]_-;_-* "-"?? [$€-407]_-;_-@_-',
    *('[Red]0.0;[Blue]-0.0;[Green]"zero"', "[Color10]0.00"),  # colours
    *('[>100]"high";[<0]"low";"mid"', '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', "[<0]0.0;0"),  # conditions
    *('0 "Dr";0 "Cr";"nil"', '"profit "0;"loss "0;"even"'),  # words
)
MOMENTS: tuple[Value, ...] = (61, 1234.5, 46054, 46054.75, 44196.5)
DATE_FORMATS = ("d-mmm-yy", "mmm yyyy", "dddd, d mmmm yyyy", "ddd d.m.", "mmmmm", "[$-409]d mmm yyyy")
DIGIT_DATES = {"yyyy-mm-dd": "%Y-%m-%d", "dd/mm/yyyy": "%d/%m/%Y", "m/d/yy h:mm": "%m/%d/%y %H:%M"}
DIGIT_DATES["yyyy-mm-dd hh:mm"] = "%Y-%m-%d %H:%M"
"""Dates in digits, which are read as `2026-02-01`, and what they are in Python."""
TIMES: tuple[Value, ...] = (0, 0.25, 0.5, 1.5, 0.0625, 46054.75, 0.1234)
TIME_FORMATS = ("h:mm", "hh:mm:ss", "h:mm AM/PM", "mm:ss.0", "[h]:mm:ss", "[mm]:ss")
TEXTS: tuple[Value, ...] = ("abc", "12")
TEXT_FORMATS = ("@", '"Ref "@', '0;-0;0;"n/a"')
LOCAL_FORMATS = (5, 7, 8, 44)
"""Numbers of formats with the currency of the computer, which English LibreOffice takes for dollars."""
TRANSLATED_FORMATS = ("[$-407]d. mmmm yyyy", "[$-40C]dddd d mmmm yyyy", "[$-411]ggge")
HIDDEN_FORMATS = (";;;", "0;;")

SHEETS: dict[str, list[Cell]] = {
    "Numbers": [(code, value) for code in NUMBER_FORMATS for value in NUMBERS],
    "General": [("General", value) for value in NUMBERS],
    "Dates": [(code, value) for code in DATE_FORMATS for value in MOMENTS],
    "Digits": [(code, value) for code in DIGIT_DATES for value in MOMENTS],
    "Times": [(code, value) for code in TIME_FORMATS for value in TIMES],
    "Texts": [(code, value) for code in TEXT_FORMATS for value in TEXTS],
    "Local": [(number, value) for number in LOCAL_FORMATS for value in NUMBERS],
    "Translated": [(code, value) for code in TRANSLATED_FORMATS for value in MOMENTS],
    "Hidden": [(code, value) for code in HIDDEN_FORMATS for value in (-1, "abc")],
}
NOTES = {"Local": "currency of the computer", "Translated": "another language", "Hidden": "show nothing"}
"""What is noted of sheets whose cells differ from what they show."""
IN_BRACKETS = re.compile(r" \(([^()]*)\)$")
"""The stored value behind what a cell shows."""

NOT_AS_EXCEL: dict[str, dict[Cell, str]] = {
    "Excel shows the point of `#.##` also without decimals": {
        **{("#.##", value): f"{value}." for value in (1, 2, -1, 12345678, 250000, -2500000, 5551234567)},
        ("#.##", 0): ".",
        ("#.##", 99.995): "100.",
        ("#.##", 0.0001234): ".",
    },
    "Excel keeps the minus sign of a number that it rounds to zero": {
        **{
            (code, -0.25): f"-{shown}"
            for code, shown in {
                "0": "0",
                "#,##0": "0",
                "0000": "0000",
                "000-00-0000": "000-00-0000",
                "(000) 000-0000": "(000) 000-0000",
                "[<=9999999]000-0000;(000) 000-0000": "000-0000",
                "+0 00 000": "+0 00 000",
                "#,##0,": "0",
                '0.0,,"M"': "0.0M",
                '#,##0" pcs."': "0 pcs.",
                '[>=1000000]0.0,,"M";[>=1000]0.0,"K";0': "0",
            }.items()
        },
        ("#,##0,", -1): "-0",
        **{('0.0,,"M"', value): "-0.0M" for value in (-1, -1234.567)},
    },
    "Excel keeps the minus sign in the section for all numbers that meet no condition": {
        ('[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', -1): "-1",
        ('[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', -1234.567): "-1235",
        ('[>=1000000]0.0,,"M";[>=1000]0.0,"K";0', -2500000): "-2500000",
    },
    "Excel shows a fraction of any number": {
        ("# ?/?", 5551234567): "5551234567",
        ("# ??/??", 5551234567): "5551234567",
        ("# ??/16", 5551234567): "5551234567",
        ("?/?", 5551234567): "5551234567/1",
    },
    "Excel rounds to seconds, LibreOffice cuts": {
        ("hh:mm:ss", 0.1234): "02:57:42",
        ("[h]:mm:ss", 0.1234): "2:57:42",
        ("[mm]:ss", 0.1234): "177:42",
        ("mm:ss.0", 0.1234): "57:41.8",
    },
}
"""Where LibreOffice displays something else than Excel, why, and what Excel shows."""
EXCEL = {cell: shown for cells in NOT_AS_EXCEL.values() for cell, shown in cells.items()}


def write_workbook(file: Path) -> None:
    """A workbook with one cell in each row."""
    with xlsxwriter.Workbook(str(file)) as book:
        styles = {code: book.add_format({"num_format": code}) for cells in SHEETS.values() for code, _ in cells}
        for name, cells in SHEETS.items():
            sheet = book.add_worksheet(name)
            sheet.set_column(0, 0, 60)  # else LibreOffice shows ### in place of what is too wide
            for row, (code, value) in enumerate(cells):
                sheet.write(row, 0, value, styles[code])


@pytest.fixture(scope="module")
def workbook(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("formats") / "formats.xlsx"
    write_workbook(file)
    return file


@pytest.fixture(scope="module")
def shown(workbook: Path) -> dict[str, list[str]]:
    """What LibreOffice displays of each cell, by sheets."""
    options = "csv:Text - txt - csv (StarCalc):44,34,76,1,,1033,false,false,true,false,false,-1"  # as shown, all sheets
    profile = f"-env:UserInstallation={(workbook.parent / 'profile').as_uri()}"
    command = ["soffice", profile, "--headless", "--convert-to", options, "--outdir", str(workbook.parent)]
    subprocess.run([*command, str(workbook)], check=True, capture_output=True, timeout=300)
    texts = {name: (workbook.parent / f"formats-{name}.csv").read_text(encoding="utf-8") for name in SHEETS}
    return {name: [(row or [""])[0] for row in csv.reader(io.StringIO(text))] for name, text in texts.items()}


@pytest.fixture(scope="module")
def parts(workbook: Path) -> dict[str, Part]:
    items = SheetsConverter().convert(workbook)
    return {item.locator.removeprefix("sheet "): item for item in items if isinstance(item, Part)}


def normal(shown: str) -> str:
    """What is displayed without blanks that only align it."""
    return re.sub(r"^-\s+", "-", " ".join(shown.split()))


def digits(text: str) -> list[int]:
    return [int(number) for number in re.findall(r"\d+", text)]


def difference(cell: Cell, shown: str, text: str) -> str | None:
    """What a cell's text has otherwise than it is shown; None if nothing, apart from the stored value behind it."""
    shown = EXCEL.get(cell, normal(shown))
    if normal(text) == shown:
        return None
    stored = IN_BRACKETS.search(text)
    if stored and normal(text[: stored.start()]) == shown:
        return None
    return f"{cell[0]} of {cell[1]} is shown as {shown!r} and read as {text!r}"


@pytest.mark.parametrize("name", ["Numbers", "Dates", "Times", "Texts"])
def test_cell_is_read_as_it_is_displayed(shown: dict[str, list[str]], parts: dict[str, Part], name: str) -> None:
    cells = zip(SHEETS[name], shown[name], parts[name].text.split("\n"), strict=True)
    assert list(filter(None, (difference(*cell) for cell in cells))) == []
    assert parts[name].reason is None


def test_stored_number_stands_behind_each_display_that_lacks_some_of_it(parts: dict[str, Part]) -> None:
    for (code, value), text in zip(SHEETS["Numbers"], parts["Numbers"].text.split("\n"), strict=True):
        stored = IN_BRACKETS.search(text)
        if stored and (number := re.match(r"-?[\d.]+(?:E[+-]?\d+)?", stored[1])):
            percent = 100 if stored[1].endswith("%") else 1
            assert float(number[0]) / percent == pytest.approx(value), (code, value, text)


def test_general_number_has_all_its_digits(shown: dict[str, list[str]], parts: dict[str, Part]) -> None:
    texts = parts["General"].text.split("\n")
    assert [float(text) for text in texts] == [float(text) for text in shown["General"]] == pytest.approx(NUMBERS)


def test_date_in_digits_is_read_with_the_year_first(shown: dict[str, list[str]], parts: dict[str, Part]) -> None:
    for (code, value), display, text in zip(
        SHEETS["Digits"], shown["Digits"], parts["Digits"].text.split("\n"), strict=True
    ):
        assert not isinstance(value, str)
        moment, pattern = datetime(1899, 12, 30) + timedelta(days=value), DIGIT_DATES[str(code)]
        assert digits(display) == digits(f"{moment:{pattern}}")
        is_midnight = moment == datetime.combine(moment, datetime.min.time())
        with_time = "%H" in pattern or not is_midnight
        assert text == f"{moment:%Y-%m-%d %H:%M}" if with_time else f"{moment:%Y-%m-%d}"


@pytest.mark.parametrize("name", NOTES)
def test_difference_is_a_note(shown: dict[str, list[str]], parts: dict[str, Part], name: str) -> None:
    cells = zip(SHEETS[name], shown[name], parts[name].text.split("\n"), strict=True)
    assert any(difference(*cell) for cell in cells)
    assert NOTES[name] in (parts[name].reason or "")


def test_there_are_sixty_formats() -> None:
    assert len({code for cells in SHEETS.values() for code, _ in cells}) >= 60
