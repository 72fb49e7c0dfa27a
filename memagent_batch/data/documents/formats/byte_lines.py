"""The lines of a file, with their places in bytes; a compressed file is unpacked on the way."""

import io
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO, cast

import pyarrow as pa

from memagent_batch.data.documents.formats.records import BOM, too_long
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

COMPRESSIONS: Mapping[str, str] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of names, and what unpacks such files. Their places are places of the unpacked bytes."""
_BLOCK_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store, bytes."""
_SKIPPED_BYTES = 1024 * 1024
"""Bytes of a line that is too long that are passed over at once."""


def is_compressed(name: str) -> bool:
    """Whether a file is unpacked while it is read."""
    return posixpath.splitext(name)[1].lower() in COMPRESSIONS


@contextmanager
def open_stream(location: Location) -> Iterator[IO[bytes]]:
    """Opens a file at its beginning, unpacked."""
    with location.fs.open(location.path, "rb", block_size=_BLOCK_BYTES) as file:
        packing = COMPRESSIONS.get(posixpath.splitext(location.path)[1].lower())
        if packing is None:
            yield io.BufferedReader(file)
            return
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), packing) as unpacked:
            yield io.BufferedReader(cast("io.RawIOBase", unpacked))


@dataclass(slots=True, kw_only=True)
class ByteLines:
    """The lines of a stream as text, with line ends, keeping count of bytes and lines."""

    stream: IO[bytes]
    path: str
    position: int = 0
    """Bytes of the file before the next line."""
    max_bytes: int | None = None
    """Most bytes of a line; None for no bound."""
    num_lines: int = 0

    def __iter__(self) -> "ByteLines":
        return self

    def __next__(self) -> str:
        """The next line.

        Raises:
            InputError: it is not UTF-8, or too long; the next call gives the line behind it.
        """
        line = self.stream.readline(-1 if self.max_bytes is None else self.max_bytes + 1)
        if not line:
            raise StopIteration
        start = self.position
        self.position += len(line)
        self.num_lines += 1
        if self.max_bytes is not None and len(line) > self.max_bytes:
            self._skip_rest(line)
            raise InputError(f"{self.path}, line {self.num_lines}: {too_long(self.max_bytes)}")
        has_bom = start == 0 and line.startswith(BOM)
        try:
            return line.decode("utf-8-sig" if has_bom else "utf-8")
        except UnicodeDecodeError as error:
            byte = start + error.start + (len(BOM) if has_bom else 0) + 1
            raise InputError(
                f"{self.path}, line {self.num_lines}: invalid UTF-8 at byte {byte} of the file; write the file as UTF-8"
            ) from error

    def _skip_rest(self, line: bytes) -> None:
        while line and not line.endswith(b"\n"):
            line = self.stream.readline(_SKIPPED_BYTES)
            self.position += len(line)


@contextmanager
def open_lines(location: Location, *, max_bytes: int | None = None) -> Iterator[ByteLines]:
    """Opens a file of text lines; one longer than `max_bytes` is an error, and the next can be read.

    Raises:
        InputError: the file is missing or can't be read.
    """
    with input_errors(location.uri), open_stream(location) as stream:
        yield ByteLines(stream=stream, path=location.uri, max_bytes=max_bytes)


def line_at(location: Location, position: int) -> int:
    """Line of the file, from 1, in which the byte at `position`, from 0, stands. Reads the file up to there."""
    num_lines = 1
    with input_errors(location.uri), open_stream(location) as stream:
        while position > 0 and (block := stream.read(min(position, _BLOCK_BYTES))):
            num_lines += block.count(b"\n")
            position -= len(block)
    return num_lines
