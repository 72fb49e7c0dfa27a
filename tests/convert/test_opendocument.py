"""What ODT, ODS and ODP files say by format, values, formulas, comments and forms, in the text that is read."""

from base64 import b64encode
from pathlib import Path
from typing import Any

import pytest

from memagent_batch.data.ingest.readers.converter import Attachment, Part
from memagent_batch.data.ingest.readers.opendocument import OpenDocumentConverter
from tests.convert import files, office

TRACKED = "tracked changes are read as if all were accepted"
STYLES = "".join(
    f'<style:style style:name="{name}" style:family="{family}"><style:text-properties {properties}/></style:style>'
    for name, family, properties in (
        ("up", "text", 'style:text-position="super 58%"'),
        ("high", "text", 'style:text-position="33% 58%"'),
        ("down", "text", 'style:text-position="sub 58%"'),
        ("old", "text", 'style:text-line-through-style="solid"'),
        ("old", "paragraph", 'style:text-line-through-style="solid" style:text-line-through-type="single"'),
        ("new", "text", 'style:text-line-through-style="none"'),
        ("old", "table-cell", 'style:text-line-through-style="solid"'),
        ("boxes", "text", 'style:font-name="Ticks"'),
        ("greek", "text", "fo:font-family=\"'Symbol'\""),
    )
)
STYLES += '<style:style style:name="older" style:family="text" style:parent-style-name="old"/>'
FACES = (
    '<office:font-face-decls><style:font-face style:name="Ticks" svg:font-family="Wingdings"/></office:font-face-decls>'
)


def span(text: str, style: str) -> str:
    return f'<text:span text:style-name="{style}">{text}</text:span>'


def converted(tmp_path: Path, data: bytes) -> list[Part]:
    file = tmp_path / "file"
    file.write_bytes(data)
    items: list[Part | Attachment] = list(OpenDocumentConverter().convert(file))
    return [part for part in items if isinstance(part, Part) and not part.is_account]


def text_document(body: str, **more: Any) -> bytes:
    package = office.opendocument(f"<office:text>{body}</office:text>", styles=STYLES, **more)
    return with_faces(package)


def with_faces(package: bytes) -> bytes:
    content = files.member(package, "content.xml").replace(
        b"<office:automatic-styles>", f"{FACES}<office:automatic-styles>".encode()
    )
    return files.repacked(package, {"content.xml": content})


def sheet(*rows: str, columns: str = "") -> bytes:
    body = "".join(f"<table:table-row>{row}</table:table-row>" for row in rows)
    table = f'<table:table table:name="S">{columns}{body}</table:table>'
    return office.opendocument(f"<office:spreadsheet>{table}</office:spreadsheet>", styles=STYLES)


def value(kind: str, **settings: str) -> str:
    values = " ".join(f'office:{name.replace("_", "-")}="{text}"' for name, text in settings.items())
    return f'<table:table-cell office:value-type="{kind}" {values}/>'


def note(label: str, text: str) -> str:
    return (
        f"<text:note><text:note-citation>{label}</text:note-citation>"
        f"<text:note-body><text:p>{text}</text:p></text:note-body></text:note>"
    )


def drop_down(chosen: str) -> str:
    entries = "".join(f'<field:param field:name="Dropdown_ListEntry" field:value="{each}"/>' for each in ("a", "b"))
    chosen = f'<field:param field:name="Dropdown_Selected" field:value="{chosen}"/>'
    return (
        f'<field:fieldmark field:type="vnd.oasis.opendocument.field.FORMDROPDOWN">{entries}{chosen}</field:fieldmark>'
    )


TICKED = '<field:param field:name="Checkbox_Checked" field:value="true"/>'
FRACTION = "<math:mfrac><math:mn>1</math:mn><math:mn>12</math:mn></math:mfrac>"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (f"EUR 100{span('1', 'up')} a share", "EUR 100^1 a share"),
        (f"10{span('6', 'high')} CO{span('2', 'down')}", "10^6 CO_2"),
        (f"the {span('two ', 'old')}{span('weeks', 'older')} days", "the [struck out: two weeks] days"),
        (f"{span('&#xF0FE; &#xA8;', 'boxes')} paid", "☑ ☐ paid"),
        (f"{span('&#xA3;', 'greek')} 500 &#xE123;", "≤ 500 \ufffd"),
        (f"Capped.{note('1', 'Except fraud.')} Due.", "Capped.[^1] Due.\n\n[^1] Except fraud."),
        (
            "a&#xAD;b<text:ruby><text:ruby-base>X</text:ruby-base><text:ruby-text>y</text:ruby-text></text:ruby>",
            "abX(y)",
        ),
        ("<text:placeholder text:placeholder-type='text'>&lt;Name&gt;</text:placeholder>", "[not filled in]"),
        (f"2<math:math>{FRACTION}</math:math> %", "2 1/12 %"),
        ('<loext:content-control loext:checkbox="true" loext:checked="true">☒</loext:content-control> yes', "☑ yes"),
        ('<loext:content-control loext:showing-place-holder="true">Choose</loext:content-control>', "[not filled in]"),
        (f'<field:fieldmark field:type="x.FORMCHECKBOX">{TICKED}</field:fieldmark> yes', "☑ yes"),
        (drop_down("1"), "b"),
        (
            "5 %<office:annotation><dc:creator>Ann</dc:creator><dc:date>2027-01-02T00:00:00</dc:date>"
            "<text:p>Too high.</text:p></office:annotation>",
            "5 % [comment by Ann, 2027-01-02: Too high.]",
        ),
        (
            "Fee <office:annotation office:name='1'><dc:creator>Ann</dc:creator><text:p>No.</text:p>"
            "</office:annotation>5 %<office:annotation-end office:name='1'/> due",
            "Fee 5 % [comment by Ann: No.]  due",
        ),
        ("a<text:script>alert(5)</text:script> b", "a b"),
        ('<draw:frame><draw:image xlink:href=""/><svg:title>Logo</svg:title></draw:frame>', "[Logo]"),
    ],
)
def test_odt_text_says_what_its_format_shows(tmp_path: Path, content: str, text: str) -> None:
    (part,) = converted(tmp_path, text_document(f"<text:p>{content}</text:p>"))
    assert part.text.strip() == text


def test_odt_struck_paragraph_is_marked_but_for_spans_that_are_not(tmp_path: Path) -> None:
    body = f'<text:p text:style-name="old">5 %, {span("but 7 %", "new")}</text:p>'
    (part,) = converted(tmp_path, text_document(body))
    assert part.text == "[struck out: 5 %,] but 7 %"


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ("<text:changed-region><text:deletion><text:p>900</text:p></text:deletion></text:changed-region>", TRACKED),
        ("", None),
    ],
)
def test_odt_says_that_changes_are_tracked(tmp_path: Path, changes: str, reason: str | None) -> None:
    body = f"<text:tracked-changes>{changes}</text:tracked-changes><text:p>The cap is <text:change/>gone.</text:p>"
    (part,) = converted(tmp_path, text_document(body))
    assert (part.text, part.reason) == ("The cap is gone.", reason)


@pytest.mark.parametrize(
    ("cells", "line"),
    [
        (value("float", value="48200") + value("date", date_value="2027-03-03"), "48200 | 2027-03-03"),
        (value("percentage", value="0.125") + value("currency", value="5", currency="EUR"), "12.5 % | 5 EUR"),
        (value("boolean", boolean_value="true") + value("string", string_value="paid"), "true | paid"),
        (
            '<table:table-cell office:value="100"><office:annotation><dc:creator>Ann</dc:creator><text:p>or 250'
            "</text:p></office:annotation><text:p>100</text:p></table:table-cell>"
            + value("string", string_value="EUR"),
            "100 [comment by Ann: or 250] | EUR",
        ),
        (
            '<table:table-cell table:number-columns-spanned="2"><text:p>Fee</text:p></table:table-cell>'
            "<table:covered-table-cell/><table:table-cell><text:p>2027</text:p></table:table-cell>",
            "Fee |  | 2027",
        ),
        ('<table:table-cell table:style-name="old"><text:p>5</text:p></table:table-cell>', "[struck out: 5]"),
        (value("float", value="5").replace("/>", ' table:style-name="old"/>'), "[struck out: 5]"),
    ],
)
def test_ods_cells_have_their_values_comments_and_columns(tmp_path: Path, cells: str, line: str) -> None:
    (part,) = converted(tmp_path, sheet(cells))
    assert part.text == f"S\n\n{line}"


def test_ods_column_that_is_struck_out_is_marked(tmp_path: Path) -> None:
    columns = '<table:table-column table:number-columns-repeated="2"/>'
    columns += '<table:table-column table:default-cell-style-name="old"/>'
    (part,) = converted(tmp_path, sheet("".join(value("float", value=each) for each in "123"), columns=columns))
    assert part.text == "S\n\n1 | 2 | [struck out: 3]"


def test_ods_values_before_a_tracked_change_are_left_out(tmp_path: Path) -> None:
    old = "<table:tracked-changes><table:cell-content-change><table:previous><table:change-track-table-cell>"
    old += "<text:p>900</text:p></table:change-track-table-cell></table:previous></table:cell-content-change>"
    table = f'<table:table table:name="S"><table:table-row>{value("float", value="5")}</table:table-row></table:table>'
    body = f"<office:spreadsheet>{old}</table:tracked-changes>{table}</office:spreadsheet>"
    (part,) = converted(tmp_path, office.opendocument(body))
    assert (part.text, part.reason) == ("S\n\n5", TRACKED)


OBJECT = '<draw:frame><draw:object xlink:href="./Object 1"/></draw:frame>'
DOCTYPE = '<!DOCTYPE math:math PUBLIC "-//OpenOffice.org//DTD Modified W3C MathML 1.01//EN" "math.dtd">'
ENTITIES = '<!DOCTYPE math [<!ENTITY x SYSTEM "file:///etc/passwd">]>'


@pytest.mark.parametrize("doctype", ["", DOCTYPE])
def test_odt_formula_is_read_in_its_place(tmp_path: Path, doctype: str) -> None:
    formula = f"{doctype}<math:math {office.OPEN_NAMESPACES}>{FRACTION}</math:math>".encode()
    body = f"<text:p>The rate is {OBJECT} a year.</text:p>"
    (part,) = converted(tmp_path, text_document(body, members={"Object 1/content.xml": formula}))
    assert part.text == "The rate is 1/12 a year."


def test_odt_object_that_cannot_be_read_costs_itself(tmp_path: Path) -> None:
    formula = f"{ENTITIES}<math:math {office.OPEN_NAMESPACES}>&x;</math:math>".encode()
    body = f"<text:p>See {OBJECT}</text:p>"
    text, loss = converted(tmp_path, text_document(body, members={"Object 1/content.xml": formula}))
    assert (text.text, loss.locator, loss.status) == ("See ", "object Object 1", "failed")
    assert "declares entities" in (loss.reason or "")


FIELDS = (
    '<form:checkbox form:id="c" form:label="I consent" form:current-state="checked"/>'
    '<form:radio form:id="r" form:label="Monthly" form:selected="false"/>'
    '<form:text form:id="t" form:current-value="Zed Orrin"/>'
    '<form:listbox form:id="l"><form:option form:label="May"/><form:option form:label="June" form:selected="true"/>'
    '</form:listbox><form:textarea form:id="a" form:name="Fee" form:current-value="500"/>'
    '<form:hidden form:id="h" form:value="x"/>'
)


def test_odt_form_fields_are_read_where_they_are_shown(tmp_path: Path) -> None:
    places = " ".join(f'<draw:control draw:control="{name}"/>' for name in "crtl")
    body = f"<office:forms><form:form>{FIELDS}</form:form></office:forms><text:p>Form: {places}</text:p>"
    text, others = converted(tmp_path, text_document(body))
    assert text.text == "Form: ☑ I consent ☐ Monthly Zed Orrin June"
    assert (others.locator, others.text) == ("form fields", "Fee: 500")


def test_odt_tooltips_and_descriptions_are_read_once(tmp_path: Path) -> None:
    field = '<form:checkbox form:id="c" form:label="Paid" form:title="Tick if paid"/>'
    body = (
        f"<office:forms><form:form>{field}</form:form></office:forms><text:p>See <text:a office:title='Annex 3'>here"
        "</text:a>, <text:a office:title='the deed'>the deed</text:a> <draw:control draw:control='c'/></text:p>"
        "<draw:a xlink:title='Plan of the flat'><draw:frame><svg:desc>a plan</svg:desc></draw:frame></draw:a>"
        "<table:table><table:title>Fees</table:title><table:desc>Net of VAT</table:desc></table:table>"
    )
    (text,) = [part for part in converted(tmp_path, text_document(body)) if part.text]
    lines = ["See here [Annex 3], the deed \N{BALLOT BOX} Paid [Tick if paid]", "[a plan]", "[Plan of the flat]"]
    assert text.text.split("\n\n") == [*lines, "[Fees]", "[Net of VAT]"]


def test_ods_rules_for_input_are_read(tmp_path: Path) -> None:
    def rule(cell: str, condition: str, kind: str, *, is_shown: str) -> str:
        message = f"<table:{kind}-message table:title='Rate' table:display='{is_shown}'><text:p>Net.</text:p>"
        return (
            f"<table:content-validation table:base-cell-address='{cell}' table:condition='of:{condition}'>{message}"
            f"</table:{kind}-message></table:content-validation>"
        )

    rules = [
        rule("S.A1", "cell-content-is-in-list(&quot;gross&quot;;&quot;net&quot;)", "help", is_shown="true"),
        rule("S.B1", "cell-content-is-whole-number() and cell-content()&gt;9", "error", is_shown="true"),
        rule("S.C1", "cell-content-is-between(1,5)", "error", is_shown="false"),
    ]
    body = f"<table:content-validations>{''.join(rules)}</table:content-validations><table:table table:name='S'/>"
    data = office.opendocument(f"<office:spreadsheet>{body}</office:spreadsheet>")
    (text,) = [part.text for part in converted(tmp_path, data) if part.locator == "rules for input"]
    assert text.split("\n") == [
        "S.A1, one of: gross, net",
        "S.A1: Rate: Net.",
        "S.B1, only: whole-number and value>9",
        "S.B1, if something else is written: Rate: Net.",
        "S.C1, only: between(1,5)",
    ]


SHEET = (
    f"<office:document-content {office.OPEN_NAMESPACES}><office:body><office:spreadsheet><office:forms><form:checkbox "
    "form:label='Paid'/></office:forms><table:content-validations><table:content-validation "
    "table:base-cell-address='S.A1' table:condition='of:cell-content()&gt;9'><table:help-message table:display='true'>"
    "<text:p>The fee.</text:p></table:help-message><table:error-message><text:p>Too low.</text:p></table:error-message>"
    "</table:content-validation></table:content-validations><table:table table:name='S'/></office:spreadsheet>"
    "</office:body></office:document-content>"
).encode()


def test_fields_and_rules_for_input_of_a_sheet_inside_a_text_are_read(tmp_path: Path) -> None:
    package = office.opendocument("<office:text/>", members={"Object 1/content.xml": SHEET})
    (part,) = [part for part in converted(tmp_path, package) if part.text]
    lines = ["S", "\N{BALLOT BOX} Paid", "S.A1, only: value>9\nS.A1: The fee."]
    assert (part.locator, part.text) == ("object Object 1", "\n\n".join(lines))


def test_odp_media_and_pictures_of_objects_are_named(tmp_path: Path) -> None:
    shown = '<draw:plugin xlink:href="Media/call.mp3"/><draw:plugin xlink:href="https://example.org/film"/>'
    shown += '<draw:image xlink:href="../scan.png"/>'
    body = f'<office:presentation><draw:page draw:name="one"><draw:frame>{shown}</draw:frame></draw:page>'
    members = {"Media/call.mp3": b"sound", "Object 1/Pictures/a.png": bytes(900)}
    parts = converted(tmp_path, office.opendocument(f"{body}</office:presentation>", members=members))
    assert [(part.locator, part.status) for part in parts] == [
        ("section 1: one", "ok"),
        ("media https://example.org/film", "skipped"),
        ("picture ../scan.png", "skipped"),
        ("media Media/call.mp3", "skipped"),
        ("picture Object 1/Pictures/a.png", "needs_ocr"),
    ]


def test_odt_table_inside_a_section_begins_no_part_and_a_table_in_a_cell_keeps_its_cells_apart(tmp_path: Path) -> None:
    inner = "<table:table><table:table-row>{0}{0}</table:table-row></table:table>"
    cell = "<table:table-cell><text:p>{}</text:p></table:table-cell>"
    row = f"{cell.format('a')}<table:table-cell>{inner.format(cell.format('b'))}</table:table-cell>{cell.format('c')}"
    table = f'<table:table table:name="T"><table:table-row>{row}</table:table-row></table:table>'
    (part,) = converted(tmp_path, text_document(f"<text:section>{table}</text:section>"))
    assert (part.locator, part.text) == ("text", "T\n\na | b ¦ b | c")


def test_odt_picture_in_letters_is_a_picture(tmp_path: Path) -> None:
    letters = b64encode(bytes(900)).decode()
    body = f"<text:p>See<draw:image><office:binary-data>{letters}</office:binary-data></draw:image></text:p>"
    text, picture = converted(tmp_path, text_document(body))
    assert (text.text, picture.status, len(picture.picture)) == ("See", "needs_ocr", 900)


def test_formula_that_is_a_document_is_read(tmp_path: Path) -> None:
    formula = f"<math:math {office.OPEN_NAMESPACES}>{FRACTION}</math:math>".encode()
    package = files.repacked(office.opendocument(""), {"content.xml": formula})
    (part,) = converted(tmp_path, package)
    assert part.text == "1/12"


def level(number: int, form: str, more: str = "") -> str:
    return f'<text:list-level-style-number text:level="{number}" style:num-format="{form}" {more}/>'


def items(*contents: str, more: str = "") -> str:
    return f"<text:list {more}>{''.join(f'<text:list-item>{each}</text:list-item>' for each in contents)}</text:list>"


def test_odt_lists_and_headings_have_the_numbers_that_are_shown(tmp_path: Path) -> None:
    levels = level(1, "1", 'style:num-suffix="."') + level(2, "1", 'text:display-levels="2"')
    levels += level(3, "a", 'style:num-prefix="(" style:num-suffix=")"')
    styles = f'<text:list-style style:name="L">{levels}</text:list-style>'
    outline = level(1, "I").replace("list-level-style-number", "outline-level-style")
    styles += f"<text:outline-style>{outline}</text:outline-style>"
    inner = items("<text:p>b</text:p>", f"<text:p>c</text:p>{items('<text:p>d</text:p>')}")
    body = "<text:h>Terms</text:h>" + items(
        f"<text:p>a</text:p><text:p>more</text:p>{inner}", more='xml:id="x" text:style-name="L"'
    )
    body += items(items("<text:p>e</text:p>"), more='text:continue-list="x" text:style-name="L"')
    body += items("<text:p>f</text:p>", more='text:continue-numbering="true" text:style-name="L"')
    body += items("<text:p>g</text:p>", more='text:style-name="L"')
    (part,) = converted(tmp_path, office.opendocument(f"<office:text>{body}</office:text>", styles=styles))
    shown = ["I Terms", "1. a", "more", "1.1 b", "1.2 c", "(a) d", "1.3 e", "2. f", "1. g"]
    assert part.text.split("\n\n") == shown
