"""DOCX and PPTX by python-docx: a part for each section or slide, then what belongs to it."""

import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, BuiltIn, Part, picture_parts
from memagent_batch.convert.docx_numbers import FALLBACK, Numbering, W
from memagent_batch.convert.text import section_parts
from memagent_batch.errors import ConversionError

UNPACKED_BYTES = 512 << 20
"""Most bytes that the package may unpack to. `zipfile` reads no more of a member than its directory says."""
MEMBERS = 10_000
"""Most files in the package."""

A = "{http://schemas.openxmlformats.org/drawingml/2006/main}"
"""Of slides and drawings, whose paragraphs and tables have the same names."""
PARAGRAPHS, TABLES = frozenset({f"{W}p", f"{A}p"}), frozenset({f"{W}tbl", f"{A}tbl"})
LEFT_OUT = frozenset({FALLBACK, f"{W}pPr", f"{W}rPr", f"{W}del", f"{W}moveFrom"})
"""Elements whose text is not a text of the document: fallbacks, formats, and what a tracked change took from its
place."""
TRACKED = (f"{W}ins", f"{W}del", f"{W}moveFrom", f"{W}moveTo")
TRACKED_CHANGES = "tracked changes are read as if all were accepted"

TICKED, CROSSED, EMPTY_BOX = "\N{BALLOT BOX WITH CHECK}", "\N{BALLOT BOX WITH X}", "\N{BALLOT BOX}"
BOXES: dict[str, dict[int, str]] = {
    "wingdings": {0xFE: TICKED, 0xFD: CROSSED, 0xA8: EMPTY_BOX, 0x6F: EMPTY_BOX, 0x71: EMPTY_BOX},
    "wingdings 2": {0x52: TICKED, 0x53: CROSSED, 0xA3: EMPTY_BOX},
    "wingdings 3": {},
    "webdings": {},
    "symbol": {},
}
"""Symbol fonts, and those of their characters that forms are filled in with, by their position."""
SYMBOLS = range(0xF000, 0xF100)
"""Where Word writes the positions of a symbol font; other characters are what Unicode says."""
REPLACED_TAGS = "\ufffd"
"""What stands for a symbol that only its font knows."""
REPLACED_SYMBOLS = "symbols that only their font knows are shown as U+FFFD"
OFF = frozenset({"0", "false", "off"})

TEXTS = frozenset({"header", "footer", "footnotes", "endnotes", "comments", "threadedComment", "notesSlide"})
"""Parts of a package that hold text beside the main one: the ends of their relations' types, and their locators."""
DRAWINGS = frozenset({"chart", "chartEx", "diagramData", "drawing"})
"""Parts whose texts and values are shown in a drawing."""
FILES = frozenset({"aFChunk", "oleObject", "package", "subDocument"})
"""Relations of files inside the package."""
WALKED = frozenset({"worksheet", "chartsheet", "slideLayout", "slideMaster"})
"""Parts that relate to others. Only texts of shapes that are not placeholders are read in them."""
PART_PLACES = {"notesSlide": "notes", "diagramData": "diagram", "threadedComment": "comments", "chartEx": "chart"} | {
    "slideLayout": "layout",
    "slideMaster": "master",
}
"""Locators of kinds of relations that people call otherwise."""
RELATED = TEXTS | DRAWINGS | FILES | WALKED | {"image"}
TEXT_TAGS = frozenset(
    {
        f"{W}t",
        f"{A}t",
        "{http://schemas.openxmlformats.org/officeDocument/2006/math}t",
    }
)
"""Elements of text: of paragraphs, equations and drawings."""

RELATION = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}id"


class DocxConverter(BuiltIn):
    """Text in content controls, text boxes and insertions is taken, what forms are filled in with, and Word's numbers.

    What a tracked change deleted, or moved elsewhere, is not, and the first part says so.
    """

    package, own, modules = "python-docx", 7, ("docx",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each section of the body, and for each header, footer and list of notes.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        document = main_part(file, kind="a DOCX")
        body, styles = root_of(document).find(f"{W}body"), _elements(document, "styles", f"{W}style")
        Numbering(_elements(document, "numbering", "*"), styles).write(body)
        blocks = headed_blocks(body, _style_names(styles))
        tracked = next((TRACKED_CHANGES for _ in body.iter(*TRACKED)), None)
        for part in section_parts(blocks, separator="\n\n"):
            yield replace(part, reason="; ".join(filter(None, (tracked, symbol_note(part.text)))) or None)
            tracked = None
        yield from related_items(document)


class SlidesConverter(BuiltIn):
    """Slides in the order of the show, hidden ones too; shapes in the order in which they are drawn."""

    package, own, modules = "python-docx", 2, ("docx",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each slide, and for each text beside it.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        show = main_part(file, kind="a PPTX")
        seen = set[str]()
        for number, entry in enumerate(root_of(show).iter("{*}sldId"), start=1):
            slide, place = show.related_parts[entry.get(RELATION)], f"slide {number}"
            seen.add(slide.partname)
            yield Part(locator=place, text="\n\n".join(text for _, text in headed_blocks(root_of(slide))))
            yield from related_items(slide, place=f"{place}, ", number=f"{number}-", seen=seen)


def _elements(document: Any, kind: str, tag: str) -> list[Any]:
    """Elements of the document's part of this kind; none if it has no such part."""
    parts = (each.target_part for each in document.rels.values() if each.reltype.endswith(f"/{kind}"))
    return [element for part in parts for element in root_of(part).iterfind(tag)]


def _style_names(styles: Iterable[Any]) -> dict[str, str]:
    names = {style.get(f"{W}styleId"): style.find(f"{W}name") for style in styles}
    return {style: name.get(f"{W}val") for style, name in names.items() if name is not None}


def symbol_note(text: str) -> str | None:
    """What to know of a text with symbols that only their font knows."""
    return REPLACED_SYMBOLS if REPLACED_TAGS in text else None


def require_bounds(file: Path, *, kind: str) -> None:
    """Refuses a package that is damaged, encrypted, unpacks to too much, or says one thing twice.

    Raises:
        ConversionError: says which.
    """
    try:
        with zipfile.ZipFile(file) as package:
            members = package.infolist()
    except zipfile.BadZipFile as error:
        raise ConversionError(f"it can't be opened as {kind} ({error}); is it whole?") from error
    total = sum(member.file_size for member in members)
    if total > UNPACKED_BYTES or len(members) > MEMBERS:
        raise ConversionError(
            f"it unpacks to {total >> 20:,} MiB in {len(members):,} files; at most {UNPACKED_BYTES >> 20} MiB in "
            f"{MEMBERS:,} files are converted"
        )
    if len({member.filename for member in members}) < len(members):
        raise ConversionError("it holds a file twice under one name, and programs differ in which of them they show")
    if any(member.flag_bits & 1 for member in members):
        raise ConversionError("encrypted: remove the password")


def main_part(file: Path, *, kind: str) -> Any:
    """The main part of a package of Office.

    Raises:
        ConversionError: the package can't be opened.
    """
    from docx.opc.package import OpcPackage

    require_bounds(file, kind=kind)
    try:
        return OpcPackage.open(str(file)).main_document_part
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConversionError(f"it can't be opened as {kind} ({error}); is it whole?") from error


def related_items(
    part: Any, *, place: str = "", number: str = "", seen: set[str] | None = None
) -> Iterator[Part | Attachment]:
    """What the parts hold that a part of a package relates to: texts beside its own, pictures and files, each once.

    Place and number stand before those of what is found; names of parts that were taken are added to `seen`.
    """
    seen = set[str]() if seen is None else seen
    for position, relation in enumerate(sorted(part.rels.values(), key=lambda each: str(each.rId)), start=1):
        kind = relation.reltype.rpartition("/")[2]
        if relation.is_external or relation.target_part.partname in seen or kind not in RELATED:
            continue
        seen.add(relation.target_part.partname)
        target, below = relation.target_part, f"{number}{position}"
        name = target.partname.rpartition("/")[2]
        if kind == "image":
            yield from picture_parts(f"{place}picture {name}", target.blob)
        elif kind in FILES:
            yield Attachment(number=below, name=name, locator=f"{place}file {name}", data=target.blob)
        else:
            text = related_text(root_of(target), kind)
            if text.strip():
                yield Part(locator=f"{place}{PART_PLACES.get(kind, kind)}", text=text, reason=symbol_note(text))
            yield from related_items(target, place=place, number=f"{below}-", seen=seen)


def related_text(root: Any, kind: str) -> str:
    """The text of a part beside the main one, a line for each of its paragraphs or values."""
    if kind in WALKED:
        shapes = (shape for shape in root.iter("{*}sp") if next(shape.iter("{*}ph"), None) is None)
        return "\n".join(text.text for shape in shapes for text in shape.iter("{*}t") if text.text)
    blocks = [] if kind in DRAWINGS else [text for _, text in headed_blocks(root)]
    if blocks:
        return "\n\n".join(blocks)
    return "\n".join(element.text for element in root.iter("{*}t", "{*}v", "{*}text") if element.text)


def root_of(part: Any) -> Any:
    """The XML of a part.

    Raises:
        ConversionError: it declares entities or a document type.
    """
    from docx.oxml import parse_xml

    element = part.element if hasattr(part, "element") else parse_xml(part.blob)
    if element.getroottree().docinfo.internalDTD is not None:
        raise ConversionError(
            "its XML declares entities or a document type, which no package has; they are not followed"
        )
    return element


def headed_blocks(root: Any, styles: Mapping[str, str] = {}) -> Iterator[tuple[str | None, str]]:
    """Paragraphs and tables below an element, in order; a heading with its title."""
    for block in _outermost_blocks(root):
        text = _block_text(block)
        if text.strip():
            yield (text if _is_heading(block, styles) else None), text


def _block_text(block: Any) -> str:
    return _paragraph(block) if block.tag in PARAGRAPHS else _table(block)


def _outermost_blocks(root: Any) -> Iterator[Any]:
    """The outermost paragraphs and tables below an element, at whatever depth of content controls."""
    for child in root:
        if child.tag in PARAGRAPHS | TABLES:
            yield child
        elif child.tag not in LEFT_OUT:
            yield from _outermost_blocks(child)


def _is_heading(block: Any, styles: Mapping[str, str]) -> bool:
    style = block.find(f"{W}pPr/{W}pStyle")
    name = "" if style is None else styles.get(style.get(f"{W}val"), "")
    return name == "Title" or name.lower().startswith("heading ")


def _paragraph(paragraph: Any) -> str:
    """Its text, then that of text boxes in it; a text box is there twice, the second time as a fallback."""
    inline, boxes = list[str](), list[str]()
    for child in paragraph:
        _collect_inline(child, inline, boxes)
    return "\n".join(text for text in ("".join(inline), *boxes) if text)


def _collect_inline(element: Any, inline: list[str], boxes: list[str]) -> None:
    if element.tag in TEXT_TAGS:
        inline.append(element.text or "")
    elif element.tag in SHOWN_ELEMENTS:
        inline.append(SHOWN_ELEMENTS[element.tag](element))
    elif element.tag in PARAGRAPHS | TABLES:
        boxes.append(_block_text(element))
    elif element.tag not in LEFT_OUT:
        for child in element:
            _collect_inline(child, inline, boxes)


def _symbol(element: Any) -> str:
    """A character of a font, as Unicode has it."""
    try:
        code = int(element.get(f"{W}char", ""), 16)
        character = chr(code)
    except (ValueError, OverflowError):
        return REPLACED_TAGS
    font = BOXES.get(element.get(f"{W}font", "").lower())
    if font is not None:
        return font.get(code - SYMBOLS.start if code in SYMBOLS else code, REPLACED_TAGS)
    return REPLACED_TAGS if code in SYMBOLS else character


def _form_field(field: Any) -> str:
    """What is chosen in a field of a form, as Word shows it; empty where the field's text stands behind it."""
    box, choices = field.find(f"{W}ffData/{W}checkBox"), field.find(f"{W}ffData/{W}ddList")
    if box is not None:
        return EMPTY_BOX if _chosen(box, "checked") in OFF else CROSSED
    if choices is not None:
        listed = dict(enumerate(entry.get(f"{W}val", "") for entry in choices.iterfind(f"{W}listEntry")))
        chosen = _chosen(choices, "result")
        return listed.get(int(chosen), "") if chosen.isdecimal() else ""
    return ""


def _chosen(field: Any, name: str) -> str:
    """What a field of a form was filled in with, else what it says where nobody did, else 0."""
    given = (field.find(f"{W}{each}") for each in (name, "default"))
    values = (str(each.get(f"{W}val", "1")) for each in given if each is not None)
    return next(values, "0")


SHOWN_ELEMENTS: dict[str, Callable[[Any], str]] = {
    f"{W}tab": lambda _: "\t",
    f"{W}br": lambda _: "\n",
    f"{A}br": lambda _: "\n",
    f"{W}cr": lambda _: "\n",
    f"{W}noBreakHyphen": lambda _: "-",
    f"{W}sym": _symbol,
    f"{W}fldChar": _form_field,
    "{urn:schemas-microsoft-com:vml}textpath": lambda letters: letters.get("string", ""),
}
"""What elements without a text show. The last one is letters drawn as a picture, such as a watermark."""


def _table(table: Any) -> str:
    """A line for each row, with ` | ` between the cells."""
    names = table.tag.removesuffix("tbl")
    rows = _outermost(table, f"{names}tr")
    return "\n".join(" | ".join(_cell_text(cell) for cell in _outermost(row, f"{names}tc")) for row in rows)


def _cell_text(cell: Any) -> str:
    texts = map(_block_text, _outermost_blocks(cell))
    return " ".join(" ".join(text.split()) for text in texts if text.strip())


def _outermost(root: Any, tag: str) -> Iterator[Any]:
    for child in root:
        if child.tag == tag:
            yield child
        elif child.tag not in TABLES | {FALLBACK}:
            yield from _outermost(child, tag)
