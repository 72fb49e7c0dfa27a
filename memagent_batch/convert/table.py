"""The table of converted documents, and what its rows say of each file of the input."""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from memagent_batch.convert.converter import PartStatus
from memagent_batch.documents.converted import (
    CONVERTED_MARKER,
    SOURCE_NOTES,
    SOURCE_READ,
    SOURCE_REVIEW,
    SOURCE_UNREAD,
    UNREAD_JOIN,
)
from memagent_batch.store.columns import Column, arrow_schema
from memagent_batch.store.database import run_query
from memagent_batch.store.errors import table_errors
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import read_parquet

NAMED_PLACES = 5
"""Parts and attachments of a document that are named for each reason; the others are counted."""
TEXT_STATUSES = frozenset({PartStatus.OK, PartStatus.NEEDS_REVIEW, PartStatus.NEEDS_OCR, PartStatus.EMPTY})
"""Statuses of parts that have a text, if only an empty one."""
UNREAD_STATUSES = frozenset({PartStatus.NEEDS_OCR, PartStatus.FAILED, PartStatus.SKIPPED, PartStatus.NOT_READ})


class LineBox(TypedDict):
    """Where a line that OCR read stands on its page, in shares of the upright page from its upper left corner."""

    confidence: float
    left: float
    top: float
    right: float
    bottom: float


class ConvertedRow(TypedDict):
    """One row for each part of each document; each file has at least one. Rows of a document are together, in order."""

    document_id: Annotated[
        str,
        Column(
            "path of the file below the folder that was asked for; an attachment has its number and name behind that"
        ),
    ]
    part: Annotated[int, pa.int32(), Column("position of the part in its document, from 1")]
    locator: Annotated[str, Column("place of the part in its source: a page, a message, a section")]
    text: Annotated[str | None, Column("text of the part; null if it is failed, skipped or not_read")]
    status: Annotated[str, Column(", ".join(PartStatus))]
    reason: Annotated[str | None, Column("why it is not ok, or what to know of its text")]
    converter: Annotated[str | None, Column("name of the converter; null if none was run")]
    converter_version: Annotated[str | None, Column("version of the converter and its library")]
    source: Annotated[str, Column("path of the file that it came from")]
    source_hash: Annotated[str | None, Column("SHA-256 of that file; null if it was not read")]
    ocr_lowest: Annotated[float | None, Column("lowest confidence of its lines; null if OCR did not read it", "0 to 1")]
    ocr_mean: Annotated[float | None, Column("mean confidence of its lines", "0 to 1")]
    ocr_lines: Annotated[
        list[LineBox] | None,
        Column("confidence and box of each line of `text`, in shares of the upright page from its upper left corner"),
    ]


class ConvertedTableRow(ConvertedRow):
    """A row of the table: each says what of its whole document was read, so that no filter of rows hides it."""

    source_read: Annotated[float, Column("share of its document's parts and attachments that were read", "0 to 1")]
    source_unread: Annotated[
        str | None, Column("what of its document and of what is attached was not read, and why; null if all was")
    ]
    source_notes: Annotated[
        str | None, Column("what to know of its document's parts that are ok: their reasons; null if there are none")
    ]
    source_review: Annotated[
        str | None, Column("what of its document may have been read wrongly, and where; null if nothing")
    ]


CONVERTED = arrow_schema(ConvertedTableRow).with_metadata({CONVERTED_MARKER: b"1"})
FILE_OUTCOMES = (
    *(PartStatus.NOT_READ, PartStatus.FAILED, PartStatus.NEEDS_OCR, PartStatus.SKIPPED),
    *(PartStatus.NEEDS_REVIEW, PartStatus.OK, PartStatus.EMPTY),
)
"""How a whole file ended: the first of these that one of its rows has."""
REPORTED = ["document_id", "status", "reason", "converter", "converter_version", "source", "source_hash"]
SOURCES_SQL = f"""
    with ranked as (
        select *, row_number() over () as number, list_position({[*map(str, FILE_OUTCOMES)]}, status) as rank from rows
    )
    select
        source, any_value(source_hash) as source_hash, count(distinct document_id) as documents, count(*) as rows,
        first(status order by rank, number) as status, first(reason order by rank, number) as reason,
        list(distinct coalesce(converter || ' ' || converter_version, '')) as converters,
        list(distinct regexp_extract(lower(document_id), '[.][a-z0-9]{{1,10}}$')) as endings,
        bool_or(document_id <> source and regexp_replace(document_id, '/[^/]*$', '') not in (
            select document_id from rows
        )) as is_unpacked,
        {", ".join(f"count(*) filter (status = '{status}') as rows_{status}" for status in PartStatus)}
    from ranked group by source order by min(number)
"""


def rows_table(rows: Sequence[ConvertedRow]) -> pa.Table:
    """The rows of one source as a table of `CONVERTED`."""
    documents: dict[str, list[ConvertedRow]] = {}
    for row in rows:
        documents.setdefault(row["document_id"], []).append(row)
    unread = {document_id: _unread_parts(own) for document_id, own in documents.items()}
    read_of = {document_id: _read_of(document_id, own, unread) for document_id, own in documents.items()}
    return pa.Table.from_pylist([{**row, **read_of[row["document_id"]]} for row in rows], schema=CONVERTED)


def _unread_parts(rows: Sequence[ConvertedRow]) -> list[ConvertedRow]:
    """The parts of a document that were not read. A blank page is read, a document of nothing but blanks is not."""
    is_blank = all(row["status"] == PartStatus.EMPTY for row in rows)
    unread = {*UNREAD_STATUSES, PartStatus.EMPTY} if is_blank else UNREAD_STATUSES
    return [row for row in rows if row["status"] in unread]


def _read_of(
    document_id: str, rows: Sequence[ConvertedRow], unread: Mapping[str, Sequence[ConvertedRow]]
) -> dict[str, Any]:
    """What of a document was read, and what to know of it. `unread` has, of each document of its source, the parts that
    were not.
    """
    attached = {name: parts for name, parts in unread.items() if name.startswith(f"{document_id}/")}
    places = [(_why(row), _place(row, rows)) for row in unread[document_id]]
    for name, parts in attached.items():
        place = f"attachment {name.removeprefix(f'{document_id}/')}"
        places += [(why, place) for why in dict.fromkeys(map(_why, parts))]
    notes = [(row["reason"], _place(row, rows)) for row in rows if row["status"] == PartStatus.OK and row["reason"]]
    review = [(_why(row), _place(row, rows)) for row in rows if row["status"] == PartStatus.NEEDS_REVIEW]
    num_parts = len(rows) + len(attached)
    num_unread = len(unread[document_id]) + sum(map(bool, attached.values()))
    return {
        SOURCE_READ: (num_parts - num_unread) / num_parts,
        SOURCE_UNREAD: _by_reason(places),
        SOURCE_NOTES: _by_reason(notes),
        SOURCE_REVIEW: _by_reason(review),
    }


def _by_reason(places: Sequence[tuple[str, str]]) -> str | None:
    """Reasons with their places, each reason once; None if there are none."""
    named: dict[str, list[str]] = {}
    for why, place in places:
        named.setdefault(why, []).append(place)
    return UNREAD_JOIN.join(f"{why}{_named(each)}" for why, each in named.items()) or None


def _place(row: ConvertedRow, rows: Sequence[ConvertedRow]) -> str:
    """Where a part stands; nothing for the one part of a document."""
    return row["locator"] if len(rows) > 1 else ""


def _why(row: ConvertedRow) -> str:
    return f"{row['status']}: {row['reason'] or 'nothing is in it'}"


def _named(places: Sequence[str]) -> str:
    """The first places in brackets; nothing if none has a name."""
    named = ", ".join(filter(None, places[:NAMED_PLACES]))
    more = f" and {len(places) - NAMED_PLACES:,} more" if len(places) > NAMED_PLACES else ""
    return f" ({named}{more})" if named else ""


def read_sources(place: Location) -> pa.Table:
    """The files of the input that a file of the table comes from, in the order of its row groups.

    Of each its hash, counts, and how it ended, with the first reason. The schema has the entries of the table's file.

    Raises:
        OutputError: the file can't be read.
    """
    with table_errors(place.uri, remedy="remove it; the files that it came from are converted again"):
        rows = read_parquet(place, columns=REPORTED)
    return run_query(SOURCES_SQL, {"rows": rows}).replace_schema_metadata(rows.schema.metadata)
