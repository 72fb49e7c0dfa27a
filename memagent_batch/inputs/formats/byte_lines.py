"""The lines of a file by bytes, so that each can be read again alone."""

import io
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import IO

from memagent_batch.errors import InputError
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.inputs.formats.packed import ForwardReader, is_compressed, open_stream
from memagent_batch.inputs.formats.records import BOM, Place, too_long

_SPAN_BYTES = 16 * 1024 * 1024
"""Most bytes that are read at once for several records; a larger record is read alone."""
_SKIPPED_BYTES = 1024 * 1024
"""Bytes of a line that is too long that are passed over at once."""
_GAP_BYTES = 256 * 1024
"""Records this near, bytes, are read in one request: cheaper than two."""


@dataclass(slots=True, kw_only=True)
class ByteLines:
    """The lines of a stream as text, with line ends, keeping count of bytes and lines."""

    stream: IO[bytes]
    """The bytes."""
    path: str
    """The file, for messages."""
    position: int = 0
    """Bytes of the file before the next line."""
    max_bytes: int | None = None
    """Most bytes of a line; None for no bound."""
    num_lines: int = 0
    """Lines read so far."""

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
    """Opens a file of text lines, of which a longer one than `max_bytes` is an error of its own.

    Raises:
        InputError: the file is missing or can't be read.
    """
    with input_errors(location.uri), open_stream(location) as stream:
        yield ByteLines(stream=stream, path=location.uri, max_bytes=max_bytes)


def line_at(location: Location, position: int) -> int:
    """Line of the file, from 1, in which the byte at `position`, from 0, stands. Reads the file up to there."""
    num_lines = 1
    with input_errors(location.uri), open_stream(location) as stream:
        while position > 0 and (block := stream.read(min(position, _SPAN_BYTES))):
            num_lines += block.count(b"\n")
            position -= len(block)
    return num_lines


def fetch_lines(location: Location, *, places: Sequence[Place]) -> Iterator[tuple[Place, ByteLines]]:
    """The bytes at sorted `places`, a few near ones at a time; a compressed file is unpacked up to the last of them."""
    if is_compressed(location.path):
        with input_errors(location.uri), open_stream(location) as stream:
            reader = ForwardReader(stream)
            for place in places:
                data = io.BytesIO(reader.read(place.start, place.stop))
                yield place, ByteLines(stream=data, path=location.uri, position=place.start)
        return
    for span in _spans(places):
        first = span[0].start
        with input_errors(location.uri):
            data = location.fs.cat_file(location.path, start=first, end=span[-1].stop)
        for place in span:
            stream = io.BytesIO(data[place.start - first : place.stop - first])
            yield place, ByteLines(stream=stream, path=location.uri, position=place.start)


def _spans(places: Iterable[Place]) -> Iterator[list[Place]]:
    """Groups sorted places that are worth reading in one request."""
    span: list[Place] = []
    for place in places:
        is_near = span and place.start - span[-1].stop <= _GAP_BYTES and place.stop - span[0].start <= _SPAN_BYTES
        if span and not is_near:
            yield span
            span = []
        span.append(place)
    if span:
        yield span
