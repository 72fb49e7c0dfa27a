"""Paragraphs and tables of Word (WordprocessingML) and of slides and drawings (DrawingML) as text."""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from memagent_batch.data.ingest.readers.equations import OFF, M, office_equation, words_left_out
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED, Run, Script, join_runs, words_shown_otherwise
from memagent_batch.data.ingest.readers.numbering import FALLBACK, W
from memagent_batch.data.ingest.readers.symbols import BOXES, PRIVATE, UNKNOWN_SYMBOL, symbol_font, to_unicode

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
PARAGRAPHS, TABLES = frozenset({f"{W}p", f"{A}p"}), frozenset({f"{W}tbl", f"{A}tbl"})
FORMATS = frozenset({f"{W}pPr", f"{W}rPr", f"{W}sdtPr"})
LEFT_OUT = FORMATS | {FALLBACK, f"{W}del", f"{W}moveFrom"}
"""Elements whose text is not a text of the document: fallbacks, formats, and what a tracked change took from its
place."""
CODES = frozenset({f"{W}instrText", f"{W}delInstrText", f"{W}delText"})
"""Codes of fields, and deleted texts."""
TEXTS = frozenset({f"{W}t", f"{A}t", f"{M}t"})
VML = "{urn:schemas-microsoft-com:vml}"
DRAWN = frozenset(
    f"{{http://schemas.openxmlformats.org/{name}"
    for name in (
        "drawingml/2006/wordprocessingDrawing}docPr",
        "drawingml/2006/picture}cNvPr",
        "drawingml/2006/spreadsheetDrawing}cNvPr",
        "presentationml/2006/main}cNvPr",
    )
) | {f"{{http://schemas.microsoft.com/office/word/2010/wordprocessing{name}}}cNvPr" for name in ("Shape", "Group")}
DRAWN |= {f"{VML}{name}" for name in ("shape", "rect", "roundrect", "oval", "group", "line", "image")}
"""Elements that name what stands for a drawing where it is not shown."""
BLOCKS = PARAGRAPHS | TABLES | {tag for tag in DRAWN if not tag.startswith(VML)}
SAID_OF_DRAWINGS = ("title", "descr", "alt")
SAID = (*SAID_OF_DRAWINGS, "string", "tooltip", f"{W}tooltip")
"""Attributes that people read: `string` is that of letters drawn as a picture, the last ones are those of links."""
LINKED = frozenset({f"{W}hyperlink", f"{A}r", f"{A}fld"})
"""Elements of texts that may lead somewhere."""
LINKS = frozenset({f"{W}hyperlink", f"{A}hlinkClick", f"{A}hlinkMouseOver", f"{A}hlinkHover"})
GRID_COLUMNS = 63
"""Most columns of a table in Word."""
HALF_POINTS = re.compile(r"-?[0-9]{1,4}")
RAISED_HALF_POINTS = 4
"""A run that is raised or lowered by so much is read as a superscript or subscript."""


@dataclass(frozen=True, slots=True)
class Format:
    """What of a run's format changes its reading."""

    script: Script = Script.NORMAL
    is_struck: bool = False
    ascii_font: str | None = None
    other_font: str | None = None
    """Of letters beyond ASCII."""
    sign_font: str | None = None
    """Of signs, in a run of DrawingML that has no letters."""

    def run(self, text: str) -> Run:
        """Returns a run with this text of the document."""
        shown = self.shown(text)
        return Run(shown, self.script, self.is_struck, written=None if shown == text else text)

    def shown(self, text: str) -> str:
        """Returns the characters that the fonts show for a text."""
        if self.sign_font is not None and not any(character.isascii() and character.isalnum() for character in text):
            return to_unicode(text, self.sign_font)
        is_symbol = symbol_font(self.ascii_font) is not None or symbol_font(self.other_font) is not None
        if text.isascii() and not is_symbol:
            return text
        return "".join(to_unicode(character, self._font(character)) for character in text)

    def _font(self, character: str) -> str | None:
        if character.isascii():
            return self.ascii_font
        return self.ascii_font if symbol_font(self.other_font) is None and character > "\uefff" else self.other_font


Properties = Mapping[str, Any]
"""Properties of runs that change their reading, by their names in Word."""


class Styles:
    """Styles of a document: which paragraphs are headings, and the formats of runs."""

    def __init__(self, styles: Iterable[Any] = ()) -> None:
        """Takes the `w:style` elements."""
        self._styles = {style.get(f"{W}styleId"): style for style in styles}
        self._properties: dict[str, Properties] = {"": {}}
        paragraphs = (each for each in self._styles.items() if each[1].get(f"{W}type") == "paragraph")
        self._default = next((name for name, style in paragraphs if style.get(f"{W}default", "0") not in OFF), "")

    def name(self, style: str | None) -> str:
        """Returns the name of a style, which is the same in all languages; its id may be another."""
        element = self._styles.get(style)
        name = None if element is None else element.find(f"{W}name")
        return "" if name is None else str(name.get(f"{W}val", ""))

    def is_heading(self, paragraph: Any) -> bool:
        """Tells whether a paragraph begins a section."""
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        name = "" if style is None else self.name(style.get(f"{W}val"))
        return name == "Title" or name.lower().startswith("heading ")

    def paragraph_properties(self, paragraph: Any) -> Properties:
        """Returns what the style of a paragraph of Word says of its runs."""
        style = paragraph.find(f"{W}pPr/{W}pStyle")
        properties = self._of_style(self._default if style is None else style.get(f"{W}val", ""))
        return {**properties, "is_initial": True} if _is_initial(paragraph) else properties

    def format(self, run: Any, inherited: Properties) -> Format:
        """Returns the format of a run of Word: its own, else of its style, else what its paragraph has."""
        own = run.find(f"{W}rPr")
        if own is None and not inherited:
            return PLAIN
        style = None if own is None else own.find(f"{W}rStyle")
        named = {} if style is None else self._of_style(style.get(f"{W}val", ""))
        properties = {**inherited, **named, **_run_properties(own)}
        return _word_format(properties) if properties else PLAIN

    def _of_style(self, style: str) -> Properties:
        """Returns the properties of runs that a style sets, with those of the styles that it is based on."""
        if style not in self._properties:
            self._properties[style] = {}  # a style that is based on itself ends here
            element = self._styles.get(style)
            if element is not None:
                base = element.find(f"{W}basedOn")
                inherited = {} if base is None else self._of_style(base.get(f"{W}val", ""))
                self._properties[style] = {**inherited, **_run_properties(element.find(f"{W}rPr"))}
        return self._properties[style]


PLAIN = Format()


def _run_properties(properties: Any) -> dict[str, Any]:
    """Returns those of the properties of a run (`w:rPr`) that change its reading."""
    found = dict[str, Any]()
    for element in () if properties is None else properties:
        match str(element.tag).removeprefix(W):
            case "strike" | "dstrike" as name:
                found[name] = element.get(f"{W}val", "1") not in OFF
            case "vertAlign" | "position" as name:
                found[name] = element.get(f"{W}val", "")
            case "rFonts":
                for font in ("ascii", "hAnsi"):
                    is_of_theme = bool(element.get(f"{W}{font}Theme"))  # which is no symbol font
                    if is_of_theme or element.get(f"{W}{font}"):
                        found[font] = None if is_of_theme else element.get(f"{W}{font}")
    return found


def _word_format(properties: Properties) -> Format:
    is_struck = bool(properties.get("strike") or properties.get("dstrike"))
    position = "" if "is_initial" in properties else str(properties.get("position", ""))
    lift = int(position) if HALF_POINTS.fullmatch(position) else 0
    script = {"superscript": Script.SUPER, "subscript": Script.SUB}.get(properties.get("vertAlign", ""))
    if script is None:
        script = Script.NORMAL if abs(lift) < RAISED_HALF_POINTS else Script.SUPER if lift > 0 else Script.SUB
    return Format(script, is_struck, properties.get("ascii"), properties.get("hAnsi"))


def _drawing_format(run: Any) -> Format:
    """Returns the format of a run of DrawingML."""
    properties = run.find(f"{A}rPr")
    if properties is None:
        return PLAIN
    lift = properties.get("baseline", "0").removesuffix("%")
    script = Script.NORMAL if lift.strip("0.") == "" else Script.SUB if lift.startswith("-") else Script.SUPER
    latin, sign = (properties.find(f"{A}{name}") for name in ("latin", "sym"))
    font = None if latin is None else latin.get("typeface")
    return Format(
        script,
        properties.get("strike", "noStrike") != "noStrike",
        font,
        font,
        None if sign is None or symbol_font(sign.get("typeface")) is None else sign.get("typeface"),
    )


class TextReader:
    """Reads paragraphs and tables, with the marks that their formats ask for."""

    def __init__(self, styles: Styles | None = None) -> None:
        """Takes the styles of the document, if it has any."""
        self.styles = styles or Styles()
        self.left_out = list[str]()
        """Words of the document that its text shows otherwise, or not at all."""
        self._drawing = ""
        """What was said of the last drawing."""

    def headed_blocks(self, root: Any) -> Iterator[tuple[str | None, str]]:
        """Yields the texts of the paragraphs and tables below an element, in order; a heading with its title."""
        return ((title, text) for title, text, _ in self.located_blocks(root))

    def located_blocks(self, root: Any) -> Iterator[tuple[str | None, str, Any]]:
        """Yields the titles and texts of `headed_blocks`, each with its element."""
        initial = ""
        for block in outermost_blocks(root):
            text = initial + self.block_text(block)
            initial = text if _is_initial(block) else ""
            if text.strip() and not initial:
                yield (text if self.styles.is_heading(block) else None), text, block

    def block_text(self, block: Any) -> str:
        """Returns the text of a paragraph or table, or of what stands for a drawing."""
        if block.tag in DRAWN:
            return self._alternative(block).strip()
        return self._paragraph(block) if block.tag in PARAGRAPHS else self._table(block)

    def _alternative(self, drawing: Any) -> str:
        """Returns what is said of a drawing, unless it was said just before."""
        names = [drawing.get(name, "").strip() for name in SAID_OF_DRAWINGS]
        names += [link.get("tooltip", "").strip() for link in drawing if link.tag in LINKS]
        said = " ".join(filter(None, names))
        if not said or said == self._drawing:
            self.left_out.append(said)
            return ""
        self._drawing = said
        return f" [{said}] "

    def _paragraph(self, paragraph: Any) -> str:
        """Returns its text, then that of text boxes in it."""
        runs, boxes = [Run(_box_bullet(paragraph))], list[str]()
        inherited = self.styles.paragraph_properties(paragraph)
        for child in paragraph:
            self._collect(child, PLAIN, inherited, runs, boxes)
        self.left_out.extend(words_shown_otherwise(runs))
        return "\n".join(text for text in (join_runs(runs), *boxes) if text)

    def _collect(self, element: Any, style: Format, inherited: Properties, runs: list[Run], boxes: list[str]) -> None:
        """Appends the runs of text below an element, and the texts of the text boxes there."""
        tag = element.tag
        if tag in LEFT_OUT or not isinstance(tag, str):
            return
        if tag in (f"{W}t", f"{A}t", f"{M}oMath"):
            runs.append(self._run(element, style))
        elif tag in SHOWN_ELEMENTS:
            runs.append(Run(SHOWN_ELEMENTS[tag](element), is_struck=style.is_struck))
        elif tag in PARAGRAPHS | TABLES:
            boxes.append(self.block_text(element))
        elif tag == f"{W}ruby":
            self._collect_ruby(element, style, inherited, runs, boxes)
        else:
            if tag in DRAWN:
                runs.append(Run(self._alternative(element), is_struck=style.is_struck))
            inner, start = self._run_format(element, inherited) or style, len(runs)
            for child in element:
                self._collect(child, inner, inherited, runs, boxes)
            self._add_tooltip(element, runs, start)

    def _add_tooltip(self, link: Any, runs: list[Run], start: int) -> None:
        """Appends the tooltip of a link in brackets, unless the link's text, which begins at `start`, has it."""
        tooltip = _tooltip(link) if link.tag in LINKED else ""
        if not tooltip:
            return
        if tooltip in " ".join(join_runs(runs[start:]).split()):
            self.left_out.append(tooltip)
        else:
            runs.append(Run(f" [{tooltip}]"))

    def _run(self, element: Any, style: Format) -> Run:
        """Returns a text or an equation in a format."""
        if element.tag == f"{M}oMath":
            self.left_out.append(words_left_out(element))
            return Run(office_equation(element), is_struck=style.is_struck, is_equation=True)
        return style.run(element.text or "")

    def _run_format(self, element: Any, inherited: Properties) -> Format | None:
        if element.tag == f"{W}r":
            return self.styles.format(element, inherited)
        return _drawing_format(element) if element.tag in (f"{A}r", f"{A}fld") else None

    def _collect_ruby(self, ruby: Any, style: Format, inherited: Properties, runs: list[Run], boxes: list[str]) -> None:
        """Appends a text, and in brackets how it is read."""
        reading = list[Run]()
        for name, target in (("rubyBase", runs), ("rt", reading)):
            for child in ruby.iterfind(f"{W}{name}/*"):
                self._collect(child, style, inherited, target, boxes)
        text = join_runs(replace_script(reading))
        runs.append(Run(f"({text})" if text else "", is_struck=style.is_struck))

    def _table(self, table: Any) -> str:
        """Returns a line for each row, with ` | ` between the cells, after what is said of the table."""
        names = (table.find(f"{W}tblPr/{W}tbl{name}") for name in ("Caption", "Description"))
        said = " ".join(name.get(f"{W}val", "") for name in names if name is not None).strip()
        rows = (self._cells(row) for row in self._kept(table, "tr", "trPr/del"))
        lines = (" | ".join(cells).rstrip(" |") for cells in rows)
        return "\n".join([f"[{said}]", *lines] if said else lines)

    def _kept(self, root: Any, name: str, mark: str) -> Iterator[Any]:
        """Yields the rows of a table, or cells of a row, that no tracked change deleted."""
        for element in _outermost(root, f"{_prefix(root)}{name}"):
            if element.find("/".join(f"{W}{step}" for step in mark.split("/"))) is None:
                yield element
            else:
                self.left_out.append(written_text(element))

    def _cells(self, row: Any) -> list[str]:
        """Returns the texts of a row's cells, and an empty one for each further column that a cell spans."""
        cells = [""] * _number(row.find(f"{W}trPr/{W}gridBefore"), 0)
        for cell in self._kept(row, "tc", "tcPr/cellDel"):
            is_covered = cell.get("hMerge", "0") not in OFF or cell.get("vMerge", "0") not in OFF
            if is_covered:
                self.left_out.append(written_text(cell))
            cells.append("" if is_covered else self._cell_text(cell))
            cells += [""] * (_number(cell.find(f"{W}tcPr/{W}gridSpan"), 1) - 1)
        return cells

    def _cell_text(self, cell: Any) -> str:
        """Returns the text of a cell on one line; a table in it keeps its cells apart by a broken bar."""
        texts = list[str]()
        for block in outermost_blocks(cell):
            text = self.block_text(block)
            if block.tag in TABLES:
                text = "; ".join(line.replace(" | ", " \N{BROKEN BAR} ") for line in text.split("\n"))
            texts.append(" ".join(text.split()))
        return " ".join(filter(None, texts))


def _tooltip(link: Any) -> str:
    """Returns what is shown where somebody points at a text that leads somewhere."""
    links = [link] if link.tag == f"{W}hyperlink" else link.iterfind(f"{A}rPr/*")
    name = f"{W}tooltip" if link.tag == f"{W}hyperlink" else "tooltip"
    return " ".join(" ".join(each.get(name, "") for each in links if each.tag in LINKS).split())


def replace_script(runs: Iterable[Run]) -> Iterator[Run]:
    """Yields the runs without their scripts."""
    return (run._replace(script=Script.NORMAL) for run in runs)


def outermost_blocks(root: Any) -> Iterator[Any]:
    """Yields the outermost paragraphs, tables and names of drawings below an element, at whatever depth."""
    for child in root:
        if child.tag in BLOCKS:
            yield child
        elif child.tag not in LEFT_OUT:
            yield from outermost_blocks(child)


def written_text(*elements: Any) -> str:
    """Returns all that elements say, shown or not."""
    pieces = list[str]()
    for element in (inner for each in elements for inner in each.iter()):
        if element.tag in TEXTS | CODES:
            pieces.append(element.text or "")
        else:
            pieces += [" "] if element.tag in PARAGRAPHS else []
            pieces += [f" {element.get(name)} " for name in SAID if element.get(name)]
    return "".join(pieces)


def left_out_text(root: Any) -> str:
    """Returns the text of what is left out of the text below an element: copies, codes and deleted texts."""
    pieces, last = list[str](), None
    for element in root.iter(*(LEFT_OUT - FORMATS), *CODES):
        if next(element.iterancestors(*LEFT_OUT), None) is None:
            paragraph = next(element.iterancestors(*PARAGRAPHS), None)
            pieces += ["" if paragraph is last else "\n", written_text(element)]
            last = paragraph
    return "".join(pieces)


def shown_elements(root: Any, *tags: str) -> Iterator[Any]:
    """Yields the elements with these tags below an element in order, except in what is left out of the text."""
    for element in root.iter(*tags):
        if not any(around.tag in LEFT_OUT for around in element.iterancestors()):
            yield element


def _outermost(root: Any, tag: str) -> Iterator[Any]:
    for child in root:
        if child.tag == tag:
            yield child
        elif child.tag not in TABLES | LEFT_OUT:
            yield from _outermost(child, tag)


def _prefix(element: Any) -> str:
    return W if element.tag.startswith(W) else A


def _number(element: Any, default: int) -> int:
    """Returns a number of columns."""
    text = "" if element is None else element.get(f"{W}val", "")
    return min(int(text), GRID_COLUMNS) if text.isdecimal() and text.isascii() else default


def _is_initial(block: Any) -> bool:
    """Tells whether a paragraph is the large first letter of the next one."""
    frame = block.find(f"{W}pPr/{W}framePr")
    return frame is not None and frame.get(f"{W}dropCap", "none") != "none"


def _box_bullet(paragraph: Any) -> str:
    """Returns the bullet of a paragraph of a slide if it is a check box."""
    bullet, font = (paragraph.find(f"{A}pPr/{A}{name}") for name in ("buChar", "buFont"))
    if bullet is None:
        return ""
    sign = to_unicode(bullet.get("char", ""), None if font is None else font.get("typeface"))
    return f"{sign} " if sign in BOXES else ""


def _symbol(element: Any) -> str:
    """Returns a character of a font (`w:sym`), as Unicode has it."""
    font = element.get(f"{W}font")
    try:
        character = chr(int(element.get(f"{W}char", ""), 16))
    except (ValueError, OverflowError):
        return UNKNOWN_SYMBOL
    is_unknown = font and symbol_font(font) is None and ord(character) in PRIVATE
    return UNKNOWN_SYMBOL if is_unknown else to_unicode(character, font)


def _form_field(field: Any) -> str:
    """Returns what is chosen in a field of a form; empty where the field's text stands behind it."""
    box, choices = field.find(f"{W}ffData/{W}checkBox"), field.find(f"{W}ffData/{W}ddList")
    if box is not None:
        return UNCHECKED if _choice(box, "checked") in OFF else CHECKED
    if choices is not None:
        listed = dict(enumerate(entry.get(f"{W}val", "") for entry in choices.iterfind(f"{W}listEntry")))
        chosen = _choice(choices, "result")
        return listed.get(int(chosen), "") if chosen.isdecimal() else ""
    return ""


def _choice(field: Any, name: str) -> str:
    """Returns what a field of a form was filled in with, else its default, else 0."""
    settings = (field.find(f"{W}{each}") for each in (name, "default"))
    values = (str(each.get(f"{W}val", "1")) for each in settings if each is not None)
    return next(values, "0")


SHOWN_ELEMENTS: dict[str, Callable[[Any], str]] = {
    **dict.fromkeys((f"{W}tab", f"{W}ptab"), lambda _: "\t"),
    **dict.fromkeys((f"{W}br", f"{A}br", f"{W}cr"), lambda _: "\n"),
    f"{W}noBreakHyphen": lambda _: "-",
    f"{W}sym": _symbol,
    f"{W}fldChar": _form_field,
    **dict.fromkeys((f"{W}footnoteReference", f"{W}endnoteReference"), lambda mark: mark.get("label", "")),
    f"{VML}textpath": lambda letters: f" {letters.get('string', '')} ",
}
"""What elements without a text show. The last one is letters drawn as a picture, such as a watermark."""
