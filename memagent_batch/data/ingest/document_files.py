"""Parquet files of `documents`: written row by row by tasks, and written again without some of their rows."""

from collections.abc import Collection, Iterable, Iterator, Mapping
from hashlib import file_digest
from pathlib import Path
from tempfile import NamedTemporaryFile
from types import TracebackType
from typing import Any, Self

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.data.store.delta import HASH_DIGITS, TableFile
from memagent_batch.data.store.errors import storage_errors
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import open_parquet

FILE_BYTES, FILE_ROWS = 256 << 20, 1 << 20
"""Size and rows from which a file takes no more rows: it is written again when one of its documents changes."""
GROUP_BYTES = 4 << 20
"""Text of a row group from which it takes no more rows, bytes: one document is read with few others."""
GROUP_ROWS = 8192
"""Most rows of a row group."""


class DocumentWriter:
    """Writes rows of `documents` to one file after another; holds one row group.

    Each file is written to a temporary one of this machine first: its name in the table ends with its hash.
    """

    def __init__(self, folder: Location, *, schema: pa.Schema, stem: str) -> None:
        self.files: list[TableFile] = []
        """The files that are complete."""
        self._folder, self._schema, self._stem = folder, schema, stem
        self._rows: list[Mapping[str, Any]] = []
        self._copied: list[pa.Table] = []
        self._num_bytes = 0
        self._file: Any = None
        self._writer: pq.ParquetWriter | None = None
        self._num_rows = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Completes the last file, unless an error ends the task."""
        if kind is None:
            self._flush()
            self._complete()
        elif self._writer is not None:
            self._writer.close()
            self._file.close()

    def write(self, row: Mapping[str, Any]) -> None:
        """Adds a row."""
        self._rows.append(row)
        self._num_bytes += row["num_bytes"]
        if self._num_bytes >= GROUP_BYTES or len(self._rows) == GROUP_ROWS:
            self._flush()

    def copy(self, rows: pa.Table) -> None:
        """Adds rows of the table's schema; those of small row groups come into one."""
        self._copied.append(rows)
        if sum(each.nbytes for each in self._copied) >= GROUP_BYTES:
            self._flush()

    def _write_group(self, rows: pa.Table) -> None:
        if self._writer is None:
            self._file = NamedTemporaryFile(prefix="memagent-", suffix=".parquet")  # noqa: SIM115 - closed when complete
            self._writer = pq.ParquetWriter(self._file, self._schema, compression="zstd")
        self._writer.write_table(rows, row_group_size=GROUP_ROWS)
        self._num_rows += rows.num_rows
        if self._file.tell() >= FILE_BYTES or self._num_rows >= FILE_ROWS:
            self._complete()

    def _flush(self) -> None:
        rows = pa.concat_tables([*self._copied, pa.Table.from_pylist(self._rows, schema=self._schema)])
        self._rows, self._copied, self._num_bytes = [], [], 0
        if rows.num_rows:
            self._write_group(rows)

    def _complete(self) -> None:
        if self._writer is None:
            return
        self._writer.close()
        self._file.flush()
        path = Path(self._file.name)
        with path.open("rb") as stream:
            digest = file_digest(stream, "sha256").hexdigest()
        name, size = f"{self._stem}-{digest[:HASH_DIGITS]}.parquet", path.stat().st_size
        (self._folder / name).write_file(path)
        self._file.close()
        self.files.append(TableFile(path=name, num_bytes=size, num_rows=self._num_rows))
        self._writer, self._num_rows = None, 0


def read_row_groups(
    place: Location, *, columns: Collection[str] | None = None, groups: Iterable[int] | None = None
) -> Iterator[pa.Table]:
    """The rows of a table file, or of some row groups, in small tables; columns that the file lacks are left out.

    Raises:
        StorageError: the file can't be read.
    """
    with storage_errors(place.uri), open_parquet(place) as file:
        names = None if columns is None else [name for name in columns if name.split(".")[0] in file.schema_arrow.names]
        for group in range(file.num_row_groups) if groups is None else groups:
            yield file.read_row_group(group, columns=names, use_threads=False)


def with_schema(rows: pa.Table, schema: pa.Schema) -> pa.Table:
    """The rows with the columns of a schema, null where they lack one."""
    columns = [
        rows[field.name].cast(field.type) if field.name in rows.schema.names else pa.nulls(rows.num_rows, field.type)
        for field in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema)


FILES = pa.schema([pa.field("path", pa.string()), pa.field("num_bytes", pa.int64()), pa.field("num_rows", pa.int64())])


def files_table(files: Iterable[TableFile]) -> pa.Table:
    """Files as a table that a task can return."""
    rows = [{"path": file.path, "num_bytes": file.num_bytes, "num_rows": file.num_rows} for file in files]
    return pa.Table.from_pylist(rows, schema=FILES)
