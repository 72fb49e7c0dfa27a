"""Pages of a PDF with their annotations drawn into their content, from which PDFium reads text and pictures."""

import ctypes
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pypdfium2
import pypdfium2.raw as pdfium

MAX_OBJECTS = 10_000
"""Objects of a page that are compared before and after."""


class Flattener:
    """Draws the annotations of pages into their content.

    PDFium gives a page new resources to do so, also where the page uses those of the tree of pages: its pictures are
    then gone, and its fonts replaced. Such a page is copied, with its resources, into a document of its own.
    """

    def __init__(self, document: Any, file: Path) -> None:
        self._document, self._file = document, file
        self._untouched: Any = None
        """The same file, opened when first needed, whose pages are as they are stored."""

    def flatten(self, page: Any, number: int) -> Any:
        """Draws the annotations that are not hidden; closes the page and returns it as loaded again."""
        objects, flags = list(_objects(page)), list(_annotation_flags(page))
        pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
        flattened = self._document[number]
        is_whole = list(islice(_objects(flattened), len(objects))) == objects
        page.close()  # not before: the objects are compared by the addresses of their fonts
        if is_whole:
            return flattened
        flattened.close()
        return self._flattened_copy(number, flags)

    def untouched_page(self, number: int) -> Any:
        """Returns a page as the file stores it."""
        if self._untouched is None:
            self._untouched = pypdfium2.PdfDocument(self._file)
            self._untouched.init_forms()
        return self._untouched[number]

    def _flattened_copy(self, number: int, flags: list[int]) -> Any:
        self.untouched_page(number).close()  # to load a page draws its form fields, which are copied
        copy = pypdfium2.PdfDocument.new()
        copy.import_pages(self._untouched, [number])
        page = copy[0]
        for position, flag in enumerate(flags):
            annotation = pdfium.FPDFPage_GetAnnot(page, position)
            pdfium.FPDFAnnot_SetFlags(annotation, flag)
            pdfium.FPDFPage_CloseAnnot(annotation)
        pdfium.FPDFPage_Flatten(page, pdfium.FLAT_NORMALDISPLAY)
        page.close()
        return copy[0]


def _annotation_flags(page: Any) -> Iterator[int]:
    for position in range(pdfium.FPDFPage_GetAnnotCount(page)):
        annotation = pdfium.FPDFPage_GetAnnot(page, position)
        yield pdfium.FPDFAnnot_GetFlags(annotation)
        pdfium.FPDFPage_CloseAnnot(annotation)


def _objects(page: Any) -> Iterator[tuple[int, int]]:
    """Yields the kind of each object of a page, and the address of its font."""
    for index in range(min(MAX_OBJECTS, pdfium.FPDFPage_CountObjects(page))):
        handle = pdfium.FPDFPage_GetObject(page, index)
        kind = pdfium.FPDFPageObj_GetType(handle)
        font = pdfium.FPDFTextObj_GetFont(handle) if kind == pdfium.FPDF_PAGEOBJ_TEXT else None
        yield kind, ctypes.addressof(font.contents) if font else 0
