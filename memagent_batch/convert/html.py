"""HTML: the main text of a page by trafilatura, without navigation and scripts, or all that a reader sees by lxml."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import WHOLE, Attachment, Part, package_version
from memagent_batch.errors import ConversionError

FEW_SHARE = 0.25
"""Where the main text has less than this share of all visible characters, all of them are taken: a page without a clear
main text, such as a list or a form, would lose most of it."""

EDGE, CELL_END = "\v", "\f"
"""Stand for the beginning or end of a block, and for the end of a cell, until the text is put together."""
CELLS_APART = "|"
"""Stands between the cells of a row."""
HIDDEN = frozenset({"head", "title", "script", "style", "template"})
"""Elements that a reader doesn't see."""
SECTIONS = ("article", "aside", "body", "div", "fieldset", "footer", "form", "header", "main", "nav", "section")
PARAGRAPHS = ("address", "blockquote", "center", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre")
LISTS = ("dd", "dl", "dt", "li", "ol", "table", "tr", "ul")
BREAKS = {
    **dict.fromkeys((*SECTIONS, *PARAGRAPHS, *LISTS), (EDGE, EDGE)),
    **dict.fromkeys(("td", "th"), ("", CELL_END)),
    "br": ("\n", ""),
}
"""What stands for an element's beginning and end."""

WARM_UP = "<html><body><p>A short page, for which every method is tried.</p></body></html>"


def warm_up() -> None:
    """Loads the library with its lists of words, for all processes of files; they take a quarter of a second."""
    html_text(WARM_UP)


class HtmlConverter:
    """A page is one part. Nothing is fetched."""

    def version(self) -> str:
        """Its own number and trafilatura's."""
        return package_version("trafilatura", own=1)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """One part."""
        text, note = html_text(file.read_bytes())
        yield Part(locator=WHOLE, text=text, reason=note)


def html_text(data: bytes | str) -> tuple[str, str | None]:
    """The text of a page, and what to know of it."""
    import trafilatura

    if not data.strip():
        return "", None
    everything: str = trafilatura.html2txt(data) or ""
    main = trafilatura.extract(data, favor_recall=True, include_tables=True, include_comments=True) or ""
    if len(main) >= FEW_SHARE * len(everything):
        return main, None
    return everything, "no main text found: all visible text is taken"


def visible_text(page: str) -> str:
    """All that a reader of the page sees, a line for each block or row. Nothing is left out as unimportant.

    Raises:
        ConversionError: its elements are nested so deep that not all of them can be read.
    """
    from lxml import etree

    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    root = etree.fromstring(page.encode("utf-8", errors="replace"), parser) if page.strip() else None
    if any(error.level == etree.ErrorLevels.FATAL for error in parser.error_log):
        raise ConversionError(f"its HTML can't be read to the end: {parser.error_log.last_error.message}")
    pieces = "" if root is None else "".join(_pieces(etree.iterwalk(root, events=("start", "end"))))
    blocks = "\n".join(block for block in pieces.split(EDGE) if block.strip(f" {CELL_END}"))
    rows = ([" ".join(cell.split()) for cell in line.split(CELL_END)] for line in blocks.split("\n"))
    lines = "\n".join(f" {CELLS_APART} ".join(filter(None, cells)) for cells in rows)
    return re.sub(r"\n{3,}", "\n\n", lines).strip()


def _pieces(walk: Any) -> Iterator[str]:
    """Texts in order, and what stands between them."""
    num_verbatim = 0
    for event, element in walk:
        is_end = event == "end"
        num_verbatim += (element.tag == "pre") * (-1 if is_end else 1)
        yield BREAKS.get(element.tag, ("", ""))[is_end]
        if not is_end and _is_hidden(element):
            walk.skip_subtree()
        else:
            text = (element.tail if is_end else element.text) or ""
            yield text if num_verbatim else re.sub(r"\s+", " ", text)


def _is_hidden(element: Any) -> bool:
    style = "".join(element.get("style", "").lower().split())
    return element.tag in HIDDEN or "display:none" in style or element.get("hidden") is not None
