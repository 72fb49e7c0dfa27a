"""All that a package of Office or LibreOffice contains: the text nodes of every XML part, and every other file.

And all files of a ZIP archive.
"""

import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from memagent_batch.data.ingest.counts.words import Content

SETTINGS = re.compile(
    r"(.*\.rels|\[Content_Types\]\.xml|docProps/.*|customXml/.*|.*/(styles\w*|settings|webSettings|fontTable|theme\d*"
    r"|calcChain|tableStyles|presProps|viewProps|people|metadata)\.xml|.*/theme/.*|META-INF/.*|meta\.xml|settings\.xml|mimetype"
    r"|.*/(printerSettings|fonts|embedTrueTypeFonts)/.*|.*\.(odttf|fntdata|bin\.rels)|Thumbnails/.*|manifest\.rdf|Configurations2/.*"
    r"|.*vbaProject.*)$",
    re.I,
)
"""Parts of a package that say how it looks, or what is said of it, and hold none of its text."""
APART = re.compile(r"\}(p|tc|tr|si|is|c|br|tab|cr|ptab|v|h|span|s|line-break|table-cell|list-item|annotation|pt|sym)$")
"""Elements at whose borders a word ends."""
OF_FINDER = re.compile(r"(.*/)?(__MACOSX/(.*/)?\._.*|\.DS_Store)$", re.S)
NAMES = ("descr", "title", "alt", "author")
"""Attributes that people read."""


def office_contents(file: Path) -> Iterator[Content]:
    """Yields the text of each XML part of a package, and its other files."""
    with zipfile.ZipFile(file) as package:
        for member in package.infolist():
            name = member.filename
            if member.is_dir() or SETTINGS.match(name):
                continue
            if name.lower().endswith((".xml", ".vml")):
                yield Content(place=name, text=_text(package.read(member)))
            else:
                yield Content(place=name, file=package.read(member))


def zip_contents(file: Path) -> Iterator[Content]:
    """Yields the files of an archive; what the Finder of macOS adds to one is none of them."""
    with zipfile.ZipFile(file) as archive:
        for member in archive.infolist():
            if (member.file_size or not member.is_dir()) and not OF_FINDER.match(member.filename):
                yield Content(place=f"file {member.filename}", is_member=True)


def _text(data: bytes) -> str:
    root = etree.fromstring(data, etree.XMLParser(resolve_entities=False, no_network=True, recover=True))
    pieces = list[str]()
    if root is not None:
        _add_text(root, pieces)
    return "".join(pieces)


def _add_text(root: Any, pieces: list[str]) -> None:
    for event, element in etree.iterwalk(root, events=("start", "end")):
        if not isinstance(element.tag, str):
            continue
        is_apart = APART.search(element.tag) is not None
        if is_apart:
            pieces.append(" ")
        if event == "start":
            pieces.append(element.text or "")
            pieces.extend(f" {element.get(name, '')} " for name in NAMES if element.get(name))
        else:
            pieces.append(element.tail or "")
