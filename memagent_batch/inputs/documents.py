"""Indexes the documents: reads their files, and makes a row of the index of each.

A text is in memory only while it is hashed, and later while it is tokenised (`texts.py`).
"""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from itertools import chain

import pyarrow as pa

from memagent_batch.config.sources import InputConfig, OnBadFile
from memagent_batch.domain.addresses import text_hash
from memagent_batch.errors import InputError, InputUnreachableError
from memagent_batch.files.location import Location
from memagent_batch.files.options import Options
from memagent_batch.inputs.document_index import BAD_FILE, IndexRow, index_schema, index_table, row_schema
from memagent_batch.inputs.document_records import document_records
from memagent_batch.inputs.formats.formats import Format
from memagent_batch.inputs.formats.records import Record, Unreadable, Value
from memagent_batch.inputs.lake.tables import documents_place
from memagent_batch.inputs.row_texts import row_text
from memagent_batch.inputs.shards import Shard
from memagent_batch.masking import shown_text

_INDEX_ROWS = 1024
"""Most rows of an index table."""
_INDEX_CHARS = 4 * 1024 * 1024
"""Most characters of questions and carried values in an index table, about."""
_CHECKED_CHARS = 1024 * 1024
"""Text of the first file that is read before a run starts, about, characters: some milliseconds."""
TEXT_THREADS = 16
"""Text files of a store that are read at once."""


def index_shard(shard: Shard, *, settings: InputConfig, storage_options: Options) -> Iterator[pa.Table]:
    """Streams the index of a shard, as tables of `index_schema`; at least one, which may be empty.

    Where documents have many rows, as tables of `row_schema`: a row of the input each.

    A text that is null or no valid Unicode gets a row with `error`; it concerns that document only.

    Raises:
        InputError: a file, a column, or any other value can't be read; with `on_bad_file: record` only where a file is
            gone or its store does not answer.
    """
    schema = row_schema(settings) if settings.order_columns else index_schema(settings)
    rows: list[IndexRow] = []
    num_chars = 0
    num_tables = 0
    documents = documents_place(shard.documents, storage_options)
    for row in _index_rows(documents, shard, settings=settings):
        rows.append(row)
        num_chars += row.long_chars
        if len(rows) >= _INDEX_ROWS or num_chars >= _INDEX_CHARS:
            yield index_table(rows, schema=schema)
            rows, num_chars, num_tables = [], 0, num_tables + 1
    if rows or not num_tables:
        yield index_table(rows, schema=schema)


def require_first_records(shard: Shard, *, settings: InputConfig, storage_options: Options) -> None:
    """Reads the first records of a shard's first file, so that a wrong column or format is refused at once.

    Raises:
        InputError: as `index_shard` does, where it would at these records.
    """
    place = documents_place(shard.documents, storage_options).at(shard.paths[0])
    num_chars = 0
    for record in document_records(place, name=shard.names[0], shard=shard, settings=settings):
        num_chars += sum(len(value) for value in record.values if isinstance(value, str))
        if num_chars > _CHECKED_CHARS:
            return


def _index_rows(documents: Location, shard: Shard, *, settings: InputConfig) -> Iterator[IndexRow]:
    """Rows of the index; text files of a store are read some at once, since each takes the time of a request."""
    read = partial(_file_rows, documents, shard=shard, settings=settings)
    if documents.is_local or shard.format is not Format.TEXT:
        yield from chain.from_iterable(map(read, shard.paths, shard.names))
        return
    with ThreadPoolExecutor(TEXT_THREADS) as threads:
        yield from chain.from_iterable(threads.map(lambda path, name: list(read(path, name)), shard.paths, shard.names))


def _file_rows(documents: Location, path: str, name: str, *, shard: Shard, settings: InputConfig) -> Iterator[IndexRow]:
    place = documents.at(path)
    bad = partial(IndexRow, path=path, format=shard.format, error_type=BAD_FILE)
    try:
        for record in document_records(place, name=name, shard=shard, settings=settings):
            if record.error is None:
                yield _index_row(record, path=path, format_=shard.format, settings=settings)
                continue
            in_file = record.where.removeprefix(place.uri).partition(" (")[0]
            yield bad(document_id=f"{name}{in_file}", error=shown_text(str(record.error)))
    except InputUnreachableError:
        raise
    except InputError as error:
        if settings.on_bad_file == OnBadFile.FAIL:
            raise
        groups = f", row groups {shard.groups[0]} to {shard.groups[1] - 1}" if shard.groups else ""
        yield bad(document_id=f"{name}{groups}", error=shown_text(str(error)))


def _index_row(record: Record, *, path: str, format_: Format, settings: InputConfig) -> IndexRow:
    document_id, text, *others = record.values
    question = None if settings.question_column is None else _text_or_null(others.pop(0))
    order: list[Value] = []
    row_hash = None
    if settings.order_columns:
        num_carried, num_order = len(settings.carry_columns), len(settings.order_columns)
        others, order, shown = others[:num_carried], others[num_carried:][:num_order], others[num_carried + num_order :]
        if isinstance(text, str):
            row = row_text(text, shown, settings=settings)
            text, row_hash = row.text, row.hash()
    return IndexRow(
        document_id=str(document_id),
        path=path,
        format=format_,
        place=record.place,
        document_hash=row_hash or (text_hash(text) if isinstance(text, str) else None),
        num_bytes=len(text.encode()) if isinstance(text, str) else 0,
        question=question,
        error=None if isinstance(text, str) else shown_text(f"{record.where}: {why_unreadable(text)}"),
        carried=dict(zip(settings.carry_columns, map(_text_or_null, others), strict=True)),
        order=tuple(map(str, order)),
    )


def why_unreadable(text: Value) -> str:
    """Why a value that is no text is none."""
    return text.reason if isinstance(text, Unreadable) else "the text is null"


def _text_or_null(value: Value) -> str | None:
    return value if isinstance(value, str) else None
