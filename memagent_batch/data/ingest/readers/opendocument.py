"""ODT, ODS and ODP by lxml: a part for each section, sheet or slide; then margins, form fields, objects, pictures."""

import re
import zipfile
from base64 import b64decode
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from itertools import repeat
from pathlib import Path
from typing import Any, NamedTuple

from lxml import etree

from memagent_batch.data.ingest.readers.converter import (
    Attachment,
    BuiltIn,
    Part,
    PartStatus,
    failure_reason,
    picture_parts,
)
from memagent_batch.data.ingest.readers.docx import text_note
from memagent_batch.data.ingest.readers.equations import MATHML, mathml_equation, words_left_out
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED, Run, join_runs, words_shown_otherwise
from memagent_batch.data.ingest.readers.numbering import OpenNumbering
from memagent_batch.data.ingest.readers.opendocument_styles import (
    DRAW,
    FORM,
    NAMESPACE,
    OFFICE,
    SVG,
    TABLE,
    TEXT,
    OpenStyles,
)
from memagent_batch.data.ingest.readers.packages import MEDIA_REASON, require_bounds
from memagent_batch.data.ingest.readers.paragraphs import PLAIN, Format
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.data.ingest.readers.text import section_parts
from memagent_batch.errors import ConversionError

SHOW = NAMESPACE.format("presentation")
FIELD = "{urn:openoffice:names:experimental:ooo-ms-interop:xmlns:field:1.0}"
LIBRE = "{urn:org:documentfoundation:names:experimental:office:xmlns:loext:1.0}"
DUBLIN_CORE = "{http://purl.org/dc/elements/1.1/}"
XLINK = "{http://www.w3.org/1999/xlink}"
HREF = f"{XLINK}href"
LINKS = frozenset({f"{TEXT}a", f"{DRAW}a"})
TOOLTIPS = (f"{OFFICE}title", f"{XLINK}title")
"""What is shown where somebody points at a link."""
XML_ID = "{http://www.w3.org/XML/1998/namespace}id"
ANNOTATIONS = frozenset({f"{OFFICE}annotation", "{http://openoffice.org/2009/office}annotation"})
SPACES = {f"{TEXT}s": " ", f"{TEXT}tab": "\t", f"{TEXT}line-break": "\n"}
NOT_TEXT = frozenset({f"{TEXT}tracked-changes", f"{TABLE}tracked-changes", f"{OFFICE}forms"}) | {
    f"{OFFICE}binary-data",
    f"{TEXT}script",
    f"{TABLE}content-validations",
}
"""What was deleted, fields of forms and rules for input, which are read elsewhere, pictures and programs in letters."""
STATED = frozenset(f"{SHOW}{name}-decl" for name in ("header", "footer", "date-time"))
"""What all slides show above or below."""
BLOCKS = frozenset({f"{TEXT}p", f"{TEXT}h", f"{TEXT}list", f"{TABLE}table"})
"""What text boxes and other shapes hold, which stand inside a paragraph."""
DESCRIPTIONS = frozenset(f"{family}{name}" for family in (SVG, TABLE) for name in ("title", "desc"))
SHOWN_BLOCKS = {f"{DRAW}control", f"{DRAW}object", f"{MATHML}math"} | DESCRIPTIONS
"""Elements that may stand outside of paragraphs, and are read there too."""
NOT_FILLED_IN = "[not filled in]"
SHEET_COLUMNS = 16_384
"""Most columns of a sheet."""
SPACES_LIMIT = 1000
"""Largest number of spaces that are written for one `text:s` element, whatever count it names."""
OBJECT = re.compile(r"(?P<object>.+)/content\.xml")
PICTURE = re.compile(r"(?:.+/)?Pictures/[^/]+")
MEDIA = re.compile(r"(?:.+/)?Media/[^/]+")
CHOICE, VALUE_NAMES = re.compile(r'"([^"]*)"'), re.compile(r"\A\w+:(?!:)|cell-content\(\)|cell-content(?:-is)?-|\(\)")
"""In the condition of a rule for input: a choice; and its language and the names of the value that is written."""
FILE = re.compile(r"(?!ObjectReplacements/)(?:.+/)?Object [^/]+")
"""Members that are shown inside: objects such as charts and formulas, pictures, sound and film, and files of other
programs."""
LINKED = {f"{DRAW}image": "picture", f"{DRAW}plugin": "media", f"{DRAW}object": "object"} | {
    f"{DRAW}{name}": noun
    for name, noun in {"object-ole": "object", "floating-frame": "page", "applet": "program"}.items()
}
"""Elements that show something by its address."""


class OpenDocumentConverter(BuiltIn):
    """Notes follow their paragraph, comments stand where they belong, formulas and form fields are read in their place.

    What a tracked change deleted is left out, and the first part says so.
    """

    package, revision, modules = "lxml", 7, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the parts of the body, then one for each text, picture or file beside it."""
        require_bounds(file, kind="an OpenDocument")
        with zipfile.ZipFile(file) as package:
            names = _readable_names(package)
            content = _root(package, "content.xml")
            styles = _root(package, "styles.xml") if "styles.xml" in names else None
            equations = _equations(package)
            OpenNumbering([content] if styles is None else [styles, content]).write(content)
            reader = OpenTextReader(content, OpenStyles(content, styles), equations)
            changes = list(content.iter(f"{TEXT}tracked-changes", f"{TABLE}tracked-changes"))
            reader.left_out += map(_written_text, changes)
            reader.left_out += (" ".join(_tooltips(link)) for each in changes for link in each.iter(*LINKS))
            is_tracked = any(map(len, changes))
            for part in section_parts(reader.blocks([content]), separator="\n\n"):
                yield replace(part, reason=text_note(part.text, is_tracked=is_tracked))
                is_tracked = False
            yield from _form_parts(content)
            yield from _rule_parts(content)
            if left_out := "\n".join(filter(None, reader.left_out)):
                yield Part(left_out=left_out)
            if styles is not None:
                yield from _margin_parts(styles)
            yield from _linked_parts(content, names)
            for number, data in enumerate(content.iter(f"{OFFICE}binary-data"), start=1):
                picture = (data.text or "").encode()
                with suppress(ValueError):  # else the letters stand for the damaged picture
                    picture = b64decode(picture)
                yield from picture_parts(f"inline picture {number}", picture)
            placed = {href(element) for element in content.iter(f"{DRAW}object")}
            for number, name in enumerate(names, start=1):
                if name.removesuffix("/content.xml") not in placed & equations.keys():
                    yield from _inner_items(package, name, number=str(number))


def _readable_names(package: zipfile.ZipFile) -> list[str]:
    """Returns the names of the members of a package, unless it can't be read."""
    names = package.namelist()
    if missing := {"META-INF/manifest.xml", "content.xml"}.difference(names):
        raise ConversionError(f"the file lacks {' and '.join(sorted(missing))}; is it whole?")
    if b"encryption-data" in package.read("META-INF/manifest.xml"):
        raise ConversionError("encrypted: it opens with a password only; remove the password")
    return names


def _root(package: zipfile.ZipFile, name: str) -> Any:
    """Returns the XML of a member."""
    root = etree.fromstring(
        package.read(name), etree.XMLParser(resolve_entities=False, no_network=True, collect_ids=False)
    )
    declared = root.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise ConversionError("its XML declares entities; they are not followed")
    return root


class Equation(NamedTuple):
    """A formula."""

    text: str
    left_out: str
    """Its words that the text shows otherwise."""


def _equations(package: zipfile.ZipFile) -> dict[str, Equation]:
    """Returns the formulas among the objects of a package, by the paths of the objects."""
    equations = dict[str, Equation]()
    for name in package.namelist():
        inner = OBJECT.fullmatch(name)
        try:
            root = _root(package, name) if inner else None
        except (ConversionError, etree.XMLSyntaxError):
            continue  # it is a part of its own that says so
        if inner is not None and root is not None and root.tag == f"{MATHML}math":
            equations[inner["object"]] = Equation(mathml_equation(root), words_left_out(root))
    return equations


def _form_parts(content: Any) -> Iterator[Part]:
    """Yields a part of the form fields that have no place in the text."""
    placed = {element.get(f"{DRAW}control") for element in content.iter(f"{DRAW}control")}
    controls = (control for name, control in form_controls(content).items() if name not in placed)
    text = "\n".join(filter(None, (control_text(control, is_named=True) for control in controls)))
    if text:
        yield Part(locator="form fields", text=text)


def _rule_parts(content: Any) -> Iterator[Part]:
    """Yields a part of what is shown where something is to be written into cells: hints, choices, limits and errors."""
    lines, left_out = list[str](), list[str]()
    for rule in content.iter(f"{TABLE}content-validation"):
        cells, condition = (rule.get(f"{TABLE}{name}", "") for name in ("base-cell-address", "condition"))
        choices = CHOICE.findall(condition) if "is-in-list" in condition else []
        if choices:
            lines.append(f"{cells}, one of: {', '.join(choices)}")
            left_out.append(CHOICE.sub("", condition))
        elif condition:
            limit = VALUE_NAMES.sub(lambda name: "value" if name[0] == "cell-content()" else "", condition)
            lines.append(f"{cells}, only: {limit}")
            left_out += VALUE_NAMES.findall(condition)
        for name, about in (("help", ""), ("error", ", if something else is written")):
            for message in rule.iterchildren(f"{TABLE}{name}-message"):
                text = ": ".join(filter(None, (message.get(f"{TABLE}title", ""), _written_text(message))))
                is_shown = text and message.get(f"{TABLE}display") == "true"
                (lines if is_shown else left_out).append(f"{cells}{about}: {text}" if is_shown else text)
    if lines or left_out:
        yield Part(locator="rules for input" if lines else "", text="\n".join(lines), left_out="\n".join(left_out))


def _margin_parts(styles: Any) -> Iterator[Part]:
    reader = OpenTextReader(styles, OpenStyles(styles, None), {})
    margins = "\n\n".join(text for each in styles.iter(f"{OFFICE}master-styles") for _, text in reader.blocks(each))
    left_out = "\n".join(filter(None, reader.left_out))
    if margins:
        yield Part(locator="headers and footers", text=margins, reason=symbol_note(margins), left_out=left_out)


def _linked_parts(content: Any, names: list[str]) -> Iterator[Part]:
    """Yields a loss for each picture, film, object or page that is shown and not in the package."""
    seen = set[str]()
    for element in content.iter(*LINKED):
        target, noun = href(element), LINKED[element.tag]
        is_inside = not target or any(name == target or name.startswith(f"{target}/") for name in names)
        if not is_inside and target not in seen:
            seen.add(target)
            reason = f"a linked {noun}, which is not in the file and is not read"
            yield Part(locator=f"{noun} {target}", status=PartStatus.SKIPPED, reason=reason)


def _inner_items(package: zipfile.ZipFile, name: str, *, number: str) -> Iterator[Part | Attachment]:
    """Yields what a member of the package shows."""
    inner = OBJECT.fullmatch(name)
    if inner is not None:
        yield _object_part(package, name, f"object {inner['object']}")
    elif PICTURE.fullmatch(name):
        yield from picture_parts(f"picture {name}", package.read(name))
    elif MEDIA.fullmatch(name):
        yield Part(locator=f"media {name}", status=PartStatus.SKIPPED, reason=MEDIA_REASON)
    elif FILE.fullmatch(name):
        yield Attachment(number=number, name=name, locator=f"file {name}", data=package.read(name))


def _object_part(package: zipfile.ZipFile, name: str, locator: str) -> Part:
    """Returns the text of an object; one that can't be read costs itself."""
    try:
        root = _root(package, name)
    except (ConversionError, etree.XMLSyntaxError) as error:
        return Part(locator=locator, status=PartStatus.FAILED, reason=failure_reason(error))
    if root.tag == f"{MATHML}math":
        return Part(locator=locator, text=mathml_equation(root), left_out=words_left_out(root))
    reader = OpenTextReader(root, OpenStyles(root, None), {})
    blocks, beside = [text for _, text in reader.blocks(root)], [*_form_parts(root), *_rule_parts(root)]
    text = "\n\n".join([*blocks, *(part.text for part in beside if part.text)])
    left_out = "\n".join(filter(None, [*reader.left_out, *(part.left_out for part in beside)]))
    return Part(locator=locator, text=text, reason=symbol_note(text), left_out=left_out)


@dataclass(slots=True)
class Line:
    """A paragraph that is being read."""

    runs: list[Run] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Footnotes and endnotes, which follow the paragraph."""

    def add(self, text: str | None, style: Format = PLAIN) -> None:
        """Appends a text in a format."""
        self.runs.append(style.run(text or ""))


class OpenTextReader:
    """Reads the paragraphs, tables and shapes of one XML file of a package."""

    def __init__(self, root: Any, styles: OpenStyles, equations: Mapping[str, Equation]) -> None:
        """Takes the XML, its styles, and the formulas of the package by the paths of their objects."""
        self._styles, self._equations = styles, equations
        self.left_out = [_written_text(each) for each in root.iter(f"{TEXT}placeholder")]
        """Words of the document that its text shows otherwise, or not at all."""
        self._controls = form_controls(root)
        self.left_out += _unshown_labels(root)
        ends = {end.get(f"{OFFICE}name") for end in root.iter(f"{OFFICE}annotation-end")}
        comments = (each for each in root.iter(*ANNOTATIONS) if each.get(f"{OFFICE}name") in ends)
        self._comments_at_end = {each.get(f"{OFFICE}name"): each for each in comments}
        self._columns: dict[Any, list[str | None]] = {}
        self._inline_readers: dict[str, Callable[[Any, Format, Line], None]] = {
            f"{TEXT}span": lambda span, style, line: self._read_inline(span, self._format("text", span, style), line),
            **dict.fromkeys(LINKS, self._read_link),
            f"{TEXT}note": self._read_note,
            f"{TEXT}ruby": self._read_ruby,
            f"{TEXT}placeholder": lambda _, style, line: line.add(NOT_FILLED_IN, style),
            f"{TEXT}number": lambda element, style, line: line.add(f"{''.join(element.itertext())} ", style),
            f"{LIBRE}content-control": self._read_content_control,
            f"{FIELD}fieldmark": self._read_field,
            f"{FIELD}fieldmark-start": self._read_field,
            f"{DRAW}control": lambda control, _, line: line.add(self._control_text(control)),
            **dict.fromkeys((f"{DRAW}object", f"{MATHML}math"), self._read_equation),
            **dict.fromkeys(
                DESCRIPTIONS,  # what stands for a picture or table
                lambda element, _, line: line.add(f" [{text}] " if (text := _written_text(element)) else ""),
            ),
            **dict.fromkeys((*ANNOTATIONS, f"{OFFICE}annotation-end"), self._read_comment),
        }

    def blocks(self, root: Iterable[Any], style: Format = PLAIN) -> Iterator[tuple[str | None, str]]:
        """Yields paragraphs and rows of tables below an element, in order; a heading, sheet or slide with its title."""
        for child in root:
            if child.tag in (f"{TEXT}p", f"{TEXT}h"):
                yield from self._paragraph(child, style)
            elif child.tag == f"{TABLE}table-row":
                yield from self._row(child)
            elif child.tag in ANNOTATIONS | SHOWN_BLOCKS:
                yield from self._shown_block(child)
            elif child.tag in STATED:
                yield from [(None, text)] if (text := _written_text(child)) else []
            elif child.tag not in NOT_TEXT and isinstance(child.tag, str):
                yield from _named_block(child)
                yield from self.blocks(child, style)
                yield from [(None, f"[{tooltip}]")] if (tooltip := self._tooltip(child)) else []

    def _format(self, family: str, element: Any, base: Format) -> Format:
        return self._styles.format(family, element.get(f"{TEXT}style-name"), base)

    def _paragraph(self, paragraph: Any, style: Format) -> Iterator[tuple[str | None, str]]:
        """Yields a paragraph, then its notes."""
        line = Line()
        self._read_inline(paragraph, self._format("paragraph", paragraph, style), line)
        text = join_runs(line.runs)
        self.left_out.extend(words_shown_otherwise(line.runs))
        if text.strip():
            yield (text if paragraph.tag == f"{TEXT}h" else None), text
        yield from ((None, note) for note in line.notes)

    def _shown_block(self, element: Any) -> Iterator[tuple[str | None, str]]:
        """Yields what stands in no paragraph: a form field, a formula or a comment."""
        line = Line()
        self._inline_readers[element.tag](element, PLAIN, line)
        text = join_runs(line.runs).strip()
        yield from [(None, text)] if text else []

    def _row(self, row: Any) -> Iterator[tuple[str | None, str]]:
        """Yields a row of a table as often as it is repeated."""
        cells = list[str]()
        for cell in row.iterchildren(f"{TABLE}table-cell", f"{TABLE}covered-table-cell"):
            names = (cell.get(f"{TABLE}style-name"), row.get(f"{TABLE}default-cell-style-name"))
            name = names[0] or names[1] or self._column_style(row, len(cells))
            text = self._cell(cell, self._styles.format("table-cell", name, PLAIN))
            cells += [text] * _times(cell, "columns")
        text = " | ".join(cells).rstrip(" |")
        if text:
            yield from repeat((None, text), _times(row, "rows"))

    def _column_style(self, row: Any, column: int) -> str | None:
        """Returns the style of the cells of a column that have none of their own."""
        table = next(row.iterancestors(f"{TABLE}table"), None)
        if table not in self._columns:
            columns = [] if table is None else list(table.iter(f"{TABLE}table-column"))
            styles = [each.get(f"{TABLE}default-cell-style-name") for each in columns]
            counts = (_times(each, "columns") for each in columns)
            self._columns[table] = [style for style, count in zip(styles, counts, strict=True) for _ in range(count)]
        styles = self._columns[table]
        return styles[column] if column < len(styles) else None

    def _cell(self, cell: Any, style: Format) -> str:
        """Returns the text of a cell on one line, or its value, then the comments on it."""
        comments = [self._comment(child) for child in cell if child.tag in ANNOTATIONS]
        shown = [text for _, text in self.blocks((child for child in cell if child.tag not in ANNOTATIONS), style)]
        if not shown and (value := _value(cell)):
            shown = [join_runs([Run(value, is_struck=style.is_struck)])]
            self.left_out.append(cell.get(f"{OFFICE}value", ""))
        return " ".join(text.replace(" | ", " \N{BROKEN BAR} ") for text in (*shown, *comments))

    def _comment(self, annotation: Any) -> str:
        """Returns a comment with its author and date."""
        author, date = (annotation.findtext(f"{DUBLIN_CORE}{name}", "").strip() for name in ("creator", "date"))
        about = ", ".join(filter(None, (author, date[:10])))
        self.left_out.append(date)
        text = " ".join(text for _, text in self.blocks(annotation))
        return f"[comment{' by ' if about else ''}{about}: {text}]"

    def _read_inline(self, element: Any, style: Format, line: Line) -> None:
        """Appends the text of an element, and of the elements in it."""
        line.add(element.text, style)
        for child in element:
            if child.tag in SPACES:
                line.add(SPACES[child.tag] * min(int(child.get(f"{TEXT}c", "1")), SPACES_LIMIT), style)
            elif child.tag in self._inline_readers:
                self._inline_readers[child.tag](child, style, line)
            elif child.tag not in NOT_TEXT and isinstance(child.tag, str):
                self._read_shape(child, style, line)
            line.add(child.tail, style)

    def _read_shape(self, element: Any, style: Format, line: Line) -> None:
        """Appends what another element holds; the paragraphs of a shape on lines of their own."""
        is_shape = any(child.tag in BLOCKS for child in element)
        blocks = [text for _, text in self.blocks(element)] if is_shape else []
        if blocks:
            line.add("\n".join(["", *blocks, ""]))
        else:
            self._read_inline(element, style, line)

    def _read_link(self, link: Any, style: Format, line: Line) -> None:
        """Appends the text of a link, and in brackets its tooltip, unless the text has it."""
        start, tooltip = len(line.runs), self._tooltip(link)
        self._read_shape(link, style, line)
        if tooltip in " ".join(join_runs(line.runs[start:]).split()):
            self.left_out.append(tooltip)
        else:
            line.add(f" [{tooltip}]")

    def _tooltip(self, element: Any) -> str:
        """Returns what is shown where somebody points at a link, once; empty if it is no link."""
        tooltips = _tooltips(element)
        shown = list(dict.fromkeys(tooltips))
        self.left_out += tooltips[len(shown) :]
        return " ".join(shown).strip()

    def _read_note(self, note: Any, _: Format, line: Line) -> None:
        """Appends the mark of a note, and keeps the note."""
        mark = f"[^{''.join(note.findtext(f'{TEXT}note-citation', '').split()) or '*'}]"
        line.add(mark)
        bodies = (child for child in note if child.tag != f"{TEXT}note-citation")
        line.notes.append(f"{mark} {' '.join(text for _, text in self.blocks(bodies)).strip()}")

    def _read_comment(self, element: Any, _: Format, line: Line) -> None:
        """Appends a comment, at the end of the text that it is about."""
        name = element.get(f"{OFFICE}name")
        if element.tag in ANNOTATIONS and name not in self._comments_at_end:
            line.add(f" {self._comment(element)} ")
        elif element.tag == f"{OFFICE}annotation-end" and name in self._comments_at_end:
            line.add(f" {self._comment(self._comments_at_end[name])} ")

    def _read_ruby(self, ruby: Any, style: Format, line: Line) -> None:
        """Appends a text, and in brackets how it is read."""
        for base in ruby.iterchildren(f"{TEXT}ruby-base"):
            self._read_inline(base, style, line)
        reading = "".join("".join(each.itertext()) for each in ruby.iterchildren(f"{TEXT}ruby-text"))
        line.add(f"({reading})" if reading else "", style)

    def _read_content_control(self, control: Any, style: Format, line: Line) -> None:
        """Appends what a content control of LibreOffice holds."""
        if control.get(f"{LIBRE}checkbox") == "true":
            line.add(CHECKED if control.get(f"{LIBRE}checked") == "true" else UNCHECKED)
        elif control.get(f"{LIBRE}showing-place-holder") == "true":
            line.add(NOT_FILLED_IN)
            self.left_out.append("".join(control.itertext()))
        else:
            self._read_inline(control, style, line)

    def _read_field(self, mark: Any, _: Format, line: Line) -> None:
        """Appends what is chosen in a field of a form that Word made."""
        kind = mark.get(f"{FIELD}type", "").rpartition(".")[2]
        settings = [
            (each.get(f"{FIELD}name", ""), each.get(f"{FIELD}value", "")) for each in mark.iter(f"{FIELD}param")
        ]
        named = dict(settings)
        if kind == "FORMCHECKBOX":
            line.add(CHECKED if named.get("Checkbox_Checked", "").lower() in ("true", "1") else UNCHECKED)
        elif kind == "FORMDROPDOWN" and not mark.tag.endswith("start"):
            entries = [value for name, value in settings if name.startswith("Dropdown_ListEntry")]
            chosen = named.get("Dropdown_Selected", "")
            line.add(entries[int(chosen)] if chosen.isdecimal() and int(chosen) < len(entries) else NOT_FILLED_IN)
        self.left_out.append("".join(mark.itertext()))

    def _control_text(self, place: Any) -> str:
        control = self._controls.get(place.get(f"{DRAW}control"))
        return "" if control is None else control_text(control)

    def _read_equation(self, element: Any, style: Format, line: Line) -> None:
        """Appends a formula, or an object that is one; other objects are parts of their own."""
        equation = self._equations.get(href(element))
        if element.tag == f"{MATHML}math":
            equation = Equation(mathml_equation(element), words_left_out(element))
        if equation is None:
            self._read_inline(element, style, line)
        else:
            line.runs.append(Run(equation.text, is_struck=style.is_struck, is_equation=True))
            self.left_out.append(equation.left_out)


def _tooltips(element: Any) -> list[str]:
    return [" ".join(element.get(name, "").split()) for name in TOOLTIPS] if element.tag in LINKS else []


def _named_block(element: Any) -> Iterator[tuple[str | None, str]]:
    """Yields the name of a slide, sheet or table; that of a slide or sheet is a title."""
    names = {f"{DRAW}page": f"{DRAW}name", f"{TABLE}table": f"{TABLE}name"}
    name = element.get(names[element.tag]) if element.tag in names else None
    if name:
        is_title = element.getparent().tag in (f"{OFFICE}spreadsheet", f"{OFFICE}presentation", f"{OFFICE}drawing")
        yield (name if is_title else None), name


def _times(element: Any, what: str) -> int:
    """Returns how often a row or cell stands there: of neighbours that are equal, or empty, the file has one."""
    times = max(1, int(element.get(f"{TABLE}number-{what}-repeated", "1")))
    return min(times, SHEET_COLUMNS) if what == "columns" else times


def _value(cell: Any) -> str:
    """Returns the value of a cell that shows no text."""
    kind, number = cell.get(f"{OFFICE}value-type", ""), cell.get(f"{OFFICE}value", "")
    match kind:
        case "percentage" if number:
            return f"{100 * float(number):.10g} %"
        case "currency":
            return f"{number} {cell.get(f'{OFFICE}currency', '')}".strip()
        case "date" | "time" | "boolean" | "string":
            return str(cell.get(f"{OFFICE}{kind}-value", ""))
    return str(number)


def href(element: Any) -> str:
    """Returns the path of what an element shows, as the package has it, or its address outside."""
    return str(element.get(HREF, "")).removeprefix("vnd.sun.star.Package:").removeprefix("#").removeprefix("./")


def form_controls(root: Any) -> dict[str, Any]:
    """Returns the fields of the forms in a document, by their ids."""
    fields = (each for each in _form_elements(root) if each.tag.removeprefix(FORM) not in NOT_FIELDS)
    return {
        each.get(XML_ID) or each.get(f"{FORM}id") or f"unnamed {number}": each for number, each in enumerate(fields)
    }


def _form_elements(root: Any) -> Iterator[Any]:
    return (each for forms in root.iter(f"{OFFICE}forms") for each in forms.iter(f"{FORM}*"))


def _unshown_labels(root: Any) -> Iterator[str]:
    """Yields labels and tooltips of what is no field, such as choices, and tooltips that labels of fields contain."""
    for each in _form_elements(root):
        label, tooltip = (each.get(f"{FORM}{name}", "") for name in ("label", "title"))
        is_field = each.tag.removeprefix(FORM) not in NOT_FIELDS
        yield "" if is_field else label
        yield tooltip if not is_field or tooltip in label else ""


NOT_FIELDS = frozenset({"form", "properties", "property", "list-property", "list-value", "option", "item", "hidden"})
VALUES = ("current-value", "value")
"""What a field was filled in with, else what it says where nobody did."""


def control_text(control: Any, *, is_named: bool = False) -> str:
    """Returns what a field of a form shows: its state, its label and its value; with its name if it has no label."""
    kind = control.tag.removeprefix(FORM)
    label = control.get(f"{FORM}label", "")
    label = label or (control.get(f"{FORM}name", "") if is_named else "")
    title = control.get(f"{FORM}title", "")  # its tooltip
    label = f"{label} [{title}]".strip() if title and title not in label else label
    if kind in ("checkbox", "radio"):
        states = ("current-state", "state") if kind == "checkbox" else ("current-selected", "selected")
        state = _first(control, states)
        return f"{CHECKED if state in ('checked', 'true') else UNCHECKED} {label}".strip()
    value = "" if kind in ("button", "image", "frame") else _first(control, VALUES) or _written_text(control)
    options = control.findall(f"{FORM}option")
    options = [each for each in options if _first(each, ("current-selected", "selected")) == "true"]
    chosen = [str(each.get(f"{FORM}label") or each.get(f"{FORM}value", "")) for each in options]
    return ": ".join(filter(None, (label, ", ".join(chosen) or value)))


def _written_text(element: Any) -> str:
    return " ".join(" ".join(element.itertext()).split())


def _first(element: Any, names: Iterable[str]) -> str:
    """Returns the first of these settings that an element has."""
    return next((str(element.get(f"{FORM}{name}")) for name in names if element.get(f"{FORM}{name}") is not None), "")
