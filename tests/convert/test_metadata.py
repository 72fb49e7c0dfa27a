"""What files say of themselves, each kind as its programs write it, and what hostile files say."""

import struct
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

import docx
import pytest

from memagent_batch.data.ingest.file_tasks import PendingFile, file_documents
from memagent_batch.data.ingest.files import FileConverter
from memagent_batch.data.ingest.losses import FileDocument, FilePart, find_losses
from memagent_batch.data.ingest.readers.converter import PartStatus
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.data.ingest.readers.metadata import READERS, read_metadata
from memagent_batch.data.ingest.readers.outlook import OutlookConverter
from tests.convert import files, office, outlook
from tests.convert.files import written
from tests.convert.rows import RowsOf
from tests.convert.test_archives import BOOK
from tests.convert.test_outlook_files import item, mailbox, message  # noqa: F401 - a fixture

NOON = datetime(2024, 3, 1, 12, tzinfo=UTC)
PACKAGE = "http://schemas.openxmlformats.org/package/2006/relationships"
EVENING = datetime(2025, 8, 18, 14, 13, 20, tzinfo=UTC)
FILETIME = 134_000_000_000_000_000
"""That evening in units of Windows."""
ANN = {"author": "Ann Ö"}
DATES = {"created_at": NOON, "modified_at": EVENING}
MAIL = {"author": "Ann <ann@example.org>", "created_at": EVENING, "message_id": "3@x"}
REPLY = {**MAIL, "answers_id": "2@x", "thread_id": "1@x"}
HEADERS = (
    b"From: Ann <ann@example.org>\r\nTo: b@example.org\r\nSubject: s\r\nDate: Mon, 18 Aug 2025 16:13:20 +0200\r\n"
    b"Message-ID: <3@x>\r\nIn-Reply-To: <2@x>\r\nReferences: <1@x>\r\n <2@x>\r\n\r\nIt is due."
)
NOTE: dict[int, str | bytes] = {0x1A: "IPM.Note", 0xC1A: "Ann", 0x5D01: "ann@example.org", 0x1000: "It is due."}
IDS: dict[int, str | bytes] = {0x1035: "<3@x>", 0x1042: "<2@x>", 0x1039: "<1@x> <2@x>"}
XMP = (
    b"<?xpacket begin=''?><x:xmpmeta xmlns:x='adobe:ns:meta/'><rdf:RDF><rdf:Description xmp:CreateDate="
    b"'2024-03-01T13:00:00+01:00'><dc:creator><rdf:Seq><rdf:li>Ann &#214;</rdf:li></rdf:Seq></dc:creator>"
    b"<xmp:ModifyDate>2025-08-18T14:13:20Z</xmp:ModifyDate></rdf:Description></rdf:RDF></x:xmpmeta>"
)
NAMES = 'xmlns:dc="http://purl.org/dc/elements/1.1/" xmlns:meta="urn:oasis:names:tc:opendocument:xmlns:meta:1.0"'
META = (
    f"<m {NAMES}><meta:initial-creator>Ann \u00d6</meta:initial-creator><dc:creator>Bob</dc:creator>"
    "<meta:creation-date>2024-03-01T12:00:00.000000000</meta:creation-date><dc:date>2025-08-18T14:13:20</dc:date></m>"
)
OPF = (
    f"<metadata {NAMES}><dc:creator>Ann \u00d6</dc:creator><dc:creator>Bob</dc:creator><dc:date>2024-03-01</dc:date>"
    '<meta property="dcterms:modified">2025-08-18T14:13:20Z</meta></metadata>'
).encode()
PAGE = (
    '<html><head><meta charset="utf-8"><meta name="Author" content="Ann \u00d6"><meta property='
    '"article:published_time" content="2024-03-01T12:00:00Z"><meta http-equiv="Last-Modified" content='
    '"Mon, 18 Aug 2025 14:13:20 GMT"></head><body>Rent is 40.</body></html>'
).encode()
RTF = (
    rb"{\rtf1\ansi\ansicpg1252{\info{\author Ann \'d6}{\creatim\yr2024\mo3\dy1\hr12\min0}"
    rb"{\revtim\yr2025\mo8\dy18\hr14\min13\sec20}}Rent is 40.}"
)


def pdf(info: bytes = b"<< >>", xmp: bytes = b"", labels: str = "") -> bytes:
    pages = (f"<< /Type /Page /Parent 2 0 R /MediaBox [0 0 600 800] /Contents {number} 0 R >>" for number in (5, 6))
    objects = [
        f"<< /Type /Catalog /Pages 2 0 R /Metadata 8 0 R {labels} >>".encode(),
        b"<< /Type /Pages /Kids [3 0 R 4 0 R] /Count 2 /Resources << /Font << /F1 9 0 R >> >> >>",
        *(page.encode() for page in pages),
        *(files.stream("", written(text).encode()) for text in ("Page one", "Page two")),
        info,
        b"<< /Type /Metadata /Subtype /XML /Length %d >>\nstream\n%b\nendstream" % (len(xmp), xmp),
        files.FONT.encode(),
    ]
    return files.assembled(objects, trailer="/Info 7 0 R")


def word() -> bytes:
    document = docx.Document()
    document.add_paragraph("Rent is 40.")
    core = document.core_properties
    core.author, core.created, core.modified = "Ann Ö", NOON, EVENING
    return files.saved(document)


def with_core(package: bytes) -> bytes:
    """A package with the core properties of that document."""
    core = (
        f'<Relationship Id="c" Type="{PACKAGE}/metadata/core-properties" Target="docProps/core.xml"/></Relationships>'
    )
    relations = files.member(package, "_rels/.rels").replace(b"</Relationships>", core.encode())
    members = {"_rels/.rels": relations, "docProps/core.xml": files.member(word(), "docProps/core.xml")}
    return files.repacked(package, members)


def old_word(properties: dict[int, bytes], *, count: int | None = None) -> bytes:
    """A DOC with these properties, and no text that LibreOffice could read."""
    at = 8 + 8 * len(properties)
    section = struct.pack("<II", 0, len(properties) if count is None else count)
    for number, data in properties.items():
        section += struct.pack("<II", number, at)
        at += len(data)
    summary = bytes(44) + struct.pack("<I", 48) + section + b"".join(properties.values())
    return outlook.compound_file({"WordDocument": bytes(5000), "\x05SummaryInformation": summary})


def narrow(text: bytes) -> bytes:
    return struct.pack("<II", 30, len(text) + 1) + text + bytes(-len(text) % 4 or 4)


def filetime(ticks: int) -> bytes:
    return struct.pack("<IQ", 64, ticks)


NOON_TICKS = int((NOON - datetime(1601, 1, 1, tzinfo=UTC)).total_seconds()) * 10**7
PROPERTIES = {
    4: narrow(b"Ann \xd6"),
    12: filetime(NOON_TICKS),
    13: filetime(FILETIME),
    1: struct.pack("<IHH", 2, 1252, 0),
}
EPUB = BOOK | {"in/p.opf": BOOK["in/p.opf"].replace(b"<manifest>", OPF + b"<manifest>")}

FILES: dict[str, tuple[bytes, dict[str, Any]]] = {
    "info.pdf": (
        pdf(b"<< /Author (Ann \xd6) /CreationDate (D:20240301130000+01'00') /ModDate (D:20250818141320Z) >>"),
        ANN | DATES,
    ),
    "xmp.pdf": (pdf(xmp=XMP), ANN | DATES),
    "both.pdf": (pdf(b"<< /Author (Bob) >>", xmp=XMP), DATES | {"author": "Bob"}),
    "a.docx": (word(), ANN | DATES),
    "a.pptx": (with_core(office.pptx(office.shape("Rent is 40."))), ANN | DATES),
    "a.odt": (office.opendocument("<office:text/>", members={"meta.xml": META.encode()}), ANN | DATES),
    "a.doc": (old_word(PROPERTIES), ANN | DATES),
    "a.rtf": (RTF, ANN | DATES),
    "a.html": (PAGE, ANN | DATES),
    "a.epub": (
        files.zipped(EPUB),
        {"author": "Ann Ö; Bob", "created_at": NOON.replace(hour=0), "modified_at": EVENING},
    ),
    "a.eml": (HEADERS, REPLY),
    "first.eml": (
        HEADERS.replace(b"In-Reply-To: <2@x>\r\nReferences: <1@x>\r\n <2@x>\r\n", b""),
        MAIL | {"thread_id": "3@x"},
    ),
    "one.mbox": (b"From ann@example.org Mon Aug 18 14:13:20 2025\n" + HEADERS.replace(b"\r", b""), REPLY),
    "two.mbox": (files.mailbox_of([files.mail("a", "one"), files.mail("b", "two")]), {}),
    "a.msg": (
        outlook.compound_file(outlook.message({**NOTE, **IDS}, numbers={0x39: FILETIME, 0x3008: FILETIME})),
        REPLY | {"modified_at": EVENING},
    ),
    "sent.msg": (outlook.compound_file(outlook.message({**NOTE, 0x7D: HEADERS.decode()})), REPLY),
    "winmail.dat": (
        message({0xC1A: "Ann", 0x5D01: "ann@example.org", 0x1035: "<3@x>"}),
        MAIL | {"thread_id": "3@x", "created_at": None},
    ),
    "a.txt": (b"Rent is 40.", {}),
}


@pytest.fixture
def metadata_of(file_converter: FileConverter, tmp_path: Path) -> Any:
    """Converts a file, and returns the `metadata` of all its documents by their ids."""

    def convert(name: str, data: bytes) -> dict[str, Any]:
        file = tmp_path / f"source{Path(name).suffix}"
        file.write_bytes(data)
        pending = PendingFile(path=name, name=name, num_bytes=len(data))
        documents = file_converter.convert(file, name=name)
        digest = sha256(data).hexdigest()
        rows = file_documents(documents, file=pending, digest=digest, max_bytes=None)
        return {row["document_id"]: row["metadata"] for row in rows}

    return convert


def said(metadata: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in metadata.items() if value and name not in ("family_id", "content_hash")}


@pytest.mark.parametrize("name", FILES)
def test_file_of_each_kind_tells_author_dates_and_ids(metadata_of: Any, name: str) -> None:
    data, expected = FILES[name]
    metadata = metadata_of(name, data)[name]
    assert said(metadata) == {key: value for key, value in expected.items() if value}
    assert (metadata["family_id"], metadata["content_hash"]) == (name, sha256(data).hexdigest())


def test_mailbox_of_outlook_tells_what_its_only_message_tells(mailbox: Path, monkeypatch: pytest.MonkeyPatch) -> None:  # noqa: F811
    assert read_metadata(FileKind.PST, mailbox) == {}  # it has two
    import pypff

    root = pypff.file().root_folder.get_sub_folder(0)
    monkeypatch.setattr(pypff.file().root_folder, "number_of_sub_folders", 1)
    monkeypatch.setattr(root, "get_sub_message", lambda _: item({**NOTE, **IDS}))
    assert read_metadata(FileKind.PST, mailbox) == {
        "author": "Ann <ann@example.org>", "message_id": "3@x", "answers_id": "2@x", "thread_id": "1@x"
    }  # fmt: skip


NO_DATE = b"<< /Author (%b) /CreationDate (D:99999999999999) /ModDate (%b) >>" % (b"x" * 1_000_000, b"9" * 1_000_000)
LISTS = {12: filetime(2**64 - 1), 13: filetime(0), 4: struct.pack("<II", 0x1000 | 12, 2**32 - 1)}
"""Times beyond the calendar, and a list of so many texts in place of the author."""
HOSTILE = {
    "long.pdf": pdf(NO_DATE),
    "old.pdf": pdf(b"<< /CreationDate (D:19700101000000Z) /ModDate (D:16010101) >>"),
    "late.pdf": pdf(b"<< /CreationDate (D:99991231235959-23'59') /ModDate (D:00010101000000+23'59') >>"),
    "zone.pdf": pdf(b"<< /CreationDate (D:20240301120000+99'99') /ModDate (D:20240231120000Z) >>"),
    "a.doc": old_word(LISTS, count=2**32 - 1),
    "bomb.docx": files.repacked(word(), {"docProps/core.xml": b"<a>" + b" " * (64 << 20) + b"</a>"}),
    "entity.docx": files.repacked(
        word(),
        {"docProps/core.xml": b'<!DOCTYPE a [<!ENTITY x SYSTEM "file:///etc/passwd">]><a><creator>&x;</creator></a>'},
    ),
    "a.eml": b"From: a@x\r\nSubject: s\r\nDate: Mon, 99 Foo 20255 99:99:99 +9999\r\nMessage-ID: <"
    + b"a@" * 400_000
    + b"\r\nReferences: none\r\n\r\nIt is due.",
    "a.rtf": rb"{\rtf1{\info" + rb"{\author" * 900 + b"}" * 900 + rb"{\creatim\yr9999\mo99}}Rent is 40.}",
    "a.html": b"<html><meta name=author content='" + b"y" * 2_000_000 + b"'><body>Rent is 40.</body></html>",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_absurd_dates_are_null_and_long_texts_are_cut(metadata_of: Any, rows_of: RowsOf, name: str) -> None:
    metadata = metadata_of(name, HOSTILE[name])[name]
    assert (metadata["created_at"], metadata["modified_at"]) == (None, None)
    assert metadata["author"] in (None, "a@x", "x" * 1000)
    assert (metadata["message_id"], metadata["thread_id"]) == (None, None)
    if name != "a.doc":
        assert rows_of(name, HOSTILE[name])[0]["status"] == "ok"


def test_texts_that_no_one_sees_are_removed(metadata_of: Any) -> None:
    author = "\ufeff" + "\u202eAnn\u2069\n\0 Lee\ud800"
    data = b"<< /Author <" + author.encode("utf-16-be", "surrogatepass").hex().encode() + b"> >>"
    assert metadata_of("a.pdf", pdf(data))["a.pdf"]["author"] == "Ann Lee\ufffd"


def test_what_a_taken_over_process_says_is_checked() -> None:
    name, said = "a.zip/1-b.txt", {"author": ["x"], "created_at": "9999-12-31T00:00:00", "modified_at": 7, "more": 1}
    part = FilePart(document_id=name, locator="text", text="x", status=PartStatus.OK)
    metadata = {**said, "message_id": "a\ud800b"}
    document = FileDocument(document_id=name, parts=[part], content_hash="../../x", metadata=metadata)
    file = PendingFile(path="a.zip", name="a.zip", num_bytes=1)
    (row,) = file_documents([document], file=file, digest=None, max_bytes=None)
    assert row["metadata"] == dict.fromkeys(row["metadata"]) | {"family_id": "a.zip", "message_id": "a b"}


def test_metadata_that_can_not_be_read_are_a_note_of_a_file_that_was_read(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_: Path) -> Any:
        raise ValueError("no such date")

    monkeypatch.setitem(READERS, FileKind.PDF, fail)
    metadata = read_metadata(FileKind.PDF, Path("a.pdf"))
    for status, severities in ((PartStatus.OK, ["format"]), (PartStatus.FAILED, ["unread"])):
        part = FilePart(document_id="a.pdf", locator="page 1", text="x", status=status, reason="")
        document = FileDocument(document_id="a.pdf", parts=[part], metadata=metadata)
        losses, _ = find_losses([document])["a.pdf"]
        assert [loss["severity"] for loss in losses] == severities
        assert ("ValueError: no such date" in losses[0]["detail"]) is (status is PartStatus.OK)


def test_attachments_have_the_hash_of_the_bytes_that_were_sent(metadata_of: Any) -> None:
    text = "Die Gebühr beträgt 40 €.".encode("cp1252")
    mail = files.mail("s", "see below", files=[("b.zip", files.zipped({"a.txt": text}))])
    mail.add_attachment(text.decode("cp1252"), charset="cp1252", filename="a.txt")
    mail.add_attachment(b"", maintype="application", subtype="octet-stream", filename="none.dat")
    found = metadata_of("m.eml", mail.as_bytes())
    hashes = {name: metadata["content_hash"] for name, metadata in found.items()}
    newline = sha256(text + b"\n").hexdigest()  # as the library writes texts
    assert hashes["m.eml/1-b.zip/1-a.txt"] == sha256(text).hexdigest()
    assert hashes["m.eml/2-a.txt"] == newline
    assert hashes["m.eml/3-none.dat"] == sha256(b"").hexdigest()
    assert {metadata["family_id"] for metadata in found.values()} == {"m.eml"}


def test_attachment_that_can_not_be_unpacked_has_no_hash(metadata_of: Any) -> None:
    found = metadata_of("a.zip", office.marked_encrypted(files.zipped({"a.txt": b"x", "b.txt": b"x"})))
    assert [metadata["content_hash"] for metadata in found.values()] == [None, sha256(b"x").hexdigest()]


def test_message_inside_a_message_of_outlook_is_always_the_same_bytes(tmp_path: Path) -> None:
    inner = outlook.message(
        {**NOTE, 0x1013: b"<p>It is due.</p>"}, attached=[outlook.attachment("a.txt", b"x")], header_bytes=24
    )
    file = tmp_path / "m.msg"
    file.write_bytes(outlook.compound_file(outlook.message(NOTE, attached=[outlook.attachment("b.msg", inner)])))
    first, second = ([*OutlookConverter().convert(file)] for _ in range(2))
    assert first == second
    assert b"multipart/alternative" in first[1].data  # type: ignore[union-attr]
