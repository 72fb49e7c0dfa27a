"""The text of a page in HTML: all that a reader sees, or may see after a click, in the order of the page."""

import re
from base64 import b64decode
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import unquote_to_bytes

from lxml import etree

from memagent_batch.data.ingest.readers.equations import mathml_equation
from memagent_batch.data.ingest.readers.marks import (
    CHECKED,
    RAISED_FRACTION,
    UNCHECKED,
    run_together,
    struck_out,
    subscript,
    superscript,
)
from memagent_batch.data.ingest.readers.numbering import formatted
from memagent_batch.data.ingest.readers.page_styles import (
    APART,
    APART_DISPLAYS,
    BLOCK_DISPLAYS,
    CELL_END,
    EDGE,
    GLUE,
    NO_ITEMS,
    ROW,
    ROW_END,
    Counters,
    edges_of,
    font_of,
    has_words,
    is_struck,
    number_format_of,
    resolved_address,
    script_of,
)
from memagent_batch.data.ingest.readers.style_sheets import (
    Rule,
    Style,
    StyleSheets,
    content_pieces,
    imported_sheets,
    is_shown_elsewhere,
)
from memagent_batch.data.ingest.readers.symbols import symbol_font, to_unicode
from memagent_batch.data.ingest.readers.visible_text import NAME_CHARACTERS, VisibleText

PICTURE_STYLE = re.compile(
    r"(?:background|background-image|content|list-style|list-style-image|border-image|mask|mask-image)\s*:[^;{}]*?"
    r"url\(\s*(?:\"([^\"]*)\"|'([^']*)'|([^)\"'\s]+))",
    re.I,
)
STRUCK_TAGS = frozenset({"del", "s", "strike"})

PAGE_END = re.compile(r"(?:</(?:body|html)\s*>\s*)+", re.I)
"""Where a parser ends a page. Browsers show what stands behind it, such as the footer of a mailing list."""
CONTROLS = {code: " " if code in b"\v\f\x1c\x1d\x1e\x1f" else None for code in {*range(32), 127} - {*b"\t\n\r"}}
INVISIBLE = {**dict.fromkeys(map(ord, "\xad\u200b\u2060\ufeff")), **dict.fromkeys(map(ord, "\xa0\u2007\u202f"), " ")}
"""Characters that break lines or keep them together, and what is read in their place."""
INNER_ROW = re.compile(f"{ROW}([^{ROW}{ROW_END}]*){ROW_END}")
"""A row without a table in it."""
STRETCH = re.compile(f"[^{EDGE}{CELL_END}{ROW}{ROW_END}{GLUE}\n]+")
"""A text without the beginning or end of a block in it."""
CELL_CHARACTERS = 300
"""Longest cell of a row that is one line, whatever paragraphs are in its cells; longer ones are columns of a page."""
CELLS_APART = "|"
"""Stands between the cells of a row."""
IMPORTED_SHEETS = 100
"""Most style sheets that one imports."""
UNREAD_CONTENT = frozenset({"target-counter", "target-counters", "target-text", "string", "element"})
"""Functions of style sheets that write words of another place."""
ICONS = re.compile("[\ue000-\uf8ff\U000f0000-\U0010ffff]")
"""Characters that only the font of a page gives a shape."""
SPANNED_CELLS = 100
"""Most columns or rows that a cell is taken to span."""

NAMES = (
    "title",
    "aria-label",
    "summary",
    "aria-description",
    "aria-roledescription",
    "aria-valuetext",
    "standby",
    "abbr",
)
"""Attributes by which an element says something beside its text."""
UNSHOWN_TAGS = frozenset({"script", "style", "datalist", "track"})
UNSHOWN_TYPES = frozenset({"hidden", "password", "file", "color", "image"})
"""Types of fields whose value is not shown."""
CHECKED_ROLES = frozenset({"checkbox", "radio", "switch", "menuitemcheckbox", "menuitemradio"})
DATA_URL = re.compile(r"data:(?P<kind>[\w.+-]+/[\w.+-]+)?(?P<settings>[^,]*),(?P<data>.*)", re.S | re.I)
LAZY_SOURCES = ("src", "data-src", "data-original", "data-lazy-src", "href", "xlink:href", "background", "dynsrc")
"""Attributes that name a picture. Pages load some of them late."""
NOTE_CHARACTERS = 5
"""Longest mark of a note."""
SMALL_PIXELS = 16
"""Pictures that are not higher or not wider are lines and dots, or count readers; they show no words."""
PICTURE_ENDING = re.compile(r"\.(?:png|jpe?g|gif|webp|bmp|tiff?|svgz?|avif)(?:[?#].*)?$", re.I)
MEDIA_ENDING = re.compile(r"\.(?:mp[34g]|m4[av]|webm|og[gav]|wav|avi|mov|wmv|wma|flv|swf|mpeg)(?:[?#].*)?$", re.I)


def visible_text(page: str, *, style_sheet: Callable[[str], str | None] = lambda _: None) -> VisibleText:
    """Reads a page, a line for each block or row. Nothing is left out as unimportant.

    Args:
        page: the page.
        style_sheet: returns the style sheet at an address as the page names it; None if it is not known.
    """
    seen = VisibleText()
    seen.text = _read_page(page, seen, style_sheet)
    return seen


def _read_page(page: str, seen: VisibleText, style_sheet: Callable[[str], str | None] = lambda _: None) -> str:
    """Returns the text of a page, or of one inside it; what else it shows is added to `seen`."""
    parser = etree.HTMLParser(encoding="utf-8", remove_comments=True, remove_pis=True, huge_tree=True)
    source = PAGE_END.sub("<br>", _without_sections(page)).translate(CONTROLS).encode("utf-8", errors="replace")
    root = etree.fromstring(source, parser) if page.strip() else None
    if any(error.level == etree.ErrorLevels.FATAL for error in parser.error_log):
        seen.failure = f"its HTML can't be read to the end: {parser.error_log.last_error.message}"
    if root is None:
        return ""
    text = _PageReader(root, seen, style_sheet).read().translate(INVISIBLE)
    text = RAISED_FRACTION.sub(lambda parts: f"{' ' if parts[1] else ''}{parts[2] or parts[3]}/{parts[4]}", text)
    text = re.sub(r"(\[struck out: [^\[\]]*\])(?=\w)", r"\1 ", text)
    text = re.sub(f"{GLUE}[{EDGE}\\s]*", "", text)
    text = re.sub(f"(?<=\\w){APART}+(?=\\w)", " ", text).replace(APART, "")
    text = re.sub(f"[{ROW}{ROW_END}]", EDGE, INNER_ROW.sub(_row, text))
    blocks = "\n".join(block for block in text.split(EDGE) if block.strip(f" {CELL_END}"))
    lines = ((" ".join(cell.split()) for cell in line.split(CELL_END)) for line in blocks.split("\n"))
    # empty cells keep their places, so that values stay below their headings
    text = "\n".join(f" {CELLS_APART} ".join(cells).rstrip(f" {CELLS_APART}") for cells in lines)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def _without_sections(page: str) -> str:
    """Replaces CDATA sections by their text, which a parser of HTML takes for comments."""
    pieces = page.split("<![CDATA[")
    for number, piece in enumerate(pieces[1:], start=1):
        text, end, rest = piece.partition("]]>")
        pieces[number] = text.replace("&", "&amp;").replace("<", "&lt;") + rest if end else f"<![CDATA[{piece}"
    return "".join(pieces)


def _row(row: re.Match[str]) -> str:
    """Returns a row as one block; one with a long cell as the blocks of its cells."""
    if all(len(cell) <= CELL_CHARACTERS for cell in row[1].split(CELL_END)):
        return EDGE + re.sub(f"[{EDGE}\n]", " ", row[1]) + EDGE
    return EDGE + re.sub(f"{EDGE} *{CELL_END}", EDGE, row[1]) + EDGE


@dataclass(slots=True)
class _Table:
    """Where a table stands while it is read."""

    column: int = 0
    rows_left: dict[int, int] = field(default_factory=dict)
    """Of columns that a cell above covers, the rows below it that are still covered."""

    def covered_cells(self) -> str:
        """Returns the ends of the covered cells before the next one, and passes over them."""
        first = self.column
        while self.rows_left.get(self.column, 0) > 0:
            self.rows_left[self.column] -= 1
            self.column += 1
        return CELL_END * (self.column - first)

    def end_cell(self, cell: Any) -> str:
        """Returns the ends of a cell, one for each column that it covers."""
        columns = _span(cell.get("colspan"))
        for column in range(self.column, self.column + columns):
            self.rows_left[column] = _span(cell.get("rowspan")) - 1
        self.column += columns
        return CELL_END * columns

    def end_row(self) -> None:
        for column, rows in self.rows_left.items():
            self.rows_left[column] = max(0, rows - (column >= self.column))
        self.column = 0


@dataclass(slots=True)
class _Styled:
    """How an element is shown that is not at its end."""

    style: Style = field(default_factory=dict)
    generated: dict[str, Style] = field(default_factory=dict)
    """How what style sheets write is shown: `before`, `after` and `marker`."""
    edges: tuple[str, str] = ("", "")
    names: frozenset[str] = frozenset({""})
    """Its tag, classes and id, and those of the elements around it."""


class _PageReader:
    """Walks through a page once and writes its text."""

    def __init__(self, root: Any, seen: VisibleText, style_sheet: Callable[[str], str | None]) -> None:
        self._root, self._seen, self._style_sheet = root, seen, style_sheet
        self._outputs: list[list[str]] = [[]]
        """Texts in order: of the page, and of each element that will be marked and is not at its end."""
        self._open: list[list[Callable[[str], str]]] = []
        """What writes the mark of each element that is not at its end."""
        self._fonts: list[str | None] = [None]
        self._tables: list[_Table] = []
        self._numbers: list[int] = []
        """The next number of each list that is not at its end."""
        self._num_verbatim = self._num_struck = self._num_scripts = 0
        self._is_after_element = False
        """Whether an element has just ended where a style sheet that is not known may set words apart."""
        self._sheets = StyleSheets([])
        self._styled: list[_Styled] = [_Styled()]
        self._counters = Counters()

    def read(self) -> str:
        """Returns the text with signs for the edges of its blocks and cells."""
        self._sheets = StyleSheets([*self._read_sheets()])
        walk = etree.iterwalk(self._root, events=("start", "end"))
        for event, element in walk:
            if event == "end":
                self._end(element)
            elif self._start(element):
                walk.skip_subtree()
        return "".join(self._outputs[0])

    def _read_sheets(self) -> Iterator[str]:
        """Yields the style sheets in the page, and those that are known of the ones that it links to."""
        for element in self._root.iter("style", "link"):
            if is_shown_elsewhere(element.get("media") or ""):
                continue
            if element.tag == "style":
                self._add_style_pictures(element.text or "")
                yield from self._with_imported(element.text or "", "", set())
            elif "stylesheet" in (rel := element.get("rel", "").lower()) and "alternate" not in rel:
                yield from self._linked(element.get("href", ""), set())

    def _linked(self, address: str, known: set[str]) -> Iterator[str]:
        """Yields the style sheet at an address, after those that it imports; `known` has what was read before it."""
        sheet = self._style_sheet(address) if len(known) < IMPORTED_SHEETS else ""
        known.add(address)
        if sheet is None:
            self._seen.outside_style_sheets.append(address)
        else:
            yield from self._with_imported(sheet, address, known)

    def _with_imported(self, sheet: str, place: str, known: set[str]) -> Iterator[str]:
        for address in (resolved_address(place, address) for address in imported_sheets(sheet)):
            if address not in known:
                yield from self._linked(address, known)
        yield sheet

    def _add_style_pictures(self, style: str) -> None:
        for found in PICTURE_STYLE.finditer(style):
            self._add_picture([found[1] or found[2] or found[3]])

    def _start(self, element: Any) -> bool:
        """Writes what stands at the beginning of an element; tells whether what is inside is passed over."""
        tag = _tag(element)
        styled = self._read_style(element, tag)
        marks = self._marks(element, tag, styled.style)
        self._open.append(marks)
        self._outputs += [[] for _ in marks]
        self._num_struck += _write_struck in marks
        self._num_scripts += any(mark is not _write_struck for mark in marks)
        self._fonts.append(font_of(element, styled.style) or self._fonts[-1])
        self._num_verbatim += tag in ("pre", "textarea")
        if element.get("style"):
            self._add_style_pictures(element.get("style"))
        if self._is_after_element and self._seen.outside_style_sheets and styled.edges == ("", ""):
            self._add_run_together(element)
        self._is_after_element = False
        self._write(styled.edges[0])
        if tag == "table":
            self._tables.append(_Table())
        elif tag in ("td", "th") and self._tables:
            self._write(self._tables[-1].covered_cells())
        elif tag in ("ol", "ul", "menu", "dir"):
            default = sum(_tag(each) == "li" for each in element) if element.get("reversed") is not None else 1
            self._numbers.append(_integer(element.get("start"), default) if tag == "ol" else 1)
        self._counters.count(styled.style, depth=len(self._styled))
        if tag == "li":
            self._write_number(element, styled)
        self._write_generated(element, tag, styled, "before")
        content = self._content(element, tag)
        self._write(content if content is not None else "")
        if content is None:
            self._write_text(element.text)
        return content is not None

    def _end(self, element: Any) -> None:
        tag, styled = _tag(element), self._styled[-1]
        self._write_generated(element, tag, styled, "after")
        self._write(self._tooltip(element, tag))
        if tag in ("ol", "ul", "menu", "dir") and self._numbers:
            self._numbers.pop()
        elif tag in ("table", "tr", "td", "th") and self._tables:
            self._end_cell(element, tag)
        self._num_verbatim -= tag in ("pre", "textarea")
        self._fonts.pop()
        marks = self._open.pop()
        for mark in reversed(marks):
            self._write(mark("".join(self._outputs.pop())))
        self._num_struck -= _write_struck in marks
        self._num_scripts -= any(mark is not _write_struck for mark in marks)
        self._styled.pop()
        self._counters.end(len(self._styled) + 2)  # one counts for the elements beside that at which it began, too
        self._write(styled.edges[1])
        if marks and marks != [_write_struck] and element.tail:
            last = next((piece[-1] for piece in reversed(self._outputs[-1]) if piece), "")
            self._write(" " if run_together(last, element.tail[0]) else "")
        self._is_after_element = styled.edges == ("", "") and not element.tail
        self._write_text(element.tail)

    def _add_run_together(self, element: Any) -> None:
        """Names words that become one where an element follows another one, if numbers or capitals stand there."""
        before = re.split(r"[\s\x00-\x1f]", "".join(self._outputs[-1][-9:])[-NAME_CHARACTERS:])[-1]
        after = "".join(islice(element.itertext(), 9))[:NAME_CHARACTERS]
        if before[-1:].isalnum() and after[:1].isalnum():
            is_number = before[-1].isdigit() or after[0].isdigit()
            if is_number or (before[-1].islower() and after[0].isupper()):
                self._seen.run_together.append(f"{before}{after.split()[0]}")

    def _write(self, text: str) -> None:
        self._outputs[-1].append(text)

    def _write_text(self, text: str | None) -> None:
        if text:
            font = self._fonts[-1]
            shown = text
            if font is not None and symbol_font(font):
                shown = to_unicode(text, font)
                self._seen.left_out.append(text)
            self._write(shown if self._num_verbatim else re.sub(r"\s+", " ", shown))

    def _read_style(self, element: Any, tag: str) -> "_Styled":
        """Finds out what rules and attributes say of how an element is shown."""
        around = self._styled[-1].names
        rules = self._sheets.rules(element, around)
        certain = [rule for rule in rules if rule.is_certain and not rule.pseudo]
        styled = _Styled(style=self._sheets.merge(certain, element.get("style") or ""))
        styled.names = self._sheets.names(element, around)
        styled.edges = edges_of(element, tag, styled.style, self._styled[-1].style)
        if len(certain) < len(rules):
            for name in ("before", "after", "marker"):
                styled.generated[name] = self._sheets.merge(
                    [each for each in rules if each.pseudo == name and each.is_certain]
                )
            self._add_unread([rule for rule in rules if not rule.is_certain], tag, styled)
        self._styled.append(styled)
        return styled

    def _add_unread(self, rules: list[Rule], tag: str, styled: "_Styled") -> None:
        """Names rules that may change words of an element; words that they may set apart are set apart."""
        for rule in rules:
            style = self._sheets.merge([rule])
            if rule.pseudo:
                is_unread = has_words(style.get("content", ""))
            else:
                is_list = tag in ("ol", "li") and "list-style-type" in style
                is_unread = is_list or is_struck(style) or bool(script_of(style)) or "counter-increment" in style
                if styled.edges == ("", "") and style.get("display") in BLOCK_DISPLAYS | APART_DISPLAYS:
                    styled.edges = (" ", " ")
            if is_unread:
                self._seen.unread_rules.append(rule.selector)

    def _marks(self, element: Any, tag: str, style: Style) -> list[Callable[[str], str]]:
        marks: list[Callable[[str], str]] = []
        if self._num_struck == 0 and (tag in STRUCK_TAGS or is_struck(style)):
            marks.append(_write_struck)
        script = tag if tag in ("sup", "sub") else "" if self._num_scripts else script_of(style)
        if script and tag not in ("sup", "sub") and next(element.iter("sup", "sub"), None) is not None:
            script = ""  # which is marked there
        if script and tag not in ("td", "th", "tr", "img"):
            is_note = script == "sup" and _is_note(element)
            marks.append(_write_note if is_note else superscript if script == "sup" else subscript)
        return marks

    def _write_generated(self, element: Any, tag: str, styled: "_Styled", name: str) -> None:
        """Writes the text that `::before`, `::after` or `::marker` (`name`) of an element has in the style sheets."""
        style = styled.generated.get(name)
        if not style or tag in UNSHOWN_TAGS or tag in self._REPLACEMENTS:
            return
        if style.get("display") == "none" or style.get("visibility") == "hidden":
            return
        self._counters.count(style, depth=len(self._styled) + 1)
        text = self._generated(element, style.get("content", ""))
        if text is None:
            rules = (
                rule
                for rule in self._sheets.rules(element, self._styled[-2].names)
                if rule.pseudo == name and "content" in rule.ordinary
            )
            self._seen.unread_rules += (rule.selector for rule in rules)
        elif text and not (tag == "q" and not any(map(str.isalnum, text))):
            script = script_of(style)
            text = superscript(text) if script == "sup" else subscript(text) if script else text
            edge = EDGE if style.get("display") in BLOCK_DISPLAYS else APART
            self._write(f"{edge}{text}{edge}{GLUE if tag == 'li' and name != 'after' and edge == APART else ''}")

    def _generated(self, element: Any, content: str) -> str | None:
        """Returns the text of a value of `content`; None if it has words that can't be told."""
        texts = list[str]()
        for kind, inside in content_pieces(content):
            if kind == "/":  # behind it stands what is read to the blind
                break
            values = self._sheets.texts.get(inside.split(",")[0].strip(), {inside}) if kind == "var" else ()
            if kind in UNREAD_CONTENT or any(map(has_words, values)):
                return None
            texts.append(self._content_text(element, kind, inside))
        return "".join(texts).translate(CONTROLS).replace("\n", " ")

    def _content_text(self, element: Any, kind: str, inside: str) -> str:
        match kind:
            case "text":
                return ICONS.sub("", inside)
            case "attr":
                return element.get(inside.split(",")[0].strip().lower()) or ""
            case "counter" | "counters":
                return self._counters.shown(kind, inside, list_numbers=[number - 1 for number in self._numbers])
            case "open-quote" | "close-quote":
                return '"'
        return ""

    def _end_cell(self, element: Any, tag: str) -> None:
        if tag == "table":
            self._tables.pop()
        elif tag == "tr":
            self._tables[-1].end_row()
        else:
            self._write(self._tables[-1].end_cell(element))

    def _write_number(self, element: Any, styled: "_Styled") -> None:
        if not self._numbers:
            return
        number = _integer(element.get("value"), self._numbers[-1])
        parent = element.getparent()
        is_reversed = parent is not None and parent.get("reversed") is not None
        self._numbers[-1] = number + (-1 if is_reversed else 1)
        if styled.style.get("display") in NO_ITEMS:
            return
        if styled.generated.get("marker", {}).get("content", "normal") not in ("normal", "none"):
            self._write_generated(element, "li", styled, "marker")
            return
        ordered = "decimal" if parent is not None and _tag(parent) == "ol" else "none"
        inherited = self._styled[-2].style if parent is not None else {}
        number_format = number_format_of(element, styled.style) or number_format_of(parent, inherited) or ordered
        shown = formatted(number, number_format)
        text = "".join(islice(element.itertext(), 9)).lstrip()[: len(shown) + 1]
        if shown and text not in (f"{shown}.", f"{shown})"):
            self._write(f"{shown}. {GLUE}")

    def _tooltip(self, element: Any, tag: str) -> str:
        """Returns tooltip and label of an element in brackets, as far as its text does not repeat them."""
        names = [element.get(name) for name in NAMES if element.get(name)]
        if not names or tag in ("html", "link", "meta", "style", "script", "head"):
            return ""
        shown = " ".join([*element.itertext(), element.get("alt", ""), element.get("value", "")])
        said = [" ".join(shown.split())]
        for name in (" ".join(name.split()) for name in names):
            if name in said[0] or name in said[1:]:
                self._seen.left_out.append(name)
            else:
                said.append(name)
        return "".join(f" [{name}] " for name in said[1:])

    def _content(self, element: Any, tag: str) -> str | None:
        """Returns what stands for an element and all that is inside; None if that is read like any other."""
        replacement = self._REPLACEMENTS.get(tag)
        content = replacement(self, element) if replacement is not None else None
        if content is not None:
            return content
        self._seen.has_script |= tag == "script"
        if tag in UNSHOWN_TAGS:
            self._seen.left_out += _words_inside(element) if tag == "datalist" else [element.get("label", "")]
            return ""
        self._add_media(element, tag)
        if tag in ("iframe", "frame") and element.get("srcdoc"):
            return f"{EDGE}{_read_page(element.get('srcdoc'), self._seen, self._style_sheet)}{EDGE}"
        if element.get("role", "").lower() in CHECKED_ROLES:
            self._write(f" {CHECKED if element.get('aria-checked') == 'true' else UNCHECKED} ")
        if tag == "textarea" and not (element.text or "").strip():
            self._write(_placeholder(element))
        else:
            self._seen.left_out.append(element.get("placeholder", ""))
        return None

    def _title(self, element: Any) -> str | None:
        parent = element.getparent()
        if parent is not None and _tag(parent) not in ("head", "html", "body"):
            return None  # of a drawing
        title = " ".join((element.text or "").split())
        if self._seen.title:
            self._seen.left_out.append(title)
        self._seen.title = self._seen.title or title
        return ""

    def _input(self, element: Any) -> str:
        kind = element.get("type", "text").lower()
        if kind in ("checkbox", "radio"):
            return f" {UNCHECKED if element.get('checked') is None else CHECKED} "
        if kind == "image":
            return self._picture(element)
        if kind in UNSHOWN_TYPES:
            return _placeholder(element) if kind == "password" else ""
        if not element.get("value"):
            return _placeholder(element)
        self._seen.left_out.append(element.get("placeholder", ""))
        return f" {element.get('value')} "

    def _equation(self, element: Any) -> str:
        self._seen.left_out += ("".join(each.itertext()) for each in element.iter("annotation", "annotation-xml"))
        return f" {mathml_equation(element)} "

    def _choices(self, element: Any) -> str:
        """Returns the chosen option of a list; of one that shows several, all of them with boxes."""
        options = [
            (" ".join((each.get("label") or "".join(each.itertext())).split()), each.get("selected") is not None)
            for each in element.iter("option")
        ]
        if element.get("multiple") is not None or _integer(element.get("size"), 1) > 1:
            return " ".join(f" {CHECKED if is_chosen else UNCHECKED} {text} " for text, is_chosen in options)
        chosen = [number for number, (_, is_chosen) in enumerate(options) if is_chosen] or [0]
        self._seen.left_out += (text for number, (text, _) in enumerate(options) if number != chosen[-1])
        self._seen.left_out += ("".join(each.itertext()) for each in element.iter("option") if each.get("label"))
        self._seen.left_out += (each.get("label", "") for each in element.iter("optgroup"))
        self._seen.left_out += (each.tail or "" for each in element.iterdescendants())
        return f" {options[chosen[-1]][0]} " if options else ""

    def _picture(self, element: Any) -> str:
        """Adds a picture; returns the words that stand for it."""
        sources = [element]
        for picture in element.iterancestors("picture"):
            sources += picture.iter("source")
        addresses = [source.get(name, "") for source in sources for name in LAZY_SOURCES]
        for source in sources:
            candidates = re.findall(r"data:\S+|[^\s,]\S*", source.get("srcset") or source.get("data-srcset") or "")
            addresses += [each.rstrip(",") for each in candidates if not re.fullmatch(r"[\d.]+[wx],?", each)]
        sizes = (re.match(r"\s*(\d+)", element.get(name, "")) for name in ("width", "height"))
        is_small = any(size is not None and int(size[1]) <= SMALL_PIXELS for size in sizes)
        words = self._add_picture([*filter(None, addresses)], is_small=is_small)
        alternative = " ".join(element.get("alt", "").split())
        return f" [picture: {alternative}] {words}" if alternative else words

    def _add_picture(self, addresses: list[str], *, is_small: bool = False) -> str:
        """Adds a picture by its addresses, the one inside the page if there is one; returns the text that is in it."""
        data = [found for address in addresses if (found := DATA_URL.match(address.strip())) is not None]
        outside = [address for address in addresses if not address.strip().lower().startswith(("data:", "#"))]
        for found in data:
            content = _data(found)
            if "svg" in (found["kind"] or "").lower():
                return f" {_read_page(content.decode('utf-8', 'replace'), self._seen)} "
            if len(content) > len(outside) * 512:  # a smaller one only stands there until the other one is loaded
                self._seen.pictures.append(content)
                return ""
        if outside and not is_small:
            self._seen.outside_pictures.append(outside[0])
        return ""

    def _add_media(self, element: Any, tag: str) -> None:
        if tag in ("video", "audio", "canvas", "bgsound"):
            self._seen.media.append("audio" if tag == "bgsound" else tag)
        if tag in ("object", "embed", "applet", "iframe", "frame"):
            address = next(filter(None, (element.get(name) for name in ("data", "src", "srcdoc", "code"))), "")
            kind = (element.get("type") or (DATA_URL.match(address) or {"kind": ""})["kind"] or "").lower()
            if kind.startswith("image/") or PICTURE_ENDING.search(address):
                self._write(self._add_picture([address]))
            elif kind.startswith(("video/", "audio/")) or MEDIA_ENDING.search(address):
                self._seen.media.append("audio" if kind.startswith("audio/") else "video")
            else:
                self._seen.inner_pages |= not element.get("srcdoc")
        elif element.get("background"):
            self._add_picture([element.get("background")])

    _REPLACEMENTS: Mapping[str, Callable[["_PageReader", Any], str | None]] = {
        "title": _title,
        "input": _input,
        **dict.fromkeys(("img", "image"), _picture),
        "math": _equation,
        "select": _choices,
        "area": lambda _, element: f" {element.get('alt', '')} ",
        **dict.fromkeys(("progress", "meter"), lambda _, element: _measure(element)),
        "rt": lambda _, element: _ruby(element),
    }
    """Elements that something else than their text stands for, and what; None if they are read like any other."""


def _tag(element: Any) -> str:
    return element.tag.rpartition(":")[2].lower() if isinstance(element.tag, str) else ""


def _write_struck(text: str) -> str:
    return STRETCH.sub(lambda stretch: struck_out(stretch[0]), text)


def _write_note(text: str) -> str:
    return f"[{text.strip().strip('[]()')}]" if text.strip() else text


def _is_note(element: Any) -> bool:
    """Returns whether a raised text is the mark of a note: a link inside the page, or in brackets."""
    inside = "".join(islice(element.itertext(), 9)).strip()
    if inside[:1] == "[" or len(inside) > NOTE_CHARACTERS:
        return inside[:1] == "["
    links = (*element.iter("a"), *element.iterancestors("a"))
    return any(link.get("href", "").startswith("#") for link in links)


def _placeholder(element: Any) -> str:
    text = " ".join(element.get("placeholder", "").split())
    return f" [placeholder: {text}] " if text else ""


def _words_inside(element: Any) -> list[str]:
    """Returns all that an element and those inside it say."""
    labels = (each.get(name, "") for each in element.iterdescendants() for name in ("label", "value", *NAMES))
    return [*element.itertext(), *labels]


def _measure(element: Any) -> str | None:
    """Returns what a bar shows if no text stands in it."""
    if not element.get("value") or "".join(element.itertext()).strip():
        return None
    return f" {element.get('value')}{'/' if element.get('max') else ''}{element.get('max', '')} "


def _ruby(element: Any) -> str | None:
    """Returns the reading of a word in parentheses; None if the page has its own parentheses."""
    has_own = any(_tag(each) == "rp" for each in element.itersiblings(preceding=True))
    return None if has_own else f"({''.join(element.itertext())})"


def _span(value: str | None) -> int:
    return min(max(1, _integer(value, 1)), SPANNED_CELLS)


def _integer(value: str | None, otherwise: int) -> int:
    return int(value) if value is not None and re.fullmatch(r"\s*[+-]?[0-9]{1,9}\s*", value) else otherwise


def _data(url: re.Match[str]) -> bytes:
    """Returns what a data URL holds; nothing if no browser can show it either."""
    data = unquote_to_bytes(url["data"])
    if "base64" not in url["settings"].lower():
        return data
    try:
        return b64decode(data + b"==")
    except ValueError:
        return b""
