"""Annotations of a PDF page: notes, stamps, form fields, check boxes, struck-out text, media and attached files."""

import ctypes
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from html import unescape
from typing import Any, NamedTuple

import pypdfium2
import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.readers.converter import Attachment, read_attachment
from memagent_batch.data.ingest.readers.pdf_shapes import Box

RADIO_FLAG, PUSH_BUTTON_FLAG, PASSWORD_FLAG = 1 << 15, 1 << 16, 1 << 13
"""Flags of form fields."""
DEFAULT_STAMP = "Draft"
"""What a stamp without a name says, by the standard."""
TAG = re.compile(r"<[^>]*>")
DRAWING_KINDS = frozenset({pdfium.FPDF_ANNOT_STAMP, pdfium.FPDF_ANNOT_INK})
MEDIA_KINDS = frozenset({pdfium.FPDF_ANNOT_MOVIE, pdfium.FPDF_ANNOT_SCREEN, pdfium.FPDF_ANNOT_RICHMEDIA}) | {
    pdfium.FPDF_ANNOT_SOUND,
    pdfium.FPDF_ANNOT_THREED,
}
MARK_KINDS = frozenset({pdfium.FPDF_ANNOT_HIGHLIGHT, pdfium.FPDF_ANNOT_UNDERLINE, pdfium.FPDF_ANNOT_SQUIGGLY}) | {
    *(pdfium.FPDF_ANNOT_TEXT, pdfium.FPDF_ANNOT_LINK, pdfium.FPDF_ANNOT_REDACT),
    *(pdfium.FPDF_ANNOT_STRIKEOUT, pdfium.FPDF_ANNOT_FILEATTACHMENT),
}
"""Kinds that draw marks and icons, no text."""


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
    tooltip: str = ""
    """Stands before the text where the page does not say it."""


class Comment(NamedTuple):
    """A text about some of a page, and who wrote it."""

    text: str
    author: str
    anchors: Sequence[Box]
    """Where the text stands that it is about."""


@dataclass(slots=True)
class Annotations:
    """What the annotations of a page hold."""

    comments: list[Comment] = field(default_factory=list)
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
    show_text: bool = False
    """Whether some of them are to be drawn on the page."""
    hidden: list[str] = field(default_factory=list)
    """Values of fields that no program shows."""
    left_out: list[str] = field(default_factory=list)
    """Words that the text does not repeat: other choices and tooltips of fields, and authors of empty annotations."""

    def read(self, document: Any, page: Any, *, number: int) -> None:
        """Reads the annotations of a page, and hides those of them that show no text."""
        for position in range(pdfium.FPDFPage_GetAnnotCount(page)):
            annotation = pdfium.FPDFPage_GetAnnot(page, position)
            if pdfium.FPDFAnnot_GetSubtype(annotation) == pdfium.FPDF_ANNOT_WIDGET:
                is_drawn = self._read_field(annotation, document.formenv)
            else:
                is_drawn = self._read_note(annotation)
            if file := pdfium.FPDFAnnot_GetFileAttachment(annotation):
                opened = partial(pypdfium2.PdfAttachment, file, document)
                number_of_file = f"p{number}-{position + 1}"
                self.attachments.append(embedded_file(opened, number=number_of_file, place=f"page {number}, "))
            flags = pdfium.FPDFAnnot_GetFlags(annotation) & ~pdfium.FPDF_ANNOT_FLAG_NOVIEW  # what only prints show
            pdfium.FPDFAnnot_SetFlags(annotation, flags if is_drawn else flags | pdfium.FPDF_ANNOT_FLAG_HIDDEN)
            pdfium.FPDFPage_CloseAnnot(annotation)
            self.show_text |= is_drawn

    def _read_note(self, annotation: Any) -> bool:
        """Reads an annotation that is no form field; tells whether it is to be drawn on the page."""
        kind, contents = pdfium.FPDFAnnot_GetSubtype(annotation), annotation_string(annotation, b"Contents")
        contents = contents if contents.strip() else TAG.sub(" ", unescape(annotation_string(annotation, b"RC")))
        if kind == pdfium.FPDF_ANNOT_POPUP:  # the window of another annotation
            return False
        author = annotation_string(annotation, b"T")
        if kind not in MARK_KINDS | MEDIA_KINDS | DRAWING_KINDS:  # such as typed text, or a line with a caption
            self.placed_texts.append(PlacedText(contents, _box(annotation)))
            self.left_out.append(author)
            return True
        self.has_media |= kind in MEDIA_KINDS
        is_bare_stamp = kind == pdfium.FPDF_ANNOT_STAMP and not pdfium.FPDFAnnot_GetObjectCount(annotation)
        name = (
            annotation_string(annotation, b"Name") or DEFAULT_STAMP if is_bare_stamp else ""
        )  # programs draw it by its name
        said = "\n".join(filter(str.strip, (contents, name)))
        if said or (author and kind in DRAWING_KINDS):
            self.comments.append(Comment(said, author, [*_marked_boxes(annotation)]))
        else:
            self.left_out.append(author)
        if kind in DRAWING_KINDS and not is_bare_stamp:
            self.drawings.append(_box(annotation))
        elif kind == pdfium.FPDF_ANNOT_STRIKEOUT:
            self.strikes += _marked_boxes(annotation)
        return kind in DRAWING_KINDS or (kind != pdfium.FPDF_ANNOT_LINK and _has_text(annotation))

    def _read_field(self, annotation: Any, form: Any) -> bool:
        """Reads a form field, of a form or of a page that was taken out of one; tells whether it is to be drawn."""
        name, value, tooltip = (annotation_string(annotation, key) for key in (b"T", b"V", b"TU"))
        is_button = pdfium.FPDFAnnot_HasKey(annotation, b"AS") or annotation_string(annotation, b"FT") == "Btn"
        if form:
            flags = pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation)
            name = wide_text(partial(pdfium.FPDFAnnot_GetFormFieldName, form, annotation)) or name
            tooltip = wide_text(partial(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)) or tooltip
            value = wide_text(partial(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)) or value
            kinds = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
            is_button = pdfium.FPDFAnnot_GetFormFieldType(form, annotation) in kinds
            value = self._choice(annotation, form) or value
        else:
            number = ctypes.c_float()
            pdfium.FPDFAnnot_GetNumberValue(annotation, b"Ff", number)
            flags = int(number.value)
        is_box = bool(is_button and not flags & PUSH_BUTTON_FLAG)
        self.left_out += [tooltip, annotation_string(annotation, b"Contents")]
        if pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN:
            self.hidden.append("" if is_box or flags & PASSWORD_FLAG else value)
            return False
        if is_box:
            is_chosen = bool(form) and pdfium.FPDFAnnot_IsChecked(form, annotation)
            is_radio = bool(flags & RADIO_FLAG)
            self._add_check_box(annotation, name=tooltip or name, is_radio=is_radio, is_chosen=is_chosen)
            return False
        if not flags & PASSWORD_FLAG:
            label = f"{tooltip or name}: " if tooltip or name else ""
            self.placed_texts.append(PlacedText(value, _box(annotation), label, tooltip))
        return True

    def _choice(self, annotation: Any, form: Any) -> str:
        """Returns what is chosen of a list, as it is shown; empty if the field has none."""
        chosen = list[str]()
        for index in range(pdfium.FPDFAnnot_GetOptionCount(form, annotation)):
            label = wide_text(partial(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, index))
            self.left_out.append(label)
            if pdfium.FPDFAnnot_IsOptionSelected(form, annotation, index):
                chosen.append(label)
        return "\n".join(chosen)

    def _add_check_box(self, annotation: Any, *, name: str, is_radio: bool, is_chosen: bool) -> None:
        shown, value = (annotation_string(annotation, key) for key in (b"AS", b"V"))
        has_state = bool(pdfium.FPDFAnnot_HasKey(annotation, b"AS"))
        is_checked = is_chosen or (shown if has_state else value) not in ("", "Off")
        self.check_boxes.append(CheckBox(_box(annotation), is_checked, name))
        if has_state and value and not is_radio and is_checked != (value != "Off"):
            self.contradictory_boxes.append(name)


def _has_text(annotation: Any) -> bool:
    """Whether an annotation that usually draws a mark draws words."""
    objects = (pdfium.FPDFAnnot_GetObject(annotation, at) for at in range(pdfium.FPDFAnnot_GetObjectCount(annotation)))
    return any(pdfium.FPDFPageObj_GetType(handle) == pdfium.FPDF_PAGEOBJ_TEXT for handle in objects)


def _marked_boxes(annotation: Any) -> Iterator[Box]:
    """Yields where an annotation marks text."""
    points = pdfium.FS_QUADPOINTSF()
    for index in range(pdfium.FPDFAnnot_CountAttachmentPoints(annotation)):
        if pdfium.FPDFAnnot_GetAttachmentPoints(annotation, index, points):
            across, up = (points.x1, points.x2, points.x3, points.x4), (points.y1, points.y2, points.y3, points.y4)
            yield Box(min(across), min(up), max(across), max(up))


def _box(annotation: Any) -> Box:
    rect = pdfium.FS_RECTF()
    pdfium.FPDFAnnot_GetRect(annotation, rect)
    across, up = sorted((rect.left, rect.right)), sorted((rect.bottom, rect.top))
    return Box(across[0], up[0], across[1], up[1])


def annotation_string(annotation: Any, key: bytes) -> str:
    """Returns a text or name of an annotation; empty if it has none."""
    return wide_text(partial(pdfium.FPDFAnnot_GetStringValue, annotation, key))


def wide_text(function: Callable[[Any, int], int]) -> str:
    """Returns a text from a function that takes a buffer and its size in bytes."""
    num_bytes = function(None, 0)
    text = (pdfium.FPDF_WCHAR * (num_bytes // 2))()
    function(text, num_bytes)
    return bytes(text).decode("utf-16-le", "replace").rstrip("\0")


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
    """Returns the content of an embedded file, which may have no bytes."""
    try:
        return bytes(attachment.get_data())
    except pypdfium2.PdfiumError:
        num_bytes = ctypes.c_ulong()
        if pdfium.FPDFAttachment_GetFile(attachment, None, 0, num_bytes) and not num_bytes.value:
            return b""
        raise
