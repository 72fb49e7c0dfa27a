"""The numbers of lists and headings in OpenDocument, such as `7.2` and `(a)`: they stand in no text of the package.

Source: OpenDocument 1.3, part 3, 5.3 (lists) and 16.30 to 16.34 (list and outline styles).
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any

from memagent_batch.data.ingest.readers.docx_numbers import formatted
from memagent_batch.data.ingest.readers.symbols import BOXES, to_unicode

TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
LIBRE = "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
FORMATS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
PLACE = re.compile(r"%(\d{1,2})%")
"""Where the number of a level stands in a format of LibreOffice."""
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")

Levels = Mapping[int, Any]
"""The style of each level of a list, from 1."""


class OpenNumbering:
    """List styles of a document, and how far each list has counted."""

    def __init__(self, roots: Iterable[Any]) -> None:
        """Takes the XML files with the styles."""
        self._styles, self._paragraph_styles = dict[str | None, Levels](), dict[str | None, Any]()
        self._outline: Levels = {}
        for root in roots:
            for style in root.iter(f"{TEXT}list-style"):
                self._styles[style.get(f"{STYLE}name")] = _levels(style)
            for style in root.iter(f"{TEXT}outline-style"):
                self._outline = _levels(style)
            for style in root.iter(f"{STYLE}style"):
                self._paragraph_styles[style.get(f"{STYLE}name")] = style
        self._outline_counters = dict[int, int]()
        self._counters: dict[str | None, dict[int, int]] = {}
        """Of lists, by their ids, and of the last one of each style, by its name."""

    def write(self, root: Any) -> None:
        """Writes the numbers below an element into its paragraphs, in the order of the document."""
        for element in root.iterchildren("*"):
            if element.tag == f"{TEXT}list":
                self._write_list(element)
            elif element.tag == f"{TEXT}h":
                self._write_heading(element)
            else:
                self.write(element)

    def _write_heading(self, heading: Any) -> None:
        level = _integer(heading.get(f"{TEXT}outline-level"), 1)
        if heading.get(f"{TEXT}is-list-header") != "true" and _format(self._outline.get(level)):
            _count(self._outline_counters, level, self._outline, heading)
            _prefix(heading, _label(self._outline, level, self._outline_counters))

    def _write_list(self, element: Any) -> None:
        """Numbers an outermost list, which counts on where it says so."""
        name = element.get(f"{TEXT}style-name") or self._style_of_paragraph(element)
        continued = element.get(f"{TEXT}continue-list")
        if continued is None and element.get(f"{TEXT}continue-numbering") == "true":
            continued = name
        counters = self._counters.get(continued, {}) if continued is not None else {}
        self._counters[name] = counters
        self._counters[element.get(XML_ID, name)] = counters
        self._write_items(element, name, 1, counters)

    def _style_of_paragraph(self, element: Any) -> str | None:
        """Returns the list style that the first paragraph of a list has by its own style."""
        paragraph = next(element.iter(*PARAGRAPHS), None)
        name = None if paragraph is None else paragraph.get(f"{TEXT}style-name")
        seen = set[str | None]()
        while name in self._paragraph_styles and name not in seen:
            seen.add(name)
            style = self._paragraph_styles[name]
            if style.get(f"{STYLE}list-style-name"):
                return str(style.get(f"{STYLE}list-style-name"))
            name = style.get(f"{STYLE}parent-style-name")
        return None

    def _write_items(self, element: Any, name: str | None, level: int, counters: dict[int, int]) -> None:
        """Numbers the items of a list and of the lists in them."""
        levels = self._styles.get(name, {})
        for item in element.iterchildren(f"{TEXT}list-item", f"{TEXT}list-header"):
            first = next(item.iterchildren("*"), None)
            if item.tag == f"{TEXT}list-item" and first is not None and first.tag in PARAGRAPHS:
                _count(counters, level, levels, item)
                _prefix(first, _label(levels, level, counters))
            for child in item.iterchildren("*"):
                if child.tag == f"{TEXT}list":
                    self._write_items(child, child.get(f"{TEXT}style-name", name), level + 1, counters)
                elif child.tag not in PARAGRAPHS:
                    self.write(child)


def _levels(style: Any) -> Levels:
    return {_integer(each.get(f"{TEXT}level"), 0): each for each in style.iterchildren("*")}


def _format(level: Any) -> str:
    return "" if level is None else FORMATS.get(level.get(f"{STYLE}num-format", ""), "")


def _count(counters: dict[int, int], level: int, levels: Levels, item: Any) -> None:
    """Counts an item of a level; those below it begin again."""
    start = _integer(levels[level].get(f"{TEXT}start-value"), 1) if level in levels else 1
    number = counters[level] + 1 if level in counters else start
    counters[level] = _integer(item.get(f"{TEXT}start-value"), number)
    for below in [each for each in counters if each > level]:
        del counters[below]


def _label(levels: Levels, level: int, counters: Mapping[int, int]) -> str:
    """Returns what is shown before an item: its number, or a bullet that is a check box."""
    style = levels.get(level)
    if style is None:
        return ""
    if style.tag == f"{TEXT}list-level-style-bullet":
        properties = style.find(f"{STYLE}text-properties")
        font = None if properties is None else properties.get(f"{STYLE}font-name")
        sign = to_unicode(style.get(f"{TEXT}bullet-char", ""), font)
        return sign if sign in BOXES else ""
    if not _format(style):
        return ""
    numbers = {each: formatted(counters.get(each, 1), _format(levels.get(each))) for each in levels if each <= level}
    template = style.get(f"{LIBRE}num-list-format")
    if template:
        return PLACE.sub(lambda place: numbers.get(int(place[1]), ""), template)
    first = level - _integer(style.get(f"{TEXT}display-levels"), 1) + 1
    shown = ".".join(numbers[each] for each in sorted(numbers) if each >= first and _format(levels.get(each)))
    return f"{style.get(f'{STYLE}num-prefix', '')}{shown}{style.get(f'{STYLE}num-suffix', '')}"


def _prefix(paragraph: Any, label: str) -> None:
    if label.strip():
        paragraph.text = f"{label.strip()} {paragraph.text or ''}"


def _integer(text: str | None, default: int) -> int:
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else default
