"""The documents of an output as its table `documents` holds them: their index for a plan, and their texts.

Parquet files are read row group by row group, so that memory does not grow with the table. A place is a file of the
table, a row group of it, and a row of that.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import groupby
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.documents.converted import source_columns
from memagent_batch.documents.document_index import CARRY_PREFIX, INDEX_SCHEMA
from memagent_batch.domain.texts.locators import LocatedRow
from memagent_batch.ingest.tables import DOCUMENTS, DOCUMENTS_TABLE
from memagent_batch.store.database import on_disk
from memagent_batch.store.delta import OutputTable, TableFile
from memagent_batch.store.errors import table_errors
from memagent_batch.store.location import Location

FILES_AT_ONCE = 16
"""Files whose index is read at once: an object store takes some 50 ms for each request."""
BUFFER_BYTES = 1024 * 1024
"""Buffer of a Parquet column, which is never held as a whole."""
TEXT_REQUEST_BYTES, INDEX_REQUEST_BYTES = 4 * 1024 * 1024, 256 * 1024
"""Least size of a request to an object store. The columns of an index are short, with texts between them."""
_SOURCE_COLUMNS = ["source", "source_hash", "source_read", "losses"]
_PLAIN_COLUMNS = ["document_id", "text_hash", "num_bytes", "error", "error_type"]
_REMEDY = "its version of the table `documents` was removed; repeat the command, which takes the latest version"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """The text of a document."""

    row: int
    """Row in the table of places that was given, from 0."""
    text: str
    """Empty where only parts were asked for."""
    parts: Sequence[LocatedRow]
    """Where its parts stand in the text, with their places in the source."""


def read_index(output: Location, *, version: int | None = None) -> pa.Table:
    """Reads the index of a version of the documents, by default the latest: all but their texts.

    Returns:
        A table in a temporary file: `INDEX_SCHEMA`, and `carry:<name>` for the columns of the source and the carried
        columns. The rows are in the order of their places.

    Raises:
        OutputError: there is no such table or version, or a file can't be read.
    """
    table = OutputTable(output=output, name=DOCUMENTS_TABLE)
    carried = carried_fields(table.schema(version))
    schema = pa.schema([*INDEX_SCHEMA, *source_columns(DOCUMENTS.empty_table()).schema, *carried])

    def index_file(file: TableFile) -> list[pa.Table]:
        return list(_index_groups(table.place, file, carried=carried))

    files = [file for _, file in sorted(table.files(version).items())]
    tables = (each.cast(schema) for each in _map_files(index_file, files, is_local=output.is_local))
    return on_disk(tables, schema=schema)


def carried_fields(schema: pa.Schema) -> list[pa.Field]:
    """Returns the carried columns of a table `documents`, with the names that they have in an index."""
    others = [field for field in schema if field.name not in DOCUMENTS.names]
    return [field.with_name(CARRY_PREFIX + field.name).remove_metadata() for field in others]


def find_places(output: Location, hashes: Mapping[str, str], *, version: int | None = None) -> pa.Table:
    """Finds documents by their ids and the hashes of their texts.

    Returns:
        Columns document_id, file, row_group and row; without the documents that the version does not have.
    """
    table = OutputTable(output=output, name=DOCUMENTS_TABLE)
    names, texts = (pa.array(values, pa.large_string()) for values in (hashes.keys(), hashes.values()))

    def find_in_file(file: TableFile) -> list[pa.Table]:
        found = []
        for rows in _read_groups(table.place, file, columns=["document_id", "text_hash"]):
            wanted_row = pc.index_in(rows["document_id"].cast(pa.large_string()), value_set=names)
            is_same = pc.equal(rows["text_hash"].cast(pa.large_string()), texts.take(wanted_row))
            found.append(rows.filter(pc.fill_null(is_same, False)).drop_columns(["text_hash"]))
        return found

    places = ["document_id", "file", "row_group", "row"]
    schema = pa.schema([INDEX_SCHEMA.field(name) for name in places])
    files = [file for _, file in sorted(table.files(version).items())] if hashes else []
    found = [each.select(places).cast(schema) for each in _map_files(find_in_file, files, is_local=output.is_local)]
    return pa.concat_tables([schema.empty_table(), *found])


def read_texts(output: Location, places: pa.Table, *, with_text: bool = True) -> Iterator[StoredText]:
    """Streams the texts of documents, each once, in the order of their places.

    One row group is held: some megabytes, or one long text.

    Args:
        output: The output.
        places: A table with the columns file, row_group and row.
        with_text: Whether texts are read; else only their parts.

    Raises:
        OutputError: a file is gone or damaged.
    """
    columns = [places[name].to_pylist() for name in ("file", "row_group", "row")]
    ordered = sorted((*place, number) for number, place in enumerate(zip(*columns, strict=True)))
    folder = OutputTable(output=output, name=DOCUMENTS_TABLE).place
    for path, in_file in groupby(ordered, key=itemgetter(0)):
        with _open_file(folder / path, request_bytes=TEXT_REQUEST_BYTES) as file:
            for group, in_group in groupby(in_file, key=itemgetter(1)):
                rows = file.read_row_group(
                    group, columns=["text", "parts"] if with_text else ["parts"], use_threads=False
                )
                for _, _, row, number in in_group:
                    text = rows["text"][row].as_py() if with_text else ""
                    yield StoredText(row=number, text=text, parts=_located(rows["parts"][row].values))


def _located(parts: pa.StructArray) -> tuple[LocatedRow, ...]:
    starts, ends, locators = (parts.field(name).to_pylist() for name in ("char_start", "char_end", "locator"))
    return tuple(
        LocatedRow(char_start=start, char_end=end, locator=locator or "")
        for start, end, locator in zip(starts, ends, locators, strict=True)
    )


def _map_files(
    read: Callable[[TableFile], list[pa.Table]], files: Sequence[TableFile], *, is_local: bool
) -> Iterator[pa.Table]:
    """Reads files, some at once where each request takes time; yields their tables in order."""
    with ThreadPoolExecutor(1 if is_local else FILES_AT_ONCE) as threads:
        for first in range(0, len(files), FILES_AT_ONCE):
            for tables in threads.map(read, files[first : first + FILES_AT_ONCE]):
                yield from tables


def _index_groups(folder: Location, file: TableFile, *, carried: Sequence[pa.Field]) -> Iterator[pa.Table]:
    """Reads the index of each row group of a file."""
    names = [field.name.removeprefix(CARRY_PREFIX) for field in carried]
    for rows in _read_groups(folder, file, columns=[*_PLAIN_COLUMNS, *_SOURCE_COLUMNS, *names]):
        columns = {
            "document_id": rows["document_id"],
            "document_hash": rows["text_hash"],
            **{name: rows[name] for name in INDEX_SCHEMA.names[2:]},
        }
        index = pa.table(columns)
        source = source_columns(rows)
        for field in source.schema:
            index = index.append_column(field, source[field.name])
        for field, name in zip(carried, names, strict=True):
            index = index.append_column(field, _carried_column(rows, file, name=name, kind=field.type))
        yield index


def _carried_column(rows: pa.Table, file: TableFile, *, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Returns a carried column: one of the file, the value of its partition, or null where it was added later."""
    if name in rows.schema.names:
        return rows[name].cast(kind)
    value = pa.scalar(file.partition.get(name), pa.string()).cast(kind)
    return pa.chunked_array([pa.repeat(value, rows.num_rows)])


def _read_groups(folder: Location, file: TableFile, *, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Reads columns of each row group of a file, as far as it has them, and the places of its rows."""
    with _open_file(folder / file.path, request_bytes=INDEX_REQUEST_BYTES) as parquet:
        there = [name for name in columns if name in parquet.schema_arrow.names]
        for group in range(parquet.metadata.num_row_groups):
            rows = parquet.read_row_group(group, columns=there, use_threads=False)
            rows = rows.append_column("file", pa.repeat(pa.scalar(file.path, pa.large_string()), rows.num_rows))
            rows = rows.append_column("row_group", pa.repeat(pa.scalar(group, pa.int32()), rows.num_rows))
            yield rows.append_column("row", pa.array(np.arange(rows.num_rows, dtype=np.int32)))


@contextmanager
def _open_file(place: Location, *, request_bytes: int) -> Iterator[pq.ParquetFile]:
    with table_errors(place.uri, remedy=_REMEDY):
        if place.is_local:
            stream = pa.OSFile(place.path)
        else:
            stream = pa.PythonFile(place.fs.open(place.path, "rb", block_size=request_bytes), mode="r")
        with stream, pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False) as file:
            yield file
