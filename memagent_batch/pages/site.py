"""The answers of a finished run as a site without a server: a table of all answers, and a page for each document.

One pass over the tables of the run; held are the readings of some pages, and a note on every answer that changed.
"""

import uuid
from collections import Counter, deque
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import cache
from importlib import resources
from itertools import islice
from typing import Any, TypedDict

import jinja2
from markupsafe import Markup

from memagent_batch.domain.readings import Status
from memagent_batch.domain.texts.shares import percent
from memagent_batch.errors import OutputError
from memagent_batch.evaluation.report.templates import frame_page, inert_json, page_bytes, page_environment
from memagent_batch.evaluation.report.visible import shorten, visible
from memagent_batch.pages.document_page import (
    MAX_SHEET_READINGS,
    Passages,
    ReadingView,
    Sheet,
    template_values,
    view_reading,
    windows,
)
from memagent_batch.pages.readings import (
    OUTCOMES,
    RunChanges,
    changes_of,
    documents_of,
    run_time,
    stream_readings,
    table_rows,
)
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.estimates import latest_estimates
from memagent_batch.runs.manifest import Manifest, require_manifest
from memagent_batch.store.claims import ABANDONED_AFTER, read_owner_record, replace_shown
from memagent_batch.store.errors import output_errors
from memagent_batch.store.json_files import json_bytes
from memagent_batch.store.location import Location

LARGE_ANSWERS = 100_000
"""Answers above which a site is written only if the user allows it: at some 11 kB each it takes 1 GB."""
ROWS_PER_FILE = 1_000
"""Most rows of the table in one file."""
PAGE_BATCH_READINGS = 200
"""Readings whose texts are fetched together, about."""
MAX_CELL_CHARACTERS = 240
"""Of an answer or question, characters in the table."""
SHEET_TO_INDEX = "../../../index.html"
"""From a document's page to the index."""
SITE_INDEX_FILE = "index.html"
SITE_RECORD_FILE = "page.json"
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


class WrittenSite(TypedDict):
    """Where a site is, and what it shows."""

    page: str
    run_id: str
    readings: int
    documents: int
    documents_without_text: int
    files: int
    bytes: int


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


@dataclass(slots=True, kw_only=True)
class _Rows:
    """The table of answers as it fills files: the one value here that changes."""

    files: list[str] = field(default_factory=list)
    """Files that are written."""
    rows: list[list[Any]] = field(default_factory=list)
    questions: dict[tuple[str, str], int] = field(default_factory=dict)
    """Ids and texts of the questions that they name, by their place in its list."""
    outcomes: Counter[str] = field(default_factory=Counter)
    question_ids: set[str] = field(default_factory=set)
    """Of all files."""
    num_readings: int = 0
    num_documents: int = 0


def write_site(output: Location, target: Location, *, context_chars: int | None, is_large_allowed: bool) -> WrittenSite:
    """Writes the site of the last finished run of an output, whole or not at all.

    Args:
        output: The run's location.
        target: The folder of the site.
        context_chars: Characters of the document on either side of evidence; None for no text.
        is_large_allowed: Whether it may show more than `LARGE_ANSWERS`.

    Raises:
        OutputError: no run has finished, a table is gone, the target holds other files, or the site is too large.
        InputError: texts are to be shown, and the documents can't be reached.
        StorageError: the site can't be written.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    read_owner_record(target, SITE_RECORD_FILE, layout=LAYOUT, remedy="choose an empty folder with --to")
    num_answers = manifest["counts"]["answers_rows"]
    if num_answers > LARGE_ANSWERS and not is_large_allowed:
        raise OutputError(
            f"the site would show {num_answers:,} answers; more than {LARGE_ANSWERS:,} take about 1 GB: pass --yes to "
            "write it"
        )
    return _write_pages(output, target, manifest=manifest, context_chars=context_chars)


def _write_pages(output: Location, target: Location, *, manifest: Manifest, context_chars: int | None) -> WrittenSite:
    wanted = {} if context_chars is None else _documents_with_evidence(output, manifest)
    texts = DocumentTexts(output, manifest, wanted=wanted, without="--without-text") if wanted else None
    changes = changes_of(output, manifest)
    with open_site(target) as files:
        rows = _Rows()
        without_text: set[str] = set()
        sheets = _sheets(output, manifest, changes=changes)
        for batch in _batches(sheets):
            found = _passages(batch, texts=texts, context_chars=context_chars or 0)
            for sheet in batch:
                passages = found[sheet.number]
                if passages.missing:
                    without_text.add(sheet.document_id)
                values = {**template_values(sheet, passages), "since": changes.since}
                files.write(sheet.path, render("document.html", {**values, "index": SHEET_TO_INDEX}))
                _add_rows(rows, sheet, files=files, changes=changes)
        _write_rows(rows, files)
        index = _index(rows, files, output=output, manifest=manifest, changes=changes, without_text=len(without_text))
        publish(target, files, index)
    return WrittenSite(
        page=str(target / "index.html"),
        run_id=manifest["run_id"],
        readings=rows.num_readings,
        documents=rows.num_documents,
        documents_without_text=len(without_text),
        files=files.num_files + 1,
        bytes=files.num_bytes + len(index),
    )


def _documents_with_evidence(output: Location, manifest: Manifest) -> dict[str, str]:
    """Hashes of the documents that evidence lies in, by id."""
    found: dict[str, str] = {}
    for part in manifest["parts"]:
        if evidence := part["evidence_file"]:
            for batch in table_rows(output / evidence, columns=("document_id", "document_hash")):
                columns = (batch.column(name).to_pylist() for name in ("document_id", "document_hash"))
                found.update(zip(*columns, strict=True))
    return found


def _sheets(output: Location, manifest: Manifest, *, changes: RunChanges) -> Iterator[Sheet]:
    number = 0
    for document_id, readings in documents_of(stream_readings(output, manifest)):
        views = (
            view_reading(reading, changes=changes, output=str(output).rstrip("/"), run_id=manifest["run_id"])
            for reading in readings
        )
        first, held = 0, tuple(islice(views, MAX_SHEET_READINGS))
        while held:
            following = tuple(islice(views, MAX_SHEET_READINGS))
            yield Sheet(number=number, document_id=document_id, first=first, is_last=not following, readings=held)
            number, first, held = number + 1, first + len(held), following


def _batches(sheets: Iterator[Sheet]) -> Iterator[list[Sheet]]:
    """Sheets whose texts are fetched together; the readings of a few documents."""
    for sheet in sheets:
        batch, num_readings = [sheet], len(sheet.readings)
        while num_readings < PAGE_BATCH_READINGS and (following := next(sheets, None)):
            batch.append(following)
            num_readings += len(following.readings)
        yield batch


def _passages(batch: Sequence[Sheet], *, texts: DocumentTexts | None, context_chars: int) -> dict[int, Passages]:
    """The passages of each sheet, by its number."""
    if texts is None:
        return {sheet.number: Passages() for sheet in batch}
    wanted = [sheet for sheet in batch if any(view.marks for view in sheet.readings)]
    found = {sheet.number: Passages() for sheet in batch}
    for sheet in wanted:
        missing = "The document changed or is gone since it was read, so that its text is not shown."
        found[sheet.number] = Passages(missing=missing)
    for fetched in texts.fetch([sheet.document_id for sheet in wanted]):
        for sheet in wanted:
            if sheet.document_id == fetched.document_id:
                shown = (windows(fetched.text, view.marks, context_chars=context_chars) for view in sheet.readings)
                found[sheet.number] = Passages(windows=tuple(shown))
    return found


def _add_rows(rows: _Rows, sheet: Sheet, *, files: SiteFiles, changes: RunChanges) -> None:
    rows.num_documents += not sheet.first
    for place, view in enumerate(sheet.readings):
        rows.rows.append(_row(rows, view, href=f"{files.build}/{sheet.path}#r-{place}", changes=changes))
        rows.outcomes[view.outcome] += 1
        rows.question_ids.add(view.answer["question_id"])
        rows.num_readings += 1
        if len(rows.rows) == ROWS_PER_FILE:
            _write_rows(rows, files)


def _row(rows: _Rows, view: ReadingView, *, href: str, changes: RunChanges) -> list[Any]:
    """A row as `grid.js` takes it."""
    answer = view.answer
    question = (answer["question_id"], _cell(answer["question"]))
    change = view.change.kind.value.replace("added", "new") if view.change else "unchanged"
    said = answer["error_message"] if answer["status"] != Status.OK else answer["answer"]
    return [
        answer["document_id"],
        rows.questions.setdefault(question, len(rows.questions)),
        answer["sample"],
        answer["status"],
        view.outcome,
        _cell(view.value),
        answer["value_number"],
        _cell(said or ""),
        answer["confidence"],
        answer["support"],
        change if changes.is_known else None,
        href,
    ]


def _write_rows(rows: _Rows, files: SiteFiles) -> None:
    if not rows.rows:
        return
    path = f"rows/{len(rows.files):05d}.html"
    data = {"questions": [list(question) for question in rows.questions], "rows": rows.rows}
    files.write(path, render_frame(data))
    rows.files.append(f"{files.build}/{path}")
    rows.rows, rows.questions = [], {}


def _index(
    rows: _Rows, files: SiteFiles, *, output: Location, manifest: Manifest, changes: RunChanges, without_text: int
) -> bytes:
    counted = Counter(change.kind.value.replace("added", "new") for change in changes.readings.values())
    values = {
        "name": str(output).rstrip("/").rsplit("/", 1)[-1],
        "run_id": manifest["run_id"],
        "finished_at": manifest["finished_at"][:16].replace("T", " ") + " UTC",
        "model": manifest["settings"]["model"],
        "policy_kind": manifest["settings"]["policy"]["kind"],
        "changes": changes,
        "num_without_text": without_text,
        "facts": {
            "documents": rows.num_documents,
            "questions": len(rows.question_ids),
            "asked": rows.num_readings,
            **{outcome: rows.outcomes[outcome] for outcome in OUTCOMES if rows.outcomes[outcome]},
            **(dict.fromkeys(("changed", "new"), 0) | dict(counted) if changes.is_known else {}),
        },
        "estimates": latest_estimates(output),
        "build": files.build,
        "site": {"files": rows.files, "readings": rows.num_readings},
    }
    return render("index.html", values, script="grid.js", frames=True)


def _cell(text: str) -> str:
    return shorten(" ".join(text.split()), characters=MAX_CELL_CHARACTERS)


@contextmanager
def open_site(target: Location) -> Iterator[SiteFiles]:
    """Opens a new build. If the block fails, its files go again, and the site that was there stays.

    The caller ends it with `publish`.
    """
    if not (target / SITE_RECORD_FILE).exists():
        (target / SITE_RECORD_FILE).write_bytes(json_bytes({"format": LAYOUT}))
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
    before = replace_shown(target / SITE_INDEX_FILE, index)
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
    return page_bytes(_environment().get_template(template), values, style=_stylesheet(), script=program, frames=frames)


def render_frame(data: Any) -> bytes:
    """A file of data that the index shows in a frame."""
    return frame_page(_environment(), data)


@cache
def _stylesheet() -> str:
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
