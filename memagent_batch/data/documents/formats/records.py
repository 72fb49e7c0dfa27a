"""Records: what the readers of all formats of data files yield, and the columns that they are asked for."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any

import pyarrow as pa

from memagent_batch.errors import InputError

BOM = b"\xef\xbb\xbf"
"""UTF-8 byte order mark, which some editors put first in a file; never part of a text."""

EMPTY_TEXT = "the text is empty"
"""Why a document without any character but white space can't be read."""


class ColumnKind(StrEnum):
    """What a column's values are."""

    DOCUMENT = "document"
    """The text of a document: one that can't be read concerns that document only."""
    TEXT = "text"
    IDENTIFIER = "identifier"
    """A text, or an integer, which becomes text."""
    REFERENCES = "references"
    """A text or a list of texts."""
    CARRIED = "carried"
    """Anything; becomes text."""
    TYPED = "typed"
    """Anything; keeps its type, which is that of `InputColumn.type`."""
    ORDER = "order"
    """A text or anything else as text, by which rows are put in order: of a time with a zone the time in UTC."""


class Presence(StrEnum):
    """Where a column must have values."""

    EVERY = "every"
    """Every record has a value that is not blank."""
    SOME = "some"
    """The file has the column; its values may be null."""
    SOME_FILE = "some file"
    """Some file of the input has the column; in a file that lacks it, all values are null."""
    OPTIONAL = "optional"
    """The file may lack the column; then all values are null."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table of a lake, as its files may have it."""

    stored_as: str | None = None
    """Name in the files, if it is not the table's."""
    field_id: int | None = None
    """In a file with such ids it goes before the name."""
    mapped_names: tuple[str, ...] | None = None
    """Its names in files without ids; None if the table maps no names."""
    default: str | int | None = None
    """Its value in files that were written before it was added."""


@dataclass(frozen=True, slots=True, kw_only=True)
class InputColumn:
    """A column to read."""

    name: str
    kind: ColumnKind
    presence: Presence
    """Which records must have a value."""
    setting: str = ""
    """Setting that names the column, for the remedy in messages; empty where the name is fixed."""
    max_bytes: int | None = None
    """Longest text of a document, in UTF-8, bytes; None for no bound."""
    type: pa.DataType = field(default_factory=pa.string)
    """Of a column of kind TYPED, the type that its values have in `documents`."""
    is_part: bool = False
    """Whether a text is one row of a document: then an empty field in CSV is a blank page, and else no text at all."""


Columns = Sequence[InputColumn]
"""Columns to read, in the order in which their values are wanted."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileColumn:
    """A column to read, as one file has it."""

    column: InputColumn
    stored_as: str | None
    """Its name in the file; None if the file lacks it, or has something else under its name."""
    constant: Any = None
    """Its value in all rows of a file that lacks it."""
    may_lack: bool = False
    """Whether a file without the column is taken: `constant` stands for it."""
    in_table: TableColumn | None = None
    """What its table says of it; None if it is not of a table of a lake."""
    keys: tuple[str, ...] = ()
    """Keys of the file's folders, which can be named as columns too."""

    def found_in(self, names: Sequence[str], *, where: str) -> "FileColumn":
        """Returns the column for a file with columns of these names.

        Raises:
            InputError: the file lacks it, or has it twice.
        """
        if self.stored_as is None:
            return self
        count = names.count(self.stored_as)
        if count > 1:
            raise InputError(f"{where} has {count} columns {self.stored_as!r}; rename all but one")
        if count == 0 and not self.may_lack:
            raise self.missing(names, where=where)
        return self if count else replace(self, stored_as=None)

    def missing(self, names: Sequence[str], *, where: str) -> InputError:
        """Returns what is raised if a file, which has columns of these names, lacks the column."""
        return missing_column(self.column, there=[*names, *self.keys], where=where)


def plain_columns(columns: Columns) -> list[FileColumn]:
    """Returns the columns for files of which nothing is known."""
    return [
        FileColumn(column=each, stored_as=each.name, may_lack=each.presence is Presence.OPTIONAL) for each in columns
    ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unreadable:
    """Stands for the text of a document that can't be read."""

    reason: str


Value = Any
"""A value of a record: text or None; a list of REFERENCES, `Unreadable` in place of a DOCUMENT, anything TYPED."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """One record of a file."""

    place: tuple[int, int]
    """Row group or record batch and the row in it, from 0; of a file of lines its first line, from 1, and 0."""
    where: str
    """The same for a person: file and row."""
    values: tuple[Value, ...]
    """Values, in the order of the columns that were asked for; none on error."""
    error: str | None = None
    """Why it can't be read; only where bad records are kept."""


def make_record(
    values: Callable[[], tuple[Value, ...]], *, place: tuple[int, int], where: str, keep_bad: bool
) -> Record:
    """Makes the record with these values; where they can't be read and bad records are kept, one with the error.

    Raises:
        InputError: a value can't be read, and bad records are not kept.
    """
    try:
        return Record(place=place, where=where, values=values())
    except InputError as error:
        if not keep_bad:
            raise
        return Record(place=place, where=where, values=(), error=str(error))


def column_value(value: object, *, column: InputColumn, where: str, is_typed: bool = False) -> Value:
    """Returns a value that a reader found (str, Unreadable, None or another object), as the column's kind wants it.

    `is_typed`: whether a value of kind TYPED has its type already.

    Raises:
        InputError: the value is null or blank where it must not be, of a wrong type, or no valid Unicode.
    """
    if column.presence is Presence.EVERY and (value is None or (isinstance(value, str) and not value.strip())):
        state = "null" if value is None else "empty"
        raise InputError(f"{where}: column {column.name!r} is {state}; give every row a value")
    if value is None:
        return None
    if column.kind is ColumnKind.DOCUMENT and isinstance(value, Unreadable):
        return value
    if column.kind is ColumnKind.TYPED and not pa.types.is_string(column.type):
        return value if is_typed else _typed_value(value, column=column, where=where)
    if isinstance(value, Unreadable):
        raise InputError(f"{where}: column {column.name!r} can't be read: {value.reason}; write it as UTF-8")
    if column.kind is ColumnKind.REFERENCES and isinstance(value, list):
        return [_require_text(item, column=column, where=where) for item in value]
    if column.kind is ColumnKind.DOCUMENT and isinstance(value, str):
        reason = _text_fault(value, max_bytes=column.max_bytes)
        return Unreadable(reason=reason) if reason else value
    return _require_text(value, column=column, where=where)


def _require_text(value: object, *, column: InputColumn, where: str) -> str:
    if column.kind in (ColumnKind.CARRIED, ColumnKind.TYPED, ColumnKind.ORDER) and not isinstance(value, str):
        value = _json_text(value, column=column, where=where)
    if (
        column.kind in (ColumnKind.IDENTIFIER, ColumnKind.REFERENCES)
        and isinstance(value, int)
        and not isinstance(value, bool)
    ):
        value = str(value)
    if not isinstance(value, str):
        raise wrong_type(type(value).__name__, column=column, where=where)
    if reason := _text_fault(value):
        raise InputError(f"{where}: column {column.name!r} can't be read: {reason}; write it as valid Unicode")
    return value


def _typed_value(value: object, *, column: InputColumn, where: str) -> Value:
    """The value, if the column's type can hold it; a text that names a value of the type becomes that value."""
    try:
        scalar = pa.scalar(value)
        return scalar.cast(column.type).as_py() if scalar.type != column.type else value
    except (pa.ArrowException, TypeError) as error:
        raise InputError(
            f"{where}: column {column.name!r} has {value!r}, which is not of the type {column.type} that it has in "
            "other rows; write it with one type in all files, or leave it out"
        ) from error


def _json_text(value: object, *, column: InputColumn, where: str) -> str:
    if type(value) is int or not isinstance(value, bool | int | float | dict | list):
        return str(value)
    try:
        return json.dumps(value, ensure_ascii=False, default=str)
    except RecursionError as error:
        raise InputError(f"{where}: column {column.name!r} is nested too deeply; write it as text") from error


def _text_fault(text: str, *, max_bytes: int | None = None) -> str:
    """Why a text can't be written as UTF-8 of this length; empty if it can."""
    try:
        num_bytes = len(text.encode())
    except UnicodeEncodeError as error:
        return f"lone surrogate at character {error.start + 1}"
    return too_long(max_bytes) if max_bytes is not None and num_bytes > max_bytes else ""


def too_long(max_bytes: int) -> str:
    """Why a text is not read that is longer than the bound."""
    return f"it has more than {max_bytes:,} bytes, the bound of input.max_document_bytes"


def text_bound(columns: Sequence[FileColumn]) -> int | None:
    """Most bytes of the text of a document among these columns; None for no bound."""
    return next((each.column.max_bytes for each in columns if each.column.max_bytes is not None), None)


def decode(data: bytes) -> str | Unreadable:
    """UTF-8 bytes as text; a byte order mark stays, since only a file can have one."""
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        return Unreadable(reason=f"invalid UTF-8 at byte {error.start + 1}")


def wrong_type(type_name: str, *, column: InputColumn, where: str) -> InputError:
    """What is raised if a column is of a type that can't be used."""
    wanted = "text or integers" if column.kind is ColumnKind.IDENTIFIER else "text"
    remedy = f", or name another column with {column.setting}" if column.setting else ""
    return InputError(f"{where}: column {column.name!r} holds {type_name}, not {wanted}; write it as text{remedy}")


def missing_column(column: InputColumn, *, there: Sequence[str], where: str) -> InputError:
    """What is raised if a column is not in the file."""
    remedy = f"name the right one with {column.setting}" if column.setting else "add or rename one"
    names = ", ".join(repr(name) for name in dict.fromkeys(there)) or "none"
    return InputError(f"{where} has no column {column.name!r}; its columns: {names}; {remedy}")
