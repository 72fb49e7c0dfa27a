"""Electronic books (EPUB): one document, its chapters in the order of reading."""

import posixpath
import zipfile
import zlib
from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path
from urllib.parse import unquote

from lxml import etree

from memagent_batch.data.ingest.readers.converter import (
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    failure_reason,
    picture_parts,
)
from memagent_batch.data.ingest.readers.html import decode_page, unread_parts
from memagent_batch.data.ingest.readers.page_reader import visible_text
from memagent_batch.data.ingest.readers.text import TITLE_CHARACTERS, doubtful
from memagent_batch.errors import ConversionError

CONTAINER = "META-INF/container.xml"
PAGE_ENDINGS = (".xhtml", ".html", ".htm", ".xml")
PICTURE_ENDINGS = (".jpg", ".jpeg", ".png", ".gif", ".webp", ".bmp", ".tif", ".tiff")
MEDIA_ENDINGS = (".mp3", ".mp4", ".m4a", ".m4v", ".ogg", ".oga", ".ogv", ".wav", ".webm")
MEDIA = "a recording, which is not read; add what is said in it as text"


class EpubConverter(BuiltIn):
    """A chapter is a part; pages that the order of reading does not name come after the chapters."""

    package, revision, modules = "lxml", 3, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the chapters, then what is not read: pictures and recordings."""
        try:
            with zipfile.ZipFile(file) as book:
                yield from _parts(book)
        except (zipfile.BadZipFile, KeyError, etree.XMLSyntaxError) as error:
            raise ConversionError(f"it can't be opened as an EPUB file ({error}); is it whole?") from error


def _parts(book: zipfile.ZipFile) -> Iterator[Part]:
    names = [name for name in dict.fromkeys(book.namelist()) if not name.endswith("/")]
    chapters = [name for name in _reading_order(book, package_place(book)) if name in names]
    pages = [name for name in names if name.lower().endswith(PAGE_ENDINGS) and not name.startswith("META-INF/")]
    for number, name in enumerate(chapters, start=1):
        yield from _page_parts(book, name, place=f"chapter {number}", names=names)
    for name in pages:
        if name not in chapters:
            yield from _page_parts(book, name, place=f"page {name}", names=names)
    for name in names:
        if name.lower().endswith(PICTURE_ENDINGS):
            yield from picture_parts(f"picture {name}", book.read(name))
        elif name.lower().endswith(MEDIA_ENDINGS):
            yield Part(locator=f"recording {name}", status=PartStatus.SKIPPED, reason=MEDIA)


def package_place(book: zipfile.ZipFile) -> str:
    """Returns the name of the file that lists what the book holds.

    Raises:
        ConversionError: none is named.
    """
    package = next(iter(_values(book, CONTAINER, "rootfile", "full-path")), None)
    if package is None:
        raise ConversionError(f"its {CONTAINER} names no package; is it whole?")
    return package


def _reading_order(book: zipfile.ZipFile, package: str) -> list[str]:
    folder = posixpath.dirname(package)
    ids, places = _values(book, package, "item", "id"), _values(book, package, "item", "href")
    files = dict(zip(ids, places, strict=True))
    spine = [files[name] for name in _values(book, package, "itemref", "idref") if name in files]
    return [*dict.fromkeys(posixpath.normpath(posixpath.join(folder, unquote(place))) for place in spine)]


def _values(book: zipfile.ZipFile, name: str, tag: str, attribute: str) -> list[str]:
    """Returns an attribute of all elements with a tag, in order; empty where an element lacks it."""
    parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=True)
    root = etree.fromstring(book.read(name), parser)
    return [] if root is None else [element.get(attribute, "") for element in root.iter(f"{{*}}{tag}")]


def _style_sheet(book: zipfile.ZipFile, page: str, address: str) -> str | None:
    """Returns the style sheet at an address in a page of the book; None if the book does not hold it."""
    place = posixpath.normpath(posixpath.join(posixpath.dirname(page), unquote(address.partition("#")[0])))
    try:
        return book.read(place).decode("utf-8", "replace")
    except (KeyError, RuntimeError, OSError, zlib.error, zipfile.BadZipFile):  # or it is damaged or encrypted
        return None


def _page_parts(book: zipfile.ZipFile, name: str, *, place: str, names: list[str]) -> Iterator[Part]:
    try:
        page = decode_page(book.read(name))
        seen = visible_text(page.text, style_sheet=partial(_style_sheet, book, name))
    except Exception as error:  # noqa: BLE001 - a damaged or encrypted chapter costs itself
        yield Part(locator=place, status=PartStatus.FAILED, reason=failure_reason(error))
        return
    title = " ".join(seen.title.split())
    is_titled = seen.title in seen.text
    text = seen.text if is_titled else f"{seen.title}\n\n{seen.text}".strip()
    left_out = "\n".join([*seen.left_out, seen.title if is_titled else ""])
    locator = f"{place}: {title[:TITLE_CHARACTERS]}".removesuffix(": ")
    doubt = "; ".join(filter(None, (page.doubt, seen.doubt))) or None
    yield from doubtful([Part(locator=locator, text=text, left_out=left_out)], doubt)
    folder = posixpath.dirname(name)
    inside = {*names}
    outside = [
        address
        for address in seen.outside_pictures
        if posixpath.normpath(posixpath.join(folder, unquote(address.partition("#")[0]))) not in inside
    ]
    yield from unread_parts(replace(seen, outside_pictures=outside), place=f"{place}, ")
