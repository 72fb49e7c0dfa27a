"""Packages of Office (OPC): the main part, and what belongs to it: texts, pictures, files and controls."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from lxml import etree

from memagent_batch.data.ingest.readers.converter import Attachment, Part, PartStatus, picture_parts
from memagent_batch.data.ingest.readers.marks import CHECKED, UNCHECKED
from memagent_batch.data.ingest.readers.numbering import W
from memagent_batch.data.ingest.readers.paragraphs import (
    BLOCKS,
    DRAWN,
    LEFT_OUT,
    TextReader,
    left_out_text,
    written_text,
)
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.errors import ConversionError

UNPACKED_BYTES = 512 << 20
"""Most bytes that a package may unpack to. `zipfile` reads no more of a member than its directory says."""
MEMBERS = 10_000
"""Most files in a package."""
STRICT = re.compile(rb"""(?<=["'])http://purl\.oclc\.org/ooxml/(\w+)/""")
"""Start of a namespace of Strict Open XML, such as `http://purl.oclc.org/ooxml/drawingml/` before `main`."""
TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, KeyError, SyntaxError)
"""What is raised where a member is packed wrongly, or where its XML is not well-formed."""
RELATIONS = "{http://schemas.openxmlformats.org/officeDocument/2006/relationships}"
RELATION = f"{RELATIONS}id"
TEXTS = frozenset({"header", "footer", "footnotes", "endnotes", "comments", "threadedComment", "notesSlide"})
TEXTS |= {"glossaryDocument"}
"""Parts of a package that hold text beside the main one: the ends of their relations' types, and their locators."""
DRAWINGS = frozenset({"chart", "chartEx", "chartUserShapes", "diagramData", "drawing", "vmlDrawing"})
"""Parts whose texts and values are shown in a drawing."""
FILES = frozenset({"aFChunk", "oleObject", "package", "subDocument"})
"""Relations of files inside the package."""
WALKED = frozenset({"worksheet", "chartsheet", "slideLayout", "slideMaster", "notesMaster", "handoutMaster"})
"""Parts that relate to others. Only texts of shapes that are not placeholders are read in them."""
MEDIA = frozenset({"audio", "media", "video"})
PART_PLACES = {"notesSlide": "notes", "diagramData": "diagram", "threadedComment": "comments", "chartEx": "chart"} | {
    "chartUserShapes": "drawing",
    "vmlDrawing": "drawing",
    "slideLayout": "layout",
    "slideMaster": "master",
    "notesMaster": "master of notes",
    "handoutMaster": "master of handouts",
}
"""Locators of kinds of relations that people call otherwise."""
MEDIA_REASON = "media: sound or film, which is not read"
PICTURES = frozenset({"image", "hdphoto"})
RELATED = TEXTS | DRAWINGS | FILES | WALKED | MEDIA | PICTURES | {"control", "theme", "numbering"}
LINKED = FILES | MEDIA | {"image", "frame"}
"""Kinds of relations whose targets may be outside the package, and are shown all the same."""
ACTIVE_X = "{http://schemas.microsoft.com/office/2006/activeX}"
SWITCHES = {"8BD21D40": "check box", "8BD21D50": "option button", "8BD21D60": "toggle button"}
"""Classes of controls that are on or off, by the start of their identifiers."""


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


@contextmanager
def open_main_part(file: Path, *, kind: str) -> Iterator["PackagePart"]:
    """Opens a package and gives its main part.

    Raises:
        ConversionError: the package is damaged, encrypted, unpacks to too much, or declares entities.
    """
    require_bounds(file, kind=kind)
    try:
        with zipfile.ZipFile(file) as package:
            main = next(iter(Package(package).part("").related("officeDocument")), None)
            if main is None:
                raise KeyError("it names no main part")
            yield main
    except (ValueError, *DAMAGE) as error:
        raise ConversionError(f"it can't be opened as {kind} ({error}); is it whole?") from error


class Package:
    """The parts of a package. Namespaces of Strict Open XML are read as those of Transitional Open XML."""

    def __init__(self, package: zipfile.ZipFile) -> None:
        self.zip = package
        self.names = {name.lower(): name for name in package.namelist()}
        self.is_strict = STRICT.search(package.read("_rels/.rels")) is not None
        self._parts = dict[str, PackagePart]()

    def part(self, name: str) -> "PackagePart":
        """Returns a part by the path of its member; the empty path is the package itself."""
        return self._parts.setdefault(name, PackagePart(self, name))

    def find(self, name: str) -> str | None:
        """Returns the member that a target of a relation means, whatever its case and escapes; None if none does."""
        return self.names.get(name.lower()) or self.names.get(unquote(name).lower())


class PackagePart:
    """A part of a package."""

    def __init__(self, package: Package, name: str) -> None:
        self._package, self._name = package, name
        self.partname = f"/{name}"

    @property
    def package(self) -> "PackagePart":
        """The package itself, whose relations name its main part and its properties."""
        return self._package.part("")

    @property
    def blob(self) -> bytes:
        """The content of the part."""
        data = self._package.zip.read(self._name)
        is_xml = self._package.is_strict and self._name.lower().endswith((".xml", ".rels", ".vml"))
        return STRICT.sub(TRANSITIONAL, data) if is_xml else data

    def open(self) -> IO[bytes]:
        """Opens the content of the part as a stream."""
        return BytesIO(self.blob) if self._package.is_strict else self._package.zip.open(self._name)

    @cached_property
    def root(self) -> Any:
        """The XML of the part.

        Raises:
            ConversionError: it declares entities or a document type.
        """
        data, is_vml = self.blob, self._name.lower().endswith(".vml")  # in which Office does not close line breaks
        parser = etree.XMLParser(resolve_entities=False, no_network=True, recover=is_vml)
        root = etree.fromstring(data.replace(b"<br>", b"<br/>") if is_vml else data, parser)
        if root is None:
            raise etree.XMLSyntaxError("no element found", 0, 1, 1, self._name)
        require_no_entities(root)
        return root

    @cached_property
    def rels(self) -> dict[str, "Relation"]:
        """The relations of the part by their ids."""
        folder, name = posixpath.split(self._name)
        member = posixpath.join(folder, "_rels", f"{name}.rels")
        if member not in self._package.zip.NameToInfo:
            return {}
        relations = (
            self._relation(element, folder) for element in self._package.part(member).root.iterfind("{*}Relationship")
        )
        return {relation.id: relation for relation in relations}

    def related(self, *kinds: str) -> list["PackagePart"]:
        """Returns the parts inside the package to which this one has a relation of these kinds, such as `comments`."""
        return [each.part for each in self.rels.values() if each.part is not None and each.kind in kinds]

    def _relation(self, element: Any, folder: str) -> "Relation":
        target, member = element.get("Target", ""), None
        if target and element.get("TargetMode") != "External":
            member = self._package.find(posixpath.normpath(posixpath.join("/", folder, target)).lstrip("/"))
        return Relation(
            id=element.get("Id", ""),
            kind=element.get("Type", "").rpartition("/")[2],
            target=target,
            part=None if member is None else self._package.part(member),
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation of a part."""

    id: str
    kind: str
    """The end of its type, such as `image`."""
    target: str
    """A path inside the package, or an address."""
    part: PackagePart | None
    """The part to which it leads; None if that is outside of the package, missing, or no part (`#Sheet2!A1`)."""


def require_no_entities(root: Any) -> None:
    """Refuses XML that declares entities or a document type.

    Raises:
        ConversionError: it does.
    """
    if root.getroottree().docinfo.internalDTD is not None:
        raise ConversionError(
            "its XML declares entities or a document type, which no package has; they are not followed"
        )


ReadPart = Callable[[PackagePart, str], Part]
"""Reads a part of a kind: its text, what it leaves out, and what to know of it."""


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
            if kind == "numbering":
                yield from (Part(picture=bullet.blob) for bullet in target.related("image"))
            elif kind in PICTURES | MEDIA | FILES:
                yield from _inner_files(target, kind, place, below)
            elif kind != "theme":  # which has pictures alone
                yield from _xml_parts(part, relation, target, place, read)
            if kind in TEXTS | DRAWINGS | WALKED | {"theme"}:
                yield from related_items(target, place=place, number=f"{below}-", seen=seen, read=read)


def _inner_files(target: PackagePart, kind: str, place: str, number: str) -> Iterator[Part | Attachment]:
    """Yields a picture, a loss for sound or film, or another file."""
    name = target.partname.rpartition("/")[2]
    if kind in PICTURES:
        yield from picture_parts(f"{place}picture {name}", target.blob)
    elif kind in MEDIA:
        yield Part(locator=f"{place}media {name}", status=PartStatus.SKIPPED, reason=MEDIA_REASON)
    else:
        yield Attachment(number=number, name=name, locator=f"{place}file {name}", data=target.blob)


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
        found = read(target, kind)
    except etree.XMLSyntaxError as error:
        yield Part(locator=locator, status=PartStatus.FAILED, reason=f"its XML is damaged ({error})")
        return
    if found.text.strip():
        yield replace(found, locator=locator)
    elif found.left_out.strip():
        yield Part(left_out=found.left_out)


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


def related_text(part: PackagePart, kind: str) -> Part:
    """Reads a part beside the main one, a line for each of its paragraphs or values.

    Of layouts, those texts of placeholders are left out in whose place a slide has its own.
    """
    root, reader = part.root, TextReader()
    reader.left_out.append(left_out_text(root))
    if kind in WALKED:
        prompts = [shape for shape in root.iter("{*}sp") if next(shape.iter("{*}ph"), None) is not None]
        for shape in prompts:
            reader.left_out.append(written_text(shape))
            shape.getparent().remove(shape)
    if kind in DRAWINGS | WALKED:
        text = "\n".join(_drawn_lines([root], reader))
    else:
        blocks = [text for _, text in reader.headed_blocks(root)]
        text = "\n\n".join(blocks) or "\n".join(_drawn_lines([root], reader))
    return Part(text=text, reason=symbol_note(text), left_out="\n".join(reader.left_out))


LEAVES = frozenset({"t", "v", "text", "name"})
"""Elements with a text or value of a chart, or the name of a line or of a table in it."""


def _drawn_lines(elements: Iterable[Any], reader: TextReader) -> Iterator[str]:
    """Yields the paragraphs in elements, and the values and comments that stand in none."""
    for element in elements:
        text = ""
        if element.tag in BLOCKS:
            text = reader.block_text(element)
        elif element.tag in DRAWN:
            yield from filter(None, [reader.block_text(element)])
        elif str(element.tag).rpartition("}")[2] in LEAVES and not any(map(len, element)):
            text = element.text or "".join(each.text or "" for each in element.iterchildren("{*}t"))
        if text.strip():
            yield text
        elif element.tag not in LEFT_OUT:
            yield from _drawn_lines(element, reader)
