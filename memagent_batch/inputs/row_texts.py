"""The text of a document of many rows: what each row adds to it, and how they are joined."""

import json
from collections.abc import Sequence
from dataclasses import dataclass

from memagent_batch.config.sources import InputConfig
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.inputs.document_records import template_columns
from memagent_batch.inputs.formats.records import Value


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """What a row adds to its document."""

    text: str
    """Its header, if any, and its text."""
    locator: str
    """Its place in the source; empty where none is asked for."""

    def hash(self) -> str:
        """SHA-256 of both, hex."""
        return text_hash(f"{text_hash(self.text)} {self.locator}")


def row_text(text: str, shown: Sequence[Value], *, settings: InputConfig) -> RowText:
    """The text and the locator of a row.

    Args:
        text: The value of its text column.
        shown: The values of `shown_columns`.
        settings: The templates.
    """
    num_header = len(template_columns(settings.header or ""))
    header, locator = (
        template.format_map(dict(zip(template_columns(template), map(_shown_text, values), strict=True)))
        for template, values in (
            (settings.header or "", shown[:num_header]),
            (settings.locator or "", shown[num_header:]),
        )
    )
    return RowText(text=f"{header}\n{text}" if settings.header else text, locator=locator)


def joined_hash(row_hashes: Sequence[str], *, settings: InputConfig) -> str:
    """SHA-256 of a document by those of its rows, in order."""
    return text_hash(json.dumps([settings.separator, *row_hashes]))


def joined_text(rows: Sequence[RowText], *, settings: InputConfig) -> tuple[str, tuple[LocatedRow, ...]]:
    """The text of a document, and where its rows stand in it."""
    located, start = [], 0
    for row in rows:
        located.append(LocatedRow(char_start=start, char_end=start + len(row.text), locator=row.locator))
        start += len(row.text) + len(settings.separator)
    return settings.separator.join(row.text for row in rows), tuple(located)


def _shown_text(value: Value) -> str:
    return value if isinstance(value, str) else ""
