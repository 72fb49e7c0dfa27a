"""Reads and writes whole Parquet files of the project's own tables."""

import io
from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.data.store.location import Location


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
