"""Opens files as streams of bytes, and unpacks those whose names say that they are compressed."""

import io
import posixpath
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import IO, cast

import pyarrow as pa

from memagent_batch.errors import InputError
from memagent_batch.files.location import Location

COMPRESSIONS: Mapping[str, str] = {".gz": "gzip", ".bz2": "bz2", ".zst": "zstd"}
"""Endings of names, and what unpacks such files. Their places are places of the unpacked bytes."""
_BLOCK_BYTES = 4 * 1024 * 1024
"""Size of one request to an object store, bytes; also what is skipped at once."""


def is_compressed(name: str) -> bool:
    """Whether a file is unpacked while it is read, so that a place in it is reached only from its beginning."""
    return posixpath.splitext(name)[1].lower() in COMPRESSIONS


@contextmanager
def open_stream(location: Location) -> Iterator[IO[bytes]]:
    """Opens a file to be read from its beginning, unpacked."""
    with location.fs.open(location.path, "rb", block_size=_BLOCK_BYTES) as file:
        packing = COMPRESSIONS.get(posixpath.splitext(location.path)[1].lower())
        if packing is None:
            yield io.BufferedReader(file)
            return
        with pa.CompressedInputStream(pa.PythonFile(file, mode="r"), packing) as unpacked:
            yield io.BufferedReader(cast("io.RawIOBase", unpacked))


class ForwardReader:
    """Reads ranges of an unpacked stream, each behind the one before."""

    def __init__(self, stream: IO[bytes]) -> None:
        """Takes a stream at its beginning."""
        self._stream = stream
        self._position = 0

    def read(self, start: int, stop: int) -> bytes:
        """The bytes from `start` to `stop`; fewer where the stream ends.

        Raises:
            InputError: `start` lies behind what was read already.
        """
        if start < self._position:
            raise InputError("places of a compressed file must be read in their order")
        while self._position < start:
            skipped = len(self._stream.read(min(_BLOCK_BYTES, start - self._position)))
            if not skipped:
                return b""
            self._position += skipped
        data = self._stream.read(stop - start)
        self._position += len(data)
        return data
