"""What DOCX and PPTX files say by format, fields, notes and controls, in the text that is read."""

import io
import zipfile
from pathlib import Path

import pytest

from memagent_batch.data.ingest.readers.converter import Attachment, Part
from memagent_batch.data.ingest.readers.docx import DocxConverter
from memagent_batch.data.ingest.readers.slides import SlidesConverter
from tests.convert import files, office

ACTIVE_X = "http://schemas.microsoft.com/office/2006/activeX"


def run(text: str, form: str = "") -> str:
    return f"<w:r><w:rPr>{form}</w:rPr><w:t xml:space='preserve'>{text}</w:t></w:r>"


def paragraph(*runs: str) -> str:
    return f"<w:p>{''.join(runs)}</w:p>"


def table(*rows: str) -> str:
    return f"<w:tbl>{''.join(f'<w:tr>{row}</w:tr>' for row in rows)}</w:tbl>"


def cell(text: str, form: str = "") -> str:
    return f"<w:tc><w:tcPr>{form}</w:tcPr>{paragraph(run(text))}</w:tc>"


def equation(inner: str) -> str:
    return f"<m:oMath>{inner}</m:oMath>"


def argument(name: str, text: str) -> str:
    return f"<m:{name}><m:r><m:t>{text}</m:t></m:r></m:{name}>"


def font(name: str) -> str:
    return f'<w:rFonts w:ascii="{name}" w:hAnsi="{name}"/>'


def field(code: str, result: str | None = None) -> str:
    border = '<w:r><w:fldChar w:fldCharType="{}"/></w:r>'
    shown = "" if result is None else border.format("separate") + result
    return border.format("begin") + f"<w:r><w:instrText>{code}</w:instrText></w:r>{shown}" + border.format("end")


def control(properties: str, content: str) -> str:
    return f"<w:sdt><w:sdtPr>{properties}</w:sdtPr><w:sdtContent>{content}</w:sdtContent></w:sdt>"


def parts_of(tmp_path: Path, data: bytes, converter: DocxConverter | SlidesConverter | None = None) -> list[Part]:
    file = tmp_path / "file"
    file.write_bytes(data)
    items: list[Part | Attachment] = list((converter or DocxConverter()).convert(file))
    return [part for part in items if isinstance(part, Part) and not part.is_account]


RAISED, LOWERED, STRUCK = '<w:vertAlign w:val="superscript"/>', '<w:vertAlign w:val="subscript"/>', "<w:strike/>"
HALF = f"<m:f>{argument('num', '1')}{argument('den', '2')}</m:f>"
TICKED = '<w14:checkbox><w14:checked w14:val="1"/></w14:checkbox>'
PROMPT = '<w:rStyle w:val="PlaceholderText"/>'
LOW = '<w:position w:val="-8"/>'
INITIAL = f'<w:p><w:pPr><w:framePr w:dropCap="drop"/></w:pPr>{run("R", LOW)}</w:p>'
RUBY = f"<w:ruby><w:rt>{run('kan')}</w:rt><w:rubyBase>{run('X')}</w:rubyBase></w:ruby>"


@pytest.mark.parametrize(
    ("body", "text"),
    [
        (paragraph(run("EUR 100"), run("1", RAISED), run(" a share")), "EUR 100^1 a share"),
        (paragraph(run("10"), run("6", '<w:position w:val="8"/>'), run(" CO"), run("2", LOWERED)), "10^6 CO_2"),
        (paragraph(run("the 30"), run("th", RAISED), run(" of June")), "the 30th of June"),
        (
            paragraph(run("In "), run("two ", STRUCK), run("weeks", "<w:dstrike/>"), run(".")),
            "In [struck out: two weeks].",
        ),
        (paragraph(run("on"), run(" off", '<w:strike w:val="0"/>')), "on off"),
        (paragraph(run("Interest: 2"), equation(HALF), run("% a month")), "Interest: 2 1/2% a month"),
        (paragraph(equation(f"<m:sSup>{argument('e', '10')}{argument('sup', '6')}</m:sSup>"), run("5")), "10^6 5"),
        (paragraph(equation(f"<m:rad>{argument('deg', '3')}{argument('e', 'a+1')}</m:rad>")), "√[3](a+1)"),
        (INITIAL + paragraph(run("ent is due.")), "Rent is due."),
        (paragraph(run("Ltd"), "<w:r><w:ptab/></w:r>", run("12 May")), "Ltd\t12 May"),
        (
            paragraph(run("þ", font("Wingdings")), run(" yes "), run("\uf0a8", font("Wingdings")), run(" no")),
            "☑ yes ☐ no",
        ),
        (paragraph(run("£", font("Symbol")), run(" 500 days, "), run("D", font("Symbol"))), "≤ 500 days, Δ"),
        (paragraph(run("\uf0b7 a"), run(" \ue777")), "• a \ufffd"),
        (paragraph("<w:r><w:t>Vertrags</w:t><w:softHyphen/><w:t>part\u00adner</w:t></w:r>"), "Vertragspartner"),
        (paragraph(f"<w:r>{RUBY}</w:r>"), "X(kan)"),
        (
            table(cell("Fee", '<w:gridSpan w:val="2"/>') + cell("2027"), cell("a") + cell("b") + cell("300")),
            "Fee |  | 2027\na | b | 300",
        ),
        (
            table(
                cell("Q1", '<w:vMerge w:val="restart"/>') + cell("5"),
                cell("", "<w:vMerge/>") + cell("6"),
                '<w:trPr><w:gridBefore w:val="1"/></w:trPr>' + cell("11"),
            ),
            "Q1 | 5\n | 6\n | 11",
        ),
        (
            table(cell("a") + f"<w:tc>{table(cell('b') + cell('c'), cell('d'))}<w:p/></w:tc>" + cell("e")),
            "a | b ¦ c; d | e",
        ),
        (table(cell("a"), "<w:trPr><w:del/></w:trPr>" + cell("gone")), "a"),
        (paragraph(control(TICKED, run("\u2612", font("MS Gothic"))), run(" Agreed")), "☑ Agreed"),
        (paragraph(control(TICKED.replace('"1"', '"0"'), run("\u2612")), run(" Agreed")), "☐ Agreed"),
        (control("<w:showingPlcHdr/>", paragraph(run("Click or tap here to enter text.", PROMPT))), "[not filled in]"),
        (paragraph(control("<w:showingPlcHdr/>", run("Zed Orrin"))), "[placeholder: Zed Orrin]"),
        (paragraph(control("<w:dropDownList/>", run("monthly"))), "monthly"),
        (paragraph(run("≥ is "), field('SYMBOL 179 \\f "Symbol"')), "≥ is ≥"),
        (paragraph(field("IF " + field("MERGEFIELD sex", run("f")) + ' = "f"', run("Ms")), run(" Orrin")), "Ms Orrin"),
    ],
)
def test_docx_text_says_what_its_format_shows(tmp_path: Path, body: str, text: str) -> None:
    (part,) = parts_of(tmp_path, office.docx(body))
    assert part.text == text


def test_docx_formats_come_from_styles_too(tmp_path: Path) -> None:
    styles = (
        f'<w:style w:type="character" w:styleId="Old"><w:rPr>{STRUCK}</w:rPr></w:style>'
        '<w:style w:type="character" w:styleId="Older"><w:basedOn w:val="Old"/></w:style>'
        f'<w:style w:type="paragraph" w:styleId="Boxes"><w:rPr>{font("Wingdings")}</w:rPr></w:style>'
    )
    body = paragraph(run("5 %", '<w:rStyle w:val="Older"/>'), run(" 7 %"))
    body += f'<w:p><w:pPr><w:pStyle w:val="Boxes"/></w:pPr>{run("þ")}{run(" paid", font("Arial"))}</w:p>'
    (part,) = parts_of(tmp_path, files.repacked(office.docx(body), {"word/styles.xml": _styles(styles)}))
    assert part.text == "[struck out: 5 %] 7 %\n\n☑ paid"


def _styles(styles: str) -> bytes:
    return f"<w:styles {office.NAMESPACES}>{styles}</w:styles>".encode()


@pytest.mark.parametrize("code", ["LISTNUM LegalDefault \\l 3", "AUTONUMLGL", "EQ \\f(1,12)", "REF clause_7"])
def test_docx_fields_without_a_result_are_losses(tmp_path: Path, code: str) -> None:
    text, loss = parts_of(tmp_path, office.docx(paragraph(field(code), run(" Term"))))
    name = code.split()[0]
    assert (text.text, loss.locator, loss.status) == (" Term", "fields", "skipped")
    assert f"{name} (1)" in (loss.reason or "")


def test_docx_fields_that_show_nothing_or_have_a_result_are_no_losses(tmp_path: Path) -> None:
    codes = field('XE "Term"') + field("REF a", run("7.2")) + field("EQ \\f(1,2)", run("1/2")) + field("PAGE")
    (part,) = parts_of(tmp_path, office.docx(paragraph(codes)))
    assert part.text == "7.21/2"


def note(kind: str, number: int, text: str) -> str:
    return f'<w:{kind} w:id="{number}">{paragraph(f"<w:r><w:{kind}Ref/></w:r>", run(text))}</w:{kind}>'


def mark(kind: str, number: int, more: str = "", text: str = "") -> str:
    return f'<w:r><w:{kind}Reference w:id="{number}" {more}/>{text}</w:r>'


def test_docx_notes_have_marks_in_the_text_and_follow_their_paragraph(tmp_path: Path) -> None:
    custom = mark("footnote", 7, 'w:customMarkFollows="1"', "<w:t>*</w:t>")
    body = paragraph(run("Capped."), mark("footnote", 5), run(" Due."), mark("endnote", 1))
    body += paragraph(run("Other."), mark("footnote", 3), custom)
    separator = '<w:footnote w:type="separator" w:id="-1"><w:p/></w:footnote>'
    footnotes = separator + note("footnote", 3, " Except fraud.") + note("footnote", 5, "Except gross negligence.")
    footnotes += note("footnote", 7, "Or not.") + note("footnote", 9, "Nowhere.")
    parts = parts_of(tmp_path, office.docx(body, footnotes=footnotes, endnotes=note("endnote", 1, "In May.")))
    first, *others = ["Capped.[^1] Due.[^i]", "[^1] Except gross negligence.", "[^i] In May.", "Other.[^2][^*]"]
    others += ["[^2] Except fraud.", "[^*] Or not."]
    texts = [(part.locator, part.text.split("\n\n")) for part in parts]
    assert texts == [("text", [first, *others]), ("footnotes", ["Nowhere."])]


TRACKED = "tracked changes are read as if all were accepted"
CHANGED = f"<w:p><w:del><w:r><w:delText>5</w:delText></w:r></w:del><w:ins>{run('9')}</w:ins></w:p>"


@pytest.mark.parametrize("kind", ["header", "comments", "footnotes"])
def test_docx_says_that_changes_are_tracked_beside_the_body(tmp_path: Path, kind: str) -> None:
    content = {"header": CHANGED, "comments": f"<w:comment>{CHANGED}</w:comment>"}
    content["footnotes"] = f'<w:footnote w:id="1">{CHANGED}</w:footnote>'
    parts = parts_of(tmp_path, office.docx(paragraph(run("a"), mark("footnote", 1)), **{kind: content[kind]}))
    assert [part.reason for part in parts if "9" in part.text] == [TRACKED]
    assert not [part for part in parts if "5" in part.text]


def test_docx_says_that_hidden_text_is_read(tmp_path: Path) -> None:
    hidden = "<w:r><w:rPr><w:vanish/></w:rPr><w:t> and EUR 66,000</w:t></w:r>"
    shown = '<w:r><w:rPr><w:vanish w:val="0"/></w:rPr><w:t> only</w:t></w:r>'
    for inner, note in ((hidden, "format hidden"), (shown, "")):
        (part,) = parts_of(tmp_path, files.with_body(f"<w:p>{run('EUR 5,000')}{inner}</w:p>"))
        assert (note in part.reason) if part.reason else not note


def test_docx_comments_name_their_authors_and_what_they_are_about(tmp_path: Path) -> None:
    body = paragraph(run("See "), '<w:commentRangeStart w:id="0"/>', run("Clause 7"), '<w:commentRangeEnd w:id="0"/>')
    comments = f'<w:comment w:id="0" w:author="Ann Counsel" w:date="2027-01-02T00:00:00Z">{paragraph(run("No."))}'
    comments += f'</w:comment><w:comment w:id="1">{paragraph(run("Yes."))}</w:comment>'
    _, part = parts_of(tmp_path, office.docx(body, comments=comments))
    assert part.text == '[comment by Ann Counsel, 2027-01-02 on "Clause 7"] No.\n\n[comment] Yes.'


def test_docx_numbers_paragraphs_of_headers_and_shows_bullets_that_are_boxes(tmp_path: Path) -> None:
    level = '<w:lvl w:ilvl="0"><w:start w:val="1"/><w:numFmt w:val="{}"/><w:lvlText w:val="{}"/>{}</w:lvl>'
    lists = "".join(
        f'<w:abstractNum w:abstractNumId="{number}">{level.format(*each)}</w:abstractNum>'
        for number, each in enumerate(
            [("decimal", "%1.", ""), ("bullet", "\uf0fe", f"<w:rPr>{font('Wingdings')}</w:rPr>")]
        )
    )
    lists += "".join(f'<w:num w:numId="{each + 1}"><w:abstractNumId w:val="{each}"/></w:num>' for each in (0, 1))
    item = '<w:p><w:pPr><w:numPr><w:ilvl w:val="0"/><w:numId w:val="{}"/></w:numPr></w:pPr>' + run("Consent") + "</w:p>"
    document = office.docx(item.format(1) + item.format(2), header=item.format(1))
    numbering = f"<w:numbering {office.NAMESPACES}>{lists}</w:numbering>".encode()
    texts = [part.text for part in parts_of(tmp_path, files.repacked(document, {"word/numbering.xml": numbering}))]
    assert texts == ["1. Consent\n\n☑ Consent", "1. Consent"]


PICTURE = f'Type="{office.RELATIONS}/image"'
BLIP = '<a:blip r:{}="rId70"/>'


@pytest.mark.parametrize(
    ("shown", "relation", "is_named"),
    [
        (BLIP.format("link"), f'{PICTURE} Target="https://example.org/scan.png" TargetMode="External"', True),
        (BLIP.format("embed"), f'{PICTURE} Target="NULL"', True),
        ("", f'{PICTURE} Target="NULL"', False),
        ('<a:blip r:embed="rId1" r:link="rId70"/>', f'{PICTURE} Target="file:///a.png" TargetMode="External"', False),
    ],
)
def test_pictures_that_are_not_in_the_file_are_losses_where_they_are_shown(
    tmp_path: Path, shown: str, relation: str, *, is_named: bool
) -> None:
    document = office.docx(paragraph(run("The rent is 1,250."), f"<w:r>{shown}</w:r>"))
    relation = f'Id="rId70" {relation}'
    text, *losses = parts_of(tmp_path, office.with_relation(document, "word/document.xml", relation))
    assert text.text == "The rent is 1,250."
    assert [(loss.status, "linked picture" in (loss.reason or "")) for loss in losses] == [("skipped", True)] * is_named


def setting(name: str, value: str) -> str:
    return f'<ax:ocxPr ax:name="{name}" ax:value="{value}"/>'


@pytest.mark.parametrize(
    ("identifier", "settings", "status", "text"),
    [
        ("8BD21D40", setting("Value", "1") + setting("Caption", "I consent"), "ok", "☑ I consent"),
        ("8BD21D50", setting("Value", "0") + setting("Caption", "Monthly"), "ok", "☐ Monthly"),
        ("8BD21D10", setting("Value", "Zed Orrin"), "ok", "Zed Orrin"),
        ("8BD21D40", "", "failed", ""),
    ],
)
def test_controls_of_forms_are_read_or_named(
    tmp_path: Path, identifier: str, settings: str, status: str, text: str
) -> None:
    shown = '<w:r><w:object><w:control r:id="rId71" w:name="Box1"/></w:object></w:r>'
    xml = f'<ax:ocx xmlns:ax="{ACTIVE_X}" ax:classid="{{{identifier}-EC42-11CE-9E0D-00AA006002F3}}">{settings}</ax:ocx>'
    package = office.with_relation(
        office.docx(paragraph(run("Consent:"), shown)),
        "word/document.xml",
        f'Id="rId71" Type="{office.RELATIONS}/control" Target="activeX/activeX1.xml"',
        {"word/activeX/activeX1.xml": xml.encode()},
    )
    _, part = parts_of(tmp_path, package)
    assert (part.locator, part.status, part.text) == ("control Box1", status, text)
    assert ("a control of a form" in (part.reason or "")) == (status == "failed")


def test_docx_in_strict_open_xml_is_read(tmp_path: Path) -> None:
    document = office.docx(paragraph(run("EUR 100"), run("1", RAISED)))
    with zipfile.ZipFile(io.BytesIO(document)) as package:
        members = {name: package.read(name) for name in package.namelist()}
    transitional, strict = b"http://schemas.openxmlformats.org/", b"http://purl.oclc.org/ooxml/"
    for kind in (b"officeDocument", b"wordprocessingml", b"drawingml"):
        members = {
            name: data.replace(transitional + kind + b"/2006/", strict + kind + b"/") for name, data in members.items()
        }
    (part, *_) = parts_of(tmp_path, files.zipped(members))
    assert part.text == "EUR 100^1"


def shown_on_slide(properties: str, text: str, inner: str = "") -> str:
    return f"<a:r><a:rPr {properties}>{inner}</a:rPr><a:t>{text}</a:t></a:r>"


@pytest.mark.parametrize(
    ("content", "text"),
    [
        (shown_on_slide("", "EUR 100") + shown_on_slide('baseline="30000"', "1"), "EUR 100^1"),
        (shown_on_slide("", "CO") + shown_on_slide('baseline="-25000"', "2"), "CO_2"),
        (shown_on_slide('strike="sngStrike"', "5") + shown_on_slide('strike="noStrike"', " 7"), "[struck out: 5] 7"),
        (shown_on_slide("", "à", '<a:sym typeface="Wingdings"/>') + shown_on_slide("", " 5"), "→ 5"),
        (shown_on_slide("", "de 5 à 10", '<a:sym typeface="Wingdings"/>'), "de 5 à 10"),
        (shown_on_slide("", "£", '<a:latin typeface="Symbol"/>') + shown_on_slide("", " 5 %"), "≤ 5 %"),
        ('<a:pPr><a:buFont typeface="Wingdings"/><a:buChar char="þ"/></a:pPr>' + shown_on_slide("", "Paid"), "☑ Paid"),
        ('<a:pPr><a:buChar char="•"/></a:pPr>' + shown_on_slide("", "Paid"), "Paid"),
    ],
)
def test_slides_say_what_their_format_shows(tmp_path: Path, content: str, text: str) -> None:
    shape = f"<p:sp><p:txBody><a:p>{content}</a:p></p:txBody></p:sp>"
    (part,) = parts_of(tmp_path, office.pptx(shape), SlidesConverter())
    assert part.text == text


def test_cells_that_a_slide_merges_keep_their_columns(tmp_path: Path) -> None:
    text = "<a:txBody><a:p><a:r><a:t>{}</a:t></a:r></a:p></a:txBody>"
    first = f'<a:tc gridSpan="2">{text.format("Fee")}</a:tc><a:tc hMerge="1">{text.format("")}</a:tc>'
    rows = f"<a:tr>{first}<a:tc>{text.format('2027')}</a:tc></a:tr>"
    (part,) = parts_of(
        tmp_path, office.pptx(f"<p:graphicFrame><a:tbl>{rows}</a:tbl></p:graphicFrame>"), SlidesConverter()
    )
    assert part.text == "Fee |  | 2027"


def test_sound_and_film_of_a_slide_are_losses_once(tmp_path: Path) -> None:
    package = office.with_relation(
        office.pptx(office.shape("Call"), video=b"film"),
        "ppt/slides/slide1.xml",
        'Id="rId8" Type="http://schemas.microsoft.com/office/2007/relationships/media" Target="../video.bin"',
    )
    _, loss = parts_of(tmp_path, package, SlidesConverter())
    assert (loss.locator, loss.status) == ("slide 1, media video.bin", "skipped")


def test_comments_of_a_slide_name_their_authors(tmp_path: Path) -> None:
    comments = (
        f'<p:cmLst {office.P}><p:cm authorId="4" dt="2027-05-06T10:00:00"><p:text>Too high.</p:text></p:cm></p:cmLst>'
    )
    authors = f'<p:cmAuthorLst {office.P}><p:cmAuthor id="4" name="Zed Orrin"/></p:cmAuthorLst>'
    package = office.with_relation(
        office.pptx(office.shape("Fee"), comments=comments.encode()),
        "ppt/presentation.xml",
        f'Id="rId8" Type="{office.RELATIONS}/commentAuthors" Target="authors.xml"',
        {"ppt/authors.xml": authors.encode()},
    )
    _, part = parts_of(tmp_path, package, SlidesConverter())
    assert (part.locator, part.text) == ("slide 1, comments", "[comment by Zed Orrin, 2027-05-06] Too high.")


def test_slide_that_the_file_lacks_costs_no_other(tmp_path: Path) -> None:
    package = office.pptx(office.shape("one"), office.shape("two"))
    with zipfile.ZipFile(io.BytesIO(package)) as old:
        members = {name: old.read(name) for name in old.namelist() if name != "ppt/slides/slide1.xml"}
    parts = parts_of(tmp_path, files.zipped(members), SlidesConverter())
    assert [(part.locator, part.status, part.text) for part in parts] == [
        ("slide 1", "failed", ""),
        ("slide 2", "ok", "two"),
    ]


def test_drawn_paragraph_with_several_formats_is_one_line(tmp_path: Path) -> None:
    runs = shown_on_slide("", "EUR 1") + shown_on_slide('b="1"', ",000")
    smart_art = f"<d {office.NAMESPACES}><a:p>{runs}</a:p><a:p/></d>"
    _, part = parts_of(tmp_path, office.pptx(office.shape("a"), diagramData=smart_art.encode()), SlidesConverter())
    assert (part.locator, part.text) == ("slide 1, diagram", "EUR 1,000")


def test_part_whose_xml_is_damaged_costs_itself(tmp_path: Path) -> None:
    text, loss = parts_of(tmp_path, office.docx(paragraph(run("We pay.")), chart=b"<c><v>5</c>"))
    assert (text.text, loss.locator, loss.status) == ("We pay.", "chart", "failed")
    assert "damaged" in (loss.reason or "")


def test_tooltips_of_links_are_read_unless_the_link_says_them(tmp_path: Path) -> None:
    links = [
        f'<w:hyperlink w:anchor="a" w:tooltip="{tip}">{run("annex 3")}</w:hyperlink>' for tip in ("Fees", "annex 3")
    ]
    (word,) = parts_of(tmp_path, office.docx(paragraph(run("See "), *links)))
    assert word.text == "See annex 3 [Fees]annex 3"
    drawn = '<p:sp><p:nvSpPr><p:cNvPr descr="Map"><a:hlinkClick tooltip="To the plan"/></p:cNvPr></p:nvSpPr></p:sp>'
    linked = '<p:sp><p:txBody><a:p><a:r><a:rPr><a:hlinkClick tooltip="Fees"/></a:rPr><a:t>annex 3</a:t></a:r></a:p>'
    (slide,) = parts_of(tmp_path, office.pptx(f"{drawn}{linked}</p:txBody></p:sp>"), SlidesConverter())
    assert slide.text == "[Map To the plan]\n\nannex 3 [Fees]"


def test_slide_numbers_count_by_level_and_text_box_and_pass_over_empty_paragraphs(tmp_path: Path) -> None:
    def item(text: str, kind: str = "", level: int = 0, start: int = 1) -> str:
        rule = f'<a:buAutoNum type="{kind}" startAt="{start}"/>' if kind else "<a:buNone/>"
        return f'<a:p><a:pPr lvl="{level}">{rule}</a:pPr><a:r><a:t>{text}</a:t></a:r></a:p>'

    one, inner = "arabicPeriod", "alphaLcParenBoth"
    items = [item("Term", one), item("", one), item("first", inner, 1), item("second", inner, 1), item("Fees", one)]
    items += [item("new", inner, 1), item("Plain"), item("Again", one), item("Four", "romanUcPeriod", start=4)]
    styles = '<a:lstStyle><a:lvl1pPr><a:buAutoNum type="alphaUcPlain"/></a:lvl1pPr></a:lstStyle>'
    other = f"<p:sp><p:txBody>{styles}<a:p><a:r><a:t>By style</a:t></a:r></a:p></p:txBody></p:sp>"
    shapes = f"<p:sp><p:txBody>{''.join(items)}</p:txBody></p:sp>{other}"
    (part,) = parts_of(tmp_path, office.pptx(shapes), SlidesConverter())
    shown = ["1. Term", "(a) first", "(b) second", "2. Fees", "(a) new", "Plain", "1. Again", "IV. Four", "A By style"]
    assert [line for line in part.text.split("\n") if line] == shown
