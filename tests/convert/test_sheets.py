"""What the converter of workbooks reads, from packages as Excel writes them."""

import io
import resource
import zipfile
from collections.abc import Mapping
from pathlib import Path

import pytest
import xlsxwriter

from memagent_batch.data.ingest.readers.converter import Attachment, Part
from memagent_batch.data.ingest.readers.sheets import SheetsConverter
from memagent_batch.errors import ConversionError
from tests.convert.files import repacked, zipped
from tests.convert.office import PACKAGE_RELATIONS, RELATIONS, TYPES
from tests.convert.planted import picture

MAIN = "http://schemas.openxmlformats.org/spreadsheetml/2006/main"
DRAWING = "http://schemas.openxmlformats.org/drawingml/2006"
MICROSOFT = "http://schemas.microsoft.com/office"
NAMES = f'xmlns="{MAIN}" xmlns:r="{RELATIONS}" xmlns:a="{DRAWING}/main" xmlns:xdr="{DRAWING}/spreadsheetDrawing"'
STRICT = {
    f"http://schemas.openxmlformats.org/{name}/2006/": f"http://purl.oclc.org/ooxml/{name}/"
    for name in ("spreadsheetml", "drawingml", "officeDocument")
}


def relations(*targets: tuple[str, str]) -> bytes:
    """Relations `rId1`, `rId2` and so on: (type, target)."""
    entries = "".join(
        f'<Relationship Id="rId{number}" Type="{kind if ":" in kind else f"{RELATIONS}/{kind}"}" Target="{target}"/>'
        for number, (kind, target) in enumerate(targets, start=1)
    )
    return f'<Relationships xmlns="{PACKAGE_RELATIONS}">{entries}</Relationships>'.encode()


def workbook(
    rows: str,
    *,
    codes: tuple[str, ...] = (),
    fonts: str = "<font/>",
    texts: str = "",
    after: str = "",
    book: str = "",
    related: tuple[tuple[str, str], ...] = (),
    book_related: tuple[tuple[str, str], ...] = (),
    members: Mapping[str, str | bytes] = {},
) -> bytes:
    """A workbook of one sheet: its rows, and what stands after them; style 1 has the first of the format codes."""
    formats = "".join(f'<numFmt numFmtId="{164 + index}" formatCode="{code}"/>' for index, code in enumerate(codes))
    styles = "".join(f'<xf numFmtId="{164 + index}" fontId="0"/>' for index in range(len(codes)))
    parts = {
        "[Content_Types].xml": f'<Types xmlns="{TYPES}"><Default Extension="xml" ContentType="application/xml"/>'
        '<Default Extension="rels" ContentType="application/xml"/></Types>',
        "_rels/.rels": relations(("officeDocument", "xl/workbook.xml")),
        "xl/workbook.xml": f'<workbook {NAMES}>{book}<sheets><sheet name="Data" sheetId="1" r:id="rId1"/></sheets>'
        "</workbook>",
        "xl/_rels/workbook.xml.rels": relations(
            ("worksheet", "worksheets/sheet1.xml"),
            ("styles", "styles.xml"),
            ("sharedStrings", "strings.xml"),
            *book_related,
        ),
        "xl/styles.xml": f"<styleSheet {NAMES}><numFmts>{formats}</numFmts><fonts>{fonts}</fonts>"
        f'<cellXfs><xf numFmtId="0"/>{styles}<xf numFmtId="0" fontId="1"/></cellXfs></styleSheet>',
        "xl/strings.xml": f"<sst {NAMES}>{texts}</sst>",
        "xl/worksheets/sheet1.xml": f"<worksheet {NAMES}><sheetData>{rows}</sheetData>{after}</worksheet>",
        "xl/worksheets/_rels/sheet1.xml.rels": relations(*related),
        **members,
    }
    return zipped({name: part if isinstance(part, bytes) else part.encode() for name, part in parts.items()})


def row(*cells: str) -> str:
    return f"<row>{''.join(cells)}</row>"


def number(value: object, *, style: int = 0) -> str:
    return f'<c s="{style}"><v>{value}</v></c>'


def text(value: str, *, place: str = "A1") -> str:
    return f'<c r="{place}" t="inlineStr"><is><t>{value}</t></is></c>'


@pytest.fixture
def items_of(tmp_path: Path) -> "ItemsOf":
    return ItemsOf(tmp_path / "book.xlsx")


class ItemsOf:
    """Converts workbooks."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def __call__(self, data: bytes) -> list[Part | Attachment]:
        self._file.write_bytes(data)
        items: list[Part | Attachment] = list(SheetsConverter().convert(self._file))
        return [item for item in items if isinstance(item, Attachment) or not item.is_account]

    def texts(self, data: bytes) -> dict[str, str]:
        """Texts of the parts, by their locators."""
        return {item.locator: item.text for item in self(data) if isinstance(item, Part) and item.status == "ok"}

    def losses(self, data: bytes) -> dict[str, str | None]:
        """Reasons of the parts that were not read, by their locators."""
        return {item.locator: item.reason for item in self(data) if isinstance(item, Part) and item.status != "ok"}


@pytest.mark.parametrize(
    ("code", "stored", "shown"),
    [
        ("$#,##0.0,,&quot;M&quot;", "2500000", "$2.5M (2500000 $)"),
        ("0 &quot;Dr&quot;;0 &quot;Cr&quot;", "-500", "500 Cr (-500)"),
        ("&quot;Yes&quot;;&quot;Yes&quot;;&quot;No&quot;", "0", "No (0)"),
        ("0.00;[Red]0.00", "-12.5", "12.50 (-12.5)"),
        ("#,##0.00 [$€-407];(#,##0.00 [$€-407])", "-1234.5", "(1,234.50 €) (-1234.5 €)"),
        (r"0.0\%", "12.5", "12.5%"),
        ("0%", "0.125", "13% (12.5%)"),
        ("0%", "0.99961327433628", "100% (99.961327433628%)"),
        ("0.00", "33.333333333333336", "33.33"),
        ("#,##0", "1234567.89", "1,234,568 (1234567.89)"),
        ("_-* #,##0_-;-* #,##0_-;_-* &quot;-&quot;??_-;_-@_-", "0", "- (0)"),
        ("General", "4929123456789012", "4929123456789012"),
        ("General", "1.5E+15", "1500000000000000"),
        ("General", "0.30000000000000004", "0.3"),
        ("General", "-0.000012", "-0.000012"),
        ("dd/mm/yyyy", "46054", "2026-02-01"),
        ("m/d/yy", "46054.75", "2026-02-01 18:00"),
        ("yyyy-mm-dd hh:mm", "46054", "2026-02-01 00:00"),
        ("mmm-yy", "46054", "Feb-26 (2026-02-01)"),
        ("d mmmm yyyy", "46054", "1 February 2026"),
        ("&quot;due &quot;d.m.", "46054", "due 1.2. (2026-02-01)"),
        ("h:mm", "1.25", "6:00 (30:00)"),
        ("h:mm", "46054.75", "18:00 (2026-02-01 18:00)"),
        ("0.00", "nonsense", "nonsense"),
    ],
)
def test_number_is_shown_as_in_excel_with_the_stored_one_where_that_could_mislead(
    items_of: ItemsOf, code: str, stored: str, shown: str
) -> None:
    assert items_of.texts(workbook(row(number(stored, style=1)), codes=(code,))) == {"sheet Data": shown}


def test_days_of_a_workbook_are_counted_from_its_own_first_day(items_of: ItemsOf) -> None:
    book = workbook(row(number(44592, style=1)), codes=("yyyy-mm-dd",), book='<workbookPr date1904="1"/>')
    assert items_of.texts(book) == {"sheet Data": "2026-02-01"}


def test_currency_that_depends_on_the_computer_is_not_made_up(items_of: ItemsOf) -> None:
    book = workbook(
        row(number("1234.5")),
        members={"xl/styles.xml": f'<styleSheet {NAMES}><cellXfs><xf numFmtId="44"/></cellXfs></styleSheet>'},
    )
    (part,) = items_of(book)
    assert isinstance(part, Part)
    assert part.text == "1,234.50"
    assert "currency of the computer" in (part.reason or "")


def test_cells_of_every_type_are_read(items_of: ItemsOf) -> None:
    shared = '<si><t>Berlin_x000D_\n  Street</t></si><si><r><t>10</t></r><r><rPr><vertAlign val="superscript"/></rPr>'
    shared += "<t>2</t></r><r><rPr><strike/></rPr><t> old</t></r><rPh><t>ten</t></rPh></si>"
    cells = [
        '<c t="s"><v>0</v></c>',
        '<c t="s"><v>1</v></c>',
        '<c t="str"><f>A1</f><v>a_x005F_x000D_</v></c>',
        '<c t="b"><v>1</v></c>',
        '<c t="e"><v>#N/A</v></c>',
        '<c t="d" s="1"><v>2026-02-01T18:00:00</v></c>',
        '<c s="2"><v>500</v></c>',
        "<c><is/></c>",
        "<c><f>A1</f><v/></c>",
        '<c t="str"><f>A1</f><v></v></c>',
    ]
    book = workbook(row(*cells), codes=("dd.mm.yyyy",), texts=shared, fonts="<font/><font><strike/></font>")
    line = "Berlin Street | 10^2 [struck out: old] | a_x000D_ | TRUE | #N/A | 2026-02-01 18:00 | [struck out: 500]"
    assert items_of.texts(book) == {"sheet Data": line}
    assert "1 formulas without a saved value" in (items_of.losses(book)["formulas"] or "")


def test_cells_that_are_far_apart_cost_no_more_than_others(items_of: ItemsOf) -> None:
    rows = f"{row(text('near'), text('far', place='XFD1'), number(5))}<row>{text('last', place='A1048576')}</row>"
    book = workbook(rows + f"<row>{text('gap', place='D7')}</row>")
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    assert items_of.texts(book) == {"sheet Data": "near | XFD: far | 5\nlast\n |  |  | gap"}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50 << 10


def test_workbook_in_strict_open_xml_is_read(items_of: ItemsOf) -> None:
    book = workbook(row(text("total"), number("5150")), related=SHAPE, members=SHAPE_MEMBERS)
    with zipfile.ZipFile(io.BytesIO(book)) as package:
        members = {name: package.read(name).decode() for name in package.namelist()}
    for transitional, strict in STRICT.items():
        members = {name: xml.replace(transitional, strict) for name, xml in members.items()}
    strict_book = zipped({name: xml.encode() for name, xml in members.items()})
    assert items_of.texts(strict_book) == {"sheet Data": "total | 5150", "sheet Data, drawing": "Go to start"}


SHAPE = (("drawing", "../drawings/drawing1.xml"),)
SHAPE_MEMBERS = {
    "xl/drawings/drawing1.xml": f"<xdr:wsDr {NAMES}><xdr:sp><xdr:cNvPr><a:hlinkClick r:id='rId1'/></xdr:cNvPr>"
    "<xdr:txBody><a:p><a:r><a:t>Go to start</a:t></a:r></a:p></xdr:txBody></xdr:sp></xdr:wsDr>",
    "xl/drawings/_rels/drawing1.xml.rels": relations(("hyperlink", "#Data!A1")).decode(),
}
"""A shape with a link to a cell, which Excel writes as a relation to a part."""


@pytest.mark.parametrize("target", ["NULL", "", "missing.xml", "file:///C:/prices.xlsx", "../../Excel.Sheet|prices"])
def test_relation_to_what_is_no_part_costs_nothing(items_of: ItemsOf, target: str) -> None:
    book = workbook(row(text("total")), related=(("externalLink", target), *SHAPE), members=SHAPE_MEMBERS)
    assert items_of.texts(book) == {"sheet Data": "total", "sheet Data, drawing": "Go to start"}


def vml(*shapes: str) -> str:
    head = 'xmlns:v="urn:schemas-microsoft-com:vml" xmlns:o="urn:schemas-microsoft-com:office:office"'
    return f'<xml {head} xmlns:x="urn:schemas-microsoft-com:office:excel">{"".join(shapes)}</xml>'


def control(shape: int, kind: str, caption: str, data: str = "") -> str:
    box = f"<v:textbox><div><font>{caption}</font><br></div></v:textbox>"  # Excel does not close this element
    return f'<v:shape id="_x0000_s{shape}">{box}<x:ClientData ObjectType="{kind}">{data}</x:ClientData></v:shape>'


def test_controls_of_a_form_say_what_is_checked_and_chosen(items_of: ItemsOf) -> None:
    shapes = [
        control(1025, "Checkbox", "Reviewed", "<x:Checked>1</x:Checked>"),
        control(1026, "Checkbox", "Signed"),
        control(1027, "Radio", "Yes"),
        control(1028, "Drop", "Country", "<x:Sel>2</x:Sel><x:FmlaRange>Data!$B$1:$B$3</x:FmlaRange>"),
        control(1029, "Button", "Send"),
        control(1030, "Note", "a comment"),
        control(1031, "Spin", "Copies", "<x:Val>3</x:Val>"),
        control(1032, "Drop", "Currency", "<x:Sel>0</x:Sel>"),
    ]
    cells = "".join(
        f'<row><c r="B{index}" t="inlineStr"><is><t>{name}</t></is></c></row>'
        for index, name in enumerate(("Austria", "Belgium", "Cyprus"), start=1)
    )
    properties = f'<formControlPr xmlns="{MICROSOFT}/spreadsheetml/2009/9/main" objectType="Radio" checked="Checked"/>'
    book = workbook(
        cells,
        after='<controls><control shapeId="1027" r:id="rId2" name="Option 1"/></controls>',
        related=(("vmlDrawing", "../drawings/vml1.vml"), ("ctrlProp", "../ctrlProps/prop1.xml")),
        members={"xl/drawings/vml1.vml": vml(*shapes), "xl/ctrlProps/prop1.xml": properties},
    )
    assert items_of.texts(book)["sheet Data, controls"].split("\n") == [
        "☑ Reviewed",
        "☐ Signed",
        "☑ Yes",
        "Country: Belgium",
        "Send",
        "Copies: 3",
        "Currency: nothing is chosen",
    ]


def test_caption_of_a_check_box_in_a_drawing_is_read_once_with_its_state(items_of: ItemsOf) -> None:
    namespaces = f'{NAMES} xmlns:a14="{MICROSOFT}/drawing/2010/main"'
    shapes = "".join(
        f"<xdr:sp><xdr:cNvPr><a:ext><a14:compatExt spid='_x0000_s{number}'/></a:ext></xdr:cNvPr>"
        f"<xdr:txBody><a:p><a:r><a:t>{caption}</a:t></a:r></a:p></xdr:txBody></xdr:sp>"
        for number, caption in ((1025, "Reviewed"), (2000, "Read me"))
    )
    book = workbook(
        row(text("Form")),
        after='<controls><control shapeId="1025" r:id="rId2" name="Box 1"/></controls>',
        related=(("drawing", "../drawings/drawing1.xml"), ("ctrlProp", "../ctrlProps/prop1.xml")),
        members={
            "xl/drawings/drawing1.xml": f"<xdr:wsDr {namespaces}>{shapes}</xdr:wsDr>",
            "xl/ctrlProps/prop1.xml": '<formControlPr objectType="CheckBox" checked="Mixed"/>',
        },
    )
    assert items_of.texts(book) == {
        "sheet Data": "Form",
        "sheet Data, controls": "☐ Reviewed (neither checked nor unchecked)",
        "sheet Data, drawing": "Read me",
    }


def test_comments_have_their_cells_and_authors(items_of: ItemsOf) -> None:
    threads = "".join(
        f'<threadedComment ref="B1" dT="2026-02-01T10:00:00" personId="p{person}" {state}><text>{words}</text>'
        "</threadedComment>"
        for person, state, words in ((1, 'done="1"', "Is this final?"), (2, "", "Yes."))
    )
    legacy = "".join(
        f'<comment ref="{place}" authorId="{author}"><text><r><t>{words}</t></r></text></comment>'
        for place, author, words in (("A1", 0, "Ann Lee: gross"), ("B1", 1, "[Threaded comment] Is this final?"))
    )
    people = "".join(f'<person displayName="{name}" id="p{number}"/>' for number, name in ((1, "Bo Ek"), (2, "Cy Fox")))
    authors = "<authors><author>Ann Lee</author><author>tc={1}</author></authors>"
    book = workbook(
        row(text("price"), '<c r="B1"><v>12.5</v></c>'),
        related=(("comments", "../comments1.xml"), (f"{MICROSOFT}/2017/10/relationships/threadedComment", "../t.xml")),
        book_related=((f"{MICROSOFT}/2017/10/relationships/person", "people.xml"),),
        members={
            "xl/comments1.xml": f"<comments {NAMES}>{authors}<commentList>{legacy}</commentList></comments>",
            "xl/t.xml": f"<ThreadedComments>{threads}</ThreadedComments>",
            "xl/people.xml": f"<personList>{people}</personList>",
        },
    )
    assert items_of.texts(book)["sheet Data, comments"].split("\n") == [
        "B1 (12.5), Bo Ek, 2026-02-01, resolved: Is this final?",
        "B1 (12.5), Cy Fox, 2026-02-01: Yes.",
        "A1 (price): Ann Lee: gross",
    ]


def test_margins_hints_and_named_values_are_read(items_of: ItemsOf) -> None:
    margin = '&amp;L&amp;"Arial,Bold"&amp;12Draft &amp;&amp; secret&amp;R&amp;K01+000&amp;A, page &amp;P of &amp;N'
    validation = '<dataValidation sqref="C2:C9" showInputMessage="1" promptTitle="Rate" prompt="Net of VAT"/>'
    names = '<definedName name="VAT">0.19</definedName><definedName name="Seller">"Kern AG"</definedName>'
    book = workbook(
        row(text("x")),
        after=f"<dataValidations>{validation}</dataValidations><headerFooter><oddHeader>{margin}</oddHeader></headerFooter>",
        book=f"<definedNames>{names}<definedName name='Area'>Data!$A$1</definedName></definedNames>",
    )
    assert items_of.texts(book) == {
        "sheet Data": "Draft & secret\nData, page [Page] of [Pages]\nx",
        "sheet Data, rules for input": "C2:C9: Rate: Net of VAT",
        "defined names": 'VAT = 0.19\nSeller = "Kern AG"',
    }


def test_tooltips_of_links_and_rules_for_input_are_read(items_of: ItemsOf) -> None:
    rules = [
        '<dataValidation type="list" sqref="D1" showErrorMessage="1" error="Ask counsel.">'
        '<formula1>"Yes, No"</formula1>',
        '<dataValidation type="list" sqref="E1" error="never shown"><formula1>Prices!$A$1:$A$5</formula1>',
        '<dataValidation type="whole" sqref="F1" showErrorMessage="1" errorTitle="Term" error="At most 30 days.">'
        "<formula1>1</formula1><formula2>30</formula2>",
        '<dataValidation type="whole" sqref="G1" operator="Unknown" showErrorMessage="1" error="No.">'
        "<formula1>1</formula1>",
    ]
    book = workbook(
        row(text("x")),
        after=f"<dataValidations>{'</dataValidation>'.join((*rules, ''))}</dataValidations>"
        '<hyperlinks><hyperlink ref="A1" tooltip="See annex 3"/><hyperlink ref="B1" location="Data!A1"/></hyperlinks>',
    )
    assert items_of.texts(book) == {
        "sheet Data": "x",
        "sheet Data, tooltips of links": "A1: See annex 3",
        "sheet Data, rules for input": "D1, one of: Yes, No\nD1, if something else is written: Ask counsel.\n"
        "F1, a whole number from 1 to 30\nF1, if something else is written: Term: At most 30 days.\n"
        "G1, if something else is written: No.",
    }


def test_picture_above_a_sheet_needs_ocr(items_of: ItemsOf) -> None:
    logo = '<v:shape id="LH"><v:imagedata o:relid="rId1"/></v:shape>'
    book = workbook(
        row(text("x")),
        after='<legacyDrawingHF r:id="rId1"/>',
        related=(("vmlDrawing", "../drawings/vml1.vml"),),
        members={
            "xl/drawings/vml1.vml": vml(logo),
            "xl/drawings/_rels/vml1.vml.rels": relations(("image", "../media/logo.png")),
            "xl/media/logo.png": picture("Kern AG"),
        },
    )
    assert items_of.losses(book) == {"sheet Data, picture logo.png": "a picture: what it shows is not read"}


def test_picture_of_an_embedded_file_is_no_loss_beside_the_file(items_of: ItemsOf) -> None:
    book = workbook(
        row(text("x")),
        after='<oleObjects><oleObject shapeId="1025" r:id="rId1"><objectPr r:id="rId2"/></oleObject></oleObjects>',
        related=(("package", "../embeddings/a.docx"), ("image", "../media/a.png")),
        members={"xl/embeddings/a.docx": b"PK", "xl/media/a.png": picture("Kern AG")},
    )
    items = items_of(book)
    assert [(type(item), item.locator) for item in items] == [
        (Part, "sheet Data"),
        (Attachment, "sheet Data, file a.docx"),
    ]


@pytest.mark.parametrize(
    ("member", "xml", "locator", "reason", "is_read"),
    [
        ("xl/strings.xml", "<sst", "cells", "1 cells are not read: the file lacks the texts", ["5"]),
        ("xl/styles.xml", "", "formats", "dates are numbers of days", ["shared | 5"]),
        (
            "xl/worksheets/sheet1.xml",
            None,
            "sheet Data, further rows",
            "after the first 1 are not read",
            ["shared | 5"],
        ),
        ("xl/comments1.xml", "<a><b></a>", "sheet Data, drawings", "not all of them are read", ["shared | 5"]),
    ],
)
def test_damaged_member_of_a_workbook_costs_itself(
    items_of: ItemsOf, member: str, xml: str | None, locator: str, reason: str, is_read: list[str]
) -> None:
    book = workbook(
        row('<c t="s"><v>0</v></c>', number(5)),
        texts="<si><t>shared</t></si>",
        related=(("comments", "../comments1.xml"),),
        members={"xl/comments1.xml": "<comments/>"},
    )
    if xml is None:
        with zipfile.ZipFile(io.BytesIO(book)) as package:
            xml = package.read(member).decode().replace("</sheetData>", "<row><c></row></sheetData>")
    book = repacked(book, {member: xml.encode()})
    assert reason in (items_of.losses(book)[locator] or "")
    assert items_of.texts(book)["sheet Data"].strip(" |").split("\n") == is_read


def test_picture_in_a_cell_is_a_loss(items_of: ItemsOf) -> None:
    book = workbook(
        row('<c t="e" vm="1"><v>#VALUE!</v></c>'),
        book_related=((f"{MICROSOFT}/2022/10/relationships/richValueRel", "richData/rel.xml"),),
        members={
            "xl/richData/rel.xml": "<richValueRels/>",
            "xl/richData/_rels/rel.xml.rels": relations(("image", "../media/a.png")),
            "xl/media/a.png": picture("Kern AG"),
        },
    )
    losses = items_of.losses(book)
    assert "1 cells show a picture" in (losses["cells"] or "")
    assert losses["picture a.png"] == "a picture: what it shows is not read"


def test_sheet_that_declares_entities_is_refused(items_of: ItemsOf) -> None:
    xml = f'<!DOCTYPE w [<!ENTITY a "b">]><worksheet {NAMES}><sheetData>{row(text("&a;"))}</sheetData></worksheet>'
    with pytest.raises(ConversionError, match="declares entities"):
        items_of(workbook("", members={"xl/worksheets/sheet1.xml": xml}))


def test_chart_and_hidden_sheets_have_their_names(items_of: ItemsOf) -> None:
    out = io.BytesIO()
    with xlsxwriter.Workbook(out, {"in_memory": True}) as book:
        book.add_worksheet("Prices").write(0, 0, 12.5)
        chart = book.add_chart({"type": "column"})
        chart.add_series({"values": "=Prices!$A$1:$A$1", "name": "Sales"})
        book.add_chartsheet("Trend").set_chart(chart)
        hidden = book.add_worksheet("Notes")
        hidden.hide()
        hidden.write_comment(0, 0, "secret", {"author": "Ann Lee"})
    texts = items_of.texts(out.getvalue())
    assert texts["sheet Prices"] == "12.5"
    assert "Sales" in texts["sheet Trend, chart"]
    assert texts["sheet Notes (hidden), comments"] == "A1, Ann Lee: secret"
