"""XLSX by openpyxl: a part for each sheet, then what belongs to it."""

import re
from collections.abc import Iterator
from datetime import date, datetime, time
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.convert.office import main_part, related_items

UNCOMPUTED = re.compile(
    rb"""<c\b(?![^>]*\st=["']str["'])[^>]*>\s*<f\b[^>]*(?:/>|>[^<]*</f>)\s*(?:<v\s*/>|<v>\s*</v>)?\s*</c>"""
)
"""A cell whose formula has no value beside it; that of one whose value is a text may be the empty text."""
UNIT = re.compile(r'"([^"]*)"|\[\$([^-\]]*)|([$€£¥])')
"""Words and currencies in the format of a number."""


class SheetsConverter(BuiltIn):
    """Sheets in order, hidden ones too: a line for each row with values, ` | ` between its cells.

    Numbers are as they are stored, with the unit that their format shows; of formulas the value that was saved.
    """

    package, own, modules = "openpyxl", 3, ("openpyxl", "docx")

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each sheet, and for each text beside it.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        import openpyxl

        main = main_part(file, kind="an XLSX")
        book = openpyxl.load_workbook(file, data_only=True)
        for sheet in book.worksheets:
            hidden = "" if sheet.sheet_state == "visible" else " (hidden)"
            yield Part(locator=f"sheet {sheet.title}{hidden}", text="\n".join(_lines(sheet)))
        parts = [relation.target_part for relation in main.rels.values() if not relation.is_external]
        uncomputed = sum(len(UNCOMPUTED.findall(part.blob)) for part in parts if "/worksheets/" in part.partname)
        if uncomputed:
            reason = f"{uncomputed} formulas without a saved value are not read: open the file in Excel, and save it"
            yield Part(locator="formulas", status=PartStatus.FAILED, reason=reason)
        yield from related_items(main)


def _lines(sheet: Any) -> Iterator[str]:
    """What is printed above and below a sheet, and its rows."""
    for name in ("oddHeader", "evenHeader", "firstHeader", "oddFooter", "evenFooter", "firstFooter"):
        margin = getattr(sheet, name)
        yield from filter(None, (place.text for place in (margin.left, margin.center, margin.right)))
    for row in sheet.iter_rows():
        cells = [_value_text(cell) for cell in row]
        if any(cells):
            yield " | ".join(cells).rstrip(" |")


def _value_text(cell: Any) -> str:
    """The value of a cell, with the unit that its format shows."""
    value, form = cell.value, str(cell.number_format)
    if isinstance(value, datetime) and value.time() == time():
        return value.date().isoformat()
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    if isinstance(value, int | float) and not isinstance(value, bool):
        positive = form.partition(";")[0]
        if "%" in UNIT.sub("", positive):
            return f"{100 * value:.10g} %"
        units = "".join(map("".join, UNIT.findall(positive))).strip()
        return f"{value} {units}".strip()
    return "" if value is None else " ".join(str(value).split())
