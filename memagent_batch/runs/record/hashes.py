"""Hashes of files as a store gives them back."""

from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from hashlib import sha256

from memagent_batch.files.errors import FILE_ERRORS, storage_errors
from memagent_batch.files.location import Location

READ_BYTES = 8 * 1024 * 1024
"""Bytes of a file that are held at once."""
HASH_THREADS = 16
"""Files read at once: enough to keep a core busy where a store answers in 50 ms."""


def file_hashes(output: Location, names: Iterable[str], *, in_blocks: bool) -> Iterator[tuple[str, str | None]]:
    """Streams name and SHA-256 of files below an output; None for a file that is not there.

    Args:
        output: The output.
        names: The files.
        in_blocks: Whether files are large: a store is asked once for a small one, and several times for a large one.

    Raises:
        StorageError: one can't be read.
    """
    names = list(names)
    with ThreadPoolExecutor(HASH_THREADS) as threads:
        hashes = threads.map(lambda name: file_hash(output / name, in_blocks=in_blocks), names)
        yield from zip(names, hashes, strict=True)


def file_hash(place: Location, *, in_blocks: bool = False) -> str | None:
    """SHA-256 of a file, hex; None where it is not there.

    Raises:
        StorageError: it can't be read.
    """
    with storage_errors(place.uri, of=FILE_ERRORS):
        try:
            return _hash_of_blocks(place) if in_blocks else sha256(place.read_bytes()).hexdigest()
        except (FileNotFoundError, NotADirectoryError):
            return None


def _hash_of_blocks(place: Location) -> str:
    digest = sha256()
    with place.open() as stream:
        while block := stream.read(READ_BYTES):
            digest.update(block)
    return digest.hexdigest()
