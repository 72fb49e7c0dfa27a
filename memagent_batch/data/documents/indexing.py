"""Reads the records of one file of the documents, whatever its format."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.data.documents.formats.byte_lines import is_compressed
from memagent_batch.data.documents.formats.columnar import GroupedFile, group_records, open_grouped, present_columns
from memagent_batch.data.documents.formats.formats import GROUPED, READERS, UNKNOWN_REMEDY, Format, format_of
from memagent_batch.data.documents.formats.records import (
    BOM,
    EMPTY_TEXT,
    ColumnKind,
    Columns,
    InputColumn,
    Place,
    Presence,
    Record,
    Unreadable,
    Value,
    column_value,
    too_long,
)
from memagent_batch.data.documents.lake.table import partition_values, stored_columns, with_partition
from memagent_batch.data.documents.rows import template_columns
from memagent_batch.data.documents.shards import SHARD_BYTES, Shard
from memagent_batch.data.documents.where import Condition, key_columns, matching_rows
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.masking import mask_urls

TEXT_THREADS = 16
NOTHING_DELETED: npt.NDArray[np.int64] = np.empty(0, np.int64)


def why_unreadable(text: Value) -> str:
    """Why a document can't be read; empty if it can.

    One of white space alone can't be: what is said of it would look like an answer out of a whole text.
    """
    if isinstance(text, str):
        return EMPTY_TEXT if not text or text.isspace() else ""
    return text.reason if isinstance(text, Unreadable) else "the text is null"


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
    header, locator = template_columns(settings.header or ""), template_columns(settings.locator or "")
    return [
        *_carried_columns(header, setting="input.header"),
        *_carried_columns(locator, setting="input.locator"),
    ]


def _carried_columns(names: Sequence[str], *, setting: str) -> list[InputColumn]:
    return [InputColumn(name=name, kind=ColumnKind.CARRIED, presence=Presence.SOME, setting=setting) for name in names]


def document_records(
    location: Location, *, name: str, shard: Shard, settings: InputConfig, columns: Columns
) -> Iterator[Record]:
    """Records of one file with the values of columns, id and text first; the id of a text file is its name.

    Raises:
        InputError: the file, a column or a value can't be read.
    """
    if shard.format is Format.UNKNOWN:
        format_of(location.path, where=location.uri, remedy=UNKNOWN_REMEDY)  # says why it can't be read
    if shard.format is Format.TEXT:
        columns = present_in_shard(columns, location, shard=shard)
        yield from _text_records(location, columns=columns, name=name, shard=shard)
    else:
        yield from table_records(location, columns=columns, shard=shard, settings=settings)


def table_records(location: Location, *, columns: Columns, shard: Shard, settings: InputConfig) -> Iterator[Record]:
    """Records of one file that has columns, with the values of these.

    Raises:
        InputError: the file, a column or a value can't be read.
    """
    columns = present_in_shard(columns, location, shard=shard)
    keep_bad = settings.on_bad_file == OnBadFile.RECORD
    if shard.format not in GROUPED:
        yield from READERS[shard.format].read(location, columns=columns, keep_bad=keep_bad)
    else:
        where = None if settings.where is None else Condition(text=settings.where)
        try:
            yield from _grouped_records(location, columns=columns, shard=shard, where=where, keep_bad=keep_bad)
        except InputUnreachableError as error:
            if location.path not in shard.table_files or not isinstance(error.__cause__, FileNotFoundError):
                raise
            raise InputUnreachableError(
                f"{mask_urls(shard.documents)}: {location} is not there; a vacuum removes files of old versions: name "
                "a newer version, or leave out @ to read the newest"
            ) from error


def shard_keys(location: Location, *, shard: Shard) -> Mapping[str, pa.Scalar]:
    """The columns that have one value in all rows of a file: keys of its folders, or of its partition in a table."""
    file = shard.table_files.get(location.path)
    return partition_values(location.path, root=shard.root) if file is None else file.values


def present_in_shard(columns: Columns, location: Location, *, shard: Shard) -> list[InputColumn]:
    """The columns with what folders or the table of a lake say of them for one file."""
    keys = shard_keys(location, shard=shard)
    if location.path not in shard.table_files:
        return with_partition(columns, keys) if keys else list(columns)
    return stored_columns(columns, table=shard.table_columns, values=keys, where=shard.documents)


def _text_records(location: Location, *, columns: Columns, name: str, shard: Shard) -> Iterator[Record]:
    """Yields a text file as one record: its name as id, its text, and the `key=value` parts of its path."""
    others = columns[2:]
    lacking = next((column for column in others if column.absent is None), None)
    if lacking is not None:
        raise InputError(
            f"{location.uri}: a text file has no column {lacking.name!r}; leave out {lacking.setting}, "
            "or write the documents as Parquet, JSONL or CSV"
        )
    records, bound = READERS[Format.TEXT].read(location, columns=columns[1:2]), columns[1].max_bytes
    is_alone = shard.size_bytes > SHARD_BYTES and not is_compressed(location.path)
    if bound is not None and is_alone and shard.size_bytes > bound + len(BOM):  # a store would send all of it
        values = (Unreadable(reason=too_long(bound)),)
        records = iter([Record(place=Place(start=0, stop=shard.size_bytes), where=location.uri, values=values)])
    for record in records:
        document_id = column_value(name, column=columns[0], where=record.where)
        keys: list[Value] = [column_value(column.substitute, column=column, where=record.where) for column in others]
        yield replace(record, values=(document_id, *record.values, *keys))


def _grouped_records(
    location: Location, *, columns: Columns, shard: Shard, where: Condition | None, keep_bad: bool
) -> Iterator[Record]:
    """Streams the records that count of a Parquet or Arrow file. Of other rows only the filter's columns are read."""
    described = shard.table_files.get(location.path)
    deleted = described.deleted_rows if described is not None else NOTHING_DELETED
    with open_grouped(location) as file:
        present = present_columns(file.schema, columns=columns, where=location.uri)
        filtered = [] if where is None else _filter_columns(file, where, location=location, shard=shard)
        first, last = shard.groups or (0, len(file.group_bytes))
        start = sum(file.num_rows(group) for group in range(first)) if len(deleted) else 0
        for group in range(first, last):
            rows = None
            if where is not None:
                table = _filter_table(file, group, columns=filtered, location=location, shard=shard)
                rows = matching_rows(table, where, there=shard.table_columns or file.schema.names)
            if len(deleted):
                rows = np.arange(file.num_rows(group), dtype=np.int64) if rows is None else rows
                rows = rows[~np.isin(rows, deleted - start)]
                start += file.num_rows(group)
            counted = None if rows is None else rows.tolist()
            yield from group_records(file, group, columns=present, rows=counted, where=location.uri, keep_bad=keep_bad)


def _filter_columns(file: GroupedFile, where: Condition, *, location: Location, shard: Shard) -> list[InputColumn]:
    names = where.columns_among(shard.table_columns or [*file.schema.names, *shard_keys(location, shard=shard)])
    wanted = _carried_columns(names, setting="input.where")
    return present_columns(file.schema, columns=present_in_shard(wanted, location, shard=shard), where=location.uri)


def _filter_table(file: GroupedFile, group: int, *, columns: Columns, location: Location, shard: Shard) -> pa.Table:
    keys = shard_keys(location, shard=shard)
    stored = {column.name: column.stored_as for column in columns if column.stored_as and column.name not in keys}
    table = file.whole(group, names=[*stored.values()]).select([*stored.values()]).rename_columns([*stored])
    others = {each.name: keys.get(each.name, pa.scalar(each.substitute)) for each in columns if each.name not in stored}
    for name, value in zip(others, key_columns([others], numbers=shard.number_keys).columns, strict=True):
        table = table.append_column(name, pa.repeat(value[0], file.num_rows(group)))
    return table
