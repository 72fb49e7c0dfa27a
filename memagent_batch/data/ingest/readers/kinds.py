"""What kind of file a file is: by its content first, then by its ending."""

import re
import zipfile
from collections.abc import Collection
from enum import StrEnum
from pathlib import Path

from memagent_batch.data.ingest.readers.converter import Part, PartStatus, ending_of
from memagent_batch.data.ingest.readers.mailbox import is_mail

KINDS_VERSION = "9"
"""Changes with what is recognised, so that files without a converter are looked at again."""
HEAD_BYTES = 8 << 10
"""Bytes from the beginning of a file that are looked at."""
TAIL_BYTES = 64 << 10
"""Bytes from its end; the directory of an encrypted Office file may be there."""


class FileKind(StrEnum):
    """A kind of file that has a converter."""

    PDF = "pdf"
    HTML = "html"
    DOCX = "docx"
    EMAIL = "email"
    """A message, or a mailbox of them."""
    MARKDOWN = "markdown"
    TEXT = "text"
    ZIP = "zip"
    IMAGE = "image"
    SLIDES = "slides"
    SHEETS = "sheets"
    OPENDOCUMENT = "opendocument"
    """A text, sheet or presentation of LibreOffice."""
    OUTLOOK = "outlook"
    """A message that Outlook saved (.msg)."""
    RTF = "rtf"
    ARCHIVE = "archive"
    """7z, RAR, CAB or TAR, or a file that gzip, bzip2, xz or zstd packed."""
    EPUB = "epub"
    TNEF = "tnef"
    """A message that Outlook packed for a mail (winmail.dat)."""
    PST = "pst"
    """A mailbox of Outlook."""
    OLD_OFFICE = "old_office"
    """A file of Word, Excel or PowerPoint of before 2007, or a binary workbook."""


MAIL_ENDINGS = (".eml", ".emlx", ".mbox", ".mbx", ".mht", ".mhtml")
ENDINGS = {
    ".pdf": FileKind.PDF,
    **dict.fromkeys((".html", ".htm", ".xhtml"), FileKind.HTML),
    **dict.fromkeys((".docx", ".docm", ".dotx", ".dotm"), FileKind.DOCX),
    **dict.fromkeys(MAIL_ENDINGS, FileKind.EMAIL),
    **dict.fromkeys((".md", ".markdown"), FileKind.MARKDOWN),
    **dict.fromkeys((".txt", ".text", ".log", ".csv", ".tsv", ""), FileKind.TEXT),
    ".zip": FileKind.ZIP,
    ".epub": FileKind.EPUB,
    ".tnef": FileKind.TNEF,
    **dict.fromkeys((".pst", ".ost"), FileKind.PST),
    **dict.fromkeys((".7z", ".rar", ".cab", ".tar", ".tgz", ".gz", ".bz2", ".xz", ".zst"), FileKind.ARCHIVE),
    **dict.fromkeys((".pptx", ".pptm", ".ppsx", ".potx"), FileKind.SLIDES),
    **dict.fromkeys((".xlsx", ".xlsm", ".xltx"), FileKind.SHEETS),
    **dict.fromkeys((".odt", ".ods", ".odp", ".ott"), FileKind.OPENDOCUMENT),
    ".msg": FileKind.OUTLOOK,
    ".rtf": FileKind.RTF,
    **dict.fromkeys((".doc", ".xls", ".ppt", ".pps", ".xlsb"), FileKind.OLD_OFFICE),
}
PLAIN = frozenset({FileKind.MARKDOWN, FileKind.TEXT})
"""Kinds whose content may look like the headers of a message."""
QUOTING_ENDINGS = frozenset(
    ending for ending, kind in ENDINGS.items() if ending and kind in PLAIN | {FileKind.HTML, FileKind.EMAIL}
)
"""Endings of texts that may name the mark of a PDF near their beginning."""
ZIP_MARK = b"PK\x03\x04"
PDF_MARK = b"%PDF-"
PDF_MARK_BYTES = 1 << 10
"""Bytes among which readers of PDF look for the mark: some files have other bytes before it."""

ARCHIVES: tuple[bytes, ...] = (b"7z\xbc\xaf\x27\x1c", b"Rar!\x1a\x07", b"MSCF\0", b"\x1f\x8b\x08", b"\xfd7zXZ\0")
ARCHIVES += (b"\x28\xb5\x2f\xfd", *(b"BZh%d1AY&SY" % level for level in range(1, 10)))
TNEF_MARK, PST_MARK = b"\x78\x9f\x3e\x22", b"!BDN"
TAR_MARK, TAR_MARK_START = b"ustar", 257

IMAGES = (b"\x89PNG\r\n", b"\xff\xd8\xff", b"GIF87a", b"GIF89a", b"II*\0", b"MM\0*")
IMAGE_ENDINGS = frozenset({".png", ".jpg", ".jpeg", ".gif", ".tif", ".tiff", ".bmp", ".webp", ".heic", ".jp2"})
TABLE_ENDINGS = frozenset({".parquet", ".pq", ".jsonl", ".ndjson", ".arrow", ".feather", ".ipc"})
OLE = b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1"
"""How files of Office before 2007 begin, and encrypted ones of today."""
ENCRYPTED_OFFICE = "EncryptedPackage".encode("utf-16-le")
OLD_OFFICE_STREAMS = tuple(
    name.encode("utf-16-le") for name in ("WordDocument", "Workbook", "Book\0", "PowerPoint Document")
)
DIRECTORY_BYTES = 8 << 10
"""Bytes of the directory of an OLE file that are looked at."""
OUTLOOK_STREAM = "__properties_version1.0".encode("utf-16-le")

OFFICE_LIST = "[Content_Types].xml"
PACKAGE_LISTS = frozenset({OFFICE_LIST, "META-INF/manifest.xml"})
"""Files that say what is in a package of Office or LibreOffice."""
MAIN_PARTS = {
    "xl/workbook.xml": FileKind.SHEETS,
    "ppt/presentation.xml": FileKind.SLIDES,
    "content.xml": FileKind.OPENDOCUMENT,
}
PACKAGED = frozenset({FileKind.DOCX, *MAIN_PARTS.values()})
EPUB_LIST = "META-INF/container.xml"
BINARY_SHEETS = "xl/workbook.bin"

HTML_START = re.compile(rb"\s*+(?><\?xml[^>]*>\s*)?+(?><!--.*?-->\s*)*+<(!doctype html|html|head|body)\b", re.I | re.S)
"""How a page begins. Each piece matches in one way only: the time stays linear whatever the file holds."""


def recognise(file: Path, *, own_endings: Collection[str] = ()) -> str | Part:
    """The kind of a file: a `FileKind`, or an ending (`.log`) of `own_endings`, for which the user named a converter.

    Of a file that nothing here converts the one part, which says why, and what to do.
    Only its name, its beginning, its end and the names in a ZIP file are read.
    """
    ending = ending_of(file.name)
    if ending in own_endings:
        return ending
    with file.open("rb") as stream:
        head = stream.read(HEAD_BYTES)
        stream.seek(max(0, file.stat().st_size - TAIL_BYTES))
        tail = stream.read(TAIL_BYTES)
        if head.startswith(OLE):
            stream.seek(_directory_start(head))
            tail += stream.read(DIRECTORY_BYTES)
    if not head:
        return Part(status=PartStatus.EMPTY, reason="the file has 0 bytes")
    found = _zipped(file, ending=ending) if head.startswith(ZIP_MARK) else _by_content(head, tail, ending=ending)
    if found is not None:
        return found
    kind = ENDINGS.get(ending)
    if kind is not None:
        return kind  # where its content is of no kind at all, its converter says what is wrong with it
    if ending in IMAGE_ENDINGS:
        return FileKind.IMAGE
    answered = "input.format: auto reads the rows of such tables; or " if ending in TABLE_ENDINGS else ""
    remedy = f"{answered}name one with --ingest.converter {ending}=NAME"
    return _skipped(f"files that end with {ending!r} have no converter; {remedy}")


def _by_content(head: bytes, tail: bytes, *, ending: str) -> str | Part | None:
    is_bitmap = head.startswith(b"BM") and head[6:10] == bytes(4)  # reserved; those of a text like BMW are not zero
    if head.startswith(IMAGES) or is_bitmap:
        return FileKind.IMAGE
    marked = _by_mark(head)
    if marked is not None:
        return marked
    if head.startswith(OLE):
        return _ole(head + tail, ending=ending)
    if ending != ".pdf" and ENDINGS.get(ending or ".eml") not in PLAIN and is_mail(head):
        return FileKind.EMAIL  # before PDF, which a message may name or hold
    if head.lstrip().startswith(PDF_MARK) or (ending not in QUOTING_ENDINGS and PDF_MARK in head[:PDF_MARK_BYTES]):
        return FileKind.PDF
    if HTML_START.match(head):
        return FileKind.HTML
    if head.startswith(b"{\\rtf"):
        return FileKind.RTF
    return None


def _by_mark(head: bytes) -> FileKind | None:
    if head.startswith(ARCHIVES) or head[TAR_MARK_START:].startswith(TAR_MARK):
        return FileKind.ARCHIVE
    if head.startswith(TNEF_MARK):
        return FileKind.TNEF
    return FileKind.PST if head.startswith(PST_MARK) else None


def _zipped(file: Path, *, ending: str) -> str | Part:
    """A ZIP file by the names of what it holds."""
    try:
        with zipfile.ZipFile(file) as package:
            names = frozenset(package.namelist())
    except zipfile.BadZipFile:
        return ENDINGS.get(ending, FileKind.ZIP)  # whose converter says what is wrong with it
    if BINARY_SHEETS in names and OFFICE_LIST in names:
        return FileKind.OLD_OFFICE
    for main, kind in MAIN_PARTS.items():
        if main in names and names & PACKAGE_LISTS:
            return kind
    if EPUB_LIST in names and any(name.lower().endswith(".opf") for name in names):
        return FileKind.EPUB
    is_docx = OFFICE_LIST in names and any(name.startswith("word/document") for name in names)
    named = ENDINGS.get(ending)
    return FileKind.DOCX if is_docx else named if named in PACKAGED else FileKind.ZIP


def _directory_start(head: bytes) -> int:
    """Returns where the directory of an OLE file begins, which has the names of its streams."""
    sector_bytes, sector = 1 << min(head[30], 16), int.from_bytes(head[48:52], "little")
    return (sector + 1) * sector_bytes


def _ole(sample: bytes, *, ending: str) -> str | Part:
    if ENCRYPTED_OFFICE in sample:
        return Part(
            status=PartStatus.FAILED, reason="encrypted: it opens with a password only; save it without the password"
        )
    if OUTLOOK_STREAM in sample or ENDINGS.get(ending) == FileKind.OUTLOOK:
        return FileKind.OUTLOOK
    if ENDINGS.get(ending) is FileKind.OLD_OFFICE or any(name in sample for name in OLD_OFFICE_STREAMS):
        return FileKind.OLD_OFFICE
    return _skipped("its program is not known (an OLE file); save it as DOCX, XLSX, PPTX or PDF")


def _skipped(reason: str) -> Part:
    return Part(status=PartStatus.SKIPPED, reason=reason)
