"""Features of the files of Office and LibreOffice, and of RTF, that `combined.py` combines."""

import io
from datetime import date
from typing import Any

import xlsxwriter

from tests.convert import office, planted
from tests.convert.combined import BLOCK, INLINE, MORE_LETTERS, Draft, Kind

TRACKED = "tracked changes are read as if all were accepted"
WPS = 'xmlns:wps="http://schemas.microsoft.com/office/word/2010/wordprocessingShape"'
WP = 'xmlns:wp="http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing"'
V = 'xmlns:v="urn:schemas-microsoft-com:vml"'
MC = 'xmlns:mc="http://schemas.openxmlformats.org/markup-compatibility/2006"'


def _docx(draft: Draft, body: str) -> bytes:
    parts = {name: draft.joined(name) for name in ("comments", "footnotes", "endnotes", "header", "footer", "chart")}
    texts: dict[str, str | bytes] = {name: text for name, text in parts.items() if text}
    for name in ("package", "aFChunk", "image", "video"):
        if name in draft.beside:
            texts[name] = draft.beside[name][0]
    return office.docx(body, **texts)


DOCX = Kind("docx", _docx, MORE_LETTERS, wrap=lambda runs: f"<w:p>{runs}</w:p>")
RUN = "<w:r><w:t>WORD</w:t></w:r>"
PARAGRAPH = f"<w:p>{RUN}</w:p>INNER"
NOTE = f'<w:NAME w:id="NUMBER">{PARAGRAPH}</w:NAME>'
BOX = f"<w:txbxContent>{PARAGRAPH}</w:txbxContent>"
DOCX.add(
    INLINE,
    INLINE,
    run=f"{RUN}INNER",
    split="<w:r><w:t>HEAD</w:t></w:r><w:r><w:rPr><w:b/></w:rPr><w:t>TAIL</w:t></w:r>INNER",
    link=f'<w:hyperlink w:anchor="x" w:tooltip="WORD">{RUN}INNER</w:hyperlink>',
    simple_field=f'<w:fldSimple w:instr=" TITLE ">{RUN}INNER</w:fldSimple>',
    field='<w:r><w:fldChar w:fldCharType="begin"/></w:r><w:r><w:instrText> REF x </w:instrText></w:r><w:r>'
    f'<w:fldChar w:fldCharType="separate"/></w:r>{RUN}INNER<w:r><w:fldChar w:fldCharType="end"/></w:r>',
    form_field='<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:textInput/></w:ffData></w:fldChar></w:r><w:r>'
    "<w:instrText>FORMTEXT</w:instrText></w:r><w:r>"
    f'<w:fldChar w:fldCharType="separate"/></w:r>{RUN}<w:r><w:fldChar w:fldCharType="end"/></w:r>INNER',
    drop_down='<w:r><w:fldChar w:fldCharType="begin"><w:ffData><w:ddList><w:listEntry w:val="WORD"/></w:ddList>'
    '</w:ffData></w:fldChar></w:r><w:r><w:fldChar w:fldCharType="end"/></w:r>INNER',
    control=f"<w:sdt><w:sdtPr/><w:sdtContent>{RUN}INNER</w:sdtContent></w:sdt>",
    inserted=f"<w:ins>{RUN}INNER</w:ins>",
    moved=f"<w:moveTo>{RUN}</w:moveTo><w:moveFrom><w:r><w:t>SAME</w:t></w:r></w:moveFrom>INNER",
    hidden="<w:r><w:rPr><w:vanish/></w:rPr><w:t>WORD</w:t></w:r>INNER",
    struck="<w:r><w:rPr><w:strike/></w:rPr><w:t>WORD</w:t></w:r>INNER",
    smart_tag=f"<w:smartTag>{RUN}INNER</w:smartTag>",
    ruby="<w:r><w:ruby><w:rt><w:r><w:t>WORD</w:t></w:r></w:rt><w:rubyBase><w:r><w:t>WORD</w:t></w:r></w:rubyBase>"
    "</w:ruby></w:r>INNER",
    equation="<m:oMath><m:f><m:num><m:r><m:t>WORD</m:t></m:r></m:num><m:den><m:r><m:t>WORD</m:t></m:r></m:den></m:f>"
    "</m:oMath>INNER",
    alt_text=f'<w:r><w:drawing><wp:inline {WP}><wp:docPr id="1" name="x" descr="WORD"/></wp:inline></w:drawing></w:r>'
    "INNER",
    art=f'<w:r><w:pict><v:shape {V}><v:textpath string="WORD"/></v:shape></w:pict></w:r>INNER',
)
DOCX.add(INLINE, INLINE, said=TRACKED, deleted="<w:del><w:r><w:delText>WORD</w:delText></w:r></w:del>INNER")
DOCX.add(
    INLINE,
    BLOCK,
    box=f"<w:r><mc:AlternateContent {MC}><mc:Choice><wps:txbx {WPS}>{BOX}</wps:txbx></mc:Choice>"
    f"<mc:Fallback><w:pict><v:textbox {V}><w:txbxContent><w:p><w:r><w:t>SAME</w:t></w:r></w:p>"
    "</w:txbxContent></v:textbox></w:pict></mc:Fallback></mc:AlternateContent></w:r>",
    old_box=f"<w:r><w:pict><v:shape {V}><v:textbox>{BOX}</v:textbox></v:shape></w:pict></w:r>",
    footnote=('<w:r><w:footnoteReference w:id="NUMBER"/></w:r>', "footnotes", NOTE.replace("NAME", "footnote")),
    endnote=('<w:r><w:endnoteReference w:id="NUMBER"/></w:r>', "endnotes", NOTE.replace("NAME", "endnote")),
    comment=(
        '<w:r><w:commentReference w:id="NUMBER"/></w:r>',
        "comments",
        f'<w:comment w:id="NUMBER" w:author="WORD">{PARAGRAPH}</w:comment>',
    ),
)
CELL = f"<w:tc><w:tcPr/>{PARAGRAPH}<w:p/></w:tc>"
DOCX.add(
    BLOCK,
    BLOCK,
    paragraph=PARAGRAPH,
    heading=f'<w:p><w:pPr><w:pStyle w:val="Heading1"/></w:pPr>{RUN}</w:p>INNER',
    table='<w:tbl><w:tr><w:tc><w:tcPr><w:gridSpan w:val="2"/><w:vMerge w:val="restart"/></w:tcPr>'
    f"{PARAGRAPH}</w:tc></w:tr><w:tr><w:tc><w:tcPr><w:vMerge/></w:tcPr><w:p/></w:tc><w:tc><w:p>{RUN}</w:p></w:tc></w:tr></w:tbl>",
    inner_table=f"<w:tbl><w:tr><w:tc><w:tbl><w:tr>{CELL}</w:tr></w:tbl><w:p>{RUN}</w:p></w:tc></w:tr></w:tbl>",
    controls=f"<w:sdt><w:sdtContent>{PARAGRAPH}</w:sdtContent></w:sdt>",
    header=(f"<w:p>{RUN}</w:p>", "header", PARAGRAPH),
    footer=(f"<w:p>{RUN}</w:p>", "footer", PARAGRAPH),
    chart=(f"<w:p>{RUN}</w:p>INNER", "chart", "<a:t>WORD</a:t>"),
)


@DOCX.feature
def picture(draft: Draft, inner: str) -> str:
    draft.add("image", planted.picture("x"))
    draft.unread("a picture")
    return inner


@DOCX.feature
def film(draft: Draft, inner: str) -> str:
    draft.add("video", b"film")
    draft.unread("media")
    return inner


@DOCX.feature
def page_inside(draft: Draft, inner: str) -> str:
    draft.add("aFChunk", planted.page(f"<p>{draft.word()}</p>"))
    return inner


@DOCX.feature
def file_inside(draft: Draft, inner: str) -> str:
    draft.add("package", draft.file_inside("docx", "xlsx", "pptx")[1])
    return inner


def _pptx(draft: Draft, body: str) -> bytes:
    names = f"{office.P} {office.NAMESPACES}"
    parts = {
        "notesSlide": f"<p:notes {names}>{draft.joined('notes')}</p:notes>",
        "chart": f"<c {names}>{draft.joined('chart')}</c>",
        "diagramData": f"<d {names}>{draft.joined('diagram')}</d>",
        "comments": f"<p:cmLst {names}>{draft.joined('comments')}</p:cmLst>",
    }
    beside = {name: text.encode() for name, text in parts.items() if "qz" in text}
    if "file" in draft.beside:
        beside["package"] = draft.beside["file"][0]
    if "picture" in draft.beside:
        beside["image"] = draft.beside["picture"][0]
    return office.pptx(body, **beside)


SLIDE_TEXT = "<a:p><a:r><a:t>WORD</a:t></a:r></a:p>"
SHAPE = f"<p:sp><p:txBody>{SLIDE_TEXT}</p:txBody></p:sp>"
CELLS_OF_ROW = (
    f'<a:tc gridSpan="2"><a:txBody>{SLIDE_TEXT}</a:txBody></a:tc><a:tc hMerge="1"><a:txBody><a:p/></a:txBody></a:tc>'
)
SLIDE_TABLE = f"<a:graphic><a:graphicData><a:tbl><a:tr>{CELLS_OF_ROW}</a:tr></a:tbl></a:graphicData></a:graphic>"
PPTX = Kind("pptx", _pptx, MORE_LETTERS)
PPTX.add(
    shape=f"{SHAPE}INNER",
    split="<p:sp><p:txBody><a:p><a:r><a:t>HEAD</a:t></a:r><a:r><a:t>TAIL</a:t></a:r></a:p></p:txBody></p:sp>INNER",
    field='<p:sp><p:txBody><a:p><a:fld id="1" type="datetime"><a:t>WORD</a:t></a:fld></a:p></p:txBody></p:sp>INNER',
    group=f"<p:grpSp>{SHAPE}INNER</p:grpSp>",
    link='<p:sp><p:nvSpPr><p:cNvPr id="4" name="z"><a:hlinkClick tooltip="WORD"/></p:cNvPr></p:nvSpPr><p:txBody><a:p>'
    '<a:r><a:rPr><a:hlinkClick tooltip="WORD"/></a:rPr><a:t>WORD</a:t></a:r></a:p></p:txBody></p:sp>INNER',
    table=f"<p:graphicFrame>{SLIDE_TABLE}</p:graphicFrame>INNER",
    alt_text='<p:pic><p:nvPicPr><p:cNvPr id="2" name="x" descr="WORD"/></p:nvPicPr></p:pic>INNER',
    hidden_shape='<p:sp><p:nvSpPr><p:cNvPr id="3" name="y" hidden="1"/></p:nvSpPr>'
    f"<p:txBody>{SLIDE_TEXT}</p:txBody></p:sp>INNER",
    notes=("INNER", "notes", SHAPE),
    chart=("INNER", "chart", "<a:t>WORD</a:t>"),
    diagram=("INNER", "diagram", "<a:t>WORD</a:t>"),
    comment=("INNER", "comments", "<p:cm><p:text>WORD</p:text></p:cm>"),
)


@PPTX.feature
def picture_of_slide(draft: Draft, inner: str) -> str:
    draft.add("picture", planted.picture("x"))
    draft.unread("a picture")
    return inner


@PPTX.feature
def workbook_inside(draft: Draft, inner: str) -> str:
    draft.add("file", draft.file_inside("docx", "xlsx")[1])
    return inner


def _xlsx(draft: Draft, _: str) -> bytes:
    data = io.BytesIO()
    book = xlsxwriter.Workbook(data, {"in_memory": True})
    sheet = book.add_worksheet("Data")
    sheet.write(0, 0, "Terms")
    for make in draft.beside.get("cells", ()):
        make(book, sheet)
    book.close()
    return data.getvalue()


XLSX = Kind("xlsx", _xlsx, MORE_LETTERS)


CELLS: dict[str, Any] = {
    "text": lambda book, sheet, row, word: sheet.write(row, 0, word),
    "formula": lambda book, sheet, row, word: sheet.write_formula(row, 0, '=A1&""', None, word),
    "struck": lambda book, sheet, row, word: sheet.write(row, 0, word, book.add_format({"font_strikeout": True})),
    "rich": lambda book, sheet, row, one, two: sheet.write_rich_string(
        row, 0, one, book.add_format({"bold": True}), two, " x"
    ),
    "formatted": lambda book, sheet, row, word: sheet.write(row, 1, 5, book.add_format({"num_format": f'0 "{word}"'})),
    "comment": lambda book, sheet, row, word, author: sheet.write_comment(row, 3, word, {"author": author}),
    "merged": lambda book, sheet, row, word: sheet.merge_range(row, 4, row, 6, word),
    "box": lambda book, sheet, row, word: sheet.insert_textbox(row, 8, word),
    "header": lambda book, sheet, row, word: sheet.set_header(f"&C{word}"),
    "footer": lambda book, sheet, row, word: sheet.set_footer(f"&L&\"Arial,Bold\"{word}"),
    "sheet_name": lambda book, sheet, row, word: book.add_worksheet(word).write(0, 0, 1),
    "table": lambda book, sheet, row, one, two: sheet.add_table(
        100 + 3 * row, 0, 101 + 3 * row, 1, {"columns": [{"header": one}, {"header": two}]}
    ),
    "link": lambda book, sheet, row, word, tip: sheet.write_url(
        row, 0, "https://example.org/", string=word, tip=tip
    ),
    "choices": lambda book, sheet, row, one, two, title, error: sheet.data_validation(
        row, 2, row, 2, {"validate": "list", "source": [one, two], "error_title": title, "error_message": error}
    ),
    "limit": lambda book, sheet, row, error: sheet.data_validation(
        row, 2, row, 2, {"validate": "integer", "criteria": ">", "value": 9_999_999, "error_message": error}
    ),
    "prompt": lambda book, sheet, row, one, two: sheet.data_validation(
        row, 2, row, 2, {"validate": "any", "input_title": one, "input_message": two}
    ),
    "array": lambda book, sheet, row, word: sheet.write_array_formula(row, 10, row, 10, "{=A1}", None, word),
}  # fmt: skip


def _hidden_row(book: Any, sheet: Any, row: int, word: str) -> None:
    sheet.write(row, 0, word)
    sheet.set_row(row, None, None, {"hidden": True})


def _hidden_sheet(book: Any, sheet: Any, row: int, word: str) -> None:
    hidden = book.add_worksheet(f"Hidden {row}")
    hidden.write(0, 0, word)
    hidden.hide()


def _chart(book: Any, sheet: Any, row: int, title: str, axis: str) -> None:
    chart = book.add_chart({"type": "line"})
    chart.add_series({"values": "=Data!$A$1:$A$2"})
    chart.set_title({"name": title})
    chart.set_x_axis({"name": axis})
    sheet.insert_chart(row, 11, chart)


def _cell_feature(name: str, make: Any) -> None:
    def feature(draft: Draft, inner: str) -> str:
        words, row = [draft.word() for _ in range(make.__code__.co_argcount - 3)], draft.number()
        draft.add("cells", lambda book, sheet: make(book, sheet, row, *words))
        return inner

    XLSX.features[name] = (BLOCK, BLOCK, feature)


for _name, _make in {**CELLS, "hidden_row": _hidden_row, "hidden_sheet": _hidden_sheet, "chart": _chart}.items():
    _cell_feature(_name, _make)


def _number(name: str, shown: str, code: str, lowest: int, highest: int, *, divided: int = 1) -> None:
    """Adds a number or date that is shown in a format."""

    def feature(draft: Draft, inner: str) -> str:
        value = draft.random.randrange(lowest, highest)
        draft.plant(str(value), shown=shown.format(value, date.fromordinal(FIRST_DAY + value % 100_000)))
        row, stored = draft.number(), value / divided
        draft.add("cells", lambda book, sheet: sheet.write(row, 0, stored, book.add_format({"num_format": code})))
        return inner

    XLSX.features[name] = (BLOCK, BLOCK, feature)


FIRST_DAY = date(1899, 12, 30).toordinal()
_number("grouped", "{:,}", "#,##0", 1_000_000, 9_999_999)
_number("percent", "{}.00%", "0.00%", 1_000, 9_999, divided=100)
_number("day", "{1}", "dd.mm.yyyy", 40_000, 50_000)
_number("negative", "({0:,})", "#,##0;(#,##0)", 1_000_000, 9_999_999, divided=-1)
_number("leading", "{:08}", "00000000", 10_000, 99_999)
_number("account", "{0:,}.00 EUR", '#,##0.00" EUR"', 10_000, 99_999)


def _open(root: str, start: str = "", end: str = "") -> Any:
    def whole(draft: Draft, body: str) -> bytes:
        before = (
            f"<text:tracked-changes>{draft.joined('changes')}</text:tracked-changes>"
            if "changes" in draft.beside
            else ""
        )
        forms = (
            f"<office:forms><form:form>{draft.joined('forms')}</form:form></office:forms>"
            if "forms" in draft.beside
            else ""
        )
        content = f"<office:{root}>{forms}{before}{start}{body}{end}</office:{root}>"
        return office.opendocument(
            content, header=draft.joined("header"), members=dict(draft.beside.get("members", ()))
        )

    return whole


ODT = Kind("odt", _open("text"), MORE_LETTERS, wrap=lambda spans: f"<text:p>{spans}</text:p>")
OPEN_PARAGRAPH = "<text:p>WORD</text:p>INNER"
ANNOTATION = f"<office:annotation><dc:creator>WORD</dc:creator>{OPEN_PARAGRAPH}</office:annotation>"
ODT.add(
    INLINE,
    INLINE,
    span="<text:span>WORD</text:span> INNER",
    split="HEAD<text:span>TAIL</text:span> INNER",
    link='<text:a xlink:href="https://example.org/" office:title="WORD" xlink:title="WORD">WORD INNER</text:a>',
    field='<text:user-field-get text:name="x">WORD</text:user-field-get> INNER',
    ruby="<text:ruby><text:ruby-base>WORD</text:ruby-base><text:ruby-text>WORD</text:ruby-text></text:ruby> INNER",
    equation="<math:math><math:mfrac><math:mi>WORD</math:mi><math:mi>WORD</math:mi></math:mfrac></math:math> INNER",
    alt_text="<draw:frame><svg:title>WORD</svg:title><svg:desc>WORD</svg:desc></draw:frame> INNER",
    hidden='<text:hidden-text text:string-value="WORD" text:is-hidden="true">SAME</text:hidden-text> INNER',
    form_field=(
        '<draw:control draw:control="fNUMBER"/> INNER',
        "forms",
        '<form:text form:id="fNUMBER" form:label="WORD" form:title="WORD" form:current-value="WORD"/>',
    ),
    loose_field=("INNER", "forms", '<form:textarea form:id="gNUMBER" form:name="WORD" form:current-value="WORD"/>'),
)  # fmt: skip
ODT.add(
    INLINE,
    BLOCK,
    note="<text:note><text:note-citation>NUMBER</text:note-citation><text:note-body>"
    f"{OPEN_PARAGRAPH}</text:note-body></text:note>",
    annotation=ANNOTATION,
    box=f"<draw:frame><draw:text-box>{OPEN_PARAGRAPH}</draw:text-box></draw:frame>",
    shape=f"<draw:custom-shape>{OPEN_PARAGRAPH}</draw:custom-shape>",
)
ODT.add(
    paragraph=OPEN_PARAGRAPH,
    heading="<text:h>WORD</text:h>INNER",
    items="<text:list><text:list-item><text:p>WORD</text:p><text:list><text:list-item>INNER</text:list-item></text:list>"
    "</text:list-item></text:list>",
    table='<table:table table:name="T"><table:title>WORD</table:title><table:desc>WORD</table:desc>'
    '<table:table-row><table:table-cell table:number-columns-spanned="2">'
    f"{OPEN_PARAGRAPH}</table:table-cell><table:covered-table-cell/></table:table-row></table:table>",
    section=f'<text:section text:name="s" text:display="none">{OPEN_PARAGRAPH}</text:section>',
    header=(OPEN_PARAGRAPH, "header", "<text:p>WORD</text:p>"),
)
ODT.add(
    INLINE,
    INLINE,
    said=TRACKED,
    deleted=(
        '<text:change text:change-id="cNUMBER"/>INNER',
        "changes",
        '<text:changed-region text:id="cNUMBER"><text:deletion><text:p>WORD</text:p></text:deletion>'
        "</text:changed-region>",
    ),
)


@ODT.feature
def picture_of_text(draft: Draft, inner: str) -> str:
    draft.add("members", ("Pictures/a.png", planted.picture("x")))
    draft.unread("a picture")
    return inner


ODP = Kind("odp", _open("presentation", '<draw:page draw:name="S">', "</draw:page>"), MORE_LETTERS)
ODP.add(
    frame=f"<draw:frame><draw:text-box>{OPEN_PARAGRAPH.replace('INNER', '')}</draw:text-box></draw:frame>INNER",
    alt_text="<draw:frame><svg:desc>WORD</svg:desc></draw:frame>INNER",
    link='<draw:a xlink:href="x" office:title="WORD"><draw:frame><svg:desc>WORD</svg:desc></draw:frame></draw:a>INNER',
    group="<draw:g><draw:frame><draw:text-box><text:p>WORD</text:p></draw:text-box></draw:frame>INNER</draw:g>",
    table='<draw:frame><table:table><table:table-row><table:table-cell table:number-columns-spanned="2">'
    "<text:p>WORD</text:p></table:table-cell></table:table-row></table:table></draw:frame>INNER",
    annotation="<office:annotation><dc:creator>WORD</dc:creator><text:p>WORD</text:p></office:annotation>INNER",
)
ODS = Kind("ods", _open("spreadsheet", '<table:table table:name="S">', "</table:table>"), MORE_LETTERS)
VALIDATION = (
    '<table:content-validations><table:content-validation table:base-cell-address="S.A1" table:condition="of:%s">'
    '<table:%s-message table:title="WORD" table:display="true"><text:p>WORD</text:p></table:%s-message>'
    "</table:content-validation></table:content-validations>INNER"
)
OPEN_ROW = "<table:table-row%s><table:table-cell%s>%s</table:table-cell></table:table-row>INNER"
ODS.add(
    cell=OPEN_ROW % ("", "", "<text:p>WORD</text:p>"),
    value=OPEN_ROW % ("", ' office:value-type="string" office:string-value="WORD"', ""),
    comment=OPEN_ROW % ("", "", f"{ANNOTATION.replace('INNER', '')}<text:p>WORD</text:p>"),
    hidden=OPEN_ROW % (' table:visibility="collapse"', "", "<text:p>WORD</text:p>"),
    shape=OPEN_ROW % ("", "", "<draw:custom-shape><text:p>WORD</text:p></draw:custom-shape>"),
    group=f"<table:table-row-group>{OPEN_ROW % ('', '', '<text:p>WORD</text:p>')}</table:table-row-group>",
    choices=VALIDATION % ("cell-content-is-in-list(&quot;WORD&quot;;&quot;WORD&quot;)", "help", "help"),
    limit=VALIDATION % ("cell-content-is-whole-number() and cell-content()&gt;41NUMBER", "error", "error"),
    merged='<table:table-row><table:table-cell table:number-columns-spanned="2"><text:p>WORD</text:p>'
    "</table:table-cell><table:covered-table-cell><text:p>WORD</text:p></table:covered-table-cell></table:table-row>INNER",
)
RTF = Kind(
    "rtf",
    lambda draft, body: (
        rf"{{\rtf1\ansi\ansicpg1252\deff0{{\fonttbl{{\f0 Arial;}}}}{draft.joined('header')}{body}}}".encode()
    ),
)
FIELD = r"{\field{\*\fldinst %s}{\fldrslt %s}}"
RTF.add(
    INLINE,
    INLINE,
    bold=r"{\b WORD} INNER",
    split=r"HEAD{\b TAIL} INNER",
    link=FIELD % ('HYPERLINK "x"', "WORD INNER"),
    form_field=FIELD % (r"{ FORMTEXT }{\*\formfield{\fftype0{\*\ffname N}}}", "WORD") + " INNER",
    drop_down=FIELD % (r"{ FORMDROPDOWN }{\*\formfield{\fftype2\ffres0{\*\ffl WORD}}}", "") + " INNER",
    note=r"{\super\chftn{\footnote\pard{\super\chftn} WORD INNER}}",
    comment=r"{\*\atnid AB}{\*\atnauthor WORD}\chatn {\*\annotation{\*\atndate 12} WORD INNER}",
    hidden=r"{\v WORD} INNER",
    struck=r"{\strike WORD} INNER",
    wide=r"{\upr{ansi}{\*\ud{WORD}}} INNER",
    unknown=r"{\unknown WORD} INNER",
    box=r"{\shp{\*\shpinst\shpleft0{\shptxt WORD INNER}}}",
    art=r"{\shp{\*\shpinst{\sp{\sn gtextUNICODE}{\sv WORD}}}} INNER",
    equation=r"{\mmath{\mf{\mnum WORD}{\mden WORD}}} INNER",
    header=("INNER", "header", r"{\header\pard WORD\par}"),
    footer=("INNER", "header", r"{\footer\pard WORD\par}"),
)
RTF.add(
    paragraph=r"\pard WORD\par INNER",
    table=r"\trowd\intbl WORD\par WORD\cell WORD\cell\row\pard INNER",
    inner_table=r"\trowd\intbl a\cell WORD\nestcell WORD\nestcell{\*\nesttableprops\trowd\nestrow}{\nonesttables\par}"
    r"b\cell\row\pard INNER",
)
RTF.add(INLINE, INLINE, said=TRACKED, deleted=r"{\deleted WORD}{\revised x} INNER")
