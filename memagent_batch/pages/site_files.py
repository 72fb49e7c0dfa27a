"""The files of a site: made of templates, and written beside those of the site that the last file replaces.

No page runs or loads anything but what its policy names.
"""

import uuid
from collections import deque
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from typing import Any

import jinja2
from markupsafe import Markup

from memagent_batch.domain.texts.shares import percent
from memagent_batch.evaluation.report.templates import frame_page, inert_json, page_bytes, page_environment
from memagent_batch.evaluation.report.visible import visible
from memagent_batch.files.claims import ABANDONED_AFTER, claimed_record, replace_shown
from memagent_batch.files.json_files import json_bytes
from memagent_batch.files.location import Location
from memagent_batch.pages.readings import run_time

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

_HERE = resources.files("memagent_batch.pages")


class SiteFiles:
    """Writes the files of one build; counts them."""

    def __init__(self, target: Location, threads: ThreadPoolExecutor) -> None:
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


def render(template: str, values: Mapping[str, Any], *, script: str | None = None, frames: bool = False) -> bytes:
    """A page, UTF-8."""
    program = None if script is None else (_HERE / script).read_text(encoding="utf-8")
    return page_bytes(_environment().get_template(template), values, style=stylesheet(), script=program, frames=frames)


def render_frame(data: Any) -> bytes:
    """A file of data that the index shows in a frame."""
    return frame_page(_environment(), data)


@cache
def stylesheet() -> str:
    """The one style of all pages: that of the evaluation's report, and what these pages add."""
    report = resources.files("memagent_batch.evaluation") / "report" / "page.css"
    return report.read_text(encoding="utf-8") + (_HERE / "pages.css").read_text(encoding="utf-8")


def seen_json(value: Any) -> Markup:
    """`inert_json`, with a sign for each character that can't be seen."""
    return inert_json(_seen(value))


@cache
def _environment() -> jinja2.Environment:
    packages = (("memagent_batch.pages", "."), ("memagent_batch.evaluation", "report"))
    environment = page_environment(jinja2.ChoiceLoader([jinja2.PackageLoader(*each) for each in packages]))
    environment.filters |= {"inert_json": seen_json, "percent": percent, "run_time": run_time}
    return environment


def _seen(value: Any) -> Any:
    """The value with a sign for each character of its texts that can't be seen."""
    match value:
        case str():
            return visible(value)
        case dict():
            return {name: _seen(each) for name, each in value.items()}
        case list() | tuple():
            return [_seen(each) for each in value]
        case _:
            return value
