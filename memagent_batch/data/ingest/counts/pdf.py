"""All that a PDF contains: characters, annotations and pictures of each page, bookmarks, and the files in it."""

import ctypes
import re
from collections.abc import Iterator, Sequence
from functools import partial
from html import unescape
from pathlib import Path
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

from memagent_batch.data.ingest.counts.words import Content
from memagent_batch.data.ingest.readers.pdf_annotations import annotation_string, wide_text
from memagent_batch.data.ingest.readers.pdf_flatten import Flattener
from memagent_batch.data.ingest.readers.pdf_shapes import Box, merge_boxes
from memagent_batch.data.ingest.readers.pdf_structure import page_descriptions

BOOKMARK_DEPTH = 15
TAG = re.compile(r"<[^>]*>")
HYPHEN, C1_CONTROL = "\ufffe", re.compile(r"[\x80-\x9f]")
"""What PDFium gives for a hyphen at the end of a line, and for characters of Windows-1252."""
BOXES = (pdfium.FPDF_FORMFIELD_CHECKBOX, pdfium.FPDF_FORMFIELD_RADIOBUTTON)
"""Fields that show a mark instead of words."""
CHOICES = (pdfium.FPDF_FORMFIELD_COMBOBOX, pdfium.FPDF_FORMFIELD_LISTBOX)
PASSWORD_FLAG = 1 << 13
NO_TEXT_BYTES = 2
"""Bytes of an empty text, with its end."""
PICTURE_SHARE, PICTURE_PIXELS = 0.005, 8
"""Least area of pictures that can hold a line of text, as a share of the page, and least side of one."""


def pdf_contents(file: Path) -> Iterator[Content]:
    """Yields the texts and the pictures of each page, the titles of bookmarks, and the files inside."""
    document = pypdfium2.PdfDocument(file)
    document.init_forms()
    flattener = Flattener(document, file)
    for number in range(len(document)):
        try:
            yield from _page_contents(document, flattener, number, f"page {number + 1}")
        except pypdfium2.PdfiumError:
            yield Content(place=f"page {number + 1}", unread=lambda: "it can't be opened")
    titles = (bookmark.get_title() for bookmark in document.get_toc(max_depth=BOOKMARK_DEPTH))
    yield Content(place="bookmarks", text="\n".join(titles))
    for number in range(document.count_attachments()):
        yield _embedded_file(document.get_attachment(number), "")


def _page_contents(document: Any, flattener: Flattener, number: int, place: str) -> Iterator[Content]:
    page, pieces, is_drawn = document[number], list[str](), False
    yield Content(place=place, text="\n".join(page_descriptions(page)), is_alternative=True)
    for position in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, position)
        kind = pdfium.FPDFAnnot_GetSubtype(annotation)
        if kind != pdfium.FPDF_ANNOT_POPUP:  # the window of another annotation
            pieces += _annotation_texts(annotation, kind, document.formenv)
            is_drawn |= pdfium.FPDFAnnot_GetAP(annotation, 0, None, 0) > NO_TEXT_BYTES
        if rich := annotation_string(annotation, b"RC"):
            yield Content(place=place, text=TAG.sub(" ", unescape(rich)), is_alternative=True)
        if file := pdfium.FPDFAnnot_GetFileAttachment(annotation):
            yield _embedded_file(pypdfium2.PdfAttachment(file, document), f"{place}, ")
        pdfium.FPDFPage_CloseAnnot(annotation)
    if is_drawn:
        yield from _shown_contents(
            page, place, is_alternative=True
        )  # what the page has must be left when it is drawn on
        page = flattener.flatten(page, number)
    yield from _shown_contents(page, place, pieces)
    page.close()


def _shown_contents(
    page: Any, place: str, pieces: Sequence[str] = (), *, is_alternative: bool = False
) -> Iterator[Content]:
    texts = page.get_textpage()
    yield Content(place=place, text="\n".join((*pieces, _characters(texts))), is_alternative=is_alternative)
    yield Content(place=place, unread=partial(_unread_pictures, page, texts))
    texts.close()


def _characters(texts: Any) -> str:
    """Returns all characters of a page, also those that are invisible or beyond its edges."""
    num_characters = texts.count_chars()
    buffer = (pdfium.c_ushort * (num_characters + 1))()
    pdfium.FPDFText_GetText(texts, 0, num_characters, buffer)
    text = bytes(buffer).decode("utf-16-le", "replace").rstrip("\0").replace(HYPHEN, "")
    return C1_CONTROL.sub(lambda found: found[0].encode("latin-1").decode("cp1252", "replace"), text)


def _annotation_texts(annotation: Any, kind: int, form: Any) -> Iterator[str]:
    """Yields what an annotation holds. One that shows a mark alone, or is hidden, is not drawn on its page."""
    yield annotation_string(annotation, b"Contents")
    flags = pdfium.FPDFAnnot_GetFlags(annotation) & pdfium.FPDF_ANNOT_FLAG_HIDDEN
    if kind != pdfium.FPDF_ANNOT_WIDGET:
        yield annotation_string(annotation, b"T")  # who wrote it
        pdfium.FPDFAnnot_SetFlags(annotation, flags)
        return
    kind = pdfium.FPDFAnnot_GetFormFieldType(form, annotation) if form else -1
    is_password = form and pdfium.FPDFAnnot_GetFormFieldFlags(form, annotation) & PASSWORD_FLAG
    is_box = kind in BOXES or (not form and annotation_string(annotation, b"FT") == "Btn")
    pdfium.FPDFAnnot_SetFlags(annotation, pdfium.FPDF_ANNOT_FLAG_HIDDEN if is_box else flags)
    yield wide_text(partial(pdfium.FPDFAnnot_GetFormFieldAlternateName, form, annotation)) if form else ""
    num_options = pdfium.FPDFAnnot_GetOptionCount(form, annotation) if kind in CHOICES else 0
    is_chosen = False
    for index in range(num_options):
        yield wide_text(partial(pdfium.FPDFAnnot_GetOptionLabel, form, annotation, index))
        is_chosen |= pdfium.FPDFAnnot_IsOptionSelected(form, annotation, index)
    if not (is_box or is_password or is_chosen):
        value = partial(pdfium.FPDFAnnot_GetFormFieldValue, form, annotation)
        yield wide_text(value) if form else annotation_string(annotation, b"V")


def _embedded_file(attachment: Any, place: str) -> Content:
    name = f"{place}attachment {attachment.get_name()}"
    try:
        return Content(place=name, file=bytes(attachment.get_data()))
    except pypdfium2.PdfiumError:
        return Content(place=name, unread=lambda: "a file inside, which can't be read")


def _unread_pictures(page: Any, texts: Any) -> str:
    """Says how many pictures of a page have no text in them; empty if there are none."""
    bounds = Box(*page.get_bbox())
    boxes = merge_boxes(box.common(bounds) for box in _pictures(page, None))
    boxes = [box for box in boxes if box.area >= PICTURE_SHARE * bounds.area]
    rects = [Box(*texts.get_rect(index)) for index in range(texts.count_rects())] if boxes else []
    unread = [box for box in boxes if not any(box.common(rect).area for rect in rects)]
    share = sum(box.area for box in unread) / max(1.0, bounds.area)
    return f"what pictures on {share:.0%} of it show is not read" if unread else ""


def _pictures(parent: Any, matrix: Any) -> Iterator[Box]:
    """Yields where pictures of a page, or of a form on it, stand."""
    is_form = matrix is not None
    count = pdfium.FPDFFormObj_CountObjects if is_form else pdfium.FPDFPage_CountObjects
    get = pdfium.FPDFFormObj_GetObject if is_form else pdfium.FPDFPage_GetObject
    for index in range(count(parent)):
        handle = get(parent, index)
        kind = pdfium.FPDFPageObj_GetType(handle)
        if kind == pdfium.FPDF_PAGEOBJ_FORM:
            own = pdfium.FS_MATRIX()
            pdfium.FPDFPageObj_GetMatrix(handle, own)
            inner = pypdfium2.PdfMatrix.from_raw(own)
            yield from _pictures(handle, inner.multiply(matrix) if is_form else inner)
        elif kind == pdfium.FPDF_PAGEOBJ_IMAGE:
            width, height = ctypes.c_uint(), ctypes.c_uint()
            is_known = pdfium.FPDFImageObj_GetImagePixelSize(handle, width, height)
            if not is_known or min(width.value, height.value) >= PICTURE_PIXELS:
                sides = [ctypes.c_float() for _ in range(4)]
                pdfium.FPDFPageObj_GetBounds(handle, *sides)
                box = Box(*(side.value for side in sides))
                yield Box(*matrix.on_rect(*box)) if is_form else box
