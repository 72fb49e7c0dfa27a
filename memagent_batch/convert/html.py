"""HTML by lxml: all that a reader sees, in the order of the page."""

import codecs
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import WHOLE_SOURCE, Attachment, Part, PartStatus, package_version
from memagent_batch.convert.text import BYTE_ORDER_MARKS, decoded

EDGE, CELL_END = "\v", "\f"
"""Stand for the beginning or end of a block, and for the end of a cell, until the text is put together."""
CELLS_APART = "|"
"""Stands between the cells of a row."""
TAGS_WITHOUT_TEXT = frozenset({"title", "script", "style", "template"})
"""Elements without text for a reader. Not `head`: a parser puts text there too if a page begins with a script."""
SECTIONS = ("article", "aside", "body", "div", "fieldset", "footer", "form", "header", "main", "nav", "section")
PARAGRAPHS = ("address", "blockquote", "center", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre")
LISTS = ("dd", "dl", "dt", "li", "ol", "table", "tr", "ul")
BREAK_TAGS = {
    **dict.fromkeys((*SECTIONS, *PARAGRAPHS, *LISTS), (EDGE, EDGE)),
    **dict.fromkeys(("td", "th"), ("", CELL_END)),
    "br": ("\n", ""),
}
"""What stands for an element's beginning and end."""


CHARSET = re.compile(rb"<(?:meta|\?xml)\b[^>]*?(?:charset|encoding)\s*=\s*[\"']?\s*([\w.:-]+)", re.I)
ENCODING_BYTES = 4 << 10
"""Bytes of a page among which it names its character set."""
WINDOWS_1252 = frozenset({"ascii", "iso8859-1"})
"""Character sets that browsers take for windows-1252."""


def warm_up() -> None:
    """Loads the library, for all processes of files."""
    visible_text("<p>A short page.</p>")


class HtmlConverter:
    """A page is one part: headers, footers and menus too, for nobody can know where its contract stands."""

    def version(self) -> str:
        """Its own number and lxml's."""
        return package_version("lxml", own=2)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part, and one more if the page can't be read to its end."""
        page, note = _decoded_page(file.read_bytes())
        seen = visible_text(page)
        hidden = f"{seen.num_hidden:,} characters that the page hides are left out" if seen.num_hidden else None
        yield Part(locator=WHOLE_SOURCE, text=seen.text, reason="; ".join(filter(None, (note, hidden))) or None)
        if seen.failure is not None:
            yield Part(locator="rest of the page", text="", status=PartStatus.FAILED, reason=seen.failure)


def _decoded_page(data: bytes) -> tuple[str, str | None]:
    """The page in the character set that it names, else as any text."""
    named = CHARSET.search(data[:ENCODING_BYTES])
    if named is not None and not data.startswith(tuple(BYTE_ORDER_MARKS)):
        try:
            name = codecs.lookup(named[1].decode("ascii")).name
            if not name.startswith("utf"):
                return data.decode("cp1252" if name in WINDOWS_1252 else name), None
        except (LookupError, ValueError):
            pass  # no character set, or not the one of this page
    return decoded(data)


@dataclass(frozen=True, slots=True, kw_only=True)
class VisibleText:
    """What a reader of a page sees."""

    text: str
    num_hidden: int
    """Characters of elements that the page hides, such as parts that open with a click."""
    failure: str | None
    """Why the page can't be read to its end."""


def visible_text(page: str) -> VisibleText:
    """All that a reader of the page sees, a line for each block or row. Nothing is left out as unimportant."""
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    root = etree.fromstring(page.encode("utf-8", errors="replace"), parser) if page.strip() else None
    fatal = any(error.level == etree.ErrorLevels.FATAL for error in parser.error_log)
    hidden = list[str]()
    pieces = "" if root is None else "".join(_pieces(etree.iterwalk(root, events=("start", "end")), hidden))
    blocks = "\n".join(block for block in pieces.split(EDGE) if block.strip(f" {CELL_END}"))
    rows = ([" ".join(cell.split()) for cell in line.split(CELL_END)] for line in blocks.split("\n"))
    lines = "\n".join(f" {CELLS_APART} ".join(filter(None, cells)) for cells in rows)
    return VisibleText(
        text=re.sub(r"\n{3,}", "\n\n", lines).strip(),
        num_hidden=sum(map(len, hidden)),
        failure=f"its HTML can't be read to the end: {parser.error_log.last_error.message}" if fatal else None,
    )


def _pieces(walk: Any, hidden: list[str]) -> Iterator[str]:
    """Texts in order, and what stands between them; adds texts that the page hides to `hidden`."""
    num_verbatim = 0
    for event, element in walk:
        is_end = event == "end"
        num_verbatim += (element.tag == "pre") * (-1 if is_end else 1)
        yield BREAK_TAGS.get(element.tag, ("", ""))[is_end]
        if not is_end and element.tag in TAGS_WITHOUT_TEXT:
            walk.skip_subtree()
        elif not is_end and _is_hidden(element):
            walk.skip_subtree()
            hidden.extend(text.strip() for text in element.itertext())
        else:
            text = (element.tail if is_end else element.text) or ""
            yield text if num_verbatim else re.sub(r"\s+", " ", text)


def _is_hidden(element: Any) -> bool:
    style = "".join(element.get("style", "").lower().split())
    return "display:none" in style or element.get("hidden") is not None
