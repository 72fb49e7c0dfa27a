"""What belongs to the main part of a package of Office: texts, pictures, files and controls."""

from collections.abc import Callable, Iterable, Iterator
from typing import Any

from lxml import etree

from memagent_batch.data.ingest.readers.converter import Attachment, Part, PartStatus, picture_parts
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.numbering import W
from memagent_batch.data.ingest.readers.packages import RELATION, RELATIONS, PackagePart, Relation
from memagent_batch.data.ingest.readers.paragraphs import LEFT_OUT, PARAGRAPHS, TABLES, TextReader
from memagent_batch.data.ingest.readers.symbols import symbol_note

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
MEDIA_REASON = "media: sound or film, which is not read"
RELATED = TEXTS | DRAWINGS | FILES | WALKED | MEDIA | {"image", "control"}
LINKED = FILES | MEDIA | {"image", "frame"}
"""Kinds of relations whose targets may be outside the package, and are shown all the same."""
ACTIVE_X = "{http://schemas.microsoft.com/office/2006/activeX}"
SWITCHES = {"8BD21D40": "check box", "8BD21D50": "option button", "8BD21D60": "toggle button"}
"""Classes of controls that are on or off, by the start of their identifiers."""

ReadPart = Callable[[PackagePart, str], tuple[str, str | None]]
"""Reads a part of a kind: its text, and what to know of it."""


def related_items(
    part: PackagePart, *, place: str = "", number: str = "", seen: set[str] | None = None, read: ReadPart | None = None
) -> Iterator[Part | Attachment]:
    """Yields what the parts hold that a part of a package relates to: texts beside its own, pictures and files.

    Each is given once; names of parts that were taken are added to `seen`. Place and number stand before those of what
    is found; `read` reads texts, and is `related_text` unless it is given.
    """
    seen = set[str]() if seen is None else seen
    read = read or related_text
    for position, relation in enumerate(sorted(part.rels.values(), key=lambda each: each.id), start=1):
        target, kind, below = relation.part, relation.kind, f"{number}{position}"
        if target is None:
            yield from _linked_parts(part, relation, place, seen)
        elif kind in RELATED and target.partname not in seen:
            seen.add(target.partname)
            name = target.partname.rpartition("/")[2]
            if kind == "image":
                yield from picture_parts(f"{place}picture {name}", target.blob)
            elif kind in MEDIA:
                yield Part(locator=f"{place}media {name}", status=PartStatus.SKIPPED, reason=MEDIA_REASON)
            elif kind in FILES:
                yield Attachment(number=below, name=name, locator=f"{place}file {name}", data=target.blob)
            else:
                yield from _xml_parts(part, relation, target, place, read)
            if kind in TEXTS | DRAWINGS | WALKED:
                yield from related_items(target, place=place, number=f"{below}-", seen=seen, read=read)


def _xml_parts(
    part: PackagePart, relation: Relation, target: PackagePart, place: str, read: ReadPart
) -> Iterator[Part]:
    """Yields the text of a part that has any; one whose XML is damaged costs itself."""
    kind = relation.kind
    locator = f"{place}{PART_PLACES.get(kind, kind)}"
    if kind == "control":
        locator = f"{place}control {_control_name(part, relation.id) or target.partname.rpartition('/')[2]}"
    try:
        if kind == "control":
            yield _control_part(target, locator)
            return
        text, reason = read(target, kind)
    except etree.XMLSyntaxError as error:
        yield Part(locator=locator, status=PartStatus.FAILED, reason=f"its XML is damaged ({error})")
        return
    if text.strip():
        yield Part(locator=locator, text=text, reason=reason)


def _linked_parts(part: PackagePart, relation: Relation, place: str, seen: set[str]) -> Iterator[Part]:
    """Yields a loss for a picture, film or file that the part shows and the package does not hold."""
    target, kind = relation.target, relation.kind
    if kind in LINKED and target not in seen and _shows(part.root, relation.id):
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


def _control_name(part: PackagePart, relation_id: str) -> str:
    """Returns the name of a control in the part that shows it."""
    shown = (element for element in part.root.iter("{*}control") if element.get(RELATION) == relation_id)
    return next((element.get(f"{W}name") or element.get("name", "") for element in shown), "")


def _control_part(control: PackagePart, locator: str) -> Part:
    """Returns what a control of a form (ActiveX) says, or that it is not read."""
    root = control.root
    settings = {each.get(f"{ACTIVE_X}name"): each.get(f"{ACTIVE_X}value", "") for each in root.iter(f"{ACTIVE_X}ocxPr")}
    caption, value = settings.get("Caption", ""), settings.get("Value", "")
    if root.get(f"{ACTIVE_X}classid", "")[1:9].upper() in SWITCHES:
        value = CHECKED if value.strip().lower() in ("1", "-1", "true") else UNCHECKED
    text = " ".join(filter(None, (value, caption)))
    if text and settings:
        return Part(locator=locator, text=text)
    reason = "a control of a form, whose state is not read: save the file as PDF"
    return Part(locator=locator, status=PartStatus.FAILED, reason=reason)


def related_text(part: PackagePart, kind: str) -> tuple[str, str | None]:
    """Returns the text of a part beside the main one, a line for each of its paragraphs or values."""
    root, reader = part.root, TextReader()
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
