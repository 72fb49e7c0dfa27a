"""XLSX: a part for each sheet, then what is drawn and written beside its cells."""

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

from lxml import etree

from memagent_batch.data.ingest.readers.cell_formats import CellFormat
from memagent_batch.data.ingest.readers.converter import Attachment, BuiltIn, Part, PartStatus
from memagent_batch.data.ingest.readers.marks import Run, Script, join_runs
from memagent_batch.data.ingest.readers.number_formats import BUILT_IN
from memagent_batch.data.ingest.readers.packages import (
    DAMAGE,
    RELATION,
    PackagePart,
    open_main_part,
    related_items,
    require_no_entities,
)
from memagent_batch.data.ingest.readers.sheet_objects import (
    comment_lines,
    commented_cells,
    normalise,
    people_of,
    sheet_objects,
)
from memagent_batch.data.ingest.readers.symbols import symbol_font, to_unicode

S = "{http://schemas.openxmlformats.org/spreadsheetml/2006/main}"
ROW, ITEM, VALUE, FORMULA, INLINE, RUN, TEXT = (f"{S}{name}" for name in ("row", "si", "v", "f", "is", "r", "t"))
SHEET_KINDS = frozenset({"worksheet", "chartsheet", "dialogsheet", "xlMacrosheet", "xlIntlMacrosheet"})
TEXT_KINDS = frozenset({"s", "str"})
"""Types of cells whose values are texts."""
DIGITS = "0123456789"
MOST_COLUMNS = 16_384
WIDEST_GAP = 20
"""Most empty cells that are written as such. Before a cell that follows more of them stands its column: `XFD: 5`."""

MARGINS = ("oddHeader", "evenHeader", "firstHeader", "oddFooter", "evenFooter", "firstFooter")
MARGIN_CODE = re.compile(
    r'&(?:"[^"]*"|K(?:[0-9A-F]{6}|\d\d[+-]\d{3})|\d+|[LCR]|[BIUESXYOHG]|[PNDTFZA](?:[+-]\d+)?|&)', re.IGNORECASE
)
"""Of what is printed above and below a sheet: a font, colour, size, place, style, picture or field, or the sign `&`."""
MARGIN_FIELDS = {"P": "[Page]", "N": "[Pages]", "D": "[Date]", "T": "[Time]", "F": "[File]", "Z": "[Path]", "&": "&"}
MARGIN_FIELDS |= dict.fromkeys("LCR", "\n")
CONSTANT = re.compile(r'"(?:[^"]|"")*"|[-+]?\d[\d.]*(?:E[+-]?\d+)?%?', re.IGNORECASE)
"""What a defined name stands for that names neither a range nor a formula."""
PLACE = re.compile(r"(?:'?(?P<sheet>[^!]*?)'?!)?\$?(?P<column>[A-Z]{1,3})\$?(?P<row>\d+)")
"""The first cell of a range: `'Price list'!$A$1:$A$5`."""

SCRIPTS = {"superscript": Script.SUPER, "subscript": Script.SUB}
LOCAL_CURRENCIES = frozenset(["5", "6", "7", "8", "42", "44"])
"""Numbers of formats that show the currency of the computer, unless the workbook says which one."""
UNCOMPUTED = "{} formulas without a saved value are not read: open the file in Excel, and save it"
BROKEN = "{} cells are not read: the file lacks the texts that they name"
RICH = "{} cells show a picture, linked data or an error of recent versions of Excel, which is not read"
NO_FORMATS = "formats of cells are damaged: numbers are as they are stored, and dates are numbers of days"
RECOMPUTED = (
    "{} formulas: programs compute them when they open the file, and the saved values that were read may differ"
)
LOSSES = {UNCOMPUTED: "formulas", BROKEN: "cells", RICH: "cells", NO_FORMATS: "formats", RECOMPUTED: "formulas"}
"""Why something is not read or doubtful, with the locators of the parts that say so."""
CONDITIONAL = "conditional formatting changes how some numbers are shown, such as a word in place of a number"


class SheetsConverter(BuiltIn):
    """Sheets in order, hidden ones too: a line for each row with values, ` | ` between its cells.

    Numbers are as Excel displays them, with the stored value in brackets where the display alone could mislead; of
    formulas the value that was saved.
    """

    package, revision, modules = "lxml", 11, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each sheet, and for each text beside it."""
        with open_main_part(file, kind="an XLSX") as main:
            yield from Workbook(main).items()


@dataclass(slots=True)
class SheetText:
    """What the cells of a sheet show."""

    lines: list[str] = field(default_factory=list)
    cells: dict[str, str] = field(default_factory=dict)
    """Texts of the cells that were wanted, by their places (`B2`)."""
    left_out: list[str] = field(default_factory=list)
    """Values as they are stored where something else is shown, and formulas."""
    root: Any = None
    """The XML of the sheet without its rows; None if it is damaged."""
    damage: str | None = None
    """Why the rows after the lines were not read."""


class Workbook:
    """The sheets of a workbook, with the texts and formats that they share."""

    def __init__(self, main: PackagePart) -> None:
        self._main, self._root = main, main.root
        settings = self._root.find(f"{S}workbookPr")
        self._epoch_1904 = settings is not None and settings.get("date1904") in {"1", "true", "on"}
        computing = self._root.find(f"{S}calcPr")
        self._is_recomputed = computing is not None and any(
            computing.get(name) in {"1", "true", "on"} for name in ("fullCalcOnLoad", "forceFullCalc")
        )
        self._losses, self._left_out = Counter[str](), list[str]()
        self._texts, self._rich_texts, self._rich_left_out = list[str](), set[int](), list[str]()
        for part in main.related("sharedStrings"):
            with suppress(*DAMAGE):  # cells whose texts are missing are counted
                for item in Elements(part, ITEM):
                    if item.find(RUN) is not None:
                        self._rich_texts.add(len(self._texts))
                        self._rich_left_out.extend(_symbol_runs(item))
                    self._texts.append(_text_of(item))
        self._cell_format = partial(CellFormat, epoch_1904=self._epoch_1904)
        self._general = self._cell_format("General")
        self._shown_otherwise = set[str]()
        """Numbers of the formats of conditional formatting that have a number format."""
        self._formats = self._cell_formats()

    def items(self) -> Iterator[Part | Attachment]:
        """Yields a part for each sheet, what stands beside its cells, and what was not read.

        Raises:
            ConversionError: a part declares entities.
        """
        seen, people = {self._main.partname}, people_of(self._main)
        for number, sheet in enumerate(self._root.iterfind(f"{S}sheets/{S}sheet"), start=1):
            place = f"sheet {sheet.get('name', '')}{'' if sheet.get('state', 'visible') == 'visible' else ' (hidden)'}"
            part = self._sheet_part(sheet)
            if part is None:
                yield Part(locator=place, status=PartStatus.FAILED, reason="the file lacks this sheet")
                continue
            try:
                yield from self._sheet_items(part, sheet.get("name", ""), place, people, f"{number}-", seen)
            except DAMAGE as error:
                reason = f"comments and drawings are damaged, and not all of them are read ({error})"
                yield Part(locator=f"{place}, drawings", status=PartStatus.FAILED, reason=reason)
        for part in self._main.related("richValueRel", "theme"):
            yield from related_items(part, number="0-", seen=seen)
        for part in self._main.related("externalLink"):  # values that formulas took from other workbooks
            yield Part(left_out=" ".join(part.root.itertext()))
        yield from self._closing_parts()

    def _sheet_items(
        self, part: PackagePart, title: str, place: str, people: Mapping[str, str], number: str, seen: set[str]
    ) -> Iterator[Part | Attachment]:
        text = self._read(part, wanted=commented_cells(part))
        margins = [] if text.root is None else list(_margins(text.root, title))
        notes = dict.fromkeys(note for each in self._formats.values() for note in each.notes())
        doubts = [CONDITIONAL] if self._is_shown_otherwise(text.root) else []
        yield Part(
            locator=place,
            text="\n".join([*margins, *text.lines]),
            status=PartStatus.NEEDS_REVIEW if doubts else PartStatus.OK,
            reason="; ".join([*doubts, *notes]) or None,
            left_out="\n".join([*text.left_out, *_margin_codes(text.root)]),
        )
        if text.damage is not None:
            yield Part(locator=f"{place}, further rows", status=PartStatus.FAILED, reason=text.damage)
        comments, lookup = list(comment_lines(part, people, text.cells)), partial(self._cell_in, sheet=title)
        yield from sheet_objects(
            part, text.root, comments=comments, lookup=lookup, place=f"{place}, ", number=number, seen=seen
        )

    def _closing_parts(self) -> Iterator[Part]:
        """Yields the names that stand for a value, not for cells or a formula, and the cells that were not read."""
        names, left_out = list[str](), list[str]()
        for name in self._root.iterfind(f"{S}definedNames/{S}definedName"):
            is_value = CONSTANT.fullmatch((name.text or "").strip()) and not name.get("name", "").startswith("_xl")
            (names if is_value else left_out).append(f"{name.get('name')} = {normalise(name.text)}")
        if names:
            yield Part(locator="defined names", text="\n".join(names))
        if left_out or self._rich_left_out:
            yield Part(left_out="\n".join([*left_out, *self._rich_left_out]))
        for reason, count in (+self._losses).items():
            status = PartStatus.NEEDS_REVIEW if reason == RECOMPUTED else PartStatus.FAILED
            yield Part(locator=LOSSES[reason], status=status, reason=reason.format(count))

    def _is_shown_otherwise(self, root: Any) -> bool:
        """Whether a rule of a sheet's conditional formatting has a number format of its own."""
        if root is None:
            return False
        rules = root.iterfind(f"{S}conditionalFormatting/{S}cfRule")
        in_extensions = next(root.iter(f"{S}numFmt"), None) is not None
        return in_extensions or any(rule.get("dxfId") in self._shown_otherwise for rule in rules)

    def _cell_formats(self) -> dict[str, "CellFormat"]:
        """Returns the formats of cells by the numbers that cells name them with."""
        formats = dict[str, CellFormat]()
        for part in self._main.related("styles"):
            try:
                styles = part.root
            except DAMAGE:
                self._losses[NO_FORMATS] += 1
                continue
            own = {
                each.get("numFmtId"): each.get("formatCode", "") for each in styles.iterfind(f"{S}numFmts/{S}numFmt")
            }
            changed = enumerate(styles.iterfind(f"{S}dxfs/{S}dxf"))
            self._shown_otherwise |= {str(number) for number, each in changed if each.find(f"{S}numFmt") is not None}
            fonts = [
                (_is_on(font.find(f"{S}strike")), _symbol_font(font.find(f"{S}name")))
                for font in styles.iterfind(f"{S}fonts/{S}font")
            ]
            made = dict[tuple[str, bool, str | None], CellFormat]()
            for style in styles.iterfind(f"{S}cellXfs/{S}xf"):
                number, font = style.get("numFmtId", "0"), int(style.get("fontId", "0"))
                key = number, *(fonts[font] if font < len(fonts) else (False, None))
                if key not in made:
                    code, is_local = own.get(number), number in LOCAL_CURRENCIES and number not in own
                    code = code or BUILT_IN.get(number, "General")
                    made[key] = self._cell_format(
                        code, is_struck=key[1], has_local_currency=is_local, symbol_font=key[2]
                    )
                formats[str(len(formats))] = made[key]
        return formats

    def _sheet_part(self, sheet: Any) -> PackagePart | None:
        relation = self._main.rels.get(sheet.get(RELATION, ""))
        return None if relation is None or relation.kind not in SHEET_KINDS else relation.part

    def _read(self, part: PackagePart, *, wanted: Collection[str] = ()) -> SheetText:
        """Reads the cells that a sheet has, row by row, however far apart they are."""
        result, rows = SheetText(), Elements(part, ROW)
        self._left_out = result.left_out
        try:
            for row in rows:
                line = self._line(row, wanted, result.cells)
                if line:
                    result.lines.append(line)
            result.root = rows.root
        except DAMAGE as error:
            result.damage = (
                f"the sheet is damaged, and its rows after the first {len(result.lines)} are not read ({error})"
            )
        return result

    def _line(self, row: Any, wanted: Collection[str], cells: dict[str, str]) -> str:
        """Returns what a row shows; texts of wanted cells are added to the others."""
        pieces, last, column = list[str](), 0, 0
        for cell in row:
            place = cell.get("r")
            column = _column_number(place.rstrip(DIGITS)) if place else column + 1
            text = self._cell_text(cell)
            if not text:
                continue
            gap, last = column - last - 1, column
            if gap <= WIDEST_GAP:
                pieces.extend([""] * gap)
                pieces.append(text)
            else:
                pieces.append(f"{place.rstrip(DIGITS) if place else column}: {text}")
            if place in wanted:
                cells[place] = text
        return " | ".join(pieces)

    def _cell_text(self, cell: Any) -> str:
        """Returns what a cell shows, in one line; counts the cells that can't be read."""
        is_plain = len(cell) == 1 and cell[0].tag == VALUE  # findtext would take twice as long
        value = cell[0].text if is_plain else cell.findtext(VALUE)
        kind, cell_format = cell.get("t"), self._formats.get(cell.get("s", "0"), self._general)
        if not is_plain and (formula := cell.findtext(FORMULA)):
            self._left_out.append(formula)
        if kind == "inlineStr":
            item = cell.find(INLINE)
            self._left_out.extend(_symbol_runs(item))
            is_rich = item is not None and item.find(RUN) is not None
            return self._shown_text(_text_of(item), cell_format, is_rich=is_rich)
        if not value:
            if kind != "str" and cell.find(FORMULA) is not None:
                self._losses[UNCOMPUTED] += 1
            return ""
        if not is_plain and self._is_recomputed and cell.find(FORMULA) is not None:
            self._losses[RECOMPUTED] += 1
        if kind is None or kind == "n":
            text = cell_format.number(value)
        else:
            text = self._typed_text(kind, value, cell_format, is_rich=cell.get("vm") is not None)
        if text != value and kind not in TEXT_KINDS:
            self._left_out.append(value)
        return text

    def _typed_text(self, kind: str, value: str, cell_format: "CellFormat", *, is_rich: bool) -> str:
        match kind:
            case "s":
                is_there = value.isdecimal() and int(value) < len(self._texts)
                self._losses[BROKEN] += not is_there
                is_rich = is_there and int(value) in self._rich_texts
                return self._shown_text(self._texts[int(value)] if is_there else "", cell_format, is_rich=is_rich)
            case "b":
                return "FALSE" if value in {"0", "false"} else "TRUE"
            case "d":
                return cell_format.date(value)
            case "str":
                return self._shown_text(normalise(value), cell_format, is_rich=False)
        self._losses[RICH] += kind == "e" and is_rich
        return value

    def _shown_text(self, text: str, cell_format: "CellFormat", *, is_rich: bool) -> str:
        """Returns the text of a cell in its font; each part of a rich text has a font of its own."""
        font = None if is_rich else cell_format.symbol_font
        if font is not None and (shown := to_unicode(text, font)) != text:
            self._left_out.append(text)
            text = shown
        return cell_format.text(text)

    def _cell_in(self, area: str, row: int, *, sheet: str) -> str | None:
        """Returns the text of a cell of a range, such as `Prices!$A$1:$A$9`, or None if it can't be found."""
        named = {each.get("name"): each.text for each in self._root.iterfind(f"{S}definedNames/{S}definedName")}
        found = PLACE.match((named.get(area) or area).strip())
        title = sheet if found is None else found["sheet"] or sheet
        parts = [
            self._sheet_part(each) for each in self._root.iterfind(f"{S}sheets/{S}sheet") if each.get("name") == title
        ]
        if found is None or not parts or parts[0] is None:
            return None
        wanted, losses = f"{found['column']}{int(found['row']) + row}", self._losses.copy()
        text = self._read(parts[0], wanted={wanted}).cells.get(wanted)
        self._losses = losses
        return text


class Elements:
    """Elements of one name in a part, each of which is forgotten when the next one is read."""

    def __init__(self, part: PackagePart, tag: str) -> None:
        self._part, self._tag = part, tag
        self.root: Any = None
        """What else there is in the part, once all were read."""

    def __iter__(self) -> Iterator[Any]:
        """Yields the elements in order.

        Raises:
            ConversionError: the part declares entities.
        """
        with self._part.open() as stream:
            events = etree.iterparse(stream, tag=self._tag, resolve_entities=False, no_network=True, collect_ids=False)
            for _, element in events:
                yield element
                element.clear()
                while element.getprevious() is not None:
                    del element.getparent()[0]
            self.root = events.root
        require_no_entities(self.root)


@lru_cache(maxsize=MOST_COLUMNS)
def _column_number(letters: str) -> int:
    """Returns the number of a column, from 1: 28 for `AB`."""
    number = 0
    for letter in letters:
        number = 26 * number + ord(letter) - ord("A") + 1
    return number


def _is_on(switch: Any) -> bool:
    """Whether an element switches something on: it does so by being there, unless it says otherwise."""
    return switch is not None and switch.get("val", "1") not in {"0", "false", "off"}


def _text_of(item: Any) -> str:
    """Returns the text of a shared or inline text in one line, without its pronunciation."""
    if item is None:
        return ""
    if len(item) == 1 and item[0].tag == TEXT:
        return normalise(item[0].text)
    return normalise(join_runs(_run(child) for child in item if child.tag in {TEXT, RUN}))


def _run(element: Any) -> Run:
    if element.tag == TEXT:
        return Run(element.text or "")
    raised = element.find(f"{S}rPr/{S}vertAlign")
    script = SCRIPTS.get("" if raised is None else raised.get("val", ""), Script.NORMAL)
    font, text = _symbol_font(element.find(f"{S}rPr/{S}rFont")), element.findtext(TEXT) or ""
    text = to_unicode(text, font) if font else text
    return Run(text, script, _is_on(element.find(f"{S}rPr/{S}strike")))


def _symbol_font(element: Any) -> str | None:
    """Returns the name of a font whose letters are symbols, or None."""
    name = None if element is None else element.get("val")
    return name if symbol_font(name) else None


def _symbol_runs(item: Any) -> Iterator[str]:
    """Yields the parts of a rich text that are in such a font, as they are stored."""
    for run in () if item is None else item.iterfind(RUN):
        if _symbol_font(run.find(f"{S}rPr/{S}rFont")):
            yield run.findtext(TEXT) or ""


def _margin_codes(root: Any) -> Iterator[str]:
    """Yields the codes of what is printed above and below a sheet."""
    for element in () if root is None else root.iter(*(f"{S}{name}" for name in MARGINS)):
        yield element.text or ""


def _margins(root: Any, title: str) -> Iterator[str]:
    """Yields the lines that are printed above and below a sheet."""
    fields = MARGIN_FIELDS | {"A": title}
    for name in MARGINS:
        text = root.findtext(f"{S}headerFooter/{S}{name}") or ""
        shown = MARGIN_CODE.sub(lambda code: fields.get(code[0][1].upper(), ""), text)
        yield from filter(None, map(normalise, shown.split("\n")))
