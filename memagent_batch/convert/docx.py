"""DOCX by python-docx: paragraphs and tables in order, a part for each section, then notes and margins."""

import importlib
import zipfile
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

from memagent_batch.convert.converter import Attachment, Part, package_version
from memagent_batch.convert.text import section_parts
from memagent_batch.errors import ConversionError

UNPACKED_BYTES = 512 << 20
"""Most bytes that the package may unpack to. `zipfile` reads no more of a member than its directory says."""
MEMBERS = 10_000
"""Most files in the package."""

W = "{http://schemas.openxmlformats.org/wordprocessingml/2006/main}"
FALLBACK = "{http://schemas.openxmlformats.org/markup-compatibility/2006}Fallback"
BREAKS = {f"{W}tab": "\t", f"{W}br": "\n", f"{W}cr": "\n", f"{W}noBreakHyphen": "-"}
BLOCKS = frozenset({f"{W}p", f"{W}tbl"})
LEFT_OUT = frozenset({FALLBACK, f"{W}pPr", f"{W}rPr", f"{W}del", f"{W}moveFrom"})
"""Elements whose text is not a text of the document: fallbacks, formats, and what a tracked change took from its
place."""

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

MARGINS = frozenset({"header", "footer", "footnotes", "endnotes", "comments"})
"""Parts of the package that hold text beside the body: the ends of their relations' types, and their locators."""


def warm_up() -> None:
    """Imports the library, for all processes of files."""
    importlib.import_module("docx")


class DocxConverter:
    """Text in content controls, text boxes and insertions is taken, and what forms are filled in with.

    What a tracked change deleted, or moved elsewhere, is not.
    """

    def version(self) -> str:
        """Its own number and python-docx's."""
        return package_version("python-docx", own=2)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """A part for each section of the body, and for each header, footer and list of notes.

        Raises:
            ConversionError: the package is damaged, unpacks to too much, or declares entities.
        """
        import docx
        from docx.opc.exceptions import PackageNotFoundError

        _require_bounds(file)
        try:
            document = docx.Document(str(file))
        except (PackageNotFoundError, KeyError, ValueError, zipfile.BadZipFile) as error:
            raise ConversionError(f"it can't be opened as a DOCX ({error}); is it whole?") from error
        styles = {style.style_id: style.name or "" for style in document.styles}
        body = _without_declarations(document.element).find(f"{W}body")
        for part in section_parts(_headed_blocks(body, styles), separator="\n\n"):
            yield replace(part, reason=_reason(part.text))
        for locator, root in _margins(document):
            text = "\n\n".join(text for _, text in _headed_blocks(root, {}))
            if text.strip():
                yield Part(locator=locator, text=text, reason=_reason(text))


def _reason(text: str) -> str | None:
    """What to know of a text."""
    return REPLACED_SYMBOLS if REPLACED_TAGS in text else None


def _require_bounds(file: Path) -> None:
    try:
        with zipfile.ZipFile(file) as package:
            members = package.infolist()
    except zipfile.BadZipFile as error:
        raise ConversionError(f"it can't be opened as a DOCX ({error}); is it whole?") from error
    total = sum(member.file_size for member in members)
    if total > UNPACKED_BYTES or len(members) > MEMBERS:
        raise ConversionError(
            f"it unpacks to {total >> 20:,} MiB in {len(members):,} files; at most {UNPACKED_BYTES >> 20} MiB in "
            f"{MEMBERS:,} files are converted"
        )
    if any(member.flag_bits & 1 for member in members):
        raise ConversionError("encrypted: remove the password")


def _without_declarations(element: Any) -> Any:
    """The element, whose XML declares nothing: Word writes no entities, and what they stand for would be lost."""
    if element.getroottree().docinfo.internalDTD is not None:
        raise ConversionError("its XML declares entities or a document type, which no DOCX has; they are not followed")
    return element


def _margins(document: Any) -> Iterator[tuple[str, Any]]:
    """Locator and root of each part beside the body, in the order of the package."""
    from docx.oxml import parse_xml

    relations = sorted(document.part.rels.values(), key=lambda relation: str(relation.rId))
    for relation in relations:
        locator = relation.reltype.rpartition("/")[2]
        if locator in MARGINS and not relation.is_external:
            target = relation.target_part
            yield (
                locator,
                _without_declarations(target.element if hasattr(target, "element") else parse_xml(target.blob)),
            )


def _headed_blocks(root: Any, styles: dict[str, str]) -> Iterator[tuple[str | None, str]]:
    """Paragraphs and tables below an element, in order; a heading with its title."""
    for block in _outermost_blocks(root):
        text = _paragraph(block) if block.tag == f"{W}p" else _table(block)
        if text.strip():
            yield (text if _is_heading(block, styles) else None), text


def _outermost_blocks(root: Any) -> Iterator[Any]:
    """The outermost paragraphs and tables below an element, at whatever depth of content controls."""
    for child in root:
        if child.tag in BLOCKS:
            yield child
        elif child.tag not in LEFT_OUT:
            yield from _outermost_blocks(child)


def _is_heading(block: Any, styles: dict[str, str]) -> bool:
    style = block.find(f"{W}pPr/{W}pStyle")
    name = "" if style is None else styles.get(style.get(f"{W}val"), "")
    return name == "Title" or name.lower().startswith("heading ")


def _paragraph(paragraph: Any) -> str:
    """Its text, then that of text boxes in it; a text box is there twice, the second time as a fallback."""
    inline, boxes = list[str](), list[str]()
    for child in paragraph:
        _collect_text(child, inline, boxes)
    return "\n".join(text for text in ("".join(inline), *boxes) if text)


def _collect_text(element: Any, inline: list[str], boxes: list[str]) -> None:
    if element.tag == f"{W}t":
        inline.append(element.text or "")
    elif element.tag in BREAKS:
        inline.append(BREAKS[element.tag])
    elif element.tag in BLOCKS:
        boxes.append(_paragraph(element) if element.tag == f"{W}p" else _table(element))
    elif element.tag == f"{W}sym":
        inline.append(_symbol(element))
    elif element.tag == f"{W}fldChar":
        inline.append(_form_field(element))
    elif element.tag not in LEFT_OUT:
        for child in element:
            _collect_text(child, inline, boxes)


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
        return EMPTY_BOX if _chosen(box, "checked", "0") in OFF else CROSSED
    if choices is not None:
        listed = dict(enumerate(entry.get(f"{W}val", "") for entry in choices.iterfind(f"{W}listEntry")))
        chosen = _chosen(choices, "result", "0")
        return listed.get(int(chosen), "") if chosen.isdecimal() else ""
    return ""


def _chosen(field: Any, name: str, otherwise: str) -> str:
    """What a field of a form was filled in with, else what it says where nobody did."""
    given = (field.find(f"{W}{each}") for each in (name, "default"))
    values = (str(each.get(f"{W}val", "1")) for each in given if each is not None)
    return next(values, otherwise)


def _table(table: Any) -> str:
    """A line for each row, with ` | ` between the cells."""
    rows = _outermost(table, f"{W}tr")
    return "\n".join(" | ".join(_cell_text(cell) for cell in _outermost(row, f"{W}tc")) for row in rows)


def _cell_text(cell: Any) -> str:
    blocks = (_paragraph(block) if block.tag == f"{W}p" else _table(block) for block in _outermost_blocks(cell))
    return " ".join(" ".join(text.split()) for text in blocks if text.strip())


def _outermost(root: Any, tag: str) -> Iterator[Any]:
    for child in root:
        if child.tag == tag:
            yield child
        elif child.tag not in (f"{W}tbl", FALLBACK):
            yield from _outermost(child, tag)
