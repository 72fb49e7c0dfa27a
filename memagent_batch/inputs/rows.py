"""Documents of many rows: pages, messages. Their rows are indexed one by one, grouped by id, and put in order.

No text is kept on the way: the hash of a document is made of the hashes of its rows, with their locators.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from decimal import Decimal
from itertools import groupby, pairwise
from operator import itemgetter
from typing import Any

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.document_index import (
    BAD_FILE,
    CARRY_PREFIX,
    IndexRow,
    RowPlaces,
    index_schema,
    index_table,
    place_of,
)
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.formats.records import Place
from memagent_batch.inputs.row_texts import joined_hash

IndexedRow = Mapping[str, Any]
"""A row of `row_schema`."""
_INDEX_ROWS = 1024
"""Most rows of an index table."""
_NOT_FINITE = re.compile(r"[-+]?(nan|inf|infinity)", re.IGNORECASE)
_JSON_NUMBER = re.compile(r"-?[0-9]+(\.[0-9]+)?([eE][-+]?[0-9]+)?")


def group_rows(rows: pa.Table, *, documents: Location, settings: InputConfig) -> Iterator[pa.Table]:
    """The index of documents whose rows are all here, as tables of `index_schema`, sorted by id; at least one.

    Args:
        rows: Rows of `row_schema`, in any order.
        documents: Where they come from, for messages.
        settings: Says how they are put in order and joined.

    Raises:
        InputError: two rows of a document have the same place in its order, or different questions; names them.
    """
    group: list[IndexRow] = []
    schema, num_tables = index_schema(settings), 0
    keys = ["document_id", "path", "start", "stop"]
    listed = rows.sort_by([(key, "ascending") for key in keys]).to_pylist() if rows.num_rows else []
    for _, found in groupby(listed, key=itemgetter("document_id")):
        group.extend(_documents_of_id(list(found), documents=documents, settings=settings))
        if len(group) >= _INDEX_ROWS:
            yield index_table(group, schema=schema)
            group, num_tables = [], num_tables + 1
    if group or not num_tables:
        yield index_table(group, schema=schema)


def _documents_of_id(rows: list[IndexedRow], *, documents: Location, settings: InputConfig) -> Iterator[IndexRow]:
    """The document of some rows of one id; files and lines that can't be read stand for themselves."""
    readable = [row for row in rows if row["error_type"] != BAD_FILE]
    yield from (_bad(row) for row in rows if row["error_type"] == BAD_FILE)
    if not readable:
        return
    error = None
    try:
        readable = _in_order(readable, documents=documents, settings=settings)
        _require_one_question(readable, documents=documents)
    except InputError as fault:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        error = str(fault)
    yield _joined_document(readable, error=error, settings=settings)


def _joined_document(rows: Sequence[IndexedRow], *, error: str | None, settings: InputConfig) -> IndexRow:
    first = rows[0]
    error = error or next((row["error"] for row in rows if row["error"] is not None), None)
    separators = (len(rows) - 1) * len(settings.separator.encode())
    return IndexRow(
        document_id=first["document_id"],
        path=first["path"],
        format=Format(first["format"]),
        place=Place(start=first["start"], stop=first["stop"]),
        document_hash=None if error else joined_hash([row["document_hash"] for row in rows], settings=settings),
        num_bytes=0 if error else separators + sum(row["num_bytes"] for row in rows),
        question=first["question"],
        error=error,
        carried={name: first[CARRY_PREFIX + name] for name in settings.carry_columns},
        rows=_row_places(rows),
    )


def _row_places(rows: Sequence[IndexedRow]) -> RowPlaces:
    files = {(row["path"], row["format"]): None for row in rows}
    numbers = {file: number for number, file in enumerate(files)}
    return {
        "paths": [path for path, _ in files],
        "formats": [format_ for _, format_ in files],
        "files": [numbers[row["path"], row["format"]] for row in rows],
        "starts": [row["start"] for row in rows],
        "stops": [row["stop"] for row in rows],
    }


def _bad(row: IndexedRow) -> IndexRow:
    return IndexRow(
        document_id=row["document_id"],
        path=row["path"],
        format=Format(row["format"]),
        error=row["error"],
        error_type=row["error_type"],
    )


def _in_order(rows: Sequence[IndexedRow], *, documents: Location, settings: InputConfig) -> list[IndexedRow]:
    """The rows in order: a column whose values in this document are all numbers counts as numbers, else as texts."""
    columns = [_ordered(values) for values in zip(*(row["order"] for row in rows), strict=True)]
    _require_numbers(rows, columns, documents=documents, settings=settings)
    keys = list(zip(*columns, strict=True))
    order = sorted(range(len(rows)), key=keys.__getitem__)
    for one, other in pairwise(order):
        if keys[one] == keys[other]:
            names = ", ".join(settings.order_columns)
            places = " and ".join(place_of(rows[each], documents=documents) for each in (one, other))
            raise InputError(
                f"document_id {rows[one]['document_id']!r}: two rows have the same place in its order ({names}: "
                f"{', '.join(rows[one]['order'])}): {places}; drop one, or name further columns with "
                "--input.order-columns"
            )
    return [rows[each] for each in order]


def _ordered(values: Sequence[str]) -> Sequence[Any]:
    return [Decimal(value) for value in values] if all(map(_JSON_NUMBER.fullmatch, values)) else values


def _require_numbers(
    rows: Sequence[IndexedRow], columns: Sequence[Sequence[Any]], *, documents: Location, settings: InputConfig
) -> None:
    """Refuses a value that is no number beside numbers, which would then be ordered as texts: 1, 10, 2.

    Raises:
        InputError: a value is nan or infinite and others are numbers; names its row.
    """
    for name, values in zip(settings.order_columns, columns, strict=True):
        texts = [value for value in values if not (isinstance(value, Decimal) or _JSON_NUMBER.fullmatch(value))]
        if texts and len(texts) < len(values) and all(map(_NOT_FINITE.fullmatch, texts)):
            row = rows[list(values).index(texts[0])]
            raise InputError(
                f"document_id {row['document_id']!r}: {place_of(row, documents=documents)}: {name} is {texts[0]}, and "
                "its other rows have numbers; give this one a number, or drop it"
            )


def _require_one_question(rows: Sequence[IndexedRow], *, documents: Location) -> None:
    other = next((row for row in rows if row["question"] != rows[0]["question"]), None)
    if other is not None:
        places = " and ".join(place_of(row, documents=documents) for row in (rows[0], other))
        raise InputError(
            f"document_id {rows[0]['document_id']!r}: its rows have different questions: {places}; give all rows of a "
            "document the same one, or use a question list"
        )
