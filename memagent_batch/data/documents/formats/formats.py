"""The file formats of inputs: the endings of their names, and what reads them."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from enum import StrEnum

from memagent_batch.data.documents.formats.byte_lines import COMPRESSIONS, is_compressed, open_stream
from memagent_batch.data.documents.formats.columnar import ColumnarReader
from memagent_batch.data.documents.formats.line_formats import CsvReader, JsonlReader
from memagent_batch.data.documents.formats.records import (
    BOM,
    Columns,
    Place,
    Record,
    RecordReader,
    Unreadable,
    column_value,
    decode,
    text_bound,
    too_long,
)
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError


class Format(StrEnum):
    """File format of an input."""

    PARQUET = "parquet"
    JSONL = "jsonl"
    CSV = "csv"
    TSV = "tsv"
    ARROW = "arrow"
    TABLE = "table"
    """A Parquet file of a table of a lake."""
    TEXT = "text"
    UNKNOWN = "unknown"
    """Something else, which is not read."""


_ENDINGS: Mapping[str, Format] = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".tsv": Format.TSV,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".md": Format.TEXT,
}
UNKNOWN_REMEDY = (
    "input.format: files reads PDF, HTML, DOCX, e-mail, ZIP and other document files; move others away, or name their "
    "format with input.format"
)
"""What the user can do where the ending of a document's file is not one of ours."""
_REFUSED = frozenset({".xz", ".lz4", ".zip"})
"""Compressions that are not read."""
GROUPED = frozenset({Format.PARQUET, Format.ARROW, Format.TABLE})
"""Formats with row groups: they compress their own columns, and rows are found by seeking and can be filtered."""


def format_of(name: str, *, where: str, remedy: str) -> Format:
    """The format that a file's ending stands for.

    Raises:
        InputError: the ending is not one of ours; says `remedy`.
    """
    ending = format_ending(name).lower()
    inner, packed = posixpath.splitext(ending)
    if inner in _REFUSED or (packed and _ENDINGS.get(inner) in GROUPED):
        raise InputError(f"{where}: files of this compression are not read; unpack it, or write it as Parquet")
    if inner not in _ENDINGS:
        packings = ", ".join(COMPRESSIONS)
        raise InputError(f"{where}: no known file ending ({', '.join(_ENDINGS)}; before {packings} too); {remedy}")
    return _ENDINGS[inner]


def format_ending(name: str) -> str:
    """The ending of a name, with that of its compression: `.jsonl`, `.jsonl.gz`."""
    inner, ending = posixpath.splitext(name)
    return posixpath.splitext(inner)[1] + ending if ending.lower() in COMPRESSIONS else ending


def is_named_text(name: str) -> bool:
    """Whether a name, or a pattern of names, has the ending of a text file."""
    return _ENDINGS.get(posixpath.splitext(format_ending(name).lower())[0]) is Format.TEXT


def is_data_file(name: str) -> bool:
    """Whether a name, or a pattern of names, has the ending of a file whose rows are documents."""
    found = _ENDINGS.get(posixpath.splitext(format_ending(name).lower())[0])
    return found is not None and found is not Format.TEXT


class TextReader:
    """Reads a text file as one record of one column."""

    def read(self, location: Location, *, columns: Columns, keep_bad: bool = False) -> Iterator[Record]:
        """See `RecordReader`. The place is the whole file."""
        max_bytes = text_bound(columns)
        with input_errors(location.uri):
            data = _read_file(location, max_bytes=max_bytes)
        if max_bytes is not None and len(data) > max_bytes + len(BOM):
            text: str | Unreadable = Unreadable(reason=too_long(max_bytes))
        else:
            text = decode(data.removeprefix(BOM))
        found = ((column.substitute if column.is_partition else text, column) for column in columns)
        values = tuple(column_value(value, column=column, where=location.uri) for value, column in found)
        yield Record(place=Place(start=0, stop=len(data)), where=location.uri, values=values)

    def names(self, location: Location) -> Sequence[str]:
        """See `RecordReader`. A text has no columns."""
        return ()


def _read_file(location: Location, *, max_bytes: int | None) -> bytes:
    """The file, unpacked; of one that is too long, enough to see it. A file of a store takes one request."""
    if not (is_compressed(location.path) or location.is_local):
        return location.read_bytes()
    with open_stream(location) as stream:
        return stream.read(-1 if max_bytes is None else max_bytes + len(BOM) + 1)


READERS: Mapping[Format, RecordReader] = {
    Format.PARQUET: ColumnarReader(),
    Format.JSONL: JsonlReader(),
    Format.CSV: CsvReader(),
    Format.TSV: CsvReader("\t"),
    Format.ARROW: ColumnarReader(),
    Format.TABLE: ColumnarReader(),
    Format.TEXT: TextReader(),
}
