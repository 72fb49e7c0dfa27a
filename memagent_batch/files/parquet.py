"""Reads whole Parquet files of the project's own tables."""

from collections.abc import Sequence

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.files.location import Location


def read_parquet(place: Location, *, columns: Sequence[str] | None = None) -> pa.Table:
    """A whole file, read by the calling thread alone.

    Arrow's own threads free the buffers of a Python stream a moment after the table is there. Where the process ends
    in that moment, Python stops the thread in a destructor, and the process aborts: exit code 134 in place of its own.

    Raises:
        OSError: the file can't be read.
        ArrowException: it is no Parquet, or lacks a column.
    """
    with place.open() as stream, pq.ParquetFile(stream, pre_buffer=False) as file:
        return file.read(columns=None if columns is None else list(columns), use_threads=False)
