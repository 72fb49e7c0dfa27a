"""The file formats of inputs, and the endings of their names."""

import posixpath
from collections.abc import Mapping
from enum import StrEnum

from memagent_batch.data.documents.formats.lines import COMPRESSIONS
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
    return _format_named(name) is Format.TEXT


def is_data_file(name: str) -> bool:
    """Whether a name, or a pattern of names, has the ending of a file whose rows are documents."""
    return _format_named(name) not in (None, Format.TEXT)


def _format_named(name: str) -> Format | None:
    return _ENDINGS.get(posixpath.splitext(format_ending(name).lower())[0])
