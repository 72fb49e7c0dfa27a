"""HTML by lxml: all that a reader sees, in the order of the page."""

import re
from base64 import b64decode
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from memagent_batch.convert.charsets import Decoded, decode_text, find_codec, is_ascii_label
from memagent_batch.convert.converter import WHOLE_SOURCE, Attachment, BuiltIn, Part, PartStatus, picture_parts
from memagent_batch.convert.text import doubtful

EDGE, CELL_END, ROW, ROW_END = "\v", "\f", "\x1c", "\x1d"
"""Stand for the beginning or end of a block, for the end of a cell, and for those of a row, until the text is put
together."""
INNER_ROW = re.compile(f"{ROW}([^{ROW}{ROW_END}]*){ROW_END}")
"""A row without a table in it."""
CELL_CHARACTERS = 300
"""Longest cell of a row that is one line, whatever paragraphs are in its cells; longer ones are columns of a page."""
CELLS_APART = "|"
"""Stands between the cells of a row."""
TAGS_WITHOUT_TEXT = frozenset({"title", "script", "style", "template"})
"""Elements without text on the page. Not `head`: a parser puts text there too if a page begins with a script."""
INNER_PAGES = frozenset({"iframe", "frame", "object", "embed"})
TYPED = frozenset({"text", "email", "tel", "url", "date", "number", "search", "submit", "button", "reset"})
"""Types of fields whose value is shown."""
SCRIPTED_CHARACTERS = 200
"""Characters of a page with scripts below which the scripts may write most of it."""
DATA_IMAGE = re.compile(r"data:image/[\w.+-]+;base64,(.+)", re.S)
SECTIONS = ("article", "aside", "body", "div", "fieldset", "footer", "form", "header", "main", "nav", "section")
PARAGRAPHS = ("address", "blockquote", "center", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre")
LISTS = ("dd", "dl", "dt", "li", "ol", "option", "table", "ul")
BREAK_TAGS = {
    **dict.fromkeys((*SECTIONS, *PARAGRAPHS, *LISTS), (EDGE, EDGE)),
    **dict.fromkeys(("td", "th"), ("", CELL_END)),
    "tr": (ROW, ROW_END),
    "br": ("\n", ""),
}
"""What stands for an element's beginning and end."""

INNER_PAGES_UNREAD = "other pages, which it shows inside, are not read"
SCRIPTS_UNRUN = "scripts, which are not run, may write its text; save the page as PDF"

CHARSET = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
ENCODING_BYTES = 4 << 10
"""Bytes of a page among which it names its character set."""


class HtmlConverter(BuiltIn):
    """A page is one part: headers, footers and menus too, for nobody can know where its contract stands."""

    package, own, modules = "lxml", 6, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the text, a part for each picture that the page holds, and one for each kind of thing left unread."""
        page = decode_page(file.read_bytes())
        seen = visible_text(page.text)
        text = seen.text if seen.title in seen.text else f"{seen.title}\n\n{seen.text}".strip()
        yield from doubtful([Part(locator=WHOLE_SOURCE, text=text)], page.doubt)
        for number, picture in enumerate(seen.pictures, start=1):
            yield from picture_parts(f"picture {number}", picture)
        if seen.inner_pages:
            yield Part(locator="inner pages", status=PartStatus.SKIPPED, reason=INNER_PAGES_UNREAD)
        if seen.has_script and len(seen.text) < SCRIPTED_CHARACTERS:
            yield Part(locator="scripts", status=PartStatus.SKIPPED, reason=SCRIPTS_UNRUN)
        if seen.failure is not None:
            yield Part(locator="rest of the page", status=PartStatus.FAILED, reason=seen.failure)


def decode_page(data: bytes, *, label: str | None = None) -> Decoded:
    """Decodes a page by its byte order mark, by a label, or as `decode_text` does without a label.

    Args:
        data: the page as bytes.
        label: the charset that a header of HTTP or MIME names. If it names none that is known, the one in the page
            counts.

    Raises:
        ConversionError: the bytes are not text.
    """
    if label is not None and (is_ascii_label(label) or find_codec(label) is None):
        label = None
    named = CHARSET.search(data[:ENCODING_BYTES]) if label is None else None
    if named is not None:
        label = named[1].decode("ascii")
        if (find_codec(label) or "").startswith("utf-16"):  # the declaration could be read, so it is wrong
            label = "utf-8"
    return decode_text(data, label=label)


@dataclass(slots=True, kw_only=True)
class VisibleText:
    """What a reader of a page sees, and may see after a click."""

    text: str = ""
    title: str = ""
    pictures: list[bytes] = field(default_factory=list)
    inner_pages: bool = False
    """Whether it shows other pages, which are not in it."""
    has_script: bool = False
    failure: str | None = None


def visible_text(page: str) -> VisibleText:
    """All that a reader of the page may see, a line for each block or row. Nothing is left out as unimportant."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    root = etree.fromstring(page.encode("utf-8", errors="replace"), parser) if page.strip() else None
    seen = VisibleText()
    if any(error.level == etree.ErrorLevels.FATAL for error in parser.error_log):
        seen.failure = f"its HTML can't be read to the end: {parser.error_log.last_error.message}"
    pieces = "" if root is None else "".join(_pieces(etree.iterwalk(root, events=("start", "end")), seen))
    pieces = re.sub(f"[{ROW}{ROW_END}]", EDGE, INNER_ROW.sub(_row, pieces))
    blocks = "\n".join(block for block in pieces.split(EDGE) if block.strip(f" {CELL_END}"))
    lines = "\n".join(map(_line, blocks.split("\n")))
    seen.text = re.sub(r"\n{3,}", "\n\n", lines).strip()
    return seen


def _row(row: re.Match[str]) -> str:
    """A row as one block; one with a long cell as the blocks of its cells."""
    if all(len(cell) <= CELL_CHARACTERS for cell in row[1].split(CELL_END)):
        return EDGE + re.sub(f"[{EDGE}\n]", " ", row[1]) + EDGE
    return EDGE + re.sub(f"{EDGE} *{CELL_END}", EDGE, row[1]) + EDGE


def _line(line: str) -> str:
    """A line of the text. Empty cells of a row keep their places, so that values stay below their headings."""
    cells = (" ".join(cell.split()) for cell in line.split(CELL_END))
    return f" {CELLS_APART} ".join(cells).rstrip(f" {CELLS_APART}")


def _pieces(walk: Any, seen: VisibleText) -> Iterator[str]:
    """Texts in order, and what stands between them; adds what is not text to `seen`."""
    num_verbatim = 0
    for event, element in walk:
        is_end = event == "end"
        num_verbatim += (element.tag == "pre") * (-1 if is_end else 1)
        yield BREAK_TAGS.get(element.tag, ("", ""))[is_end]
        if is_end:
            text = element.tail
        elif element.tag in TAGS_WITHOUT_TEXT:
            walk.skip_subtree()
            seen.has_script |= element.tag == "script"
            seen.title = seen.title or (" ".join((element.text or "").split()) if element.tag == "title" else "")
            continue
        else:
            text = _attribute_text(element, seen) + (element.text or "")
        yield (text or "") if num_verbatim else re.sub(r"\s+", " ", text or "")


def _attribute_text(element: Any, seen: VisibleText) -> str:
    if element.tag == "input" and element.get("type", "text").lower() in TYPED:
        return f" {element.get('value', '')} "
    if element.tag in INNER_PAGES and element.get("srcdoc"):
        inner = visible_text(element.get("srcdoc"))
        seen.pictures.extend(inner.pictures)
        seen.inner_pages |= inner.inner_pages
        seen.failure = seen.failure or inner.failure
        return f"{EDGE}{inner.text}{EDGE}"
    seen.inner_pages |= element.tag in INNER_PAGES
    image = DATA_IMAGE.match(element.get("src", "")) if element.tag == "img" else None
    if image is not None:
        with suppress(ValueError):  # what no browser can show either
            seen.pictures.append(b64decode(image[1]))
    return ""
