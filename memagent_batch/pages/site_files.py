"""The files of a site, written beside those of the site that is shown, which the last file replaces."""

import uuid
from collections import deque
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime

from memagent_batch.files.claims import ABANDONED_AFTER, claimed_record, replace_shown
from memagent_batch.files.json_files import json_bytes
from memagent_batch.files.location import Location

INDEX_FILE = "index.html"
RECORD_FILE = "page.json"
LAYOUT = "memagent-page/1"
"""Changes with every change of the files that an older version can't replace."""
BUILD_PREFIX = "build-"
"""Begins the name of the folder that holds a build's files, all but the index."""
_STAMP = "%Y%m%dT%H%M%S"
_THREADS = 8
"""Files written at once: a store's answer, and a disk's sync, take milliseconds each."""
_WAITING_FILES = 4 * _THREADS
"""Most files that are held in memory until they are written."""


class SiteFiles:
    """Writes the files of one build; counts them."""

    def __init__(self, target: Location, threads: ThreadPoolExecutor) -> None:
        """Writes below the folder `target`."""
        self.build = f"{BUILD_PREFIX}{datetime.now(UTC):{_STAMP}}-{uuid.uuid4().hex[:6]}"
        self.num_files = 0
        self.num_bytes = 0
        self._folder = target / self.build
        self._threads = threads
        self._waiting: deque[Future[None]] = deque()

    def write(self, path: str, data: bytes) -> None:
        """Writes a file of the build; returns before it is there."""
        self.num_files += 1
        self.num_bytes += len(data)
        self._waiting.append(self._threads.submit((self._folder / path).write_bytes, data))
        while len(self._waiting) > _WAITING_FILES:
            self._waiting.popleft().result()

    def finish(self) -> None:
        """Returns when all files are there."""
        while self._waiting:
            self._waiting.popleft().result()


def claim_site(target: Location) -> None:
    """Checks that a site may be written here: an empty place, or one that holds a site.

    Raises:
        OutputError: the place holds something else.
    """
    claimed_record(target, RECORD_FILE, layout=LAYOUT, remedy="choose an empty folder with --to")


@contextmanager
def open_site(target: Location) -> Iterator[SiteFiles]:
    """Opens a new build. If the block fails, its files go again, and the site that was there stays.

    The caller ends it with `publish`.
    """
    if not (target / RECORD_FILE).exists():
        (target / RECORD_FILE).write_bytes(json_bytes({"format": LAYOUT}))
    with ThreadPoolExecutor(_THREADS) as threads:
        files = SiteFiles(target, threads)
        try:
            yield files
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            (target / files.build).delete()
            raise


def publish(target: Location, files: SiteFiles, index: bytes) -> None:
    """Shows the build: the one write of the index replaces the site that was there, whose files then go.

    Other builds may be written at the same time: their files stay, unless they were begun a day ago.

    Raises:
        StorageError: others replace the index again and again.
    """
    files.finish()
    before = replace_shown(target / INDEX_FILE, index)
    root = f"{target.path.rstrip('/')}/"
    listed = [(path, path.removeprefix(root).split("/")[0]) for path in target.files(temporary=True)]
    abandoned = f"{BUILD_PREFIX}{datetime.now(UTC) - ABANDONED_AFTER:{_STAMP}}"
    target.delete_files(
        [
            path
            for path, top in listed
            if top.startswith(BUILD_PREFIX) and top != files.build and (top.encode() in before or top < abandoned)
        ]
    )
