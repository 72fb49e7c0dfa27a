"""Namespaces of OpenDocument, and the formats of text by the styles of a document."""

from dataclasses import replace
from typing import Any

from memagent_batch.data.ingest.readers.marks import Script
from memagent_batch.data.ingest.readers.paragraphs import Format

NAMESPACE = "{{urn:oasis:names:tc:opendocument:xmlns:{}:1.0}}"
TEXT, TABLE, DRAW, OFFICE, STYLE, FORM, FORMAT, SVG = (
    NAMESPACE.format(name)
    for name in ("text", "table", "drawing", "office", "style", "form", "xsl-fo-compatible", "svg-compatible")
)


class OpenStyles:
    """Formats of text by the styles of a document."""

    def __init__(self, content: Any, common: Any) -> None:
        """Takes the XML with the automatic styles, and that with the common ones if it is another."""
        groups = [] if common is None else list(common.iter(f"{OFFICE}styles", f"{OFFICE}font-face-decls"))
        groups += content.iter(f"{OFFICE}styles", f"{OFFICE}automatic-styles", f"{OFFICE}font-face-decls")
        elements = [element for group in groups for element in group.iterchildren("*")]
        names = ((element.get(f"{STYLE}family"), element.get(f"{STYLE}name")) for element in elements)
        self._styles = dict(zip(names, elements, strict=True))

    def format(self, family: str, name: str | None, base: Format) -> Format:
        """Returns a format with what a style changes of it."""
        chain, seen = list[Any](), set[str | None]()
        while (family, name) in self._styles and name not in seen:
            seen.add(name)
            chain.append(self._styles[family, name])
            name = chain[-1].get(f"{STYLE}parent-style-name")
        for style in reversed(chain):
            for properties in style.iterchildren(f"{STYLE}text-properties"):
                base = self._changed(base, properties)
        return base

    def _changed(self, base: Format, properties: Any) -> Format:
        position = properties.get(f"{STYLE}text-position")
        if position is not None:
            base = replace(base, script=_script(position))
        lines = [properties.get(f"{STYLE}text-line-through-{name}") for name in ("style", "type")]
        if any(line is not None for line in lines):
            base = replace(base, is_struck=all(line != "none" for line in lines))
        font = properties.get(f"{STYLE}font-name") or properties.get(f"{FORMAT}font-family")
        if font is not None:
            face = self._styles.get((None, font))
            family = font if face is None else face.get(f"{SVG}font-family", font)
            base = replace(base, ascii_font=family.strip("'\""), other_font=family.strip("'\""))
        return base


def _script(position: str) -> Script:
    """Returns what `super 58%`, `-33% 58%` or `0% 100%` mean."""
    first = (position.split() or [""])[0]
    if first == "sub" or first.startswith("-"):
        return Script.SUB
    return Script.SUPER if first == "super" or first.strip("+0.%") else Script.NORMAL
