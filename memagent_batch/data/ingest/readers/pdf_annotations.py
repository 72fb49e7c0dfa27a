"""Annotations of a PDF page: notes, stamps, form fields, check boxes, struck-out text, media and attached files."""

import ctypes
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, NamedTuple

from memagent_batch.data.ingest.readers.converter import Attachment, read_attachment
from memagent_batch.data.ingest.readers.pdf_shapes import Box

RADIO_FLAG, PUSH_BUTTON_FLAG, PASSWORD_FLAG = 1 << 15, 1 << 16, 1 << 13
"""Flags of form fields."""
DEFAULT_STAMP = "Draft"
"""What a stamp without a name says, by the standard."""


class CheckBox(NamedTuple):
    """A check box or radio button of a page."""

    box: Box
    is_checked: bool
    name: str = ""


class PlacedText(NamedTuple):
    """A text that a page shows at some place if the annotation that holds it is drawn."""

    text: str
    box: Box
    label: str = ""
    """Stands before the text where it is not drawn."""


@dataclass(slots=True)
class Annotations:
    """What the annotations of a page hold."""

    page_number: int = 0
    position: int = 0
    """Position of the annotation that is being read, from 1."""
    notes: list[str] = field(default_factory=list)
    """Texts that the page does not show."""
    placed_texts: list[PlacedText] = field(default_factory=list)
    attachments: list[Attachment] = field(default_factory=list)
    check_boxes: list[CheckBox] = field(default_factory=list)
    contradictory_boxes: list[str] = field(default_factory=list)
    """Names of check boxes whose value is not what they show."""
    strikes: list[Box] = field(default_factory=list)
    """Where text is struck out."""
    drawings: list[Box] = field(default_factory=list)
    """Stamps and handwriting, which may show words without a text."""
    has_media: bool = False


def read_annotations(document: Any, page: Any, *, number: int) -> Annotations:
    """Reads the annotations of a page and makes those that show text part of its content.

    The page must be loaded again to show them.
    """
    import pypdfium2.raw as pdfium

    annotations = Annotations(page_number=number)
    readers: dict[int, Callable[[Annotations, Any, Any], bool]] = {
        pdfium.FPDF_ANNOT_WIDGET: _read_field,
        **dict.fromkeys(_markup_kinds(), _read_note),
        pdfium.FPDF_ANNOT_STAMP: _read_stamp,
        pdfium.FPDF_ANNOT_INK: _read_ink,
        pdfium.FPDF_ANNOT_STRIKEOUT: _read_strike,
        pdfium.FPDF_ANNOT_POPUP: _skip,
        pdfium.FPDF_ANNOT_FILEATTACHMENT: _read_attachment,
        **dict.fromkeys(_media_kinds(), _read_media),
    }
    for index in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, index)
        kind, annotations.position = pdfium.FPDFAnnot_GetSubtype(annotation), index + 1
        is_drawn = readers.get(kind, _read_drawn_note)(annotations, annotation, document)
        if not is_drawn:
            flags = pdfium.FPDFAnnot_GetFlags(annotation)
            pdfium.FPDFAnnot_SetFlags(annotation, flags | pdfium.FPDF_ANNOT_FLAG_HIDDEN)
        pdfium.FPDFPage_CloseAnnot(annotation)
    pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
    return annotations


def _markup_kinds() -> tuple[int, ...]:
    """Kinds that draw marks and icons, no text."""
    import pypdfium2.raw as pdfium

    lines = (pdfium.FPDF_ANNOT_HIGHLIGHT, pdfium.FPDF_ANNOT_UNDERLINE, pdfium.FPDF_ANNOT_SQUIGGLY)
    return (*lines, pdfium.FPDF_ANNOT_TEXT, pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_REDACT)


def _media_kinds() -> tuple[int, ...]:
    import pypdfium2.raw as pdfium

    film = (pdfium.FPDF_ANNOT_MOVIE, pdfium.FPDF_ANNOT_SCREEN, pdfium.FPDF_ANNOT_RICHMEDIA)
    return (*film, pdfium.FPDF_ANNOT_SOUND, pdfium.FPDF_ANNOT_THREED)


def _read_note(annotations: Annotations, annotation: Any, document: Any) -> bool:
    """Reads a note whose text the page does not show."""
    del document
    annotations.notes.append(_string(annotation, b"Contents"))
    return False


def _read_drawn_note(annotations: Annotations, annotation: Any, document: Any) -> bool:
    """Reads an annotation that may show its text, such as typed text or a line with a caption."""
    del document
    annotations.placed_texts.append(PlacedText(_string(annotation, b"Contents"), _box(annotation)))
    return True


def _read_stamp(annotations: Annotations, annotation: Any, document: Any) -> bool:
    """Reads a stamp, which programs draw by its name if it has no drawing."""
    _read_note(annotations, annotation, document)
    if _has_drawing(annotation):
        annotations.drawings.append(_box(annotation))
    else:
        annotations.notes.append(_string(annotation, b"Name") or DEFAULT_STAMP)
    return True


def _read_ink(annotations: Annotations, annotation: Any, document: Any) -> bool:
    _read_note(annotations, annotation, document)
    annotations.drawings.append(_box(annotation))
    return True


def _read_strike(annotations: Annotations, annotation: Any, document: Any) -> bool:
    import pypdfium2.raw as pdfium

    points = pdfium.FS_QUADPOINTSF()
    for index in range(pdfium.FPDFAnnot_CountAttachmentPoints(annotation)):
        if pdfium.FPDFAnnot_GetAttachmentPoints(annotation, index, points):
            across = (points.x1, points.x2, points.x3, points.x4)
            up = (points.y1, points.y2, points.y3, points.y4)
            annotations.strikes.append(Box(min(across), min(up), max(across), max(up)))
    return _read_note(annotations, annotation, document)


def _read_media(annotations: Annotations, annotation: Any, document: Any) -> bool:
    annotations.has_media = True
    return _read_note(annotations, annotation, document)


def _skip(annotations: Annotations, annotation: Any, document: Any) -> bool:
    """Leaves out a window that shows the text of another annotation."""
    del annotations, annotation, document
    return False


def _read_attachment(annotations: Annotations, annotation: Any, document: Any) -> bool:
    import pypdfium2
    import pypdfium2.raw as pdfium

    if handle := pdfium.FPDFAnnot_GetFileAttachment(annotation):
        opened = partial(pypdfium2.PdfAttachment, handle, document)
        page_number = annotations.page_number
        number, place = f"p{page_number}-{annotations.position}", f"page {page_number}, "
        annotations.attachments.append(embedded_file(opened, number=number, place=place))
    return _read_note(annotations, annotation, document)


def _read_field(annotations: Annotations, annotation: Any, document: Any) -> bool:
    """Reads a form field, of a form or of a page that was taken out of one."""
    import pypdfium2.raw as pdfium

    form, handle = document.formenv, annotation
    if pdfium.FPDFAnnot_GetFlags(annotation) & (pdfium.FPDF_ANNOT_FLAG_HIDDEN | pdfium.FPDF_ANNOT_FLAG_NOVIEW):
        return False
    flags = pdfium.FPDFAnnot_GetFormFieldFlags(form, handle) if form else _number(annotation, b"Ff")
    name = _form_text(pdfium.FPDFAnnot_GetFormFieldName, form, handle) if form else ""
    name = name or _string(annotation, b"T")
    is_button = pdfium.FPDFAnnot_HasKey(annotation, b"AS") or _string(annotation, b"FT") == "Btn"
    if form:
        kinds = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
        is_button = pdfium.FPDFAnnot_GetFormFieldType(form, handle) in kinds
    if is_button and not flags & PUSH_BUTTON_FLAG:
        is_chosen = bool(form) and pdfium.FPDFAnnot_IsChecked(form, handle)
        _add_check_box(annotations, annotation, name=name, is_radio=bool(flags & RADIO_FLAG), is_chosen=is_chosen)
        return False
    value = _form_text(pdfium.FPDFAnnot_GetFormFieldValue, form, handle) if form else ""
    value = value or _string(annotation, b"V")
    if not flags & PASSWORD_FLAG:
        annotations.placed_texts.append(PlacedText(value, _box(annotation), label=f"{name}: " if name else ""))
    return True


def _add_check_box(annotations: Annotations, annotation: Any, *, name: str, is_radio: bool, is_chosen: bool) -> None:
    import pypdfium2.raw as pdfium

    shown, value = (_string(annotation, key) for key in (b"AS", b"V"))
    has_state = bool(pdfium.FPDFAnnot_HasKey(annotation, b"AS"))
    is_checked = is_chosen or (shown if has_state else value) not in ("", "Off")
    annotations.check_boxes.append(CheckBox(_box(annotation), is_checked, name))
    if has_state and value and not is_radio and is_checked != (value != "Off"):
        annotations.contradictory_boxes.append(name)


def _has_drawing(annotation: Any) -> bool:
    import pypdfium2.raw as pdfium

    return bool(pdfium.FPDFAnnot_GetObjectCount(annotation) > 0)


def _box(annotation: Any) -> Box:
    import pypdfium2.raw as pdfium

    rect = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, rect)
    across, up = sorted((rect.left, rect.right)), sorted((rect.bottom, rect.top))
    return Box(across[0], up[0], across[1], up[1])


def _string(annotation: Any, key: bytes) -> str:
    """A text or name of an annotation; empty if it has none."""
    import pypdfium2.raw as pdfium

    return _wide_text(partial(pdfium.FPDFAnnot_GetStringValue, annotation, key))


def _form_text(function: Any, form: Any, annotation: Any) -> str:
    return _wide_text(partial(function, form, annotation))


def _wide_text(function: Callable[[Any, int], int]) -> str:
    """A text from a function that takes a buffer and its size in bytes."""
    import pypdfium2.raw as pdfium

    num_bytes = function(None, 0)
    text = (pdfium.FPDF_WCHAR * (num_bytes // 2))()
    function(text, num_bytes)
    return bytes(text).decode("utf-16-le", "replace").rstrip("\0")


def _number(annotation: Any, key: bytes) -> int:
    import pypdfium2.raw as pdfium

    value = ctypes.c_float()
    pdfium.FPDFAnnot_GetNumberValue(annotation, key, value)
    return int(value.value)


def embedded_file(opened: Callable[[], Any], *, number: str, place: str = "") -> Attachment:
    """Reads a file that is embedded in a PDF."""
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
