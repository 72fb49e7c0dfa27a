"""PDF by pypdfium2: the text layer, page by page. A page that shows something without a text layer needs OCR."""

import ctypes
import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, Part, PartStatus, failure_reason, package_version
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


def warm_up() -> None:
    """Imports the library, for all processes of files."""
    importlib.import_module("pypdfium2")


class PdfConverter:
    """A page is a part. Embedded files are attachments. Filled-in form fields are part of their page."""

    def version(self) -> str:
        """Its own number and pypdfium2's."""
        return package_version("pypdfium2", own=2)

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
            raise ConversionError(f"it can't be opened as a PDF ({error}); is it whole?") from error
        document.init_forms()
        if not len(document):
            raise ConversionError("it has no page that can be opened; is it whole?")
        for number in range(len(document)):
            try:
                yield _page_part(document, number)
            except pypdfium2.PdfiumError as error:
                yield Part(locator=f"page {number + 1}", text="", status=PartStatus.FAILED, reason=str(error))
        yield from _attachments(document)


def _page_part(document: Any, number: int) -> Part:
    page = document[number]
    if document.formenv is not None:
        page.flatten()
        page.close()
        page = document[number]
    text = page.get_textpage().get_text_range()
    status, reason = _judge(page, text)
    page.close()
    return Part(locator=f"page {number + 1}", text=text, status=status, reason=reason)


def _judge(page: Any, text: str) -> tuple[PartStatus, str | None]:
    """What the text layer of a page is worth."""
    visible = [character for character in text if not character.isspace()]
    unreadable = sum(_is_unreadable(character) for character in visible)
    if unreadable > UNREADABLE_SHARE * len(visible):
        return PartStatus.NEEDS_OCR, f"{unreadable} of the {len(visible)} characters of its text layer have no meaning"
    if len(visible) > STAMP_CHARACTERS:
        return PartStatus.OK, None
    share, shows = _image_share(page)
    if visible and share < SCAN_SHARE:
        return PartStatus.OK, None
    if visible:
        return PartStatus.NEEDS_OCR, "an image fills the page, and its text layer has no more than a stamp"
    if shows:
        return PartStatus.NEEDS_OCR, "it shows something, and has no text layer"
    return PartStatus.EMPTY, None


def _image_share(page: Any) -> tuple[float, bool]:
    """The largest image's share of the page's area, and whether the page shows anything at all."""
    import pypdfium2.raw as pdfium

    area, largest, shows = max(page.get_width() * page.get_height(), 1.0), 0.0, False
    for looked_at, thing in enumerate(page.get_objects(max_depth=FORM_DEPTH)):
        shows |= thing.type != pdfium.FPDF_PAGEOBJ_FORM
        if thing.type == pdfium.FPDF_PAGEOBJ_IMAGE:
            left, bottom, right, top = thing.get_bounds()
            largest = max(largest, (right - left) * (top - bottom) / area)
        if looked_at > LOOKED_AT:
            break
    return largest, shows


def _is_unreadable(character: str) -> bool:
    code = ord(character)
    return code < 0x20 or 0xE000 <= code <= 0xF8FF or 0xFFF9 <= code <= 0xFFFF or 0xD800 <= code <= 0xDFFF


def _attachments(document: Any) -> Iterator[Attachment]:
    for number in range(1, document.count_attachments() + 1):
        name = f"unnamed-{number}"
        try:
            attachment = document.get_attachment(number - 1)
            name = attachment.get_name() or name
            data, failure = _file_data(attachment), None
        except Exception as error:  # noqa: BLE001 - a damaged file costs itself, whatever its library makes of it
            data, failure = b"", f"this embedded file can't be read ({failure_reason(error)})"
        yield Attachment(number=str(number), name=name, locator=f"attachment {name}", data=data, failure=failure)


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
