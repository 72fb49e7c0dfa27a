"""How an element of a page is shown by the values of its style: where words end, what is raised, its number."""

import posixpath
import re
from collections.abc import Iterator
from itertools import islice
from typing import Any
from urllib.parse import urljoin

from memagent_batch.data.ingest.readers.numbering import formatted
from memagent_batch.data.ingest.readers.style_sheets import Style, content_pieces

EDGE, CELL_END, ROW, ROW_END, GLUE, APART = "\v", "\f", "\x1c", "\x1d", "\x1e", "\x1f"
"""Stand for the beginning or end of a block, for the end of a cell, for those of a row, and for what joins a number of
a list to the block behind it, and for a place where no word goes on, until the text is put together."""
SECTIONS = ("article", "aside", "body", "div", "fieldset", "footer", "form", "header", "main", "nav", "section")
PARAGRAPHS = ("address", "blockquote", "center", "h1", "h2", "h3", "h4", "h5", "h6", "hr", "p", "pre", "textarea")
LISTS = ("caption", "dd", "dir", "dl", "dt", "legend", "li", "menu", "ol", "table", "ul")
OPENED = ("details", "dialog", "figcaption", "figure", "hgroup", "search", "summary", "iframe", "video", "audio")
BREAK_TAGS = {
    **dict.fromkeys((*SECTIONS, *PARAGRAPHS, *LISTS, *OPENED), (EDGE, EDGE)),
    "tr": (ROW, ROW_END),
    "br": ("\n", ""),
    "q": ('"', '"'),
    "button": (" ", " "),
    "text": (" ", " "),
    "li": (EDGE, EDGE),
}
"""What stands for an element's beginning and end."""
BLOCK_DISPLAYS = frozenset({"block", "flex", "grid", "list-item", "table", "table-row", "flow-root", "table-caption"})
APART_DISPLAYS = frozenset({"inline-block", "inline-flex", "inline-grid", "inline-table", "table-cell"})
NO_ITEMS = (BLOCK_DISPLAYS | APART_DISPLAYS | {"inline"}) - {"list-item"}
"""Ways to show an element of a list that leave out its number."""
CONTAINERS = frozenset({"flex", "grid", "inline-flex", "inline-grid"})
"""Ways to show an element in which each element inside is a block."""
SYMBOL_FONT = re.compile(r"\d\S*\s+[\"']?(wingdings[ 23]*|symbol)(?![\w-])")
LIST_STYLE = re.compile(
    r"(?<![\w-])(none|disc|circle|square|decimal|(?:lower|upper)-(?:alpha|latin|roman)|decimal-leading-zero)(?![\w-])"
)
RAISED_STYLE = re.compile(r"(super|sub)\b|([+-]?)(?=[\d.]*[1-9])[\d.]+(?:em|ex|rem|p[xt]|%)")
SMALL_FONT = re.compile(r"0?\.\d+r?em|[1-8]?\d(?:\.\d+)?%|(?:x+-)?small(?:er)?")
NUMBER_FORMATS = (
    dict.fromkeys(("a", "lower-alpha", "lower-latin"), "lowerLetter")
    | dict.fromkeys(("A", "upper-alpha", "upper-latin"), "upperLetter")
    | {"i": "lowerRoman", "lower-roman": "lowerRoman", "I": "upperRoman", "upper-roman": "upperRoman", "1": "decimal"}
    | {"decimal": "decimal", "decimal-leading-zero": "decimalZero"}
    | dict.fromkeys(("none", "disc", "circle", "square"), "none")
)
"""Formats of numbers of a list, as `type` or a style names them."""
OUT_OF_FLOW = ("absolute", "fixed")
NUMBER = re.compile(r"[+-]?\d{1,9}")


def edges_of(element: Any, tag: str, style: Style, around: Style) -> tuple[str, str]:
    """Returns what stands for the beginning and end of an element.

    Args:
        element: the element.
        tag: its tag.
        style: how it is shown.
        around: how the element around it is shown.
    """
    edges = BREAK_TAGS.get(tag)
    if tag in ("tr", "td", "th", "br") or edges == (EDGE, EDGE):
        return edges or ("", "")
    container, display = around.get("display", ""), style.get("display", "")
    if container in CONTAINERS and display != "none":
        return (" ", " ") if container.startswith("inline") else (EDGE, EDGE)
    if edges is not None:
        return edges
    if style.get("float", "none") != "none":  # beside the text
        return ("", "") if _is_initial(element) else (" ", " ")
    if display in BLOCK_DISPLAYS:
        return EDGE, EDGE
    return (" ", " ") if display in APART_DISPLAYS or style.get("position") in OUT_OF_FLOW else ("", "")


def _is_initial(element: Any) -> bool:
    """Returns whether an element is the first letter of a word."""
    text = "".join(islice(element.itertext(), 9)).strip()
    return len(text) == 1 and text.isalpha() and (element.tail or "")[:1].isalpha()


def is_struck(style: Style) -> bool:
    """Whether text has a line through it."""
    return "line-through" in style.get("text-decoration", "")


def script_of(style: Style) -> str:
    """Returns `sup` or `sub` for what is shown raised or lowered; otherwise nothing."""
    place = RAISED_STYLE.match(style.get("vertical-align", ""))
    if place is not None and place[1]:
        return place[1][:3]
    is_small = SMALL_FONT.fullmatch(style.get("font-size", "")) is not None
    if place is not None:
        return ("sub" if place[2] == "-" else "sup") if is_small else ""
    shift = RAISED_STYLE.match(style.get("top", "")) if style.get("position") == "relative" else None
    return ("sup" if shift[2] == "-" else "sub") if shift is not None and is_small else ""


def has_words(content: str) -> bool:
    """Returns whether the CSS property `content` with this value shows letters or digits."""
    return any(
        any(map(str.isalnum, inside)) if kind == "text" else kind in ("attr", "counter", "counters", "var")
        for kind, inside in content_pieces(content)
    )


def resolved_address(place: str, address: str) -> str:
    """Returns the address of an imported style sheet, relative to the page; `place` is the sheet that imports it."""
    if re.match(r"[\w+.-]+:|/", address):
        return address
    return urljoin(place, address) if "://" in place else posixpath.join(posixpath.dirname(place), address)


def counter_steps(value: str, otherwise: int) -> Iterator[tuple[str, int]]:
    """Yields names of counters, each with the number behind it."""
    words = value.split()
    for place, name in enumerate(words):
        if name != "none" and not NUMBER.fullmatch(name):
            number = words[place + 1] if place + 1 < len(words) else ""
            yield name, int(number) if NUMBER.fullmatch(number) else otherwise


def font_of(element: Any, style: Style) -> str | None:
    """Returns the name of the first font that an element asks for, or of a symbol font; None if it asks for none."""
    family = style.get("font-family", "").replace("inherit", "")
    symbols = SYMBOL_FONT.search(family)
    name = element.get("face") or (symbols[1] if symbols is not None else family.split(",")[0])
    return name.strip().strip("\"'") if name else None


def number_format_of(element: Any, style: Style) -> str | None:
    """Returns how Word calls the format of the numbers of a list; None if neither style nor `type` says it."""
    if element is None:
        return None
    named = LIST_STYLE.search(style.get("list-style-type", ""))
    return NUMBER_FORMATS.get(named[1] if named is not None else element.get("type", ""))


class Counters:
    """The counters of a page's style sheets, such as those that number its clauses."""

    def __init__(self) -> None:
        self._counters: dict[str, list[tuple[int, int]]] = {}
        """By name, inner ones last: the depth of the element at which each began, and its number."""

    def count(self, style: Style, *, depth: int) -> None:
        """Resets, increments and sets counters as the style of an element at this depth says."""
        for name, number in counter_steps(style.get("counter-reset", ""), 0):
            self._end(name, depth)
            self._counters.setdefault(name, []).append((depth, number))
        for property_name in ("counter-increment", "counter-set"):
            is_step = property_name == "counter-increment"
            for name, number in counter_steps(style.get(property_name, ""), int(is_step)):
                counters = self._counters.setdefault(name, [])
                began, before = counters.pop() if counters else (depth, 0)
                counters.append((began, before + number if is_step else number))

    def end(self, depth: int) -> None:
        """Ends the counters that began at this depth or further inside."""
        for name in [*self._counters]:
            self._end(name, depth)

    def _end(self, name: str, depth: int) -> None:
        counters = self._counters.get(name, [])
        while counters and counters[-1][0] >= depth:
            counters.pop()
        if not counters:
            self._counters.pop(name, None)

    def shown(self, kind: str, inside: str, *, list_numbers: list[int]) -> str:
        """Returns what `counter()` or `counters()` shows.

        Args:
            kind: `counter` or `counters`.
            inside: what stands in its brackets.
            list_numbers: the numbers of the items of lists around, which the counter `list-item` has.
        """
        pieces = [text for _, text in content_pieces(f"'{inside.split(',')[0].strip()}'")]
        strings = [text for each, text in content_pieces(inside) if each == "text"]
        words = [each for each, _ in content_pieces(inside) if each != "text"]
        number_format = NUMBER_FORMATS.get(words[-1] if len(words) > 1 else "decimal", "decimal")
        name = pieces[0].lower()
        if name == "list-item" and name not in self._counters:
            numbers = list_numbers
        else:
            numbers = [number for _, number in self._counters.get(name, [(0, 0)])]
        shown = numbers if kind == "counters" else numbers[-1:]
        return (strings[0] if strings else "").join(formatted(number, number_format) for number in shown)
