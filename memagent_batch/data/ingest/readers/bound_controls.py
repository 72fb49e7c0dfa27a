"""Content controls of Word that are bound to data of the document: Word shows the data, whatever text was saved.

Sources: ECMA-376, part 1, 17.5.2.6 (data binding), 22.5 (custom XML data); the identifiers of the built-in data are
those that Word writes.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from typing import Any

from lxml import etree

from memagent_batch.data.ingest.readers.numbering import W
from memagent_batch.data.ingest.readers.packages import DAMAGE, PackagePart
from memagent_batch.errors import ConversionError

ITEM_ID = "{http://schemas.openxmlformats.org/officeDocument/2006/customXml}itemID"
BUILT_IN = {
    "core-properties": "{6C3C8BC8-F283-45AE-878A-BAB7291924A1}",
    "extended-properties": "{6668398D-A668-4E3E-A5EB-62B293D839F1}",
}
"""Identifiers of the properties of a document, by the relation of their part."""
PATH = re.compile(r"(?:/@?(?:[\w.-]+:)?[\w.-]+(?:\[\d+\])?)+")
"""A path that names one element or attribute, step by step; no other is followed."""
MAPPING = re.compile(r"""xmlns:([\w.-]+)\s*=\s*(?:'([^']*)'|"([^"]*)")""")
DATE_LENGTH = len("2026-12-31")


class BoundData:
    """The data of a document to which content controls are bound."""

    def __init__(self, main: PackagePart) -> None:
        """Takes the main part of the package."""
        self._roots = dict[str, Any]()
        for part in main.related("customXml"):
            for properties in part.related("customXmlProps"):
                with suppress(ConversionError, *DAMAGE):  # then Word shows the text that was saved
                    self._roots[properties.root.get(ITEM_ID, "").upper()] = part.root
        for part in main.package.related(*BUILT_IN):
            with suppress(ConversionError, *DAMAGE):
                kind = "core-properties" if "core-properties" in part.root.tag else "extended-properties"
                self._roots[BUILT_IN[kind]] = part.root

    def shown(self, properties: Any, held: str) -> str | None:
        """What Word shows in a control in place of the text that it was saved with; None if that text.

        Args:
            properties: `w:sdtPr` of the control.
            held: Its saved text.
        """
        kind = next(
            properties.iterchildren(*(f"{W}{name}" for name in ("text", "dropDownList", "comboBox", "date"))), None
        )
        value = None if kind is None else self._value(properties.find(f"{W}dataBinding"))
        if kind is None or value is None:
            return None
        if kind.tag == f"{W}date" and value:
            is_same = kind.get(f"{W}fullDate", "")[:DATE_LENGTH] == value[:DATE_LENGTH]
            return None if is_same else value[:DATE_LENGTH]
        for item in kind.iterchildren(f"{W}listItem"):
            if item.get(f"{W}value") == value:
                value = str(item.get(f"{W}displayText") or value)
                break
        return None if value.split() == held.split() else value.strip()

    def _value(self, binding: Any) -> str | None:
        """The text of what a control is bound to; None if it is not bound, or there is no such data."""
        root = None if binding is None else self._roots.get(binding.get(f"{W}storeItemID", "").upper())
        path = "" if binding is None else binding.get(f"{W}xpath", "")
        if root is None or not PATH.fullmatch(path):
            return None
        spaces: Mapping[str, str] = {
            name: single or double for name, single, double in MAPPING.findall(binding.get(f"{W}prefixMappings", ""))
        }
        try:
            found = root.xpath(path, namespaces=spaces)
        except etree.XPathError:  # a prefix that is not mapped
            return None
        if not found:
            return None
        return str(found[0]) if isinstance(found[0], str) else "".join(found[0].itertext())
