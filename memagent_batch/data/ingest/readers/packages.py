"""Packages of Office (OPC) in the form that libraries open: Transitional namespaces, no relations to missing parts."""

import posixpath
import re
import zipfile
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO
from urllib.parse import unquote

from lxml import etree

STRICT = re.compile(rb"""(?<=["'])http://purl\.oclc\.org/ooxml/(\w+)/""")
"""Start of a namespace of Strict Open XML, such as `http://purl.oclc.org/ooxml/drawingml/` before `main`."""
TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
XML_ENDINGS = (".xml", ".rels", ".vml")
DAMAGE = (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, KeyError, SyntaxError)
"""What is raised where a member is packed wrongly, or where its XML is not well-formed."""


def open_package(file: Path) -> Path | BytesIO:
    """Returns the package as libraries can read it: the file itself, or a repaired copy in memory.

    Strict namespaces become Transitional ones. A relation to a part that the package lacks, or to something that is no
    part (`#Sheet2!A1`, `NULL`, an address), becomes an external one with the same id and target.
    """
    with zipfile.ZipFile(file) as package:
        names = {name.lower(): name for name in package.namelist()}
        relations = {name: package.read(name) for name in names.values() if name.endswith(".rels")}
        strict = any(STRICT.search(xml) for xml in relations.values())
        repaired = {name: _repair_relations(name, xml, names) for name, xml in relations.items()}
        if not strict and repaired == relations:
            return file
        copy = BytesIO()
        with zipfile.ZipFile(copy, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as target:
            for name in package.namelist():
                data = repaired[name] if name in repaired else package.read(name)
                is_xml = strict and name.lower().endswith(XML_ENDINGS)
                target.writestr(name, STRICT.sub(TRANSITIONAL, data) if is_xml else data)
    copy.seek(0)
    return copy


def _repair_relations(name: str, xml: bytes, names: Mapping[str, str]) -> bytes:
    """Returns a list of relations in which every internal target is a member; names are those of the members."""
    try:
        root = etree.fromstring(xml, etree.XMLParser(resolve_entities=False, no_network=True))
    except etree.XMLSyntaxError:
        return xml
    folder = posixpath.dirname(posixpath.dirname(f"/{name}"))
    changed = False
    for relation in root.iterfind("{*}Relationship"):
        target = relation.get("Target", "")
        wanted = posixpath.normpath(posixpath.join(folder, target)).lstrip("/")
        if relation.get("TargetMode") == "External" or (target and names.get(wanted.lower()) == wanted):
            continue
        member = names.get(wanted.lower()) or names.get(unquote(wanted).lower())
        relation.set(*(("Target", f"/{member}") if member and target else ("TargetMode", "External")))
        changed = True
    return bytes(etree.tostring(root)) if changed else xml


class PackagePart:
    """A part of a package that is read when it is needed. Its attributes are called as those of python-docx."""

    def __init__(self, package: zipfile.ZipFile, name: str) -> None:
        self._package, self._name = package, name
        self.partname = f"/{name}"
        self.replacement: bytes | None = None
        """What is read in place of its content."""

    @property
    def blob(self) -> bytes:
        """The content of the part."""
        return self._package.read(self._name) if self.replacement is None else self.replacement

    def open(self) -> IO[bytes]:
        """Opens the content of the part as a stream."""
        return self._package.open(self._name)

    @cached_property
    def rels(self) -> dict[str, "Relation"]:
        """The relations of the part by their ids; an empty name is the package itself."""
        folder, name = posixpath.split(self._name)
        member = posixpath.join(folder, "_rels", f"{name}.rels")
        if member not in self._package.NameToInfo:
            return {}
        root = etree.fromstring(self._package.read(member), etree.XMLParser(resolve_entities=False, no_network=True))
        relations = (
            Relation(
                rId=element.get("Id", ""),
                reltype=element.get("Type", ""),
                is_external=element.get("TargetMode") == "External",
                target_ref=element.get("Target", ""),
                target_part=self._at(element.get("Target", "")),
            )
            for element in root.iterfind("{*}Relationship")
        )
        return {relation.rId: relation for relation in relations}

    def related(self, kind: str) -> list["PackagePart"]:
        """Returns the parts inside the package to which this one has a relation of a kind, such as `comments`."""
        return [each.target_part for each in self.rels.values() if each.kind == kind and not each.is_external]

    def _at(self, target: str) -> "PackagePart":
        path = posixpath.join(posixpath.dirname(self.partname), target)
        return PackagePart(self._package, posixpath.normpath(path).lstrip("/"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Relation:
    """A relation of a part. Its attributes are called as those of python-docx."""

    rId: str  # noqa: N815
    reltype: str
    is_external: bool
    target_ref: str
    """A path inside the package; an address if it is external."""
    target_part: PackagePart
    """The part to which it leads if it is not external."""

    @property
    def kind(self) -> str:
        """The end of its type, such as `image`."""
        return self.reltype.rpartition("/")[2]
