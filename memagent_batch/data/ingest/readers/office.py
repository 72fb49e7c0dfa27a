"""Packages of Office by python-docx: the main part, and what belongs to it: texts, pictures, files and controls."""

import zipfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from lxml import etree

from memagent_batch.data.ingest.readers.converter import Attachment, Part, PartStatus, picture_parts
from memagent_batch.data.ingest.readers.docx_numbers import W
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.packages import open_package
from memagent_batch.data.ingest.readers.paragraphs import LEFT_OUT, PARAGRAPHS, TABLES, TextReader
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.errors import ConversionError

UNPACKED_BYTES = 512 << 20
"""Most bytes that the package may unpack to. `zipfile` reads no more of a member than its directory says."""
MEMBERS = 10_000
"""Most files in the package."""

TEXTS = frozenset({"header", "footer", "footnotes", "endnotes", "comments", "threadedComment", "notesSlide"})
"""Parts of a package that hold text beside the main one: the ends of their relations' types, and their locators."""
DRAWINGS = frozenset({"chart", "chartEx", "diagramData", "drawing"})
"""Parts whose texts and values are shown in a drawing."""
FILES = frozenset({"aFChunk", "oleObject", "package", "subDocument"})
"""Relations of files inside the package."""
WALKED = frozenset({"worksheet", "chartsheet", "slideLayout", "slideMaster"})
"""Parts that relate to others. Only texts of shapes that are not placeholders are read in them."""
MEDIA = frozenset({"audio", "media", "video"})
PART_PLACES = {"notesSlide": "notes", "diagramData": "diagram", "threadedComment": "comments", "chartEx": "chart"} | {
    "slideLayout": "layout",
    "slideMaster": "master",
}
"""Locators of kinds of relations that people call otherwise."""
RELATED = TEXTS | DRAWINGS | FILES | WALKED | MEDIA | {"image", "control"}
LINKED = FILES | MEDIA | {"image", "frame"}
"""Kinds of relations whose targets may be outside the package, and are shown all the same."""
RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
RELATION = f"{RELATIONS}id"
ACTIVE_X = "{http://schemas.microsoft.com/office/2006/activeX}"
SWITCHES = {"8BD21D40": "check box", "8BD21D50": "option button", "8BD21D60": "toggle button"}
"""Classes of controls that are on or off, by the start of their identifiers."""

ReadPart = Callable[[Any, str], tuple[str, str | None]]
"""Reads a part of a kind: its text, and what to know of it."""


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
    """Returns the main part of a package of Office.

    Raises:
        ConversionError: the package can't be opened.
    """
    from docx.opc.package import OpcPackage

    require_bounds(file, kind=kind)
    try:
        return OpcPackage.open(open_package(file)).main_document_part
    except (KeyError, ValueError, zipfile.BadZipFile) as error:
        raise ConversionError(f"it can't be opened as {kind} ({error}); is it whole?") from error


def parts_of_kind(part: Any, *kinds: str) -> list[Any]:
    """Returns the parts that a part relates to by relations of these kinds."""
    relations = (relation for relation in part.rels.values() if not relation.is_external)
    return [relation.target_part for relation in relations if _kind(relation) in kinds]


def related_items(
    part: Any, *, place: str = "", number: str = "", seen: set[str] | None = None, read: ReadPart | None = None
) -> Iterator[Part | Attachment]:
    """Yields what the parts hold that a part of a package relates to: texts beside its own, pictures and files.

    Each is given once; names of parts that were taken are added to `seen`. Place and number stand before those of what
    is found; `read` reads texts, and is `related_text` unless it is given.
    """
    seen = set[str]() if seen is None else seen
    read = read or related_text
    for position, relation in enumerate(sorted(part.rels.values(), key=lambda each: str(each.rId)), start=1):
        if relation.is_external:
            yield from _linked_parts(part, relation, place, seen)
        elif _kind(relation) in RELATED and relation.target_part.partname not in seen:
            seen.add(relation.target_part.partname)
            below = f"{number}{position}"
            yield from _related_item(part, relation, place=place, number=below, read=read)
            if _kind(relation) in TEXTS | DRAWINGS | WALKED:
                yield from related_items(relation.target_part, place=place, number=f"{below}-", seen=seen, read=read)


def _related_item(part: Any, relation: Any, *, place: str, number: str, read: ReadPart) -> Iterator[Part | Attachment]:
    """Yields what one part holds that a part of a package relates to."""
    target, kind = relation.target_part, _kind(relation)
    name = target.partname.rpartition("/")[2]
    if kind == "image":
        yield from picture_parts(f"{place}picture {name}", target.blob)
    elif kind in MEDIA:
        yield Part(locator=f"{place}media {name}", status=PartStatus.SKIPPED, reason=MEDIA_REASON)
    elif kind in FILES:
        yield Attachment(number=number, name=name, locator=f"{place}file {name}", data=target.blob)
    else:
        name = _control_name(part, relation.rId) or name
        locator = f"{place}control {name}" if kind == "control" else f"{place}{PART_PLACES.get(kind, kind)}"
        item = _xml_part(target, kind, locator, read)
        if item.text.strip() or item.status is PartStatus.FAILED:
            yield item


def _xml_part(part: Any, kind: str, locator: str, read: ReadPart) -> Part:
    """Returns the text of a part; one whose XML is damaged costs itself."""
    try:
        if kind == "control":
            return _control_part(part, locator)
        text, reason = read(part, kind)
    except etree.XMLSyntaxError as error:
        return Part(locator=locator, status=PartStatus.FAILED, reason=f"its XML is damaged ({error})")
    return Part(locator=locator, text=text, reason=reason)


MEDIA_REASON = "media: sound or film, which is not read"


def _kind(relation: Any) -> str:
    return str(relation.reltype).rpartition("/")[2]


def _linked_parts(part: Any, relation: Any, place: str, seen: set[str]) -> Iterator[Part]:
    """Yields a loss for a picture, film or file that the part shows and the package does not hold."""
    target, kind = relation.target_ref, _kind(relation)
    if kind in LINKED and target not in seen and _shows(root_of(part), relation.rId):
        seen.add(target)
        noun = "picture" if kind == "image" else "media" if kind in MEDIA else "file"
        reason = f"a linked {noun}, which is not in the file and is not read"
        yield Part(locator=f"{place}{noun} {target}", status=PartStatus.SKIPPED, reason=reason)


def _shows(root: Any, relation_id: str) -> bool:
    """Tells whether an element shows the target of a relation, and has no copy of it in the package."""
    for element in root.iter():
        ids = {name: value for name, value in element.attrib.items() if name.startswith(RELATIONS)}
        if relation_id in ids.values():
            return bool(ids.get(f"{RELATIONS}embed", relation_id) == relation_id)
    return False


def _control_name(part: Any, relation_id: str) -> str:
    """Returns the name of a control in the part that shows it."""
    shown = (element for element in root_of(part).iter("{*}control") if element.get(RELATION) == relation_id)
    return next((element.get(f"{W}name") or element.get("name", "") for element in shown), "")


def _control_part(control: Any, locator: str) -> Part:
    """Returns what a control of a form (ActiveX) says, or that it is not read."""
    root = root_of(control)
    settings = {each.get(f"{ACTIVE_X}name"): each.get(f"{ACTIVE_X}value", "") for each in root.iter(f"{ACTIVE_X}ocxPr")}
    caption, value = settings.get("Caption", ""), settings.get("Value", "")
    if root.get(f"{ACTIVE_X}classid", "")[1:9].upper() in SWITCHES:
        value = CHECKED if value.strip().lower() in ("1", "-1", "true") else UNCHECKED
    text = " ".join(filter(None, (value, caption)))
    if text and settings:
        return Part(locator=locator, text=text)
    reason = "a control of a form, whose state is not read: save the file as PDF"
    return Part(locator=locator, status=PartStatus.FAILED, reason=reason)


def related_text(part: Any, kind: str) -> tuple[str, str | None]:
    """Returns the text of a part beside the main one, a line for each of its paragraphs or values."""
    root, reader = root_of(part), TextReader()
    if kind in WALKED:
        shapes = [shape for shape in root.iter("{*}sp") if next(shape.iter("{*}ph"), None) is None]
        text = "\n".join(line for shape in shapes for line in _drawn_lines([shape], reader))
    elif kind in DRAWINGS:
        text = "\n".join(_drawn_lines([root], reader))
    else:
        blocks = [text for _, text in reader.headed_blocks(root)]
        text = "\n\n".join(blocks) or "\n".join(_drawn_lines([root], reader))
    return text, symbol_note(text)


def _drawn_lines(elements: Iterable[Any], reader: TextReader) -> Iterator[str]:
    """Yields the paragraphs in elements, and the values and comments that stand in none."""
    for element in elements:
        text = ""
        if element.tag in PARAGRAPHS | TABLES:
            text = reader.block_text(element)
        elif element.tag not in LEFT_OUT and str(element.tag).rpartition("}")[2] in ("t", "v", "text"):
            text = element.text or "".join(each.text or "" for each in element.iter("{*}t"))
        if text.strip():
            yield text
        elif element.tag not in LEFT_OUT:
            yield from _drawn_lines(element, reader)


def root_of(part: Any) -> Any:
    """Returns the XML of a part.

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
