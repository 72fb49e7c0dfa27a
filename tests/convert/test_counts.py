"""The independent count behind the readers: which words of a file are in none of its parts."""

import io
import zipfile
from functools import partial
from pathlib import Path

import pytest

from memagent_batch.data.ingest.counts import words
from memagent_batch.data.ingest.counts.kinds import CONTENTS
from memagent_batch.data.ingest.counts.packages import office_contents, zip_contents
from memagent_batch.data.ingest.counts.text import text_contents
from memagent_batch.data.ingest.counts.words import Content, Given, word_slices, words_of
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.plugins import CONVERTERS
from tests.convert import office, test_opendocument, test_sheets
from tests.convert.rows import RowsOf

UNCOUNTED = {
    FileKind.IMAGE: "a picture has no words; without OCR all of it is a loss",
    FileKind.ARCHIVE: "libarchive, the only way to list its files, is what its reader uses too",
}
"""Kinds of files whose words nothing counts, with the reason."""


def test_every_kind_of_file_has_a_converter_and_a_count_or_a_reason_for_none() -> None:
    assert {*FileKind} - CONTENTS.keys() == UNCOUNTED.keys()
    assert {*FileKind} <= CONVERTERS.built_in.keys()


def missing_of(contained: str, *given: str) -> list[str]:
    """Words of a text that are in none of the texts of a reader."""
    reader = Given()
    for text in given:
        reader.add_text(text)
    return [word for each in reader.missing([Content(place="text", text=contained)]) for word in each.words]


@pytest.mark.parametrize(
    ("contained", "given"),
    [
        ("The fee is 1,200 EUR.", "fee: the 1,200 is EUR"),
        ("termi-\nnation", "termination"),
        ("S p a c e d", "Spaced"),
        ("302 days", "30^2 days"),
        ("\ufb01nal \u00bd Ver\u00adtrag", "final 1/2 Vertrag"),
        ("\u5951\u7d04\n\u671f\u9593", "\u5951\u7d04\u671f\u9593"),
    ],
)
def test_words_in_another_order_or_form_are_read(contained: str, given: str) -> None:
    assert missing_of(contained, given) == []


@pytest.mark.parametrize(
    ("contained", "given", "missing"),
    [
        ("not for sale, not for rent", "not for sale", ["not", "for", "rent"]),
        ("no notice", "notice", ["no"]),
        ("alpha termi-nation omega", "termination omega", ["alpha"]),
        ("due in 10 days", "due in 1 0 of the days", []),
        ("due in 10 days", "due in 100 days", ["10"]),
        ("an art", "a nart", []),
    ],
)
def test_words_that_stand_nowhere_else_are_missing(contained: str, given: str, missing: list[str]) -> None:
    assert missing_of(contained, given) == missing


def test_words_are_compared_a_slice_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(words, "SLICE_CHARACTERS", 5)
    text = "The fee of the lease, caf\u0065\u0301 and termi-nation: \u5951\u7d04\u671f\u9593\u5951\u7d04 " * 3
    assert [word for each in word_slices(text) for word in each] == words_of(text)
    assert missing_of(text, text.replace("termi-nation", "termination")) == []
    assert missing_of(f"{text} omega", text) == ["omega"]


def test_alternatives_need_no_words_of_their_own() -> None:
    given = Given()
    given.add_text("The fee is 100.")
    html = Content(place="html", text="the fee is 100 only", is_alternative=True)
    plain = Content(place="plain", text="The fee is 100.")
    assert [(each.place, each.words) for each in given.missing([plain, html])] == [("html", ["only"])]
    assert (given.num_words, given.num_missing) == (9, 1)


def test_alternatives_may_join_and_part_words_that_another_content_has_asked_for() -> None:
    given = Given()
    given.add_text("red violets, blue berries")
    plain = Content(place="plain", text="red violets, blue berries")
    page = Content(place="html", text="redviolets blueberries bluebells", is_alternative=True)
    assert [each.words for each in given.missing([plain, page])] == [["bluebells"]]


def test_file_that_is_also_a_text_is_given_as_either() -> None:
    text = Content(place="text", text="the fee")
    file = Content(place="file", file=b"the fee", instead=[text])
    read, attached = Given(), Given()
    read.add_text("The fee.")
    attached.add_file(b"the fee")
    assert [*read.missing([file]), *attached.missing([file])] == []
    assert [(each.place, each.words) for each in Given().missing([file])] == [("text", ["the", "fee"])]


def test_files_inside_are_given_or_named() -> None:
    given, files_inside = Given(), {name: name.encode() * 1000 for name in ("a.png", "b.png", "c.png")}
    given.add_file(files_inside["a.png"])
    given.add_name("media b.png is not read")
    contents = [Content(place=f"word/{name}", file=data) for name, data in files_inside.items()]
    contents.append(Content(place="word/.png", file=b"named only inside of other names" * 20))
    assert [each.place for each in given.missing(contents)] == ["word/c.png", "word/.png"]


def test_member_of_an_archive_is_given_under_its_name(tmp_path: Path) -> None:
    file, given = tmp_path / "a.zip", Given()
    with zipfile.ZipFile(file, "w") as archive:
        for name in ("a.txt", "b/", "b/c.txt", "b/.DS_Store", "__MACOSX/._a.txt"):
            archive.writestr(name, b"x")
    given.add_file(b"x", locator="file a.txt")
    assert [each.place for each in given.missing(zip_contents(file))] == ["file b/", "file b/c.txt"]


@pytest.mark.parametrize(
    ("data", "words"),
    [
        ("Kündigung in 10 days".encode(), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("cp1252"), ["in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-16"), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-16-be"), ["kündigung", "in", "10", "days"]),
        ("Kündigung in 10 days".encode("utf-32-le"), ["kündigung", "in", "10", "days"]),
        ("fee 契約 due".encode("iso2022_jp"), ["fee", "due"]),
        ("fee 契約A due".encode("cp932"), ["fee", "due"]),
    ],
)
def test_words_of_a_text_are_listed_in_each_encoding(tmp_path: Path, data: bytes, words: list[str]) -> None:
    file = tmp_path / "a.txt"
    file.write_bytes(data)
    (content,) = text_contents(file)
    assert words_of(content.text) == words


def test_what_has_no_words_is_a_loss_unless_its_place_is_named() -> None:
    given = Given()
    given.add_name("page 1 an image fills the page")
    given.add_name("page 22, picture 1 a picture")
    reasons = {"page 1": "a scan", "page 2": "a picture", "page 3": "", "page 22": "a stamp"}
    contents = [Content(place=place, unread=partial(str, reason)) for place, reason in reasons.items()]
    assert [(each.place, each.reason) for each in given.missing(contents)] == [("page 2", "a picture")]


def test_words_of_a_text_are_in_one_form() -> None:
    assert words_of("Stra\u00dfe STRASSE \uff11\uff12 _a_b") == ["strasse", "strasse", "12", "a", "b"]


DOCX_BODY = (
    "<w:p><w:r><w:drawing><wp:docPr xmlns:wp='http://schemas.openxmlformats.org/drawingml/2006/wordprocessingDrawing'"
    " descr='a red barn'/></w:drawing></w:r></w:p>"
    "<w:p><w:r><w:t>Termi</w:t></w:r><w:del><w:r><w:delText>nal gone</w:delText></w:r></w:del><w:ins><w:r><w:t>nation"
    "</w:t></w:r></w:ins><w:r><w:fldChar w:fldCharType='begin'/><w:instrText>REF secret</w:instrText><w:fldChar "
    "w:fldCharType='separate'/><w:t>7.2</w:t><w:fldChar w:fldCharType='end'/></w:r></w:p>"
    "<w:p><mc:AlternateContent xmlns:mc='http://schemas.openxmlformats.org/markup-compatibility/2006'><mc:Choice><w:r>"
    "<w:t>boxed</w:t></w:r></mc:Choice><mc:Fallback><w:r><w:t>boxed</w:t></w:r></mc:Fallback></mc:AlternateContent>"
    "<w:sdt><w:sdtPr><w:showingPlcHdr/></w:sdtPr><w:sdtContent><w:r><w:rPr><w:rStyle w:val='PlaceholderText'/></w:rPr>"
    "<w:t>Click here</w:t></w:r></w:sdtContent></w:sdt><w:r><w:rPr><w:rFonts w:ascii='Wingdings'/></w:rPr><w:t>\u00fe"
    "</w:t></w:r><w:r><w:t>ter</w:t></w:r><w:r><w:rPr><w:strike/></w:rPr><w:t>mi</w:t></w:r><w:r><w:t>nal</w:t></w:r></w:p>"
    "<w:tbl><w:tblPr><w:tblCaption w:val='Fees'/></w:tblPr><w:tr><w:trPr><w:del/></w:trPr><w:tc><w:p><w:r><w:t>row"
    "</w:t></w:r></w:p></w:tc></w:tr><w:tr><w:tc><w:p><m:oMath><m:acc><m:e><m:r><m:t>e</m:t></m:r></m:e></m:acc></m:oMath></w:p>"
    "</w:tc></w:tr></w:tbl>"
)
PPTX_SHAPES = (
    "<p:pic><p:nvPicPr><p:cNvPr descr='an old mill'/></p:nvPicPr></p:pic>"
    "<p:graphicFrame><a:tbl><a:tblPr><a:tableStyleId>{5C22544A}</a:tableStyleId></a:tblPr><a:tr><a:tc><a:txBody><a:p><a:r>"
    "<a:t>Fee</a:t></a:r></a:p></a:txBody></a:tc></a:tr></a:tbl></p:graphicFrame>"
)
LAYOUT = (
    f"<p:sldLayout {office.P} {office.NAMESPACES}><p:sp><p:nvPr><p:ph/></p:nvPr><a:p><a:r><a:t>Click to edit</a:t>"
    "</a:r></a:p></p:sp><p:sp><a:p><a:r><a:t>Kern AG</a:t></a:r></a:p></p:sp></p:sldLayout>"
)
DIAGRAM = f"<d {office.NAMESPACES}><t><a:p><a:r><a:t>R1</a:t></a:r></a:p><a:p><a:r><a:t>Ready</a:t></a:r></a:p></t></d>"
ODF_BODY = (
    "<office:forms><form:listbox form:id='l'><form:option form:label='May' form:selected='true'/><form:option "
    "form:label='June'/></form:listbox><form:combobox form:label='Rate'><form:item form:label='gross'/></form:combobox>"
    "<form:hidden form:title='version'/><form:checkbox form:label='Full name' form:title='Full name'/>"
    "<form:text form:label='Name of the tenant' form:title='tenant'/></office:forms>"
    "<text:tracked-changes><text:changed-region><text:deletion><dc:date>2027-01-02T00:00:00</dc:date>"
    "<text:p>two <text:a office:title='former deed'>weeks</text:a></text:p></text:deletion>"
    "</text:changed-region></text:tracked-changes><text:p><text:placeholder>&lt;Name&gt;</text:placeholder> in"
    "<text:span>ward</text:span><text:bookmark/>ly<office:annotation><dc:creator>Ann</dc:creator><dc:date>2027-01-02T00:00:00"
    "</dc:date><text:p>No.</text:p></office:annotation></text:p><text:p><math:math><math:mover accent='true'><math:mi>e"
    "</math:mi><math:mo>\u0301</math:mo></math:mover><math:annotation>acute e</math:annotation></math:math></text:p>"
    "<text:p><text:a office:title='Annex 3' xlink:title='Annex  3'>here</text:a></text:p><draw:a office:title='Plan' "
    "xlink:title='Plan'><draw:frame><svg:desc>a barn</svg:desc></draw:frame></draw:a>"
    "<table:table><table:table-row><table:table-cell office:value-type='percentage' office:value='0.125'/>"
    "</table:table-row></table:table>"
)
XLSX = test_sheets.workbook(
    test_sheets.row(test_sheets.text("<![CDATA[price <b>12</b> net]]>")),
    after='<dataValidations><dataValidation type="whole" operator="Between" sqref="B2"><formula1>7</formula1>'
    "</dataValidation></dataValidations>",
)


@pytest.mark.parametrize(
    ("name", "package"),
    [
        ("a.docx", office.docx(DOCX_BODY, header="<w:p><w:r><w:instrText>PAGE</w:instrText></w:r></w:p>")),
        ("a.pptx", office.pptx(PPTX_SHAPES, slideLayout=LAYOUT.encode(), diagramData=DIAGRAM.encode())),
        ("a.odt", office.opendocument(f"<office:text>{ODF_BODY}</office:text>")),
        ("b.odt", office.opendocument("<office:text/>", members={"Object 1/content.xml": test_opendocument.SHEET})),
        ("a.xlsx", XLSX),
    ],
)
def test_words_that_a_package_shows_otherwise_or_not_are_accounted_for(
    rows_of: RowsOf, name: str, package: bytes
) -> None:
    assert [row["reason"] for row in rows_of(name, package) if row["status"] == "missed"] == []


def test_words_of_cells_in_cdata_are_counted(tmp_path: Path) -> None:
    file = tmp_path / "a.xlsx"
    file.write_bytes(test_sheets.workbook(test_sheets.row(test_sheets.text("<![CDATA[net price]]>"))))
    assert [each.words for each in Given().missing(office_contents(file))] == [["net", "price"]]


def test_part_of_a_package_that_its_reader_does_not_know_is_a_loss(rows_of: RowsOf) -> None:
    data = io.BytesIO(office.pptx(office.shape("before")))
    with zipfile.ZipFile(data, "a") as package:
        package.writestr("ppt/novel.xml", "<n:story xmlns:n='urn:n'><n:p>the penalty is 4,410</n:p></n:story>")
    rows = rows_of("c.pptx", data.getvalue())
    assert [(row["status"], row["locator"]) for row in rows] == [("ok", "slide 1"), ("missed", "ppt/novel.xml")]
    assert rows[1]["reason"] == "5 words of it, not in the text: the penalty is 4 410"
