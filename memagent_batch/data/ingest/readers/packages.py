"""Packages of Office (OPC): parts and the relations between them, read when they are needed."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote

from lxml import etree

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
        root = etree.fromstring(self.blob, etree.XMLParser(resolve_entities=False, no_network=True))
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
