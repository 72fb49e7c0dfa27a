"""The file formats of inputs: the endings of their names, and what reads them."""

import posixpath
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.columnar import ColumnarReader
from memagent_batch.inputs.lines import CsvReader, JsonlReader
from memagent_batch.inputs.records import (
    BOM,
    Column,
    Place,
    Record,
    RecordReader,
    Unreadable,
    Value,
    convert,
    decode,
)


class Format(StrEnum):
    """File format of an input."""

    PARQUET = "parquet"
    """Parquet."""
    JSONL = "jsonl"
    """One JSON object a line."""
    CSV = "csv"
    """Comma-separated, with a header row."""
    ARROW = "arrow"
    """Arrow IPC file, also called Feather."""
    TEXT = "text"
    """A text in UTF-8."""
    UNKNOWN = "unknown"
    """Something else, which is not read."""


_ENDINGS: Mapping[str, Format] = {
    ".parquet": Format.PARQUET,
    ".pq": Format.PARQUET,
    ".jsonl": Format.JSONL,
    ".ndjson": Format.JSONL,
    ".json": Format.JSONL,
    ".csv": Format.CSV,
    ".arrow": Format.ARROW,
    ".feather": Format.ARROW,
    ".ipc": Format.ARROW,
    ".txt": Format.TEXT,
    ".text": Format.TEXT,
    ".md": Format.TEXT,
}
UNKNOWN_REMEDY = "move it away, or say what the files are with --input.format"
"""What the user can do where the ending of a document's file is none of ours."""
_COMPRESSED = frozenset({".gz", ".bz2", ".xz", ".zst", ".lz4", ".zip"})


def format_of(name: str, *, where: str, remedy: str) -> Format:
    """The format that a file's ending stands for.

    Args:
        name: Name of the file.
        where: Full URI, for messages.
        remedy: What the user can do where the ending is none of ours.

    Raises:
        InputError: the ending is none of ours.
    """
    ending = posixpath.splitext(name)[1].lower()
    if ending in _COMPRESSED:
        raise InputError(f"{where}: compressed files can't be read at any place; unpack it, or write it as Parquet")
    if ending not in _ENDINGS:
        raise InputError(f"{where}: no known file ending ({', '.join(_ENDINGS)}); {remedy}")
    return _ENDINGS[ending]


def is_named_text(name: str) -> bool:
    """Whether a name, or a pattern of names, has the ending of a text file."""
    return _ENDINGS.get(posixpath.splitext(name)[1].lower()) is Format.TEXT


@dataclass(frozen=True, slots=True, kw_only=True)
class TextReader:
    """Reads a text file as one record of one column."""

    def read(
        self, location: Location, *, columns: Sequence[Column], groups: tuple[int, int] | None, keep_bad: bool = False
    ) -> Iterator[Record]:
        """See `RecordReader`. The place is the whole file."""
        with input_errors(location.uri):
            data = location.read_bytes()
        values = tuple(convert(_decode_file(data), column=column, where=location.uri) for column in columns)
        yield Record(place=Place(start=0, stop=len(data)), where=location.uri, values=values)

    def fetch(self, location: Location, *, column: Column, places: Sequence[Place]) -> Iterator[tuple[Place, Value]]:
        """See `RecordReader`."""
        for record in self.read(location, columns=(column,), groups=None):
            yield from ((place, record.values[0]) for place in places)


@dataclass(frozen=True, slots=True, kw_only=True)
class NoReader:
    """Stands for the reader of a file in an unknown format."""

    def read(
        self, location: Location, *, columns: Sequence[Column], groups: tuple[int, int] | None, keep_bad: bool = False
    ) -> Iterator[Record]:
        """See `RecordReader`; always raises."""
        format_of(location.path, where=location.uri, remedy=UNKNOWN_REMEDY)
        return iter(())

    def fetch(self, location: Location, *, column: Column, places: Sequence[Place]) -> Iterator[tuple[Place, Value]]:
        """See `RecordReader`; always raises."""
        format_of(location.path, where=location.uri, remedy=UNKNOWN_REMEDY)
        return iter(())


def _decode_file(data: bytes) -> str | Unreadable:
    return decode(data[len(BOM) :] if data.startswith(BOM) else data)


READERS: Mapping[Format, RecordReader] = {
    Format.PARQUET: ColumnarReader(),
    Format.JSONL: JsonlReader(),
    Format.CSV: CsvReader(),
    Format.ARROW: ColumnarReader(),
    Format.TEXT: TextReader(),
    Format.UNKNOWN: NoReader(),
}
"""What reads each format."""
