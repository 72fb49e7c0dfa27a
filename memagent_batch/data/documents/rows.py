"""Rows of documents of many rows, such as pages and messages: their texts and locators."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from string import Formatter

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.formats.records import Value

SEPARATOR = "\n\n"
"""Stands between the rows of a document."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RowText:
    """What a row adds to its document."""

    text: str
    """Its header, if any, and its text."""
    locator: str
    """Its place in the source; empty where none is asked for."""


@lru_cache(maxsize=8)
def template_columns(template: str) -> tuple[str, ...]:
    """Names of the columns in a template such as `page {page}`."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def row_text(text: str, shown: Sequence[Value], *, settings: InputConfig) -> RowText:
    """The text and the locator of a row; `shown` are the values of `shown_columns`."""
    templates = settings.header or "", settings.locator or ""
    names = [name for template in templates for name in template_columns(template)]
    values = dict(zip(names, (value if isinstance(value, str) else "" for value in shown), strict=True))
    header, locator = (template.format_map(values) for template in templates)
    return RowText(text=f"{header}\n{text}" if settings.header else text, locator=locator)
