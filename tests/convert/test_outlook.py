"""What is read of messages of Outlook (.msg), in this process."""

from pathlib import Path
from typing import Any

import pytest

from memagent_batch.data.ingest.counts.outlook import outlook_contents
from memagent_batch.data.ingest.counts.words import Given, words_of
from memagent_batch.data.ingest.readers.converter import Attachment, Part, PartStatus
from memagent_batch.data.ingest.readers.outlook import OutlookConverter
from memagent_batch.data.ingest.readers.process.server import tell
from memagent_batch.errors import ConversionError
from tests.convert import outlook

CLASS, SUBJECT, BODY, RTF, HTML, REPORT = 0x1A, 0x37, 0x1000, 0x1009, 0x1013, 0x1001
HEADERS, SENDER, ADDRESS, SMTP, AUTHOR, AUTHOR_SMTP = 0x7D, 0xC1A, 0xC1F, 0x5D01, 0x42, 0x5D02
SENT, RECEIVED, CODE_PAGE, INTERNET_CODE_PAGE = 0x39, 0xE06, 0x3FFD, 0x3FDE
NOTE = {CLASS: "IPM.Note", SENDER: "Ann", SMTP: "ann@example.org"}
NOON = 134_000_000_000_000_000
LOCATION, START = 0x8208, 0x820D
PACKED = bytes.fromhex(
    "2d0000002b0000004c5a4675f1c5c7a703000a007263706731323542320af32068656c090020627705b06c647d0a800fa0"
)
"""The example of MS-OXRTFCP: RTF that says `hello world`."""
PACKED_RUN = bytes.fromhex("1a0000001c0000004c5a4675e2d44b51410004205758595a0d6e7d010eb0")
"""Its second example: a run that refers to itself."""


def unpacked(rtf: bytes) -> bytes:
    """RTF as Outlook stores it without packing."""
    return (len(rtf) + 12).to_bytes(4, "little") + len(rtf).to_bytes(4, "little") + b"MELA" + bytes(4) + rtf


def recipient(kind: int, name: str, address: str) -> outlook.Tree:
    return outlook.message({0x3001: name, 0x39FE: address}, numbers={0x0C15: kind}, header_bytes=8)


def read(folder: Path, texts: Any, **more: Any) -> list[Part | Attachment]:
    file = folder / "m.msg"
    file.write_bytes(outlook.compound_file(outlook.message({**NOTE, **texts}, **more)))
    items, given = [*OutlookConverter().convert(file)], Given()
    for item in items:
        tell(given, item)
    assert [*given.missing(outlook_contents(file))] == []
    return items


def text(folder: Path, texts: Any, **more: Any) -> str:
    """The text of a message of which nothing is lost."""
    (part,) = read(folder, texts, **more)
    assert isinstance(part, Part)
    assert (part.status, part.reason) == (PartStatus.OK, None)
    return part.text.replace("\r\n", "\n")


def test_recipients_have_addresses_and_blind_ones_are_named(tmp_path: Path) -> None:
    people = [recipient(1, "Bo", "bo@example.org"), recipient(3, "Press", "p@example.org"), recipient(2, "Cy", "Cy")]
    to = ["To: Bo <bo@example.org>", "Cc: Cy", "Bcc: Press <p@example.org>"]
    shown = text(tmp_path, {BODY: "Hello", 0xE04: "Bo", 0xE02: "Press"}, recipients=people)
    assert shown.splitlines()[:4] == ["From: Ann <ann@example.org>", *to]
    sent = "From: ann@example.org\r\nTo: Bo <bo@example.org>\r\nSubject: As sent\r\n\r\n"
    shown = text(tmp_path, {HEADERS: sent, BODY: "Hello"}, recipients=people)
    assert shown.splitlines()[:4] == ["From: ann@example.org", *to]


def test_headers_behind_the_line_of_a_server_are_those_that_the_message_was_sent_with(tmp_path: Path) -> None:
    sent = "Microsoft Mail Internet Headers Version 2.0\r\nTo: bo@example.org\r\nOrganization: Walnut\r\nX-Spam: no\r\n"
    shown = text(tmp_path, {HEADERS: sent, BODY: "Hello"}, recipients=[recipient(1, "Bo Li", "bo@example.org")])
    to = "To: bo@example.org; Bo Li <bo@example.org>"
    assert shown == f"From: Ann <ann@example.org>\n{to}\nOrganization: Walnut\n\nHello"


def test_words_of_a_message_are_counted_in_every_property_recipient_and_message_inside_it(tmp_path: Path) -> None:
    inner = outlook.message({SUBJECT: "w1", BODY: "w2", HTML: "<p title=w3>w4</p>"}, header_bytes=24)
    texts: Any = {
        CLASS: "IPM.Contact",
        HEADERS: "Subject: w5\r\nX-Spam: no\r\n",
        RTF: unpacked(rb"{\rtf1 w6}"),
        0x8000: "w7",
    }
    people = [recipient(1, "w8", "w9@w10")]
    file = tmp_path / "m.msg"
    attached = [outlook.attachment("no", b"f" * 1000), outlook.attachment("no", inner)]
    tree = outlook.message({**texts, 0x3A16: "w11", 0x3FF8: "no"}, recipients=people, attached=attached)
    file.write_bytes(outlook.compound_file(tree))
    contents = [*outlook_contents(file)]
    words = {word for content in contents for word in words_of(content.text)}
    assert words == {f"w{number}" for number in range(1, 12)}
    assert [content.file for content in contents if content.file] == [b"f" * 1000]


def test_one_who_sends_for_another_and_both_dates_are_shown(tmp_path: Path) -> None:
    texts = {AUTHOR: "Chief", AUTHOR_SMTP: "chief@example.org", BODY: "Hello", 0x50: "Office"}
    shown = text(tmp_path, texts, numbers={SENT: NOON, RECEIVED: NOON + 600_000_000})
    assert shown.splitlines()[:5] == [
        "From: Chief <chief@example.org>",
        "Sender: Ann <ann@example.org>",
        "Reply-To: Office",
        "Date: Mon, 18 Aug 2025 14:13:20 +0000",
        "Delivery-Date: Mon, 18 Aug 2025 14:14:20 +0000",
    ]


@pytest.mark.parametrize(
    ("rtf", "shown"),
    [
        (PACKED, "hello world"),
        (PACKED_RUN, "WXYZWXYZWXYZWXYZWXYZ"),
        (unpacked(rb"{\rtf1\ansi\ansicpg1251 \'cf\'eb\'e0\'f2\'e0}"), "\u041f\u043b\u0430\u0442\u0430"),
        (
            unpacked(rb"{\rtf1\ansi\fromhtml1{\*\htmltag64 <p>}A \htmlrtf {\b\htmlrtf0 fee\htmlrtf }\htmlrtf0  is 5}"),
            "A fee is 5",
        ),
    ],
)
def test_text_that_is_there_as_packed_rtf_is_read(tmp_path: Path, rtf: bytes, shown: str) -> None:
    assert text(tmp_path, {RTF: rtf}).endswith(f"\n\n{shown}")
    assert text(tmp_path, {RTF: rtf, BODY: shown}).count(shown) == 1
    assert text(tmp_path, {RTF: rtf, BODY: "See below."}).endswith(f"See below.\n\n\n{shown}")


def test_packed_rtf_that_is_cut_off_is_a_loss(tmp_path: Path) -> None:
    for rtf in (b"short", PACKED[:30], PACKED.replace(b"LZFu", b"ABCD")):
        losses = [item.reason or "" for item in read(tmp_path, {BODY: "Hello", RTF: rtf}) if isinstance(item, Part)]
        assert "packed RTF" in losses[-1]


@pytest.mark.parametrize(
    ("page", "codec", "word"),
    [
        (1251, "cp1251", "\u041f\u043b\u0430\u0442\u0430"),
        (932, "cp932", "\u5951\u7d04\u2460"),
        (28591, "cp1252", "Geb\u00fchr \u20ac"),
        (38598, "iso8859-8", "\u05d7\u05d5\u05d6\u05d4"),
        *((page, "iso2022_jp_ext", "\u5951\u7d04\u306e\u671f\u9593") for page in (50220, 50221, 50222)),
        (51949, "cp949", "\uacc4\uc57d\ub620"),
        (65001, "utf-8", "Gr\u00f6\u00dfe \u20ac"),
    ],
)
def test_texts_are_in_the_code_page_of_their_message(tmp_path: Path, page: int, codec: str, word: str) -> None:
    data = word.encode(codec)
    for number in (CODE_PAGE, INTERNET_CODE_PAGE):
        assert text(tmp_path, {}, narrow={SUBJECT: data, BODY: data}, numbers={number: page}).endswith(
            f"Subject: {word}\n\n{word}"
        )
    shown = text(tmp_path, {HTML: b"<p>" + data + b"</p>", BODY: "x"}, numbers={INTERNET_CODE_PAGE: page})
    assert shown.endswith(f"\n{word}")


def test_text_in_no_known_code_page_may_be_wrong(tmp_path: Path) -> None:
    data = "\u0414\u043e\u0433\u043e\u0432\u043e\u0440 \u043e \u043f\u043b\u0430\u0442\u0435".encode("cp1251")
    for numbers in ({}, {CODE_PAGE: 99999}):
        (part,) = read(tmp_path, {}, narrow={BODY: data}, numbers=numbers)
        assert isinstance(part, Part)
        assert part.status is PartStatus.NEEDS_REVIEW


def test_appointments_contacts_and_reports_have_their_fields(tmp_path: Path) -> None:
    texts = {CLASS: "IPM.Appointment", SUBJECT: "Audit", BODY: "Bring the books.", 0x8000: "Room 4"}
    shown = text(tmp_path, texts, numbers={0x8001: NOON}, names=[LOCATION, START])
    assert shown.endswith("Bring the books.\n\nLocation: Room 4\nStart: Mon, 18 Aug 2025 14:13:20 +0000")
    contact = {CLASS: "IPM.Contact", 0x3A16: "Walnut Ltd", 0x3A1C: "+41 44 1234567", 0x8000: "cy@example.org"}
    shown = text(tmp_path, contact, names=[0x8083])
    assert shown.endswith("Company: Walnut Ltd\nMobile phone: +41 44 1234567\nE-mail: cy@example.org")
    bounced = {0x3001: "Dee", 0x39FE: "dee@example.org", 0x0C1B: "550 mailbox full"}
    report = outlook.message(bounced, numbers={0x0C15: 1}, header_bytes=8)
    shown = text(tmp_path, {CLASS: "REPORT.IPM.Note.NDR", REPORT: "Not delivered."}, recipients=[report])
    assert "To: Dee <dee@example.org>" in shown
    assert shown.endswith("Not delivered.\n\n550 mailbox full")


def test_what_of_a_message_is_not_read_is_named(tmp_path: Path) -> None:
    target = {"__substg1.0_370D001F": "https://example.org/far.docx".encode("utf-16-le")}
    for more, shown in (({}, "a link,"), (target, "a link to https://example.org/far.docx,")):
        (_, loss) = read(tmp_path, {BODY: "See it."}, attached=[{**outlook.attachment("far.docx", None), **more}])
        assert isinstance(loss, Part)
        assert (loss.status, shown in (loss.reason or "")) == (PartStatus.FAILED, True)
    (_, loss) = read(tmp_path, {CLASS: "IPM.Task.Order", BODY: "At noon."})
    assert isinstance(loss, Part)
    assert "IPM.Task.Order" in (loss.reason or "")
    whole = (tmp_path / "m.msg").read_bytes()
    for torn in (whole[:700], whole[:512] + bytes(len(whole) - 512)):
        (tmp_path / "m.msg").write_bytes(torn)
        with pytest.raises(ConversionError, match="is it whole"):
            list(OutlookConverter().convert(tmp_path / "m.msg"))
