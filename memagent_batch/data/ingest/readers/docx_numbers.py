"""The numbers that Word makes for paragraphs, such as `7.2` and `(a)`: they stand in no text of the package.

Source: ECMA-376, part 1, 17.9 (numbering).
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memagent_batch.data.ingest.readers.symbols import BOXES, to_unicode

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
NUM_LEVELS = 9
GONE = (f"{W}pPr/{W}rPr/{W}del", f"{W}pPr/{W}rPr/{W}moveFrom")
"""Marks of paragraphs that a tracked change took away."""
ROMAN = {1000: "m", 900: "cm", 500: "d", 400: "cd", 100: "c", 90: "xc", 50: "l", 40: "xl", 10: "x", 9: "ix", 5: "v"} | {
    4: "iv",
    1: "i",
}
PLACE = re.compile(r"%([1-9])")
"""Where the number of a level stands in a level's text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Level:
    """One level of a list."""

    start: int
    number_format: str
    text: str
    """What is shown, with `%1` for the number of the first level."""
    restarts_after: int | None
    """The level, from 1, after which it starts again; None: after any above it, 0: after none."""
    is_decimal: bool
    """Whether the numbers of all levels are shown in digits."""
    style: str | None
    """The paragraph style that stands for this level."""
    ends_with: str
    """What stands between number and text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberedList:
    """A list of the document; several may count on together."""

    counted_as: str
    """Lists with the same name here count on together."""
    levels: Mapping[int, Level]
    starts: Mapping[int, int]
    """Numbers that levels of this list begin with again."""


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
        number = PLACE.sub(lambda place: _shown(numbered, int(place[1]) - 1, counters, level), level.text)
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
        levels = dict(_levels(self._abstract[name].iterfind(f"{W}lvl")))
        levels |= dict(_levels(own for each in overrides for own in each.iterfind(f"{W}lvl")))
        own_starts = {index: _integer(start, 1) for index, start in starts.items() if start is not None}
        return NumberedList(counted_as=name, levels=levels, starts=own_starts)


def _levels(elements: Iterable[Any]) -> Iterator[tuple[int, Level]]:
    for element in elements:
        restart, legal = element.find(f"{W}lvlRestart"), element.find(f"{W}isLgl")
        fonts = element.find(f"{W}rPr/{W}rFonts")
        yield (
            _integer(element.get(f"{W}ilvl"), 0),
            Level(
                start=_integer(_value(element.find(f"{W}start")), 0),
                number_format=_value(element.find(f"{W}numFmt")) or "decimal",
                text=to_unicode(
                    _value(element.find(f"{W}lvlText")) or "", None if fonts is None else fonts.get(f"{W}ascii")
                ),
                restarts_after=None if restart is None else _integer(_value(restart), 0),
                is_decimal=legal is not None and legal.get(f"{W}val", "1") not in ("0", "false", "off"),
                style=_value(element.find(f"{W}pStyle")),
                ends_with="" if _value(element.find(f"{W}suff")) == "nothing" else " ",
            ),
        )


def _shown(numbered: NumberedList, index: int, counters: Mapping[int, int], shown_in: Level) -> str:
    """The number of one level, as it is shown in the text of another."""
    level = numbered.levels.get(index)
    if level is None:
        return ""
    return formatted(counters.get(index, level.start), "decimal" if shown_in.is_decimal else level.number_format)


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
