"""Copies of document files on this machine, made while the files before them are read.

A request to an object store takes milliseconds in which its file can't be read yet. So a task asks for its next files
while it reads one; what lies on the disk at once is bounded.
"""

from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from tempfile import TemporaryDirectory

from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

COPIES_AHEAD = 16
"""Most copies of a task at once, the one that is read among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """A copy, or why there is none."""

    path: Path
    digest: str = ""
    """SHA-256 of the content, 64 hex digits."""
    error: InputError | None = None


def copy_files(places: Sequence[Location], *, endings: Sequence[str]) -> Generator[FileCopy]:
    """Yields a copy of each file in this order, each until the next one is asked for; close it to remove all.

    Args:
        places: The files.
        endings: The endings that their copies get, such as `.pdf`.
    """
    waiting = deque[Future[FileCopy]]()
    with TemporaryDirectory(prefix="memagent-files-") as folder, ThreadPoolExecutor(COPIES_AHEAD) as threads:
        copies = [Path(folder) / f"{number}{ending}" for number, ending in enumerate(endings)]
        pending = zip(places, copies, strict=True)
        try:
            for place, path in pending:
                waiting.append(threads.submit(_try_copy, place, path))
                if len(waiting) == COPIES_AHEAD:
                    yield from _first_of(waiting)
            while waiting:
                yield from _first_of(waiting)
        finally:
            for each in waiting:
                each.cancel()


def _first_of(waiting: deque[Future[FileCopy]]) -> Iterator[FileCopy]:
    copy = waiting.popleft().result()
    yield copy
    copy.path.unlink(missing_ok=True)


def _try_copy(place: Location, path: Path) -> FileCopy:
    try:
        return FileCopy(path=path, digest=copy_file(place, path))
    except InputError as error:
        return FileCopy(path=path, error=error)


def copy_file(place: Location, path: Path) -> str:
    """Copies a file, in one read; returns its SHA-256."""
    with input_errors(place.uri):
        place.copy_to(path)
    with path.open("rb") as copied:
        return file_digest(copied, "sha256").hexdigest()
