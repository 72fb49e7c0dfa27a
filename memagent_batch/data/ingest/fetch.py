"""Copies of document files on this machine, made while the files before them are read.

A request to an object store takes milliseconds in which its file can't be read yet. So a task asks for its next files
while it reads one; what lies on the disk at once is bounded.
"""

import threading
from collections import deque
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from hashlib import file_digest
from pathlib import Path
from queue import SimpleQueue

from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError

COPIES_AHEAD = 16
"""Most copies of a task at once, the one that is read among them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileCopy:
    """The copy of a file, or the error because of which there is none."""

    path: Path
    digest: str = ""
    """SHA-256 of the content, 64 hex digits."""
    error: InputError | None = None


def copy_files(places: Sequence[Location], *, endings: Sequence[str], folder: Path) -> Generator[FileCopy]:
    """Copies files to a folder, up to 16 ahead, and yields the copies in the order of the files.

    A copy is deleted when the next one is taken. Closing the generator does not wait for copies in progress.

    Args:
        places: The files.
        endings: The endings that their copies get, such as `.pdf`.
        folder: Where the copies lie; whoever made it removes it.
    """
    copies = [folder / f"{number}{ending}" for number, ending in enumerate(endings)]
    pending = zip(places, copies, strict=True)
    threads, waiting = _CopyThreads(min(len(places), _num_threads(places))), deque[Future[FileCopy]]()
    try:
        for place, path in pending:
            waiting.append(threads.submit(place, path))
            if len(waiting) == COPIES_AHEAD:
                yield from _first_of(waiting)
        while waiting:
            yield from _first_of(waiting)
    finally:
        for each in waiting:
            each.cancel()
        threads.stop()


def _num_threads(places: Sequence[Location]) -> int:
    """Number of threads; one for file systems that threads can't share, such as FTP or the inside of a TAR file."""
    takes_many = all(place.is_local or place.fs.async_impl for place in places[:1])
    return COPIES_AHEAD if takes_many else 1


class _CopyThreads:
    """Threads that end with the process: a request to a store that hangs keeps nobody from leaving."""

    def __init__(self, number: int) -> None:
        self._number = number
        self._asked: SimpleQueue[tuple[Location, Path, Future[FileCopy]] | None] = SimpleQueue()
        for _ in range(number):
            threading.Thread(target=self._work, name="copies", daemon=True).start()

    def submit(self, place: Location, path: Path) -> Future[FileCopy]:
        future = Future[FileCopy]()
        self._asked.put((place, path, future))
        return future

    def stop(self) -> None:
        """Lets each thread end after the copy that it makes."""
        for _ in range(self._number):
            self._asked.put(None)

    def _work(self) -> None:
        while (asked := self._asked.get()) is not None:
            place, path, future = asked
            if not future.set_running_or_notify_cancel():
                continue
            try:
                future.set_result(FileCopy(path=path, digest=copy_file(place, path)))
            except InputError as error:
                future.set_result(FileCopy(path=path, error=error))
            except BaseException as error:  # noqa: BLE001 - whoever waits for the copy raises it
                future.set_exception(error)


def _first_of(waiting: deque[Future[FileCopy]]) -> Iterator[FileCopy]:
    copy = waiting.popleft().result()
    yield copy
    copy.path.unlink(missing_ok=True)


def copy_file(place: Location, path: Path) -> str:
    """Copies a file to `path`; returns the SHA-256 of its content, 64 hex digits.

    Raises:
        InputError: the file can't be read.
    """
    with input_errors(place.uri):
        place.copy_to(path)
    with path.open("rb") as copied:
        return file_digest(copied, "sha256").hexdigest()
