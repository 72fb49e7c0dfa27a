"""ODT, ODS and ODP by lxml: a part for each section, sheet or slide; then margins, form fields, objects, pictures."""

import re
import zipfile
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

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
from memagent_batch.data.ingest.readers.equations import MATHML, mathml_equation
from memagent_batch.data.ingest.readers.numbering import OpenNumbering
from memagent_batch.data.ingest.readers.opendocument_text import (
    DRAW,
    OFFICE,
    TABLE,
    TEXT,
    OpenStyles,
    OpenTextReader,
    control_text,
    form_controls,
    href,
)
from memagent_batch.data.ingest.readers.packages import MEDIA_REASON, require_bounds
from memagent_batch.data.ingest.readers.symbols import symbol_note
from memagent_batch.data.ingest.readers.text import section_parts
from memagent_batch.errors import ConversionError

OBJECT = re.compile(r"(?P<object>.+)/content\.xml")
PICTURE = re.compile(r"(?:.+/)?Pictures/[^/]+")
MEDIA = re.compile(r"(?:.+/)?Media/[^/]+")
FILE = re.compile(r"(?!ObjectReplacements/)(?:.+/)?Object [^/]+")
"""Members that are shown inside: objects such as charts and formulas, pictures, sound and film, and files of other
programs."""
LINKED = {f"{DRAW}image": "picture", f"{DRAW}plugin": "media", f"{DRAW}object": "object"} | {
    f"{DRAW}object-ole": "object",
    f"{DRAW}floating-frame": "page",
    f"{DRAW}applet": "program",
}
"""Elements that show something by its address."""


class OpenDocumentConverter(BuiltIn):
    """Notes follow their paragraph, comments stand where they belong, formulas and form fields are read in their place.

    What a tracked change deleted is left out, and the first part says so.
    """

    package, revision, modules = "lxml", 3, ("lxml.etree",)

    def convert(self, file: Path) -> Iterator[Part | Attachment]:
        """Yields the parts of the body, then one for each text, picture or file beside it."""
        require_bounds(file, kind="an OpenDocument")
        with zipfile.ZipFile(file) as package:
            if b"encryption-data" in package.read("META-INF/manifest.xml"):
                raise ConversionError("encrypted: it opens with a password only; remove the password")
            names = package.namelist()
            content = _root(package, "content.xml")
            styles = _root(package, "styles.xml") if "styles.xml" in names else None
            equations = _equations(package)
            OpenNumbering([content] if styles is None else [styles, content]).write(content)
            reader = OpenTextReader(content, OpenStyles(content, styles), equations)
            is_tracked = any(map(len, content.iter(f"{TEXT}tracked-changes", f"{TABLE}tracked-changes")))
            for part in section_parts(reader.blocks([content]), separator="\n\n"):
                yield replace(part, reason=text_note(part.text, is_tracked=is_tracked))
                is_tracked = False
            yield from _form_parts(content)
            if styles is not None:
                yield from _margin_parts(styles)
            yield from _linked_parts(content, names)
            for number, data in enumerate(content.iter(f"{OFFICE}binary-data"), start=1):
                yield from picture_parts(f"inline picture {number}", _decoded(data.text))
            placed = {href(element) for element in content.iter(f"{DRAW}object")}
            for number, name in enumerate(names, start=1):
                if name.removesuffix("/content.xml") not in placed & equations.keys():
                    yield from _inner_items(package, name, number=str(number))


def _root(package: zipfile.ZipFile, name: str) -> Any:
    """Returns the XML of a member."""
    root = etree.fromstring(
        package.read(name), etree.XMLParser(resolve_entities=False, no_network=True, collect_ids=False)
    )
    declared = root.getroottree().docinfo.internalDTD
    if declared is not None and any(True for _ in declared.iterentities()):
        raise ConversionError("its XML declares entities; they are not followed")
    return root


def _decoded(letters: str | None) -> bytes:
    """Returns the bytes that are written in base64, or the letters if they are damaged."""
    try:
        return b64decode(letters or "")
    except ValueError:
        return (letters or "").encode()


def _equations(package: zipfile.ZipFile) -> dict[str, str]:
    """Returns the formulas among the objects of a package, by the paths of the objects."""
    equations = dict[str, str]()
    for name in package.namelist():
        inner = OBJECT.fullmatch(name)
        try:
            root = _root(package, name) if inner else None
        except (ConversionError, etree.XMLSyntaxError):
            continue  # it is a part of its own that says so
        if inner is not None and root is not None and root.tag == f"{MATHML}math":
            equations[inner["object"]] = mathml_equation(root)
    return equations


def _form_parts(content: Any) -> Iterator[Part]:
    """Yields a part of the form fields that have no place in the text."""
    placed = {element.get(f"{DRAW}control") for element in content.iter(f"{DRAW}control")}
    controls = (control for name, control in form_controls(content).items() if name not in placed)
    text = "\n".join(filter(None, (control_text(control, is_named=True) for control in controls)))
    if text:
        yield Part(locator="form fields", text=text)


def _margin_parts(styles: Any) -> Iterator[Part]:
    reader = OpenTextReader(styles, OpenStyles(styles, None), {})
    margins = "\n\n".join(text for each in styles.iter(f"{OFFICE}master-styles") for _, text in reader.blocks(each))
    if margins:
        yield Part(locator="headers and footers", text=margins, reason=symbol_note(margins))


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
        return Part(locator=locator, text=mathml_equation(root))
    text = "\n\n".join(text for _, text in OpenTextReader(root, OpenStyles(root, None), {}).blocks(root))
    return Part(locator=locator, text=text, reason=symbol_note(text))
