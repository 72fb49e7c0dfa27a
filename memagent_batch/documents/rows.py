"""Documents of many rows: pages, messages. Their rows are indexed one by one, grouped by id, and put in order.

No text is kept on the way: the hash of a document is made of the hashes of its rows, with their locators.
"""

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import lru_cache
from itertools import groupby, pairwise
from operator import itemgetter
from string import Formatter
from typing import Any

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.documents.converted import SOURCE_UNREAD, joined_sources
from memagent_batch.documents.document_index import (
    BAD_FILE,
    CARRY_PREFIX,
    UNREAD_SOURCE,
    index_schema,
    index_tables,
    place_of,
)
from memagent_batch.documents.formats.records import EMPTY_TEXT, Value, too_long
from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.errors import InputError
from memagent_batch.store.location import Location

SEPARATOR = "\n\n"
"""Stands between the rows of a document."""
IndexedRow = Mapping[str, Any]
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_TIME_WITH_OFFSET = re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d.*(Z|[+-]\d\d:?\d\d)")
_JSON_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def group_rows(rows: pa.Table, *, documents: Location, settings: InputConfig) -> Iterator[pa.Table]:
    """The index of documents whose rows are all here, as tables of `index_schema`, sorted by id; at least one.

    Raises:
        InputError: two rows of a document have the same place in its order; names them.
    """
    keys = ["document_id", "path", "start", "stop"]
    listed = rows.sort_by([(key, "ascending") for key in keys]).to_pylist() if rows.num_rows else []
    found = (
        document
        for _, group in groupby(listed, key=itemgetter("document_id"))
        for document in _documents_of_id(list(group), documents=documents, settings=settings)
    )
    yield from index_tables(found, schema=index_schema(settings))


def _documents_of_id(rows: list[IndexedRow], *, documents: Location, settings: InputConfig) -> Iterator[IndexedRow]:
    """The document of some rows of one id; files and lines that can't be read stand for themselves."""
    readable = [row for row in rows if row["error_type"] != BAD_FILE]
    yield from (row for row in rows if row["error_type"] == BAD_FILE)
    if not readable:
        return
    error = None
    try:
        readable = _in_order(readable, documents=documents, settings=settings)
    except InputError as fault:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        error = str(fault)
    yield _joined_document(readable, error=error, settings=settings)


def _joined_document(rows: Sequence[IndexedRow], *, error: str | None, settings: InputConfig) -> IndexedRow:
    first = rows[0]
    sources = [{name: row[CARRY_PREFIX + name] for name in settings.carry_columns} for row in rows]
    carried = joined_sources(sources) if SOURCE_UNREAD in settings.carry_columns else sources[0]
    separators = (len(rows) - 1) * len(SEPARATOR)
    num_bytes = separators + sum(row["num_bytes"] for row in rows)
    error = error or next((row["error"] for row in rows if row["error"] is not None), None)
    if error is None and settings.max_document_bytes is not None and num_bytes > settings.max_document_bytes:
        error = f"document_id {first['document_id']!r}: {too_long(settings.max_document_bytes)}"
    error_type = None
    if error is None and num_bytes == separators:
        unread = carried.get(SOURCE_UNREAD)
        error = unread or f"document_id {first['document_id']!r}: {EMPTY_TEXT}"
        error_type = UNREAD_SOURCE if unread else None
    return {
        **first,
        **{CARRY_PREFIX + name: value for name, value in carried.items()},
        "document_hash": None if error else joined_hash([row["document_hash"] for row in rows]),
        "num_bytes": 0 if error else num_bytes,
        "error": error,
        "error_type": error_type,
        "rows": _row_places(rows),
    }


def _row_places(rows: Sequence[IndexedRow]) -> Mapping[str, Sequence[str | int]]:
    files = {(row["path"], row["format"]): None for row in rows}
    numbers = {file: number for number, file in enumerate(files)}
    return {
        "paths": [path for path, _ in files],
        "formats": [format_ for _, format_ in files],
        "files": [numbers[row["path"], row["format"]] for row in rows],
        "starts": [row["start"] for row in rows],
        "stops": [row["stop"] for row in rows],
    }


def _in_order(rows: Sequence[IndexedRow], *, documents: Location, settings: InputConfig) -> list[IndexedRow]:
    """The rows in order: a column whose values in this document are all numbers counts as numbers, one whose values
    are all times with an offset as instants, else as texts.
    """
    columns = list(zip(*(row["order"] for row in rows), strict=True))
    for name, values in zip(settings.order_columns, columns, strict=True):
        _require_one_order(values, name=name, rows=rows, documents=documents)
    keys = list(zip(*map(_ordered, columns), strict=True))
    order = sorted(range(len(rows)), key=keys.__getitem__)
    for one, other in pairwise(order):
        if keys[one] == keys[other]:
            names = ", ".join(settings.order_columns)
            places = " and ".join(place_of(rows[each], documents=documents) for each in (one, other))
            raise InputError(
                f"document_id {rows[one]['document_id']!r}: two rows have the same place in its order ({names}: "
                f"{', '.join(rows[one]['order'])}): {places}; drop one, or name further columns with "
                "input.order_columns"
            )
    return [rows[each] for each in order]


def _ordered(values: Sequence[str]) -> Sequence[Any]:
    if all(map(_JSON_NUMBER.fullmatch, values)):
        return [Decimal(value) for value in values]
    instants = [_instant(value) for value in values]
    return values if None in instants else instants


def _instant(value: str) -> datetime | None:
    """The instant that an ISO 8601 time with an offset names; None for any other text."""
    if not _TIME_WITH_OFFSET.fullmatch(value):
        return None
    try:
        return datetime.fromisoformat(value)
    except ValueError:
        return None


def _require_one_order(values: Sequence[str], *, name: str, rows: Sequence[IndexedRow], documents: Location) -> None:
    """Refuses values that would be in a wrong order as texts: 1, 10, 2 beside 10a, or times with and without offset."""
    texts = [value for value in values if not _JSON_NUMBER.fullmatch(value)]
    if not texts:
        return
    local = [value for value in values if _instant(value) is None]
    if local and len(local) < len(values):
        odd, remedy = local[0], "have times with an offset; give this one an offset too"
    elif len(texts) == len(values):
        return
    elif all(map(_NOT_FINITE.fullmatch, texts)):
        odd, remedy = texts[0], "have numbers; give this one a number, or drop it"
    elif not _is_order_of_texts([value for value in values if _JSON_NUMBER.fullmatch(value)]):
        odd = texts[0]
        remedy = "have numbers, which would be ordered as texts (1, 10, 2); number all, or write 01, 02, 10"
    else:
        return
    row = rows[values.index(odd)]
    raise InputError(
        f"document_id {row['document_id']!r}: {place_of(row, documents=documents)}: {name} is {odd}, and its other "
        f"rows {remedy}"
    )


def _is_order_of_texts(numbers: Sequence[str]) -> bool:
    """Whether numbers have the same order as texts."""
    as_texts = sorted(numbers)
    return as_texts == sorted(as_texts, key=Decimal)


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


@lru_cache(maxsize=8)
def template_columns(template: str) -> tuple[str, ...]:
    """Names of the columns in a template such as `page {page}`."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def row_text(text: str, shown: Sequence[Value], *, settings: InputConfig) -> RowText:
    """The text and the locator of a row; `shown` are the values of `shown_columns`. No header for an empty part."""
    templates = settings.header or "", settings.locator or ""
    names = [name for template in templates for name in template_columns(template)]
    values = dict(zip(names, (value if isinstance(value, str) else "" for value in shown), strict=True))
    header, locator = (template.format_map(values) for template in templates)
    has_header = settings.header and not (settings.is_converted and not text)
    return RowText(text=f"{header}\n{text}" if has_header else text, locator=locator)


def joined_hash(row_hashes: Sequence[str]) -> str:
    """SHA-256 of a document by those of its rows, in order."""
    return text_hash(json.dumps([SEPARATOR, *row_hashes]))


def joined_text(rows: Sequence[RowText]) -> tuple[str, tuple[LocatedRow, ...]]:
    """The text of a document, and where its rows stand in it."""
    located, start = [], 0
    for row in rows:
        located.append(LocatedRow(char_start=start, char_end=start + len(row.text), locator=row.locator))
        start += len(row.text) + len(SEPARATOR)
    return SEPARATOR.join(row.text for row in rows), tuple(located)
