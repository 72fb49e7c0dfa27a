"""Parquet files: opened to be read by row groups, read as a whole, and written."""

import io
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.data.store.location import Location

BUFFER_BYTES = 1024 * 1024
"""Buffer of a Parquet column, which is never held as a whole."""
REQUEST_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store."""


@contextmanager
def open_parquet(place: Location, *, request_bytes: int = REQUEST_BYTES) -> Iterator[pq.ParquetFile]:
    """Opens a Parquet file whose columns and row groups are read apart, by the calling thread alone."""
    with open_native(place, request_bytes=request_bytes) as stream:
        yield pq.ParquetFile(stream, buffer_size=BUFFER_BYTES, pre_buffer=False)


def open_native(place: Location, *, request_bytes: int = REQUEST_BYTES) -> pa.NativeFile:
    """Opens a file for Arrow's readers."""
    if place.is_local:
        return pa.OSFile(place.path)
    return pa.PythonFile(place.fs.open(place.path, "rb", block_size=request_bytes), mode="r")


def read_parquet(place: Location, *, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole file, read by the calling thread alone.

    Arrow's own threads free the buffers of a Python stream a moment after the table is there. Where the process ends
    in that moment, Python stops the thread in a destructor, and the process aborts: exit code 134 in place of its own.
    """
    with place.open() as stream, pq.ParquetFile(stream, pre_buffer=False) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)


def parquet_bytes(table: pa.Table, *, group_rows: int | None = None) -> bytes:
    """The table as one Parquet file, zstd; in row groups of so many rows."""
    sink = io.BytesIO()
    pq.write_table(table, sink, compression="zstd", row_group_size=group_rows)
    return sink.getvalue()
