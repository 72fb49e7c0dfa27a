"""The numbers of lists and headings, such as `7.2` and `(a)`, which stand in no text of a package.

Sources: ECMA-376, part 1, 17.9 (numbering), 21.1.2.4.1 (slides); OpenDocument 1.3, part 3, 5.3 (lists), 16.30 to 16.34
(their styles).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memagent_batch.data.ingest.readers.symbols import BOXES, to_unicode

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
NUM_LEVELS = 9
GONE = (f"{W}pPr/{W}rPr/{W}del", f"{W}pPr/{W}rPr/{W}moveFrom")
"""Marks of paragraphs that a tracked change took away."""
ROMAN_VALUES = (1000, 900, 500, 400, 100, 90, 50, 40, 10, 9, 5, 4, 1)
ROMAN = dict(zip(ROMAN_VALUES, ["m", "cm", "d", "cd", "c", "xc", "l", "xl", "x", "ix", "v", "iv", "i"], strict=True))
PLACE = re.compile(r"%([1-9])")
"""Where the number of a level stands in a level's text."""
TEXT = "{urn:oasis:names:tc:opendocument:xmlns:text:1.0}"
STYLE = "{urn:oasis:names:tc:opendocument:xmlns:style:1.0}"
LIBRE = "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}"
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
FORMATS = {"1": "decimal", "a": "lowerLetter", "A": "upperLetter", "i": "lowerRoman", "I": "upperRoman"}
OPEN_PLACE = re.compile(r"%(\d{1,2})%")
"""Where the number of a level stands in a format of LibreOffice."""
PARAGRAPHS = (f"{TEXT}p", f"{TEXT}h")

Levels = Mapping[int, Any]
"""The style of each level of a list, from 1."""


class Level:
    """One level of a list of Word."""

    def __init__(self, element: Any) -> None:
        restart, legal = element.find(f"{W}lvlRestart"), element.find(f"{W}isLgl")
        fonts = element.find(f"{W}rPr/{W}rFonts")
        self.start = _integer(_value(element.find(f"{W}start")), 0)
        self.number_format = _value(element.find(f"{W}numFmt")) or "decimal"
        font = None if fonts is None else fonts.get(f"{W}ascii")
        self.text = to_unicode(_value(element.find(f"{W}lvlText")) or "", font)
        """What is shown, with `%1` for the number of the first level."""
        self.restarts_after = None if restart is None else _integer(_value(restart), 0)
        """The level, from 1, after which it starts again; None: after any above it, 0: after none."""
        self.is_decimal = legal is not None and legal.get(f"{W}val", "1") not in ("0", "false", "off")
        """Whether the numbers of all levels are shown in digits."""
        self.style = _value(element.find(f"{W}pStyle"))
        """The paragraph style that stands for this level."""
        self.ends_with = "" if _value(element.find(f"{W}suff")) == "nothing" else " "
        """What stands between number and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedList:
    """A list of a document of Word."""

    counted_as: str
    """Lists with the same name here count on together."""
    levels: Mapping[int, Level]
    starts: Mapping[int, int]
    """Numbers that levels of this list begin with again."""

    def number(self, index: int, counters: Mapping[int, int], *, is_decimal: bool) -> str:
        """Returns the number of one level, as it is shown in the text of another."""
        level = self.levels.get(index)
        if level is None:
            return ""
        return formatted(counters.get(index, level.start), "decimal" if is_decimal else level.number_format)


class Numbering:
    """Lists of a document, and how far each has counted."""

    def __init__(self, numbering: Iterable[Any], styles: Iterable[Any]) -> None:
        """Takes the elements of the package's parts of these names."""
        self._styles = {style.get(f"{W}styleId"): style for style in styles}
        lists = list(numbering)
        self._abstract = {each.get(f"{W}abstractNumId"): each for each in lists if each.tag == f"{W}abstractNum"}
        self._nums = {each.get(f"{W}numId"): each for each in lists if each.tag == f"{W}num"}
        self._lists = {num_id: made for num_id, num in self._nums.items() if (made := self._list(num)) is not None}
        paragraphs = (style for style in self._styles.values() if style.get(f"{W}type") == "paragraph")
        defaults = (style.get(f"{W}styleId") for style in paragraphs if style.get(f"{W}default") in ("1", "true"))
        self._default_style = next(defaults, "")
        self._counters: dict[str, dict[int, int]] = {}
        self._restarted: set[tuple[str, int]] = set()

    def write(self, root: Any) -> None:
        """Writes the numbers of all paragraphs below an element into them, in the order of the document."""
        for paragraph in list(root.iter(f"{W}p")):
            if next(paragraph.iterancestors(FALLBACK), None) is None and (number := self._next(paragraph)):
                shown = paragraph.makeelement(f"{W}t")
                shown.text = number
                paragraph.insert(0, shown)

    def _next(self, paragraph: Any) -> str:
        """The number of the next paragraph, with what ends it; empty if it has none."""
        num_id, index = self._place(paragraph)
        numbered = self._lists.get(num_id)
        if numbered is None or index not in numbered.levels or any(paragraph.find(mark) is not None for mark in GONE):
            return ""
        counters = self._counters.setdefault(numbered.counted_as, {})
        level = numbered.levels[index]
        if index in numbered.starts and (num_id, index) not in self._restarted:
            self._restarted.add((num_id, index))
            counters[index] = numbered.starts[index]
        else:
            counters[index] = counters[index] + 1 if index in counters else level.start
        for below in range(index + 1, NUM_LEVELS):
            after = numbered.levels[below].restarts_after if below in numbered.levels else None
            if after is None or index < after:
                counters.pop(below, None)
        if level.number_format == "bullet":
            return level.text + level.ends_with if level.text in BOXES else ""
        number = PLACE.sub(
            lambda place: numbered.number(int(place[1]) - 1, counters, is_decimal=level.is_decimal), level.text
        )
        return number and number + level.ends_with

    def _place(self, paragraph: Any) -> tuple[str, int]:
        """List and level of a paragraph, as it says itself or by its style; the list `0` is none."""
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        chain = list(self._chain(self._default_style if style is None else style.get(f"{W}val")))
        owners = [paragraph, *(self._styles[name] for name in chain)]
        num_ids = [_value(owner.find(f"{W}pPr/{W}numPr/{W}numId")) for owner in owners]
        num_id = next((each for each in num_ids if each is not None), "0")
        indexes = (_value(owner.find(f"{W}pPr/{W}numPr/{W}ilvl")) for owner in owners)
        index = next((each for each in indexes if each is not None), None)
        if index is None and num_ids[0] is None and num_id in self._lists:
            levels = self._lists[num_id].levels.items()
            index = next((str(number) for name in chain for number, level in levels if level.style == name), None)
        return num_id, _integer(index, 0)

    def _chain(self, style: str | None) -> Iterator[str]:
        """A style, and those that it is based on."""
        seen = set[str]()
        while style is not None and style in self._styles and style not in seen:
            seen.add(style)
            yield style
            style = _value(self._styles[style].find(f"{W}basedOn"))

    def _list(self, num: Any) -> NumberedList | None:
        name = _value(num.find(f"{W}abstractNumId"))
        link = _value(self._abstract[name].find(f"{W}numStyleLink")) if name in self._abstract else None
        if link in self._styles:  # the levels are those of the list that this style names
            linked = self._nums.get(_value(self._styles[link].find(f"{W}pPr/{W}numPr/{W}numId")))
            name = name if linked is None else _value(linked.find(f"{W}abstractNumId"))
        if name is None or name not in self._abstract:
            return None
        overrides = num.findall(f"{W}lvlOverride")
        starts = {_integer(each.get(f"{W}ilvl"), 0): _value(each.find(f"{W}startOverride")) for each in overrides}
        elements = [level for each in (self._abstract[name], *overrides) for level in each.iterfind(f"{W}lvl")]
        return NumberedList(
            counted_as=name,
            levels={_integer(each.get(f"{W}ilvl"), 0): Level(each) for each in elements},
            starts={index: _integer(start, 1) for index, start in starts.items() if start is not None},
        )


SLIDE_FORMATS = {"alphaLc": "lowerLetter", "alphaUc": "upperLetter", "romanLc": "lowerRoman", "romanUc": "upperRoman"}
SLIDE_ENDS = {"Period": "{}.", "ParenR": "{})", "ParenBoth": "({})"}
SLIDE_BULLETS = tuple(f"{A}bu{name}" for name in ("None", "AutoNum", "Char", "Blip"))


def number_slide(root: Any) -> None:
    """Writes the automatic numbers of a slide's paragraphs into them; each text box counts for itself."""
    for body in root.iter("{*}txBody"):
        counters = dict[int, tuple[tuple[str, int], int]]()
        for paragraph in body.iterchildren(f"{A}p"):
            if not any(text.text for text in paragraph.iter(f"{A}t")):
                continue  # an empty paragraph has no number
            properties = paragraph.find(f"{A}pPr")
            level = 0 if properties is None else _integer(properties.get("lvl"), 0)
            for below in [each for each in counters if each > level]:
                del counters[below]
            rule = _slide_rule(body, properties, level)
            if rule is None:
                counters.pop(level, None)
                continue
            counted_as = rule.get("type", ""), _integer(rule.get("startAt"), 1)
            before, number = counters.get(level, (None, 0))
            number = number + 1 if before == counted_as else counted_as[1]
            counters[level] = counted_as, number
            shown = paragraph.makeelement(f"{A}t")
            shown.text = f"{_slide_number(counted_as[0], number)} "
            paragraph.insert(0 if properties is None else 1, shown)


def _slide_rule(body: Any, properties: Any, level: int) -> Any:
    """How a paragraph is numbered, by itself or by the styles of its text box; None if it is not."""
    for owner in (properties, body.find(f"{A}lstStyle/{A}lvl{level + 1}pPr")):
        kinds = [] if owner is None else list(owner.iterchildren(*SLIDE_BULLETS))
        if kinds:
            return kinds[0] if kinds[0].tag == f"{A}buAutoNum" else None
    return None


def _slide_number(kind: str, number: int) -> str:
    """A number in a scheme such as `arabicPeriod` or `alphaLcParenBoth`."""
    scheme = next((name for name in SLIDE_FORMATS if kind.startswith(name)), "")
    end = next((form for name, form in SLIDE_ENDS.items() if kind.endswith(name)), "{}")
    return end.format(formatted(number, SLIDE_FORMATS.get(scheme, "decimal")))


def formatted(number: int, number_format: str) -> str:
    """A number in a format of Word's; in digits for those that are not Roman, letters or zeros before digits."""
    match number_format:
        case "none" | "bullet":
            return ""
        case "decimalZero":
            return f"{number:02}"
        case "lowerRoman" | "upperRoman" if 0 < number < 4000:
            letters, left = "", number
            for value, roman in ROMAN.items():
                letters, left = letters + roman * (left // value), left % value
        case "lowerLetter" | "upperLetter" if 0 < number <= 26 * 30:
            letters = chr(ord("a") + (number - 1) % 26) * ((number - 1) // 26 + 1)
        case _:
            return str(number)
    return letters.upper() if number_format.startswith("upper") else letters


def _value(element: Any) -> str | None:
    return None if element is None else element.get(f"{W}val")


def _integer(text: str | None, otherwise: int) -> int:
    """A number of the package; another one stands for what is not a number."""
    return int(text) if text is not None and re.fullmatch(r"[0-9]{1,9}", text) else otherwise


class OpenNumbering:
    """List styles of a document, and how far each list has counted."""

    def __init__(self, roots: Iterable[Any]) -> None:
        """Takes the XML files with the styles."""
        self._styles, self._paragraph_styles = dict[str | None, Levels](), dict[str | None, Any]()
        self._outline: Levels = {}
        for root in roots:
            for style in root.iter(f"{TEXT}list-style"):
                self._styles[style.get(f"{STYLE}name")] = _open_levels(style)
            for style in root.iter(f"{TEXT}outline-style"):
                self._outline = _open_levels(style)
            for style in root.iter(f"{STYLE}style"):
                self._paragraph_styles[style.get(f"{STYLE}name")] = style
        self._outline_counters = dict[int, int]()
        self._counters: dict[str | None, dict[int, int]] = {}
        """Of lists, by their ids, and of the last one of each style, by its name."""

    def write(self, root: Any) -> None:
        """Writes the numbers below an element into its paragraphs, in the order of the document."""
        for element in root.iterchildren("*"):
            if element.tag == f"{TEXT}tracked-changes":
                continue  # what was deleted counts in no list
            if element.tag == f"{TEXT}list":
                self._write_list(element)
            elif element.tag != f"{TEXT}h":
                self.write(element)
            elif element.get(f"{TEXT}is-list-header") != "true":
                level = _integer(element.get(f"{TEXT}outline-level"), 1)
                if _format(self._outline.get(level)):
                    _count(self._outline_counters, level, self._outline, element)
                    _prefix(element, _label(self._outline, level, self._outline_counters))

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


def _open_levels(style: Any) -> Levels:
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
        return OPEN_PLACE.sub(lambda place: numbers.get(int(place[1]), ""), template)
    first = level - _integer(style.get(f"{TEXT}display-levels"), 1) + 1
    shown = ".".join(numbers[each] for each in sorted(numbers) if each >= first and _format(levels.get(each)))
    return f"{style.get(f'{STYLE}num-prefix', '')}{shown}{style.get(f'{STYLE}num-suffix', '')}"


def _prefix(paragraph: Any, label: str) -> None:
    if label.strip():
        paragraph.text = f"{label.strip()} {paragraph.text or ''}"
