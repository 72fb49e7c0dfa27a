"""The records of documents in files of any format: with the keys of their partitions, and only those that count."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from string import Formatter

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.errors import InputError
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.formats import READERS, Format
from memagent_batch.inputs.formats.records import Column, Kind, Presence, Record, Value, column_value
from memagent_batch.inputs.lake.hive import partition_values, with_partition
from memagent_batch.inputs.lake.table import TableFile, stored_columns
from memagent_batch.inputs.selection import Selection, read_selected
from memagent_batch.inputs.shards import Shard
from memagent_batch.inputs.where.conditions import Condition, columns_of
from memagent_batch.inputs.where.parser import parse_where

_GROUPED = frozenset({Format.PARQUET, Format.ARROW, Format.TABLE})


def index_columns(settings: InputConfig) -> list[Column]:
    """The columns that are indexed: id, text, question where asked for, those to carry, and those of rows."""
    columns = [
        Column(
            name=settings.document_id_column,
            kind=Kind.IDENTIFIER,
            presence=Presence.EVERY,
            knob="input.document_id_column",
        ),
        text_column(settings),
    ]
    if settings.question_column is not None:
        name = settings.question_column
        columns.append(Column(name=name, kind=Kind.TEXT, presence=Presence.EVERY, knob="input.question_column"))
    carried = [
        Column(name=name, kind=Kind.CARRIED, presence=Presence.SOME, knob="input.carry_columns")
        for name in settings.carry_columns
    ]
    order = [
        Column(name=name, kind=Kind.ORDER, presence=Presence.EVERY, knob="input.order_columns")
        for name in settings.order_columns
    ]
    return [*columns, *carried, *order, *shown_columns(settings)]


def text_column(settings: InputConfig) -> Column:
    """The column with the text."""
    return Column(
        name=settings.text_column,
        kind=Kind.DOCUMENT,
        presence=Presence.SOME,
        knob="input.text_column",
        is_part=bool(settings.order_columns),
        max_bytes=settings.max_document_bytes,
    )


def shown_columns(settings: InputConfig) -> list[Column]:
    """The columns that header and locator of a row name, in this order, each as often as they do."""
    return [
        Column(name=name, kind=Kind.CARRIED, presence=Presence.SOME, knob=knob)
        for knob, template in (("input.header", settings.header), ("input.locator", settings.locator))
        for name in template_columns(template or "")
    ]


@lru_cache(maxsize=8)
def template_columns(template: str) -> tuple[str, ...]:
    """Names of the columns in a template such as `page {page}`."""
    return tuple(name for _, name, _, _ in Formatter().parse(template) if name is not None)


def document_records(location: Location, *, name: str, shard: Shard, settings: InputConfig) -> Iterator[Record]:
    """Records of one file with the values of `index_columns`; the id of a text file is its name.

    Raises:
        InputError: the file, a column or a value can't be read.
    """
    file = shard.table_files.get(location.path)
    values = partition_values(location.path, root=shard.root) if file is None else file.values
    columns = _present(index_columns(settings), shard=shard, file=file, values=values)
    keep_bad = settings.on_bad_file == OnBadFile.RECORD
    if shard.format is Format.TEXT:
        yield from _text_records(location, columns=columns, name=name)
        return
    selection = _selection(shard, file=file, values=values, settings=settings)
    if selection is None:
        yield from READERS[shard.format].read(location, columns=columns, groups=shard.groups, keep_bad=keep_bad)
        return
    yield from read_selected(location, columns=columns, groups=shard.groups, selection=selection, keep_bad=keep_bad)


def _present(
    columns: Sequence[Column], *, shard: Shard, file: TableFile | None, values: Mapping[str, pa.Scalar]
) -> list[Column]:
    if file is None:
        return with_partition(columns, values) if values else list(columns)
    return stored_columns(columns, table=shard.table_columns, values=values, where=shard.documents)


def _selection(
    shard: Shard, *, file: TableFile | None, values: Mapping[str, pa.Scalar], settings: InputConfig
) -> Selection | None:
    """What is to be left out of a file; None where nothing is."""
    where = parsed_where(settings)
    if shard.format not in _GROUPED or (where is None and not (file and file.deleted)):
        return None
    names = sorted(columns_of(where)) if where is not None else []
    columns = [Column(name=name, kind=Kind.CARRIED, presence=Presence.SOME, knob="input.where") for name in names]
    return Selection(
        where=where,
        columns=_present(columns, shard=shard, file=file, values=values),
        values={name: value for name, value in values.items() if name in names},
        deleted=(file or TableFile(path="", size_bytes=0)).deleted_rows,
    )


def parsed_where(settings: InputConfig) -> Condition | None:
    """The filter of the settings, if there is one."""
    return None if settings.where is None else _parsed(settings.where)


_parsed = lru_cache(maxsize=8)(parse_where)


def _text_records(location: Location, *, columns: Sequence[Column], name: str) -> Iterator[Record]:
    """The one record of a text file: its name, its text, and the keys of its folders."""
    others = columns[2:]
    lacking = next((column for column in others if column.absent is None), None)
    if lacking is not None:
        raise InputError(
            f"{location.uri}: a text file has no column {lacking.name!r}; leave out {lacking.option}, "
            "or write the documents as Parquet, JSONL or CSV"
        )
    for record in READERS[Format.TEXT].read(location, columns=columns[1:2], groups=None):
        document_id = column_value(name, column=columns[0], where=record.where)
        keys: list[Value] = [column_value(column.substitute, column=column, where=record.where) for column in others]
        yield replace(record, values=(document_id, *record.values, *keys))
