"""A data file (Parquet, JSONL, CSV, Arrow, of a table of a lake) or text file, and the records that it holds."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from string import Formatter

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.formats.columnar import (
    GroupedFile,
    group_records,
    open_grouped,
    plain_value,
    present_columns,
)
from memagent_batch.data.documents.formats.formats import GROUPED, UNKNOWN_REMEDY, Format, format_of
from memagent_batch.data.documents.formats.lines import (
    csv_names,
    is_compressed,
    jsonl_names,
    open_stream,
    read_csv,
    read_jsonl,
)
from memagent_batch.data.documents.formats.records import (
    BOM,
    EMPTY_TEXT,
    ColumnKind,
    Columns,
    FileColumn,
    InputColumn,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
    decode,
    missing_column,
    too_long,
)
from memagent_batch.data.documents.lake.table import LakeFile, TableColumns
from memagent_batch.data.documents.where import Condition, key_columns, matching_rows
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.masking import mask_urls

_CSV_SEPARATORS = {Format.CSV: ",", Format.TSV: "\t"}


@dataclass(frozen=True, slots=True, kw_only=True)
class DataFile:
    """A file that is read, and what is known of it before."""

    location: Location
    format: Format
    name: str = ""
    """The path below the folder of the sources; the id of a text."""
    num_bytes: int = 0
    groups: tuple[int, int] | None = None
    """The first row group to read and the one after the last; None for all."""
    keys: Mapping[str, pa.Scalar] = field(default_factory=dict)
    """Columns with one value in all rows: keys of its folders, or of its partition in a table of a lake."""
    number_keys: frozenset[str] | None = None
    """Those of the keys of folders that a condition compares as numbers."""
    lake_file: LakeFile | None = None
    """What the log of its table says of it; None if it is not of a table."""
    lake_columns: TableColumns = field(default_factory=dict)
    """The columns of its table."""
    lake_uri: str = ""
    """The table, for messages."""

    def columns(self, columns: Columns) -> list[FileColumn]:
        """Returns the columns with what folders or the table of a lake say of them.

        Raises:
            InputError: the table lacks one. Its files may still have it, from before it was dropped.
        """
        return [self._column(each) for each in columns]

    def _column(self, column: InputColumn) -> FileColumn:
        name, is_optional = column.name, column.presence is Presence.OPTIONAL
        may_lack = is_optional or column.presence is Presence.SOME_FILE
        key = self.keys.get(name)
        if self.lake_file is None:
            if key is not None:
                return FileColumn(column=column, stored_as=None, constant=plain_value(key), may_lack=True)
            return FileColumn(column=column, stored_as=name, may_lack=may_lack, keys=tuple(self.keys))
        table = self.lake_columns.get(name)
        if table is None and not is_optional:
            raise missing_column(column, there=list(self.lake_columns), where=self.lake_uri)
        if table is None:
            return FileColumn(column=column, stored_as=None, may_lack=True)
        constant = table.default if key is None else plain_value(key)
        stored_as = table.stored_as or name
        return FileColumn(column=column, stored_as=stored_as, constant=constant, may_lack=True, in_table=table)


def read_records(
    file: DataFile, *, columns: Columns, where: Condition | None = None, keep_bad: bool = False
) -> Iterator[Record]:
    """Streams the records of a file; the first column of a text file is its name, the second its text.

    Args:
        file: The file.
        columns: The columns whose values are wanted.
        where: The condition on the rows of files with row groups.
        keep_bad: Whether a record that can't be read comes with its error, if those behind it can be.

    Raises:
        InputError: the file, a column or a value can't be read.
    """
    if file.format is Format.UNKNOWN:
        format_of(file.location.path, where=file.location.uri, remedy=UNKNOWN_REMEDY)  # says why it can't be read
    found = file.columns(columns)
    if file.format is Format.TEXT:
        yield _text_record(file, found)
    elif file.format is Format.JSONL:
        yield from read_jsonl(file.location, columns=found, keep_bad=keep_bad)
    elif file.format not in GROUPED:
        separator = _CSV_SEPARATORS[file.format]
        yield from read_csv(file.location, columns=found, separator=separator, keep_bad=keep_bad)
    else:
        try:
            yield from _grouped_records(file, columns=found, where=where, keep_bad=keep_bad)
        except InputUnreachableError as error:
            if file.lake_file is None or not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise InputUnreachableError(
                f"{mask_urls(file.lake_uri)}: {file.location} is not there; a vacuum removes files of old versions: "
                "name a newer version, or leave out @ to read the newest"
            ) from error


def column_names(file: DataFile) -> Sequence[str]:
    """Returns the names of all columns of a file; a text has none.

    Raises:
        InputError: the file can't be read.
    """
    if file.format is Format.TEXT:
        return ()
    if file.format is Format.JSONL:
        return jsonl_names(file.location)
    if file.format not in GROUPED:
        return csv_names(file.location, separator=_CSV_SEPARATORS[file.format])
    with open_grouped(file.location) as grouped:
        return tuple(grouped.schema.names)


def read_text(location: Location, *, max_bytes: int | None = None) -> str | Unreadable:
    """Reads a text file, unpacked. Of one that is too long, enough to see it; a file of a store takes one request."""
    with input_errors(location.uri):
        if location.is_local or is_compressed(location.path):
            with open_stream(location) as stream:
                data = stream.read(-1 if max_bytes is None else max_bytes + len(BOM) + 1)
        else:
            data = location.read_bytes()
    if max_bytes is not None and len(data) > max_bytes + len(BOM):
        return Unreadable(reason=too_long(max_bytes))
    return decode(data.removeprefix(BOM))


def _text_record(file: DataFile, columns: Sequence[FileColumn]) -> Record:
    """A text file as one record: its name as id, its text, and the `key=value` parts of its path."""
    where = file.location.uri
    for each in columns[2:]:
        if not each.may_lack:
            raise missing_in_text(each.column, where=where)
    max_bytes = columns[1].column.max_bytes
    is_too_long = max_bytes is not None and file.num_bytes > max_bytes + len(BOM)
    if max_bytes is not None and is_too_long and not is_compressed(file.location.path):
        text: str | Unreadable = Unreadable(reason=too_long(max_bytes))  # a store would send all of it
    else:
        text = read_text(file.location, max_bytes=max_bytes)
    values = [file.name, text, *(each.constant for each in columns[2:])]
    found = (column_value(value, column=each.column, where=where) for value, each in zip(values, columns, strict=True))
    return Record(place=(0, 0), where=where, values=tuple(found))


def missing_in_text(column: InputColumn, *, where: str) -> InputError:
    """Returns what is raised if a column is asked of text files."""
    return InputError(
        f"{where}: a text file has no column {column.name!r}; leave out {column.setting}, "
        "or write the documents as Parquet, JSONL or CSV"
    )


def _grouped_records(
    file: DataFile, *, columns: Sequence[FileColumn], where: Condition | None, keep_bad: bool
) -> Iterator[Record]:
    """Streams the records that count of a Parquet or Arrow file. Of other rows only the filter's columns are read."""
    uri = file.location.uri
    deleted = np.empty(0, np.int64) if file.lake_file is None else file.lake_file.deleted_rows
    with open_grouped(file.location) as grouped:
        present = present_columns(grouped.schema, columns=columns, where=uri)
        names = file.lake_columns or [*grouped.schema.names, *file.keys]
        filtered = [] if where is None else _filter_columns(file, where.columns_among(names), grouped)
        first, last = file.groups or (0, len(grouped.group_bytes()))
        start = sum(grouped.num_rows(group) for group in range(first)) if len(deleted) else 0
        for group in range(first, last):
            rows = None
            if where is not None:
                table = _filter_table(file, grouped, group, columns=filtered)
                rows = _matching_rows(table, where, there=file.lake_columns or grouped.schema.names, uri=uri)
            if len(deleted):
                rows = np.arange(grouped.num_rows(group), dtype=np.int64) if rows is None else rows
                rows = rows[~np.isin(rows, deleted - start)]
                start += grouped.num_rows(group)
            counted = None if rows is None else rows.tolist()
            yield from group_records(grouped, group, columns=present, rows=counted, where=uri, keep_bad=keep_bad)


def _matching_rows(table: pa.Table, where: Condition, *, there: Iterable[str], uri: str) -> npt.NDArray[np.int64]:
    """The rows of a row group that the condition takes. A file that lacks a column of it is refused.

    As SQL has it, the condition would not be true of rows without the column: all of the file would silently be left
    out, also because of a misspelled name.
    """
    try:
        return matching_rows(table, where, there=there)
    except InputError as error:
        raise InputError(f"{uri}: {error}") from error


def _filter_columns(file: DataFile, names: Sequence[str], grouped: GroupedFile) -> list[FileColumn]:
    wanted = carried_columns(names, setting="input.where")
    return present_columns(grouped.schema, columns=file.columns(wanted), where=file.location.uri)


def _filter_table(file: DataFile, grouped: GroupedFile, group: int, *, columns: Sequence[FileColumn]) -> pa.Table:
    """The columns of a condition in one row group: those of the file, and the keys."""
    of_file = [each for each in columns if each.stored_as and each.column.name not in file.keys]
    stored = {each.column.name: each.stored_as or "" for each in of_file}
    table = grouped.read_group(group, names=[*stored.values()]).select([*stored.values()]).rename_columns([*stored])
    names = {each.column.name: each.constant for each in columns if each.column.name not in stored}
    others = {name: file.keys.get(name, pa.scalar(constant)) for name, constant in names.items()}
    for name, value in zip(others, key_columns([others], numbers=file.number_keys).columns, strict=True):
        table = table.append_column(name, pa.repeat(value[0], grouped.num_rows(group)))
    return table


def why_unreadable(text: Value) -> str:
    """Why a document can't be read; empty if it can.

    One of white space alone can't be: what is said of it would look like an answer out of a whole text.
    """
    if isinstance(text, str):
        return EMPTY_TEXT if not text or text.isspace() else ""
    return text.reason if isinstance(text, Unreadable) else "the text is null"


def id_column(settings: InputConfig) -> InputColumn:
    """The column with the id of a document."""
    return InputColumn(
        name=settings.document_id_column,
        kind=ColumnKind.IDENTIFIER,
        presence=Presence.EVERY,
        setting="input.document_id_column",
    )


def text_column(settings: InputConfig) -> InputColumn:
    """The column with the text."""
    return InputColumn(
        name=settings.text_column,
        kind=ColumnKind.DOCUMENT,
        presence=Presence.SOME,
        setting="input.text_column",
        is_part=bool(settings.order_columns),
        max_bytes=settings.max_document_bytes,
    )


def shown_columns(settings: InputConfig) -> list[InputColumn]:
    """The columns that header and locator of a row name, in this order, each as often as they do."""
    return [
        *carried_columns(template_columns(settings.header or ""), setting="input.header"),
        *carried_columns(template_columns(settings.locator or ""), setting="input.locator"),
    ]


def carried_columns(names: Sequence[str], *, setting: str) -> list[InputColumn]:
    """Columns of any type that every file must have."""
    return [InputColumn(name=name, kind=ColumnKind.CARRIED, presence=Presence.SOME, setting=setting) for name in names]


@lru_cache(maxsize=8)
def template_columns(template: str) -> tuple[str, ...]:
    """Names of the columns in a template such as `page {page}`."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)
