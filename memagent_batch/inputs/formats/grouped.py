"""Parquet and Arrow IPC files, opened: row groups or record batches, one small batch at a time."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Protocol

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location

_BATCH_BYTES = 4 * 1024 * 1024
"""Size that a batch of Parquet rows is aimed at, bytes: small beside a document of millions of tokens."""

_BATCH_ROWS = 16
"""Most rows of a batch: bounds it where dictionary encoding hides how large the texts are."""

_READ_BYTES = 1024 * 1024
"""Buffer of a Parquet column chunk, bytes; the chunk itself is never held."""

_ROWS_BLOCK_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store, bytes."""

_ARROW_MAGIC = b"ARROW1"


class GroupedFile(Protocol):
    """A file whose rows stand in groups that can be read apart."""

    @property
    def schema(self) -> pa.Schema:
        """Schema of the file."""
        ...

    @property
    def group_bytes(self) -> tuple[int, ...]:
        """Size of each group, about, bytes."""
        ...

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        """Streams the columns `names` of one group."""
        ...

    def num_rows(self, group: int) -> int:
        """Rows of one group."""
        ...

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        """The columns `names` of one group at once."""
        ...

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        """Groups that may hold a row for which the condition is true, as far as the file knows."""
        ...


@contextmanager
def open_grouped(location: Location) -> Iterator[GroupedFile]:
    """Opens a Parquet or Arrow IPC file, whichever it is.

    Raises:
        InputError: the file is missing, truncated or neither of the two.
    """
    with input_errors(location.uri), _open_native(location) as stream:
        if stream.read(len(_ARROW_MAGIC)) == _ARROW_MAGIC:
            yield _ArrowFile.open(stream)
            return
        stream.seek(0)
        if stream.read(4) == b"\xff\xff\xff\xff":
            raise InputError(
                f"{location.uri} is an Arrow IPC stream, whose rows can't be found again; "
                "write it with pyarrow.ipc.new_file or as Parquet"
            )
        yield _ParquetFile.open(stream)


def _open_native(location: Location) -> pa.NativeFile:
    if location.is_local:
        return pa.OSFile(location.path)
    return pa.PythonFile(location.fs.open(location.path, "rb", block_size=_ROWS_BLOCK_BYTES), mode="r")


@dataclass(frozen=True, kw_only=True)
class _ParquetFile:
    stream: pa.NativeFile
    file: pq.ParquetFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "_ParquetFile":
        stream.seek(0)
        file = pq.ParquetFile(stream, buffer_size=_READ_BYTES, pre_buffer=False)
        metadata = file.metadata
        sizes = tuple(metadata.row_group(group).total_byte_size for group in range(metadata.num_row_groups))
        return cls(stream=stream, file=file, schema=file.schema_arrow, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        rows = self._batch_rows(group, names=names)
        yield from self.file.iter_batches(rows, row_groups=[group], columns=list(names), use_threads=False)

    def num_rows(self, group: int) -> int:
        return int(self.file.metadata.row_group(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        return self.file.read_row_group(group, columns=list(names), use_threads=False)

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        fragment = ds.ParquetFileFormat().make_fragment(self.stream)
        return frozenset(group.id for group in fragment.subset(condition, schema=self.schema).row_groups)

    def _batch_rows(self, group: int, *, names: Sequence[str]) -> int:
        """Rows of about `_BATCH_BYTES`."""
        metadata = self.file.metadata.row_group(group)
        chunks = [metadata.column(index) for index in range(metadata.num_columns)]
        wanted = [chunk for chunk in chunks if chunk.path_in_schema.startswith(tuple(names))]
        num_bytes = sum(chunk.total_uncompressed_size for chunk in wanted)
        rows: int = _BATCH_BYTES * metadata.num_rows // max(1, num_bytes)
        return max(1, min(_BATCH_ROWS, rows))


@dataclass(frozen=True, kw_only=True)
class _ArrowFile:
    stream: pa.NativeFile
    schema: pa.Schema
    group_bytes: tuple[int, ...]

    @classmethod
    def open(cls, stream: pa.NativeFile) -> "_ArrowFile":
        stream.seek(0)
        file = pa.ipc.open_file(stream)
        num_batches = file.num_record_batches
        sizes = (stream.size() // max(1, num_batches),) * num_batches
        return cls(stream=stream, schema=file.schema, group_bytes=sizes)

    def batches(self, group: int, *, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
        options = pa.ipc.IpcReadOptions(included_fields=[self.schema.get_field_index(name) for name in names])
        batch = pa.ipc.open_file(self.stream, options=options).get_batch(group)
        batch.validate()
        yield batch

    def num_rows(self, group: int) -> int:
        return int(pa.ipc.open_file(self.stream).get_batch(group).num_rows)

    def whole(self, group: int, *, names: Sequence[str]) -> pa.Table:
        return pa.Table.from_batches(self.batches(group, names=names))

    def matching(self, condition: pc.Expression) -> frozenset[int]:
        return frozenset(range(len(self.group_bytes)))
