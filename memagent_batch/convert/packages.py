"""Packages of Office (OPC) in the form that libraries open: Transitional namespaces, no relations to missing parts."""

import posixpath
import re
import zipfile
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from urllib.parse import unquote

STRICT = re.compile(rb"""(?<=["'])http://purl\.oclc\.org/ooxml/(\w+)/""")
"""Start of a namespace of Strict Open XML, such as `http://purl.oclc.org/ooxml/drawingml/` before `main`."""
TRANSITIONAL = rb"http://schemas.openxmlformats.org/\1/2006/"
XML_ENDINGS = (".xml", ".rels", ".vml")


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
    from lxml import etree

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
