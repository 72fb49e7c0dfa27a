"""PPTX by python-docx's reader of packages: a part for each slide, then its notes, charts, pictures and files."""

import importlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, Part, package_version
from memagent_batch.convert.docx import FALLBACK, related_items, require_bounds, root_of
from memagent_batch.errors import ConversionError

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"
BREAKS = {f"{A}br": "\n", f"{A}tab": "\t"}


def warm_up() -> None:
    """Imports the library, for all processes of files."""
    importlib.import_module("docx")


class SlidesConverter:
    """Slides in the order of the show, hidden ones too; shapes in the order in which they are drawn."""

    def version(self) -> str:
        """Its own number and python-docx's."""
        return package_version("python-docx", own=1)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each slide, and for each text beside it.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        show = main_part(file, kind="a PPTX")
        seen = set[str]()
        for number, entry in enumerate(root_of(show).iter("{*}sldId"), start=1):
            slide, place = show.related_parts[entry.get(RELATION)], f"slide {number}"
            seen.add(slide.partname)
            yield Part(locator=place, text="\n\n".join(_slide_blocks(root_of(slide))))
            yield from related_items(slide, place=f"{place}, ", number=f"{number}-", seen=seen)


def main_part(file: Path, *, kind: str) -> Any:
    """The main part of a package of Office.

    Raises:
        ConversionError: the package can't be opened.
    """
    from docx.opc.package import OpcPackage

    require_bounds(file, kind=kind)
    try:
        return OpcPackage.open(str(file)).main_document_part
    except (KeyError, ValueError) as error:
        raise ConversionError(f"it can't be opened as {kind} ({error}); is it whole?") from error


def _slide_blocks(root: Any) -> Iterator[str]:
    """Paragraphs and tables below an element, in order."""
    for child in root:
        if child.tag == f"{A}p":
            text = _paragraph_line(child)
        elif child.tag == f"{A}tbl":
            rows = (
                [" ".join(map(_paragraph_line, cell.iter(f"{A}p"))) for cell in row.iter(f"{A}tc")]
                for row in child.iter(f"{A}tr")
            )
            text = "\n".join(" | ".join(cells) for cells in rows)
        else:
            yield from _slide_blocks(child) if child.tag != FALLBACK else ()
            continue
        if text.strip():
            yield text


def _paragraph_line(paragraph: Any) -> str:
    return "".join(
        BREAKS.get(each.tag) or (each.text if each.tag == f"{A}t" else "") or "" for each in paragraph.iter()
    )
