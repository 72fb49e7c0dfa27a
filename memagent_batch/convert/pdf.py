"""PDF by pypdfium2: the text layer, page by page. A page that shows something without a text layer needs OCR."""

import base64
import ctypes
import io
import re
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, PartStatus, read_attachment
from memagent_batch.errors import ConversionError

STAMP_CHARACTERS = 200
"""Most characters of a stamp, such as a page or file number, that was put on a scanned page."""
SCAN_SHARE = 0.5
"""Share of the page's area that an image has at least where the page is a scan."""
UNREADABLE_SHARE = 0.3
"""Share of characters without a meaning from which a text layer counts as unreadable: its font maps to none."""
FORM_DEPTH = 5
"""How deep forms inside forms of a page are looked into for images."""
LOOKED_AT = 10_000
"""Objects of a page that are looked at for images."""
PICTURE_SHARE, SMALL_SHARE = 0.1, 0.01
"""Share of the page's area from which pictures without text make it need OCR, or are named: a logo is smaller."""
BOX_PIECES = 8
"""Most pieces of a shape that is a line or a box."""
HYPHEN_MARK = "\ufffe"
"""What PDFium gives for a hyphen at the end of a line behind which a word goes on."""
LETTER_CURVES = 200
"""Pieces of other shapes from which they may be letters, some 15 each."""
PAGE = re.compile(rb"(\d+)\s+\d+\s+obj\s*<<[^>]*?/Type\s*/Page\b")
STREAM = re.compile(rb"(?<!end)stream\r?\n")
FILTER = re.compile(rb"/(\w+)Decode\b")
"""How a stream is packed, in its dictionary: the filters in the order in which they are undone."""
DICTIONARY_BYTES = 500
"""Bytes before a stream that say how it is packed."""
UNPACKED_AT_ONCE = 64 << 10
"""Bytes of packed content that are unpacked at once."""
ZLIB_HEADER_BYTES = 2
DOTS_PER_INCH, JPEG_QUALITY = 200, 95
PAGE_PIXELS = 40_000_000
"""Most pixels of a page that is drawn, ten times those of A4: a larger page is drawn smaller."""


class PdfConverter(BuiltIn):
    """A page is a part. Embedded files are attachments. Filled-in form fields are part of their page."""

    package, own, modules = "pypdfium2", 4, ("pypdfium2",)
    settings = ("ocr",)

    def __init__(self, *, ocr: bool = False) -> None:
        self._ocr = ocr

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each page.

        Raises:
            ConversionError: the file is encrypted or no PDF that can be opened.
        """
        import pypdfium2

        try:
            document = pypdfium2.PdfDocument(file)
        except pypdfium2.PdfiumError as error:
            if "password" in str(error).lower():
                raise ConversionError("encrypted: it opens with a password only; remove the password") from error
            raise ConversionError(f"it can't be opened as a PDF; is it whole? {error}") from error
        document.init_forms()
        if not len(document):
            raise ConversionError("it has no page that can be opened; is it whole?")
        for number in range(len(document)):
            try:
                yield from _page_items(document, number, ocr=self._ocr)
            except pypdfium2.PdfiumError as error:
                yield Part(locator=f"page {number + 1}", status=PartStatus.FAILED, reason=str(error))
        for number in range(document.count_attachments()):
            yield _embedded_file(partial(document.get_attachment, number), number=str(number + 1))
        for reason in _lost(document, file.read_bytes()):
            yield Part(locator="rest of the file", status=PartStatus.FAILED, reason=reason)


def _page_items(document: Any, number: int, *, ocr: bool) -> Iterator[Part | Attachment]:
    page = document[number]
    notes, attachments = _annotations(document, page, number=number + 1)
    if document.formenv is not None:
        page.flatten()
        page.close()
        page = document[number]
    texts = page.get_textpage()
    text = texts.get_text_range().replace(HYPHEN_MARK, "-")
    status, reason = _judge(page, texts)
    picture = _drawn(page) if ocr and status is PartStatus.NEEDS_OCR else b""
    page.close()
    yield Part(locator=f"page {number + 1}", text=text, status=status, reason=reason, picture=picture)
    if unshown := [note for note in notes if note not in text]:
        yield Part(locator=f"page {number + 1}, notes", text="\n".join(unshown))
    yield from attachments


def _drawn(page: Any) -> bytes:
    scale = min(DOTS_PER_INCH / 72, (PAGE_PIXELS / max(1.0, page.get_width() * page.get_height())) ** 0.5)
    image, out = page.render(scale=scale).to_pil().convert("RGB"), io.BytesIO()
    image.save(out, "JPEG", quality=JPEG_QUALITY)
    return out.getvalue()


def _annotations(document: Any, page: Any, *, number: int) -> tuple[list[str], list[Attachment]]:
    """Texts of the notes of a page, and files that are attached to it."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    notes, attachments = list[str](), list[Attachment]()
    for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
        note = pdfium.FPDFPage_GetAnnot(page, index)
        kind = pdfium.FPDFAnnot_GetSubtype(note)
        if kind == pdfium.FPDF_ANNOT_FILEATTACHMENT and (clipped := pdfium.FPDFAnnot_GetFileAttachment(note)):
            attached = partial(pypdfium2.PdfAttachment, clipped, document)
            attachments.append(_embedded_file(attached, number=f"p{number}-{index + 1}", place=f"page {number}, "))
        elif kind not in (pdfium.FPDF_ANNOT_WIDGET, pdfium.FPDF_ANNOT_POPUP):
            notes.append(_contents(note))
        pdfium.FPDFPage_CloseAnnot(note)
    return [note for note in notes if note.strip()], attachments


def _contents(note: Any) -> str:
    import pypdfium2.raw as pdfium

    num_bytes = pdfium.FPDFAnnot_GetStringValue(note, b"Contents", None, 0)
    text = (pdfium.FPDF_WCHAR * (num_bytes // 2))()
    pdfium.FPDFAnnot_GetStringValue(note, b"Contents", text, num_bytes)
    return bytes(text).decode("utf-16-le", "replace").rstrip("\0")


def _lost(document: Any, data: bytes) -> Iterator[str]:
    """What the file holds that no page shows, in words."""
    import pypdfium2.raw as pdfium

    if document.get_formtype() == pdfium.FORMTYPE_XFA_FULL:
        yield "its form (XFA) is not read: only programs of Adobe show it; print it to a PDF"
    if b"/Encrypt" in data:
        return
    num_pages = len(set(PAGE.findall(data)))
    if num_pages > len(document) and b"/Prev" not in data:
        yield f"it holds {num_pages} pages, and its list of pages names {len(document)}: the others are not read"
    damaged = sum(_is_damaged(data, found.start(), found.end()) for found in STREAM.finditer(data))
    if damaged:
        yield f"{damaged} pieces of it can't be unpacked to their end, and what they show is not read"


def _is_damaged(data: bytes, head_end: int, start: int) -> bool:
    """Whether packed data that is not an image can't be unpacked to its end. Its sum is not looked at.

    Data that is packed in another way than by Flate, or by Flate written as letters (ASCII85), is not judged.
    """
    head = data[max(0, head_end - DICTIONARY_BYTES) : head_end].rpartition(b"obj")[2]
    filters, end = FILTER.findall(head), data.find(b"endstream", start)
    if b"/Image" in head or filters not in ([b"Flate"], [b"ASCII85", b"Flate"]):
        return False
    if len(filters) > 1:
        try:
            data, start = base64.a85decode(data[start:end].strip(), adobe=True), 0
        except ValueError:
            return True
        end = len(data)
    unpacker = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        for at in range(start + ZLIB_HEADER_BYTES, end, UNPACKED_AT_ONCE):
            unpacker.decompress(data[at : min(end, at + UNPACKED_AT_ONCE)])
    except zlib.error:
        return True
    return not unpacker.eof


def _judge(page: Any, texts: Any) -> tuple[PartStatus, str | None]:
    """What the text layer of a page is worth."""
    import pypdfium2.raw as pdfium

    codes = [pdfium.FPDFText_GetUnicode(texts, index) for index in range(texts.count_chars())]
    visible = [index for index, code in enumerate(codes) if not chr(code).isspace()]
    unreadable = sum(
        (_is_unreadable(codes[index]) and pdfium.FPDFText_IsHyphen(texts, index) != 1)
        or pdfium.FPDFText_HasUnicodeMapError(texts, index) == 1
        for index in visible
    )
    if unreadable > UNREADABLE_SHARE * len(visible):
        return PartStatus.NEEDS_OCR, f"{unreadable} of the {len(visible)} characters of its text layer have no meaning"
    shown = _visible_text(page, texts)
    if not visible:
        return (
            (PartStatus.NEEDS_OCR, "it shows something, and has no text layer")
            if shown.any
            else (PartStatus.EMPTY, None)
        )
    if shown.largest >= SCAN_SHARE and len(visible) <= STAMP_CHARACTERS:
        return PartStatus.NEEDS_OCR, "an image fills the page, and its text layer has no more than a stamp"
    if shown.without_text >= PICTURE_SHARE:
        return PartStatus.NEEDS_OCR, f"{shown.without_text:.0%} of the page are pictures without a text layer"
    remarks = [
        f"{unreadable} characters without a meaning are not read" if unreadable else "",
        "small pictures are not read" if shown.without_text >= SMALL_SHARE else "",
        "drawn shapes, which may be letters, are not read" if shown.curves >= LETTER_CURVES else "",
    ]
    return PartStatus.OK, "; ".join(filter(None, remarks)) or None


@dataclass(slots=True)
class _Shown:
    """What a page shows beside its text layer."""

    any: bool = False
    largest: float = 0.0
    """The largest image's share of the page's area."""
    without_text: float = 0.0
    """Share of the page's area of images over which no text stands."""
    curves: int = 0
    """Pieces of filled shapes that are more than boxes."""


def _visible_text(page: Any, texts: Any) -> _Shown:
    import pypdfium2.raw as pdfium

    area, shown = max(page.get_width() * page.get_height(), 1.0), _Shown()
    for looked_at, thing in enumerate(page.get_objects(max_depth=FORM_DEPTH)):
        shown.any |= thing.type != pdfium.FPDF_PAGEOBJ_FORM
        if thing.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = thing.get_bounds()
            share = (right - left) * (top - bottom) / area
            shown.largest = max(shown.largest, share)
            is_covered = texts.get_text_bounded(left, bottom, right, top).strip()
            shown.without_text += 0.0 if is_covered else share
        elif thing.type == pdfium.FPDF_PAGEOBJ_PATH:
            num_pieces = pdfium.FPDFPath_CountSegments(thing)
            shown.curves += num_pieces if num_pieces > BOX_PIECES else 0
        if looked_at > LOOKED_AT:
            break
    return shown


def _is_unreadable(code: int) -> bool:
    return code < 0x20 or 0xE000 <= code <= 0xF8FF or 0xFFF9 <= code <= 0xFFFF or 0xD800 <= code <= 0xDFFF


def _embedded_file(opened: Callable[[], Any], *, number: str, place: str = "") -> Attachment:
    return read_attachment(
        number=number,
        locator=f"{place}attachment",
        name=lambda: str(opened().get_name()),
        data=lambda: _file_data(opened()),
        failure="this embedded file can't be read",
    )


def _file_data(attachment: Any) -> bytes:
    """The content of an embedded file, which may have no bytes."""
    import pypdfium2
    import pypdfium2.raw as pdfium

    try:
        return bytes(attachment.get_data())
    except pypdfium2.PdfiumError:
        num_bytes = ctypes.c_ulong()
        if pdfium.FPDFAttachment_GetFile(attachment, None, 0, num_bytes) and not num_bytes.value:
            return b""
        raise
