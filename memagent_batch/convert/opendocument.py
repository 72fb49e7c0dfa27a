"""ODT, ODS and ODP by lxml: a part for each section, sheet or slide, then margins, pictures and files."""

import re
import zipfile
from collections.abc import Iterator
from itertools import repeat
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, picture_parts
from memagent_batch.convert.office import require_bounds
from memagent_batch.convert.text import section_parts
from memagent_batch.errors import ConversionError

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
TABLE = "{urn:oasis:names:tc:opendocument:xmlns:table:1.0}"
DRAW = "{urn:oasis:names:tc:opendocument:xmlns:drawing:1.0}"
OFFICE = "{urn:oasis:names:tc:opendocument:xmlns:office:1.0}"
SPACES = {f"{TEXT}s": " ", f"{TEXT}tab": "\t", f"{TEXT}line-break": "\n"}
NOT_TEXT = frozenset({f"{TEXT}tracked-changes", f"{TEXT}note-citation"})
"""What was deleted, and the numbers of notes."""
BLOCKS = frozenset({f"{TEXT}p", f"{TEXT}h", f"{TEXT}list", f"{TABLE}table"})
"""What text boxes and other shapes hold, which stand inside a paragraph."""
INNER = re.compile(r"(?P<object>[^/]+)/content\.xml|Pictures/[^/]+|(?P<file>Object [^/]+)")
"""Members that are shown inside: objects such as charts, pictures, and files of other programs."""


class OpenDocumentConverter(BuiltIn):
    """Notes and comments stand in the text where they belong. What a tracked change deleted is left out."""

    package, own, modules = "lxml", 2, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """The parts of the body, then one for each text, picture or file beside it.

        Raises:
            ConversionError: the package is damaged, encrypted, unpacks to too much, or declares entities.
        """
        require_bounds(file, kind="an OpenDocument")
        with zipfile.ZipFile(file) as package:
            if b"encryption-data" in package.read("META-INF/manifest.xml"):
                raise ConversionError("encrypted: it opens with a password only; remove the password")
            yield from section_parts(_open_blocks(_root(package, "content.xml")), separator="\n\n")
            names = package.namelist()
            if "styles.xml" in names:
                margins = "\n\n".join(
                    text
                    for each in _root(package, "styles.xml").iter(f"{OFFICE}master-styles")
                    for _, text in _open_blocks(each)
                )
                yield from [Part(locator="headers and footers", text=margins)] if margins else []
            for number, name in enumerate(names, start=1):
                yield from _inner_items(package, name, number=str(number))


def _inner_items(package: zipfile.ZipFile, name: str, *, number: str) -> Iterator[Part | Attachment]:
    inner = INNER.fullmatch(name)
    if inner is None:
        return
    if inner["object"]:
        yield Part(
            locator=f"object {inner['object']}",
            text="\n\n".join(text for _, text in _open_blocks(_root(package, name))),
        )
    elif inner["file"]:
        yield Attachment(number=number, name=name, locator=f"file {name}", data=package.read(name))
    else:
        yield from picture_parts(f"picture {name}", package.read(name))


def _root(package: zipfile.ZipFile, name: str) -> Any:
    from lxml import etree

    root = etree.fromstring(package.read(name), etree.XMLParser(resolve_entities=False, no_network=True))
    if root.getroottree().docinfo.internalDTD is not None:
        raise ConversionError("its XML declares entities or a document type; they are not followed")
    return root


def _open_blocks(root: Any) -> Iterator[tuple[str | None, str]]:
    """Paragraphs and rows of tables below an element, in order; a heading, sheet or slide with its title."""
    for child in root:
        if child.tag in (f"{TEXT}p", f"{TEXT}h", f"{TABLE}table-row"):
            text = _row(child) if child.tag == f"{TABLE}table-row" else _text_line(child)
            if text.strip(" |"):
                yield from repeat((text if child.tag == f"{TEXT}h" else None, text), _times(child, "rows"))
        elif child.tag not in NOT_TEXT:
            name = child.get(f"{DRAW}name") if child.tag == f"{DRAW}page" else child.get(f"{TABLE}name")
            if name and child.tag in (f"{DRAW}page", f"{TABLE}table"):
                yield (name if child.getparent().tag != f"{OFFICE}text" else None), name
            yield from _open_blocks(child)


def _row(row: Any) -> str:
    cells = list[str]()
    for cell in row.iterchildren(f"{TABLE}*"):
        cells += [" ".join(text for _, text in _open_blocks(cell))] * _times(cell, "columns")
    return " | ".join(cells).rstrip(" |")


def _times(element: Any, what: str) -> int:
    """How often a row or cell stands there: of neighbours that are equal, or empty, the file has one."""
    return max(1, int(element.get(f"{TABLE}number-{what}-repeated", "1")))


def _text_line(element: Any) -> str:
    pieces = [element.text or ""]
    for child in element:
        if child.tag in SPACES:
            pieces.append(SPACES[child.tag] * int(child.get(f"{TEXT}c", "1")))
        elif child.tag in (f"{TEXT}note", f"{OFFICE}annotation"):
            pieces.append(f" [{' '.join(text for _, text in _open_blocks(child))}] ")
        elif child.tag not in NOT_TEXT and isinstance(child.tag, str):
            is_shape = any(each.tag in BLOCKS for each in child)
            blocks = [text for _, text in _open_blocks(child)] if is_shape else []
            pieces.append("\n".join(["", *blocks, ""]) if blocks else _text_line(child))
        pieces.append(child.tail or "")
    return "".join(pieces)
