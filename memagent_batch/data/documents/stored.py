"""The documents of an output as its table `documents` holds them: their index for a plan, and their texts.

Parquet files are read row group by row group, so that memory does not grow with the table. A place is a file of the
table, a row group of it, and a row of that.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import chain, groupby, islice
from operator import itemgetter

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from memagent_batch.config.sources import InputConfig
from memagent_batch.data.documents.document_index import (
    CARRY_PREFIX,
    INDEX_SCHEMA,
    SampledDocuments,
    source_columns,
    split_documents,
)
from memagent_batch.data.documents.scope import WHERE_PREFIX, is_inside
from memagent_batch.data.ingest.tables import DOCUMENTS, DOCUMENTS_TABLE
from memagent_batch.data.store.database import on_disk
from memagent_batch.data.store.delta import OutputTable, TableFile
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import REQUEST_BYTES, open_parquet
from memagent_batch.errors import InputError
from memagent_batch.loop.texts.locators import LocatedRow

FILES_AT_ONCE = 16
"""Files of an object store whose index is read and held at once: a store takes some 50 ms for each request."""
SMALL_ROWS = 65_536
"""Most rows of a file that is held whole. Larger files, and files on a disk, are read a row group at a time."""
INDEX_REQUEST_BYTES = 256 * 1024
"""Smallest request to an object store when the short columns are read, bytes. Texts lie between them in the file."""
_IS_INSIDE = "is_inside"
_STORED_NAMES = {"document_hash": "text_hash"}
"""Columns of the index by other names in the table."""
_INDEX_COLUMNS = [
    *("document_id", "text_hash", "num_bytes", "error", "error_type", "parts_hash"),
    *("source", "source_hash", "reader", "source_read", "losses"),
]
_REMEDY = "its version of the table `documents` was removed; repeat the command, which takes the latest version"


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredText:
    """The text of a document."""

    row: int
    """Row in the table of places that was given, from 0."""
    text: str
    """Empty where only parts were asked for."""
    parts: Sequence[LocatedRow]
    """The parts of the text: first and last character of each, and where it is in the source (a page, a sheet)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredDocuments:
    """A version of the documents of an output."""

    output: Location
    version: int | None = None
    """Version of the table; None for the latest."""
    files: tuple[Location, ...] | None = None
    """The files of the table as a plan has them, which commits nothing; by default those of the version."""
    schema: pa.Schema | None = None
    """The schema as a plan has it; by default that of the version."""

    @property
    def table(self) -> OutputTable:
        """The table."""
        return OutputTable(output=self.output, name=DOCUMENTS_TABLE)

    def read_index(self, settings: InputConfig) -> SampledDocuments:
        """Reads the index of the documents: all but their texts.

        Returns:
            Tables in temporary files, of the documents that the settings take by condition and slice, and of others.
            They have `INDEX_SCHEMA`, and `carry:<name>` for the columns of the source and the columns to carry. The
            rows are in the order of their places.

        Raises:
            InputError: there is no column of this name.
            OutputError: there is no such table or version, or a file can't be read.
        """
        fields = {field.name: field for field in self.schema or self.table.schema(self.version)}
        carried = [_carried_field(fields, name, where=self.output) for name in settings.carried.values()]
        columns = [*INDEX_SCHEMA, *source_columns(DOCUMENTS.empty_table()).schema, *carried]
        schema = pa.schema([*columns, pa.field(_IS_INSIDE, pa.bool_())])
        read = partial(_index_file, settings=settings, carried=carried, stored=[*fields])
        index = on_disk((each.cast(schema) for each in self._map_files(read)), schema=schema)
        is_taken = index[_IS_INSIDE]
        index = index.drop_columns([_IS_INSIDE])
        has_scope = settings.where is not None or settings.slice is not None
        return split_documents(index, is_taken) if has_scope else SampledDocuments(taken=index, outside=None)

    def find_places(self, hashes: Mapping[str, str]) -> pa.Table:
        """Finds documents by their ids and the hashes of their texts.

        Returns:
            Columns document_id, file, row_group and row; without the documents that the version does not have.
        """
        schema = pa.schema([INDEX_SCHEMA.field(name) for name in ("document_id", "file", "row_group", "row")])
        if not hashes:
            return schema.empty_table()
        names, texts = (pa.array(values, pa.large_string()) for values in (hashes.keys(), hashes.values()))
        find = partial(_find_in_file, names=names, texts=texts)
        found = [each.select(schema.names).cast(schema) for each in self._map_files(find)]
        return pa.concat_tables([schema.empty_table(), *found])

    def read_texts(self, places: pa.Table, *, with_text: bool = True) -> Iterator[StoredText]:
        """Streams the texts of documents, each once, in the order of their places.

        One row group is held: some megabytes, or one long text.

        Args:
            places: A table with the columns file, row_group and row.
            with_text: Whether texts are read; else only their parts.

        Raises:
            OutputError: a file is gone or damaged.
        """
        columns = [places[name].to_pylist() for name in ("file", "row_group", "row")]
        ordered = sorted((*place, number) for number, place in enumerate(zip(*columns, strict=True)))
        names, files = ["text", "parts"] if with_text else ["parts"], self._places()
        for path, in_file in groupby(ordered, key=itemgetter(0)):
            with _open_file(files.get(path, self.table.place / path), request_bytes=REQUEST_BYTES) as file:
                for group, in_group in groupby(in_file, key=itemgetter(1)):
                    rows = file.read_row_group(group, columns=names, use_threads=False)
                    for _, _, row, number in in_group:
                        text = rows["text"][row].as_py() if with_text else ""
                        yield StoredText(row=number, text=text, parts=_located(rows["parts"][row].values))

    def _places(self) -> dict[str, Location]:
        """The files of a plan by their names."""
        return {place.path.rpartition("/")[2]: place for place in self.files or ()}

    def _map_files(self, read: Callable[[tuple[TableFile, Location]], Iterable[pa.Table]]) -> Iterator[pa.Table]:
        """Yields what a function reads of each file, in their order; see `FILES_AT_ONCE`."""
        if self.files is None:
            of_table = self.table.files(self.version)
            files = [(file, self.table.place / path) for path, file in sorted(of_table.items())]
        else:
            files = [
                (TableFile(path=name, num_bytes=0, num_rows=0), place) for name, place in sorted(self._places().items())
            ]
        is_local = self.output.is_local
        with ThreadPoolExecutor(FILES_AT_ONCE) as threads:
            for is_held, group in groupby(files, key=lambda each: not is_local and each[0].num_rows <= SMALL_ROWS):
                if not is_held:
                    yield from chain.from_iterable(map(read, group))
                while held := [*islice(group, FILES_AT_ONCE)]:
                    yield from chain.from_iterable(threads.map(lambda each: [*read(each)], held))


def _carried_field(fields: Mapping[str, pa.Field], name: str, *, where: Location) -> pa.Field:
    if name not in fields:
        there = ", ".join(sorted(fields.keys() - {*DOCUMENTS.names})) or "none"
        raise InputError(f"input.carry_columns: the documents at {where} have no column {name!r}; they have: {there}")
    return fields[name].with_name(CARRY_PREFIX + name).remove_metadata()


def _index_file(
    placed: tuple[TableFile, Location], *, settings: InputConfig, carried: Sequence[pa.Field], stored: Sequence[str]
) -> Iterator[pa.Table]:
    """Reads the index of the documents of a file, and whether the settings take each: a table for each row group."""
    names = [field.name.removeprefix(CARRY_PREFIX) for field in carried]
    conditioned = [name for name in stored if name.startswith(WHERE_PREFIX)] if settings.where else []
    for rows in _read_groups(placed, columns=[*_INDEX_COLUMNS, *names, *conditioned]):
        columns = {name: rows[_STORED_NAMES.get(name, name)] for name in INDEX_SCHEMA.names}
        index = pa.table(columns)
        source = source_columns(rows)
        for field in source.schema:
            index = index.append_column(field, source[field.name])
        for field, name in zip(carried, names, strict=True):
            index = index.append_column(field, _carried_column(rows, placed[0], name=name, kind=field.type))
        yield index.append_column(_IS_INSIDE, pa.array(is_inside(rows, settings)))


def _find_in_file(placed: tuple[TableFile, Location], *, names: pa.Array, texts: pa.Array) -> Iterator[pa.Table]:
    for rows in _read_groups(placed, columns=["document_id", "text_hash"]):
        wanted_row = pc.index_in(rows["document_id"].cast(pa.large_string()), value_set=names)
        is_same = pc.equal(rows["text_hash"].cast(pa.large_string()), texts.take(wanted_row))
        yield rows.filter(pc.fill_null(is_same, False))


def _located(parts: pa.StructArray) -> tuple[LocatedRow, ...]:
    starts, ends, locators = (parts.field(name).to_pylist() for name in ("char_start", "char_end", "locator"))
    return tuple(
        LocatedRow(char_start=start, char_end=end, locator=locator or "")
        for start, end, locator in zip(starts, ends, locators, strict=True)
    )


def _carried_column(rows: pa.Table, file: TableFile, *, name: str, kind: pa.DataType) -> pa.ChunkedArray:
    """Returns a carried column: one of the file, the value of its partition, or null where it was added later."""
    if name in rows.schema.names:
        return rows[name].cast(kind)
    value = pa.scalar(file.partition.get(name), pa.string()).cast(kind)
    return pa.chunked_array([pa.repeat(value, rows.num_rows)])


def _read_groups(placed: tuple[TableFile, Location], *, columns: Sequence[str]) -> Iterator[pa.Table]:
    """Reads columns of each row group of a file, as far as it has them, and the places of its rows."""
    file, place = placed
    with _open_file(place, request_bytes=INDEX_REQUEST_BYTES) as parquet:
        there = [name for name in columns if name in parquet.schema_arrow.names]
        for group in range(parquet.metadata.num_row_groups):
            rows = parquet.read_row_group(group, columns=there, use_threads=False)
            rows = rows.append_column("file", pa.repeat(pa.scalar(file.path, pa.large_string()), rows.num_rows))
            rows = rows.append_column("row_group", pa.repeat(pa.scalar(group, pa.int32()), rows.num_rows))
            yield rows.append_column("row", pa.array(np.arange(rows.num_rows, dtype=np.int32)))


@contextmanager
def _open_file(place: Location, *, request_bytes: int) -> Iterator[pq.ParquetFile]:
    with table_errors(place.uri, remedy=_REMEDY), open_parquet(place, request_bytes=request_bytes) as file:
        yield file
