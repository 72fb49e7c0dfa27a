"""What files say of themselves: author, dates, and the ids by which messages belong together."""

import re
import struct
import zipfile
from collections.abc import Callable, Mapping
from contextlib import suppress
from datetime import timedelta
from email.parser import BytesHeaderParser
from email.utils import parsedate_to_datetime
from functools import partial
from html import unescape
from itertools import islice
from pathlib import Path

import olefile
import pypdfium2
import pypdfium2.raw as pdfium
from lxml import etree

from memagent_batch.data.ingest.readers.charsets import code_page_label, find_codec
from memagent_batch.data.ingest.readers.converter import failure_reason
from memagent_batch.data.ingest.readers.epub import package_place
from memagent_batch.data.ingest.readers.html import decode_page
from memagent_batch.data.ingest.readers.kinds import FileKind
from memagent_batch.data.ingest.readers.mail_text import POLICY, charset_label, decode_header, header_text
from memagent_batch.data.ingest.readers.mailbox import repair_headers, split_mailbox, to_bytes_of_mail
from memagent_batch.data.ingest.readers.metadata_values import (
    FAILURE,
    TEXTS,
    TIMES,
    clean_text,
    parse_time,
)
from memagent_batch.data.ingest.readers.outlook import CHANGED, EPOCH, Losses, MapiItem, mail_headers, open_message
from memagent_batch.data.ingest.readers.outlook_files import pst_messages, tnef_message
from memagent_batch.data.ingest.readers.packages import Package
from memagent_batch.data.ingest.readers.pdf_annotations import wide_text
from memagent_batch.data.ingest.readers.rtf import rtf_parts

DATE_CHARACTERS = 100
READ_BYTES = 1 << 20
"""Bytes that are looked at: of a message or page from its start, or of a piece of another file."""
DATE = re.compile(
    r"(?:D:)?(\d{4})-?(\d\d)-?(\d\d)(?:[T ]?(\d\d):?(\d\d)(?::?(\d\d)(?:[.,]\d+)?)?)?"
    r"\s*(?:([+-])(\d\d):?'?(\d\d)?'?|Z(?:'|00'?00'?)?|UTC|GMT)?"
)
"""Dates of XML (`2024-03-01T12:00:00Z`) and of PDF (`D:20240301120000+01'00'`)."""
MAIL_HEADERS = ("From", "Sender", "Date", "Message-ID", "In-Reply-To", "References")
MESSAGE_ID = re.compile(r"<\s*([^<>\s]+)\s*>|\A([^<>\s@]+@[^<>\s@]+)\Z")
"""An id without its brackets, which are no part of it."""
PAGE_NAMES = {
    "author": ("author", "article:author", "dc.creator", "dcterms.creator", "citation_author"),
    "created_at": ("article:published_time", "dcterms.created", "datepublished", "date", "dc.date", "created"),
    "modified_at": ("article:modified_time", "dcterms.modified", "datemodified", "last-modified", "changed"),
}
"""Names of `meta` elements of web pages, the best first."""
PDF_KEYS = {"author": b"Author", "created_at": b"CreationDate", "modified_at": b"ModDate"}
XMP_START = re.compile(rb"/Subtype\s*/XML\b[^<>]{0,100}>>\s*stream\r?\n")
XMP_VALUES = {
    "author": re.compile(rb"<dc:creator>[^<]*<rdf:\w+>[^<]*<rdf:li[^>]*>([^<]+)"),
    "created_at": re.compile(rb"xmp:CreateDate\s*(?:>|=\s*[\"'])([^<\"']+)"),
    "modified_at": re.compile(rb"xmp:ModifyDate\s*(?:>|=\s*[\"'])([^<\"']+)"),
}
RTF_AUTHOR = re.compile(rb"\{\\author\b ?((?:\\.|[^{}\\])*)\}", re.S)
RTF_TIME = re.compile(rb"\{\\(creatim|revtim)\b([^{}]*)\}")
SUMMARY, SECTION_PLACE, MOST_PROPERTIES = "\x05SummaryInformation", 44, 100
"""A stream of OLE files, where it says where its properties are, and how many of them are looked at."""
PROPERTY = struct.Struct("<III")
"""Type of a property, and its value: a time, a code page, or the size of the text that follows."""
CODE_PAGE, AUTHOR, CREATED, SAVED = 1, 4, 12, 13
TEXT_TYPES, TIME_TYPE = {30: 1, 31: 2}, 64
"""Ids of the properties that are read; the types of texts, each with its bytes for a character; the type of times."""

Said = Mapping[str, str | None]
"""What a file says of itself, by column of `metadata`. Dates are as its kind writes them."""


def read_metadata(kind: str, file: Path) -> dict[str, str]:
    """Reads what a file of a kind says of itself, by the columns of `metadata`; dates in ISO 8601.

    A value that can't be read is left out. If reading fails as a whole, the only value is `FAILURE`, the reason.
    """
    read = READERS.get(kind)
    try:
        said = {} if read is None else read(file)
    except Exception as error:  # noqa: BLE001 - libraries raise what they like at damaged files
        return {FAILURE: f"its author and dates can't be read ({failure_reason(error)})"}
    texts = {name: clean_text(said.get(name)) for name in TEXTS}
    times = {name: parse_time(_iso_date(said.get(name) or "")) for name in TIMES}
    return {name: str(value) for name, value in (texts | times).items() if value}


def _iso_date(text: str) -> str:
    text = text.strip()[:DATE_CHARACTERS]
    found = DATE.fullmatch(text)
    if found is not None:
        year, month, day, hour, minute, second, _, hours, minutes = found.groups("00")
        return f"{year}-{month}-{day}T{hour}:{minute}:{second}{found[7] or '+'}{hours}:{minutes}"
    with suppress(ValueError, OverflowError, LookupError, TypeError):  # it is no date of a mail either
        return parsedate_to_datetime(text).isoformat()
    return ""


def _read_mail(file: Path) -> Said:
    """Reads a message, or the one of a mailbox: several have no author in common."""
    data, _ = to_bytes_of_mail(file.read_bytes())
    first, *others = split_mailbox(data) or [data]
    message = BytesHeaderParser(policy=POLICY).parsebytes(repair_headers(first[:READ_BYTES]))
    label = charset_label(message)
    return {} if others else _mail_values(lambda name: header_text(message, name, label=label).text)


def _mail_values(header: Callable[[str], str]) -> Said:
    found = [MESSAGE_ID.search(header(name)) for name in ("Message-ID", "In-Reply-To", "References")]
    message_id, answers_id, first_id = (each and (each[1] or each[2]) for each in found)
    ids = {"message_id": message_id, "answers_id": answers_id, "thread_id": first_id or answers_id or message_id}
    return {"author": header("From") or header("Sender"), "created_at": header("Date").partition(";")[0], **ids}


def _read_outlook(file: Path) -> Said:
    with olefile.OleFileIO(file) as ole:
        return _message_values(open_message(ole))


def _read_pst(file: Path) -> Said:
    """Reads the one message of a mailbox: several have no author in common."""
    messages = [*islice(pst_messages(file), 2)]
    return _message_values(messages[0]) if len(messages) == 1 and isinstance(messages[0], MapiItem) else {}


def _message_values(message: MapiItem) -> Said:
    headers = mail_headers(message)
    return {**_mail_values(lambda name: decode_header(headers[name]).text), "modified_at": message.time(CHANGED)}


def _read_office(file: Path) -> Said:
    with zipfile.ZipFile(file) as package:
        names = [part.partname.lstrip("/") for part in Package(package).part("").related("core-properties")]
        return _package_values(package, names[0], "creator", "created", "modified") if names else {}


def _read_opendocument(file: Path) -> Said:
    with zipfile.ZipFile(file) as package:
        if "meta.xml" not in package.namelist():
            return {}
        return _package_values(package, "meta.xml", "initial-creator", "creation-date", "date")


def _read_epub(file: Path) -> Said:
    with zipfile.ZipFile(file) as book:
        return _package_values(book, package_place(book), "creator", "date", "meta[@property='dcterms:modified']")


def _package_values(package: zipfile.ZipFile, name: str, *tags: str) -> Said:
    """Reads author and dates from elements of a file in a package, by their names. Its entities stay as they are."""
    with package.open(name) as member:
        data = member.read(READ_BYTES)
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True))
    author, created_at, modified_at = (
        [each.text for each in root.iterfind(f".//{{*}}{tag}") if each.text] for tag in tags
    )
    return {
        "author": "; ".join(author),
        "created_at": next(iter(created_at), None),
        "modified_at": next(iter(modified_at), None),
    }


def _read_pdf(file: Path) -> Said:
    """Reads the information of a PDF, then its XMP, if that is the only one: pictures may have some, too."""
    document = pypdfium2.PdfDocument(file)
    values = {name: wide_text(partial(pdfium.FPDF_GetMetaText, document, key)) for name, key in PDF_KEYS.items()}
    data = b"" if all(values.values()) else file.read_bytes()
    starts = [found.end() for found in islice(XMP_START.finditer(data), 2)]
    packet = data[starts[0] : starts[0] + READ_BYTES].partition(b"endstream")[0] if len(starts) == 1 else b""
    found = {name: value.search(packet) for name, value in XMP_VALUES.items()}
    xmp = {name: unescape(value[1].decode("utf-8", "replace")) for name, value in found.items() if value}
    return {name: value or xmp.get(name) for name, value in values.items()}


def _read_html(file: Path) -> Said:
    with file.open("rb") as stream:
        head = stream.read(READ_BYTES)
    page = decode_page(head[: head.rfind(b">") + 1]).text.encode("utf-8", "replace")
    values = dict[str, str]()
    for element in etree.fromstring(page, etree.HTMLParser(encoding="utf-8", no_network=True)).iter("meta"):
        names = filter(None, map(element.get, ("name", "property", "itemprop", "http-equiv")))
        values.setdefault(next(names, "").strip().lower(), element.get("content", ""))
    return {name: next(filter(None, map(values.get, keys)), None) for name, keys in PAGE_NAMES.items()}


def _read_rtf(file: Path) -> Said:
    data = file.read_bytes()
    start = data.find(b"{\\info")
    info = data[start : start + READ_BYTES] if start >= 0 else b""
    author, page = RTF_AUTHOR.search(info), re.search(rb"\\ansicpg\d{1,5}", data)
    parts = rtf_parts(b"{\\rtf1%b %b}" % (page[0] if page else b"", author[1])) if author else ()
    times = {}
    for word, content in RTF_TIME.findall(info):
        numbers = {name: int(number) for name, number in re.findall(rb"\\([a-z]{2,3})(\d{1,4})", content)}
        date = [numbers.get(name, 0) for name in (b"yr", b"mo", b"dy", b"hr", b"min", b"sec")]
        times[word] = "{:04}-{:02}-{:02}T{:02}:{:02}:{:02}".format(*date)
    texts = (part.text for part in parts)
    return {"author": " ".join(texts), "created_at": times.get(b"creatim"), "modified_at": times.get(b"revtim")}


def _read_old_office(file: Path) -> Said:
    """Reads the properties of an OLE file (MS-OLEPS). olefile would read lists as long as a hostile file says."""
    if not olefile.isOleFile(file):  # a binary workbook
        return _read_office(file)
    with olefile.OleFileIO(file) as ole:
        data = ole.openstream(SUMMARY).read(READ_BYTES) + bytes(PROPERTY.size)
    (start,) = struct.unpack_from("<I", data, SECTION_PLACE)
    (count,) = struct.unpack_from("<I", data, start + 4)
    places = [struct.unpack_from("<II", data, start + 8 + 8 * i) for i in range(min(count, MOST_PROPERTIES))]
    values, codec = dict[int, str](), "cp1252"
    for number, place in sorted(places):
        kind, size, more = PROPERTY.unpack_from(data, start + place)
        if number == CODE_PAGE:
            codec = find_codec(code_page_label(size & 0xFFFF)) or codec
        elif kind == TIME_TYPE:
            with suppress(OverflowError):  # beyond the year 9999
                values[number] = (EPOCH + timedelta(microseconds=(more << 32 | size) // 10)).isoformat()
        elif kind in TEXT_TYPES and number == AUTHOR:
            text = data[start + place + 8 :][: size * TEXT_TYPES[kind]]
            values[number] = text.decode("utf-16-le" if TEXT_TYPES[kind] == 2 else codec, "replace").partition("\0")[0]
    return {"author": values.get(AUTHOR), "created_at": values.get(CREATED), "modified_at": values.get(SAVED)}


READERS: Mapping[str, Callable[[Path], Said]] = {
    **dict.fromkeys((FileKind.DOCX, FileKind.SHEETS, FileKind.SLIDES), _read_office),
    FileKind.EMAIL: _read_mail,
    FileKind.EPUB: _read_epub,
    FileKind.HTML: _read_html,
    FileKind.OLD_OFFICE: _read_old_office,
    FileKind.OPENDOCUMENT: _read_opendocument,
    FileKind.OUTLOOK: _read_outlook,
    FileKind.PDF: _read_pdf,
    FileKind.PST: _read_pst,
    FileKind.RTF: _read_rtf,
    FileKind.TNEF: lambda file: _message_values(tnef_message(file.read_bytes(), Losses())),
}
"""What reads the metadata of each kind. Files of other kinds have none."""
