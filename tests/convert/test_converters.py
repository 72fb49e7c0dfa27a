"""What the converters make of real files, each in its process."""

from collections.abc import Callable
from pathlib import Path

import pytest

from memagent_batch.data.ingest.files import FileConverter
from memagent_batch.data.ingest.readers.converter import Part
from memagent_batch.data.ingest.readers.kinds import recognise
from memagent_batch.data.ingest.readers.process.sandbox import Limits
from memagent_batch.data.ingest.readers.process.worker import ConverterServer
from tests.convert import files, office, outlook, planted
from tests.convert.files import A_TEXT, DRAWN, SCAN, written
from tests.convert.rows import ConvertedRow, RowsOf, chosen, converted_rows

LONG = A_TEXT * 4


def places(rows: list[ConvertedRow]) -> list[tuple[str, int, str, str]]:
    return [(row["document_id"], row["part"], row["locator"], row["status"]) for row in rows]


def test_pdf_has_a_part_for_each_page(rows_of: RowsOf) -> None:
    rows = rows_of("a/b.pdf", files.pdf(written(A_TEXT), written("Second (page)")))
    assert places(rows) == [("a/b.pdf", 1, "page 1", "ok"), ("a/b.pdf", 2, "page 2", "ok")]
    assert [row["text"] for row in rows] == [A_TEXT.strip(), "Second (page)"]
    assert {row["converter"] for row in rows} == {"pdf"}


def test_pdf_page_without_text_layer_needs_ocr_and_a_blank_one_is_empty(rows_of: RowsOf) -> None:
    rows = rows_of("scan.pdf", files.pdf(SCAN, "", DRAWN, written(LONG) + SCAN))
    assert [row["status"] for row in rows] == ["needs_ocr", "empty", "needs_ocr", "ok"]
    (stamped,) = rows_of("stamped.pdf", planted.scanned(FACT, text="Page 2 of 5"))
    assert (stamped["status"], stamped["text"]) == ("needs_ocr", "Page 2 of 5")
    assert all(row["reason"] for row in (*rows, stamped) if row["status"] == "needs_ocr")


def test_pdf_whose_packed_content_is_written_as_letters_is_whole_unless_it_is_cut(rows_of: RowsOf) -> None:
    text = "This contract ends on 5 May 2030; its price is 500 euros."
    sound, cut = (files.pdf_in_letters(written(text), is_cut=is_cut) for is_cut in (False, True))
    assert [(row["status"], row["text"]) for row in rows_of("a.pdf", sound)] == [("ok", text)]
    assert "can't be unpacked" in (rows_of("b.pdf", cut)[-1]["reason"] or "")


def test_docx_has_a_part_for_each_section_with_its_tables(rows_of: RowsOf) -> None:
    data = files.docx_file(("Normal", "before"), ("Heading 1", "Payment"), ("Normal", "soon"), cells=[["a", "b"]])
    rows = rows_of("c.docx", data)
    texts = [(row["locator"], row["text"]) for row in rows]
    assert texts == [("text", "before"), ("section 1: Payment", "Payment\n\nsoon\n\na | b")]


SUBJECT, BODY, CLASS, SENDER, ADDRESS = 0x37, 0x1000, 0x1A, 0xC1A, 0x5D01
"""Numbers of properties of a message of Outlook."""
NOTE = {CLASS: "IPM.Note", SENDER: "Ann", ADDRESS: "ann@example.org"}


def test_message_of_outlook_is_read_as_the_mail_that_it_was_with_its_files_and_inner_messages(rows_of: RowsOf) -> None:
    inner = outlook.message({**NOTE, SUBJECT: "Inner", BODY: "The inner text."}, header_bytes=24)
    attached = [outlook.attachment("a.txt", b"attached" * 1000), outlook.attachment("b.msg", inner)]
    texts = {**NOTE, SUBJECT: "The fee \u20ac", BODY: "It is due."}
    sent = {0x39: 134_000_000_000_000_000}
    rows = rows_of("m.msg", outlook.compound_file(outlook.message(texts, attached=attached, numbers=sent)))
    ann = "From: Ann <ann@example.org>"
    headers = f"{ann}\nDate: Mon, 18 Aug 2025 14:13:20 +0000\nSubject: The fee \u20ac"
    assert [(row["document_id"], row["locator"], row["status"], row["text"]) for row in rows] == [
        ("m.msg", "message 1", "ok", f"{headers}\n\nIt is due."),
        ("m.msg/1-a.txt", "attachment a.txt, text", "ok", "attached" * 1000),
        ("m.msg/2-b.eml", "attachment b.eml, message 1", "ok", f"{ann}\nSubject: Inner\n\nThe inner text."),
    ]


def test_docx_keeps_text_in_controls_boxes_and_insertions_and_drops_what_was_deleted_or_moved(rows_of: RowsOf) -> None:
    run = "<w:r><w:t>{}</w:t></w:r>"
    box = f"<w:txbxContent><w:p>{run.format('boxed')}</w:p></w:txbxContent>"
    moved = run.format("moved")
    body = (
        f"<w:sdt><w:sdtContent><w:p>{run.format('controlled')}</w:p></w:sdtContent></w:sdt>"
        f"<w:p><w:ins>{run.format('inserted')}</w:ins><w:del><w:r><w:tab/><w:delText>deleted</w:delText></w:r></w:del>"
        f"<w:r><mc:AlternateContent><mc:Choice>{box}</mc:Choice><mc:Fallback>{box}</mc:Fallback></mc:AlternateContent>"
        f"</w:r></w:p><w:moveFrom><w:p>{moved}</w:p></w:moveFrom><w:p><w:moveFrom>{moved}</w:moveFrom></w:p>"
        f"<w:p><w:moveTo>{moved}</w:moveTo></w:p>"
    )
    (row,) = rows_of("t.docx", files.with_body(body))
    assert row["text"] == "controlled\n\ninserted\nboxed\n\nmoved"
    assert row["reason"] == "tracked changes are read as if all were accepted"


def test_docx_shows_what_its_forms_are_filled_in_with(rows_of: RowsOf) -> None:
    symbol = '<w:r><w:sym w:font="{}" w:char="{}"/></w:r>'
    field = '<w:r><w:fldChar w:fldCharType="begin"><w:ffData>{}</w:ffData></w:fldChar></w:r>'
    boxes = [("Wingdings", "F0FE"), ("Wingdings", "F0A8"), ("Wingdings 2", "F053"), ("MS Gothic", "2612")]
    ticks = (
        '<w:default w:val="0"/><w:checked/>',
        '<w:default w:val="1"/>',
        '<w:default w:val="1"/><w:checked w:val="0"/>',
        "",
    )
    entries = '<w:listEntry w:val="monthly"/><w:listEntry w:val="yearly"/>'
    body = [
        "".join(symbol.format(*box) for box in boxes),
        "".join(field.format(f"<w:checkBox>{tick}</w:checkBox>") for tick in ticks),
        field.format(f'<w:ddList><w:result w:val="1"/>{entries}</w:ddList>'),
        field.format(f"<w:ddList>{entries}</w:ddList>"),
    ]
    (row,) = rows_of("f.docx", files.with_body("".join(f"<w:p>{each}</w:p>" for each in body)))
    assert (row["text"] or "").split("\n\n") == ["☑☐☒☒", "☑☑☐☐", "yearly", "monthly"]
    assert row["reason"] is None
    (row,) = rows_of("u.docx", files.with_body(f"<w:p>{symbol.format('Wingdings', 'F02C')}</w:p>"))
    assert (row["text"], row["reason"]) == ("\ufffd", "symbols that only their font knows are shown as U+FFFD")


def test_html_keeps_all_that_a_reader_sees_and_no_script(rows_of: RowsOf) -> None:
    around = {tag: f"<{tag}><p>in the {tag}</p></{tag}>" for tag in ("header", "aside", "footer", "nav", "table")}
    page = f"<html><body>{''.join(around.values())}<article>{LONG}</article>{around['footer']}</body></html>"
    for data in (files.page(LONG), page.encode()):
        (row,) = rows_of("p.html", data)
        assert LONG.strip() in (row["text"] or "")
        assert "script" not in (row["text"] or "")
    assert all(f"in the {tag}" in (row["text"] or "") for tag in around)
    assert (row["status"], row["reason"]) == ("ok", None)


def test_html_keeps_the_places_of_empty_cells_and_rows_with_paragraphs_in_their_cells(rows_of: RowsOf) -> None:
    table = (
        "<table><tr><th></th><th>2023</th><th>2024</th></tr>"
        "<tr><td><p>Fee</p></td><td></td><td><p>500<br>euros</p></td></tr>"
        f"<tr><td><p>{LONG}</p><p>Next.</p></td><td>x</td></tr><tr><td> </td><td></td></tr></table>"
    )
    (row,) = rows_of("t.html", f"<html><body>{table}</body></html>".encode())
    lines = (row["text"] or "").split("\n")
    assert lines == ["| 2023 | 2024", "Fee |  | 500 euros", LONG.strip(), "Next.", "x"]


@pytest.mark.parametrize(
    ("head", "encoding", "note"),
    [
        ("<meta charset=iso-8859-1>", "cp1252", None),
        ("<meta http-equiv='Content-Type' content='text/html; charset=windows-1251'>", "cp1251", None),
        ("<?xml version='1.0' encoding='UTF-8'?>", "utf-8", None),
        ("<meta charset=nonsense>", "utf-8", None),
        ("", "cp1252", "it is not UTF-8 and names no other character set"),
    ],
)
def test_html_is_read_in_the_character_set_that_it_names(
    rows_of: RowsOf, head: str, encoding: str, note: str | None
) -> None:
    text = "Платим" if encoding == "cp1251" else "“Gebühr” 5 €" if encoding == "cp1252" else "Gebühr"
    (row,) = rows_of("e.html", f"{head}<html><body>{text}</body></html>".encode(encoding))
    assert row["text"] == text
    assert (row["status"], row["reason"]) == ("ok", None) if note is None else note in (row["reason"] or "")


def test_file_whose_converter_fails_in_the_middle_keeps_what_was_read_and_says_what_is_lost(rows_of: RowsOf) -> None:
    read, lost = rows_of("a.stop", b"x")
    assert (read["part"], read["status"], read["text"]) == (1, "ok", "the beginning")
    assert (lost["part"], lost["status"], lost["text"]) == (2, "failed", None)
    assert "ValueError: no more; what was read of it until then is kept" in (lost["reason"] or "")


def test_zip_is_a_document_for_each_of_its_files_whatever_they_hold(rows_of: RowsOf) -> None:
    pdf = files.pdf(written(A_TEXT))
    inner = files.zipped({"deep.txt": b"at the bottom"})
    data = files.zipped({"a/one.pdf": pdf, "two.pdf": pdf, "in.zip": inner, "x.bin": b"\x01"}, stored=True)
    rows = rows_of("two.zip", data)
    assert places(rows) == [
        ("two.zip/1-a_one.pdf", 1, "file a/one.pdf, page 1", "ok"),
        ("two.zip/2-two.pdf", 1, "file two.pdf, page 1", "ok"),
        ("two.zip/3-in.zip/1-deep.txt", 1, "file in.zip, file deep.txt, text", "ok"),
        ("two.zip/4-x.bin", 1, "file x.bin", "skipped"),
    ]
    assert rows[2]["text"] == "at the bottom"
    (empty,) = rows_of("none.zip", files.zipped({}))
    assert (empty["document_id"], empty["status"]) == ("none.zip", "empty")


def test_zip_of_a_mac_has_no_documents_but_those_of_the_user(rows_of: RowsOf) -> None:
    attributes, view = b"\0\x05\x16\x07\0\x02\0\0Mac OS X" + bytes(80), b"\0\0\0\x01Bud1" + bytes(40)
    own = {"lease.txt": b"51 a share", "__MACOSX/._notes.txt": b"words of a user", "b/.DS_Store": b"more words"}
    added = {"__MACOSX/._lease.txt": attributes, ".DS_Store": view, "a/.DS_Store": view, "__MACOSX/a/._x": attributes}
    rows = rows_of("mac.zip", files.zipped({**added, **own}))
    assert [row["document_id"] for row in rows] == [
        "mac.zip/1-lease.txt",
        "mac.zip/2-__MACOSX_._notes.txt",
        "mac.zip/3-b_.DS_Store",
    ]
    assert [row["text"] for row in rows] == ["51 a share", "words of a user", "more words"]


def test_zip_keeps_the_files_beside_a_damaged_one(rows_of: RowsOf) -> None:
    data = files.zipped({"a.txt": b"first words", "b.txt": b"second words"}, stored=True)
    damaged, read = rows_of("d.zip", data.replace(b"first", b"worst"))
    assert (damaged["status"], read["text"]) == ("failed", "second words")
    assert "can't be unpacked" in (damaged["reason"] or "")


def test_file_with_all_attachments_unpacks_to_a_bound_and_the_others_keep_theirs(tmp_path: Path) -> None:
    attached = [(f"{number}.docx", files.docx_file(("Normal", "z" * 600_000))) for number in range(8)]
    (tmp_path / "m.eml").write_bytes(files.mail("s", "the code", files=[*attached, ("a.txt", b"short")]).as_bytes())
    limits = Limits(seconds=120, output_bytes=1 << 20)
    with ConverterServer() as server:
        converter = FileConverter(server, converters=chosen(), limits=limits)
        rows = converted_rows(converter, tmp_path / "m.eml", name="m.eml")
    assert sum(len(row["text"] or "") for row in rows) < 2 << 20
    lost = [row for row in rows if row["status"] == "failed"]
    assert {"its file with all attachments more than 2 MiB" in (row["reason"] or "") for row in lost} == {True}
    assert 0 < len(lost) < 8
    assert ("the code" in (rows[0]["text"] or ""), rows[-1]["text"]) == (True, "short")


def test_mail_is_its_headers_and_text_and_each_attachment_a_document(rows_of: RowsOf) -> None:
    attached = [("a.pdf", files.pdf(written(A_TEXT), SCAN)), ("a.pdf", b"no pdf"), ("b.bin", b"\x01\x02")]
    message = files.mail("Terms", "see below", files=attached, html="<p>see below</p>")
    rows = rows_of("in/m.eml", message.as_bytes())
    assert places(rows) == [
        ("in/m.eml", 1, "message 1", "ok"),
        ("in/m.eml/1-a.pdf", 1, "attachment a.pdf, page 1", "ok"),
        ("in/m.eml/1-a.pdf", 2, "attachment a.pdf, page 2", "needs_ocr"),
        ("in/m.eml/2-a.pdf", 1, "attachment a.pdf", "failed"),
        ("in/m.eml/3-b.bin", 1, "attachment b.bin", "skipped"),
    ]
    assert (rows[0]["text"] or "").endswith("Subject: Terms\n\nsee below")
    assert (rows[0]["text"] or "").count("see below") == 1


def test_mail_whose_html_is_too_deep_to_be_read_to_its_end_fails(rows_of: RowsOf) -> None:
    deep = f"<html><body>{'<div>' * 3000}at the bottom</body></html>"
    head, failed, _ = rows_of("d.eml", files.mail("deep", "", html=deep).as_bytes())
    assert (head["status"], "Subject: deep" in (head["text"] or ""), failed["status"]) == ("ok", True, "failed")
    assert "can't be read to the end" in (failed["reason"] or "")
    box = files.mailbox_of([files.mail("deep", "", html=deep), files.mail("next", "We pay")])
    _, failed, read, missed = rows_of("b.mbox", box)
    assert (failed["status"], read["status"], "We pay" in (read["text"] or "")) == ("failed", "ok", True)
    assert missed["reason"] == "3 words of it, not in the text: at the bottom"
    read, failed, _ = rows_of("p.eml", files.mail("deep", "plain", html=deep).as_bytes())
    assert (read["status"], "plain" in (read["text"] or ""), failed["status"]) == ("ok", True, "failed")


def test_mail_that_can_not_be_parsed_costs_itself_and_not_its_mailbox(rows_of: RowsOf) -> None:
    deep = b"From a@b Mon Jan  5 10:00:00 2026\n" + files.nested_mime(1100).replace(b"\r\n", b"\n") + b"\n"
    failed, read, *missed = rows_of("box.mbox", deep + files.mailbox_of([files.mail("next", "We pay")]))
    assert (failed["status"], "nested deeper" in (failed["reason"] or "")) == ("failed", True)
    assert any("at the bottom" in (row["reason"] or "") for row in missed)
    assert (read["status"], "We pay" in (read["text"] or "")) == ("ok", True)


def test_line_ends_of_mails_and_texts_are_line_feeds(rows_of: RowsOf) -> None:
    (row,) = rows_of("m.eml", b"From: a@b.c\r\nTo: d@e.f\r\nSubject: s\r\n\r\none\r\ntwo\r\n")
    assert row["text"] == "From: a@b.c\nTo: d@e.f\nSubject: s\n\none\ntwo"
    (row,) = rows_of("t.txt", b"one\r\ntwo\rthree")
    assert row["text"] == "one\ntwo\nthree"


def test_mailbox_has_a_part_for_each_message(rows_of: RowsOf) -> None:
    messages = [files.mail("one", "first"), files.mail("two", "second", files=[("x.txt", b"inside")])]
    rows = rows_of("box.mbox", files.mailbox_of(messages))
    assert places(rows) == [
        ("box.mbox", 1, "message 1", "ok"),
        ("box.mbox", 2, "message 2", "ok"),
        ("box.mbox/2-1-x.txt", 1, "message 2, attachment x.txt, text", "ok"),
    ]


def test_mailbox_with_more_attachments_than_are_converted_loses_only_the_surplus(rows_of: RowsOf) -> None:
    attached = [
        [("x.bin", b"\x01")] * 400,
        [("x.bin", b"\x01")] * 599 + [("y.txt", b"last")],
        [("y.txt", b"beyond")] * 2,
    ]
    messages = [files.mail("s", f"text {number}", files=found) for number, found in enumerate(attached)]
    rows = rows_of("box.mbox", files.mailbox_of(messages))
    assert [row["status"] for row in rows[:3]] == ["ok", "ok", "ok"]
    assert "text 2" in (rows[2]["text"] or "")
    surplus = [row for row in rows if "more than 1,000 documents" in (row["reason"] or "")]
    assert [(row["document_id"], row["status"]) for row in surplus] == [
        ("box.mbox/2-600-y.txt", "skipped"),
        ("box.mbox/3-1-y.txt", "skipped"),
        ("box.mbox/3-2-y.txt", "skipped"),
    ]
    assert len(rows) == 3 + 1002


def test_markdown_has_a_part_for_each_section_outside_code(rows_of: RowsOf) -> None:
    text = "intro\n# One\ntext\n```\n# no heading\n```\n## Two ##\nmore\n"
    rows = rows_of("m.md", text.encode())
    assert [row["locator"] for row in rows] == ["text", "section 1: One", "section 2: Two"]
    assert "\n".join(row["text"] or "" for row in rows) == text


FACT = "K1234567"
UNREAD = {
    ("failed", "encrypted"): "docx-encrypted.docx office-writer_encrypted.odt "
    "pdf-attached_encrypted.pdf pdf-encrypted.pdf zip-encrypted.zip",
    ("failed", "can't be opened as a"): "docx-cut.docx office-old.doc pdf-cut.pdf zip-as_word.docx zip-cut.zip",
    ("failed", "can't be unpacked"): "pdf-broken_stream.pdf zip-method.zip",
    ("failed", "can't be read to the end"): "html-deep.html",
    ("failed", "unpacks to"): "docx-bomb.docx zip-bomb.zip",
    ("failed", "declares entities"): "docx-entities.docx",
    ("failed", "twice under one name"): "docx-twice.docx",
    ("failed", "Invalid character"): "docx-nul.docx",
    ("failed", "not text"): "text-noise.txt",
    ("needs_review", "U+FFFD"): "text-utf16_cut.txt",
    ("failed", "PGP"): "mail-pgp.eml mail-pgp_inline.eml text-pgp.txt",
    ("failed", "uuencode"): "mail-uu.eml",
    ("failed", "encoding is damaged"): "mail-base64.eml",
    ("failed", "it holds 2 pages"): "pdf-count.pdf",
    ("failed", "Failed to load page"): "pdf-hole.pdf",
    ("failed", "XFA"): "pdf-xfa.pdf",
    ("needs_ocr", "a picture"): "docx-picture.docx html-picture.html pdf-ink.pdf pdf-mixed.pdf pdf-stamped_picture.pdf",
    ("needs_ocr", "an image"): "mail-cid.eml mail-picture.eml text-picture.png text-picture.tif text-picture.txt",
    ("needs_ocr", "no text layer"): "pdf-scan.pdf",
    ("needs_ocr", "8 of the"): "pdf-glyphs.pdf",
    ("ok", "drawn shapes"): "pdf-drawn.pdf",
    ("failed", "S/MIME"): "mail-smime.eml",
    ("failed", "without a class"): "mail-tnef.eml",
    ("skipped", "scripts"): "html-script.html",
    ("skipped", "media"): "pdf-film.pdf",
    ("skipped", "other pages"): "html-frame_in_frame.html",
    ("skipped", "8 deep"): "mail-too_deep.eml",
}
"""Files whose fact is not read, by status and reason of a row that says so."""
SAID = {name: said for said, names in UNREAD.items() for name in names.split()}


@pytest.mark.parametrize("name", sorted(planted.MAKERS))
def test_planted_fact_is_found_or_its_file_says_what_was_not_read(rows_of: RowsOf, name: str) -> None:
    rows = rows_of(name, planted.MAKERS[name](FACT))
    is_found = any(FACT in (row["text"] or "") for row in rows)
    assert is_found == (name not in SAID)
    assert not [row for row in rows if row["status"] in ("failed", "skipped") and row["text"]]
    if not is_found:
        status, why = SAID[name]
        assert any(row["status"] == status and why in (row["reason"] or "") for row in rows)


def test_slides_and_sections_have_their_places(rows_of: RowsOf) -> None:
    slides = rows_of("s.pptx", office.pptx(office.shape("one"), office.shape("two")))
    assert [(row["locator"], row["text"]) for row in slides] == [("slide 1", "one"), ("slide 2", "two")]
    (_, header) = rows_of("h.docx", files.docx_with_header("Strictly private", text="body"))
    assert (header["locator"], header["text"]) == ("header", "Strictly private")
    body = '<office:text><text:h>One</text:h><text:p>a<text:s text:c="2"/>b</text:p><text:h>Two</text:h></office:text>'
    sections = rows_of("s.odt", office.opendocument(body))
    assert [(row["locator"], row["text"]) for row in sections] == [
        ("section 1: One", "One\n\na  b"),
        ("section 2: Two", "Two"),
    ]


def test_paragraphs_of_a_text_box_have_lines_of_their_own(rows_of: RowsOf) -> None:
    box = "<draw:frame><draw:text-box><text:p>Rent</text:p><text:p>500</text:p></draw:text-box></draw:frame>"
    (row,) = rows_of("s.odt", planted.odt(f"<text:p>See{box} below</text:p>"))
    assert row["text"] == "Terms\n\nSee\nRent\n500\n below"


def test_cells_and_rows_that_a_sheet_repeats_stand_below_their_headings(rows_of: RowsOf) -> None:
    empty = '<table:table-cell table:number-columns-repeated="2"/>'
    five = '<table:table-cell table:number-columns-repeated="2"><text:p>5</text:p></table:table-cell>'
    rows = f'<table:table-row table:number-rows-repeated="2">{empty}{five}{empty}</table:table-row>'
    body = f'<office:spreadsheet><table:table table:name="T">{rows}</table:table></office:spreadsheet>'
    (row,) = rows_of("s.ods", office.opendocument(body))
    assert row["text"] == "T\n\n |  | 5 | 5\n\n |  | 5 | 5"


@pytest.mark.parametrize(
    ("name", "data", "converter", "status"),
    [
        ("docx.bin", lambda: files.docx_file(("Normal", "x")), "docx", "ok"),
        ("notes.txt", lambda: b"From: me\nTo: you\nno mail", "text", "ok"),
        ("letter", lambda: b"From 1 March 2026 on\nthe rent is 500", "text", "ok"),
        ("blank.pdf", lambda: b"", "kinds", "empty"),
        ("scan.tiff", lambda: b"II*\0....", "image", "needs_ocr"),
        ("scan.bin", lambda: b"BM\x46\0\0\0\0\0\0\0\x36", "image", "needs_ocr"),
        ("contract.txt", lambda: b"BMW AG and its supplier agree", "text", "ok"),
        ("notes.txt", lambda: b"A PDF begins with %PDF-1.4", "text", "ok"),
        ("notes.html", lambda: files.page(f"A PDF begins with %PDF-1.4. {LONG}"), "html", "ok"),
        ("padded.pdf", lambda: b"\r\n" + files.pdf(written(LONG)), "pdf", "ok"),
        ("data.parquet", lambda: b"PAR1", "kinds", "skipped"),
        ("more.zip", lambda: b"PK\x03\x04", "zip", "failed"),
    ],
)
def test_kind_is_known_by_content_before_ending(
    rows_of: RowsOf, name: str, data: Callable[[], bytes], converter: str, status: str
) -> None:
    (row,) = rows_of(name, data())
    assert (row["converter"], row["status"]) == (converter, status)


def test_what_no_table_or_path_can_hold_is_made_harmless(rows_of: RowsOf, tmp_path: Path) -> None:
    rows = rows_of("x.lie", b"")
    assert [row["document_id"] for row in rows] == ["x.lie", "x.lie/1-.._.._.._etc_x_.txt"]
    assert rows[0]["text"] == "lone ? surrogate"
    assert rows[1]["text"] == "inside"


@pytest.mark.parametrize(("name", "is_table"), [("a.jsonl", True), ("a.parquet", True), ("a.db", False)])
def test_table_of_texts_is_for_another_command(tmp_path: Path, name: str, is_table: bool) -> None:
    (tmp_path / name).write_text('{"text": "a"}')
    part = recognise(tmp_path / name)
    assert isinstance(part, Part)
    assert ("input.format: auto reads the rows of such tables" in (part.reason or "")) is is_table
