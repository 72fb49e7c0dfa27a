"""The answers of a finished run as a site without a server: a table of all answers, and a page for each document.

One pass over the tables of the run; held are the readings of some pages, the names of all files, and a note on every
answer that changed.

Pages and rows are files named by the hash of their content, which the index links to. So a build writes only what the
site does not have yet. `builds/` has a record for each build, which lists its files; it is empty until all are there.
"""

import re
import uuid
from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from functools import cache, partial
from hashlib import sha256
from itertools import groupby
from operator import attrgetter
from typing import Any, TypedDict, cast

import jinja2

from memagent_batch.apps.pages.document_page import (
    ReadingView,
    Sheet,
    Window,
    place_of,
    template_values,
    view_reading,
    windows,
)
from memagent_batch.apps.pages.page_images import PageImages, SourceFiles
from memagent_batch.apps.pages.readings import (
    NEEDS,
    OUTCOMES,
    RunChanges,
    changes_of,
    run_time,
    said_words,
    stream_readings,
)
from memagent_batch.apps.pages.summary import Summary
from memagent_batch.apps.review.estimates import Measure
from memagent_batch.apps.review.record import latest_estimates, share_words
from memagent_batch.apps.review.sign_offs import SignOffs
from memagent_batch.apps.templates.pages import brief, frame_page, page_bytes, page_environment, page_script, page_style
from memagent_batch.data.documents.source_listing import into_batches
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.json_files import json_bytes, read_owner_record
from memagent_batch.data.store.location import TEMPORARY, Location
from memagent_batch.errors import OutputError
from memagent_batch.loop.models.shipped import MODEL_LIMITS
from memagent_batch.loop.texts.shares import percent
from memagent_batch.run.document_texts import DocumentTexts
from memagent_batch.run.evidence import How
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.manifest import Manifest
from memagent_batch.run.state import warn_of_later_run
from memagent_batch.run.tables import ANSWERS_TABLE

LARGE_ANSWERS = 100_000
"""Answers above which a site is written only if the user allows it: at some 11 kB each it takes 1 GB."""
CONTEXT_CHARS = 2_000
"""Characters of the document that are shown before and behind evidence, if nothing else is asked for."""
ROWS_PER_FILE = 1_000
PAGE_BATCH_READINGS = 200
"""Readings whose texts are fetched together, about."""
SHOWN_REMOVED = 1_000
"""Most removed documents that the index names; `memagent diff` names all."""
SIGN_SHEET_COLUMNS = (
    *("document_id", "question_id", "sample", "decision", "correction", "comment", "signed_by", "signed_at"),
    "reading_hash",
)
"""Of `signed.csv`, which the pages save for `memagent review sign`."""
PAGES_FOLDER, EXPORT_FOLDER = "pages", "export"
"""Where an output has its site, and its spreadsheets."""
SITE_INDEX_FILE = "index.html"
SHEET_TO_ROOT = "../../"
SHEET_TO_INDEX = f"{SHEET_TO_ROOT}{SITE_INDEX_FILE}"
TEXT_FILE = "summary.txt"
"""The summary as text; as HTML and JSON it lies beside it."""
SITE_RECORD_FILE = "page.json"
LAYOUT = "memagent-page/1"
"""Changes with every change of the files that an older version can't replace."""
BUILDS_FOLDER = "builds"
DOCUMENTS_FOLDER, ROWS_FOLDER, IMAGES_FOLDER = "documents", "rows", "images"
CONFIDENCE_MEANING = "the probability that the model gives its own words, not that they are right"
NAME_DIGITS = 32
"""Digits of a SHA-256 that name a file."""
_FILE_OF_BUILD = re.compile(
    rf"({DOCUMENTS_FOLDER}|{ROWS_FOLDER}|{IMAGES_FOLDER})/[0-9a-f]{{2}}/([0-9a-f]{{{NAME_DIGITS}}}\.\w+$|{re.escape(TEMPORARY)})"
    r"|build-\d{8}T\d{6}-"
)
"""Files of builds, also half-written ones and those of earlier versions. Other files may be somebody's own."""
_BUILD_TIME = "%Y%m%dT%H%M%S%f"
LONGEST_BUILD = timedelta(days=1)
"""Age from which a build that has not ended is taken for dead."""
_THREADS = 8
"""Files written at once: a store's answer, and a disk's sync, take milliseconds each."""
_WAITING_FILES = 4 * _THREADS
_PACKAGE = "memagent_batch.apps.pages"


class WrittenSite(TypedDict):
    """Where a site is, and what it shows."""

    page: str
    summary: str
    """Its text; beside it lie the same as HTML and as JSON."""
    run_id: str
    readings: int
    documents: int
    files: int
    """Of the site."""
    new_files: int
    """Of these, files that the site before did not have."""
    bytes: int
    """Of all files of the site."""
    page_images: int
    """Pages of PDFs that are shown as images."""
    documents_without_images: int
    """Documents of which such a page can't be shown; their pages say why."""


class SiteFiles:
    """The files of one build, each named by the hash of its content; writes those that the newest build lacks."""

    def __init__(self, target: Location, threads: ThreadPoolExecutor) -> None:
        """Begins a build, with a record that is empty.

        Raises:
            StorageError: the target can't be listed or written.
        """
        self.target = target
        self.build = f"{datetime.now(UTC):{_BUILD_TIME}}-{uuid.uuid4().hex[:6]}"
        self.record = target / f"{BUILDS_FOLDER}/{self.build}"
        self.paths = set[str]()
        """Files of the build, below the target."""
        self.num_new = 0
        self.num_bytes = 0
        self._threads = threads
        self._waiting: deque[Future[None]] = deque()
        newest = next(filter(None, reversed(read_builds(target).values())), frozenset())
        self._there = newest & {*files_of(target)}  # somebody may have removed files by hand
        self.record.write_bytes(b"")

    def write_image(self, data: bytes) -> str:
        """Returns the link to an image from the page of a document; see `write`."""
        return SHEET_TO_ROOT + self.write(IMAGES_FOLDER, data, ending="png")

    def write(self, folder: str, data: bytes, *, ending: str = "html") -> str:
        """Returns the path of a file below the target; it is there once `finish` returns."""
        name = sha256(data).hexdigest()[:NAME_DIGITS]
        path = f"{folder}/{name[:2]}/{name}.{ending}"
        if path not in self.paths:
            self.paths.add(path)
            self.num_bytes += len(data)
            if path not in self._there:
                self.num_new += 1
                self._waiting.append(self._threads.submit((self.target / path).write_bytes, data))
        while len(self._waiting) > _WAITING_FILES:
            self._waiting.popleft().result()
        return path

    def finish(self) -> None:
        """Returns when all files are there, and the record lists them."""
        while self._waiting:
            self._waiting.popleft().result()
        self.record.write_bytes("\n".join(sorted(self.paths)).encode())


def files_of(target: Location) -> dict[str, str]:
    """Paths of all files of a site as the file system lists them, by their paths below the target."""
    root = f"{target.path.rstrip('/')}/"
    return {path.removeprefix(root): path for path in target.files(temporary=True)}


def read_builds(target: Location) -> dict[str, frozenset[str]]:
    """Files of each build of a site, by the build's name, the oldest first; an empty set if the build has not ended.

    Raises:
        StorageError: a record can't be read.
    """
    names = sorted(path.rsplit("/", 1)[-1] for path in (target / BUILDS_FOLDER).files())
    records = {name: (target / f"{BUILDS_FOLDER}/{name}").read_bytes_if_there() for name in names}
    return {name: frozenset(data.decode().split()) for name, data in records.items() if data is not None}


class AnswerTable:
    """The table of all answers, which fills a file after another."""

    def __init__(self, files: SiteFiles, *, changes: RunChanges) -> None:
        self.paths: list[str] = []
        """Files that are written."""
        self.outcomes: Counter[str] = Counter()
        """Answers, by what became of them."""
        self.num_signed = 0
        self.question_ids: set[str] = set()
        self.num_documents = 0
        self.files = files
        self._changes = changes
        self._rows: list[list[Any]] = []
        self._questions: dict[tuple[str, str, str | None, str | None], int] = {}
        """The questions of a file, by their place in its list: id, text, type and unit."""
        self.summary = Summary()

    def add(self, sheet: Sheet, *, path: str) -> None:
        """Adds a row for each reading of a sheet, whose page has this path."""
        self.num_documents += 1
        for place, view in enumerate(sheet.readings):
            href = f"{path}#r-{place}"
            self.summary.add(view, need=view.need, href=href)
            self._rows.append(self._row(view, href=href))
            self.outcomes[view.outcome] += 1
            self.num_signed += view.signed is not None
            self.question_ids.add(view.answer["question_id"])
            if len(self._rows) == ROWS_PER_FILE:
                self.write()

    def write(self) -> None:
        """Writes the rows that no file has yet."""
        if not self._rows:
            return
        data = {"questions": [list(question) for question in self._questions], "rows": self._rows}
        self.paths.append(self.files.write(ROWS_FOLDER, frame_page(_page_templates(), data)))
        self._rows, self._questions = [], {}

    def _row(self, view: ReadingView, *, href: str) -> list[Any]:
        answer = view.answer
        question = (answer["question_id"], brief(answer["question"]), answer["answer_type"], answer["value_unit"])
        change = view.change.kind.value.replace("added", "new") if view.change else "unchanged"
        chosen = next((row for row in view.evidence if row["how"] == How.CHOSEN and row["text"]), None)
        return [
            answer["document_id"],
            self._questions.setdefault(question, len(self._questions)),
            answer["sample"],
            answer["status"],
            view.outcome,
            brief(view.value),
            answer["value_number"] if view.replaced is None else None,
            brief(said_words(answer)),
            *((answer["confidence"], answer["support"]) if view.replaced is None else (None, None)),
            change if self._changes.is_known else None,
            href,
            brief(view.change.value_before or view.change.before or "") if view.change else "",
            view.need if view.signed is None else len(NEEDS),
            brief(view.signed or ""),
            view.hash,
            *((brief(chosen["text"]), brief(place_of(chosen))) if chosen else ("", "")),
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class _ShownRun:
    """The last finished run of an output, as the site shows it."""

    run: PastRun
    changes: RunChanges
    texts: DocumentTexts | None
    """None without evidence."""
    sources: SourceFiles

    def sheets(self) -> Iterator[Sheet]:
        """The documents of the run."""
        output = self.run.output
        view = partial(
            view_reading,
            manifest=self.run.manifest,
            changes=self.changes,
            signed=SignOffs(output),
            output=str(output).rstrip("/"),
        )
        for document_id, readings in groupby(stream_readings(self.run), key=attrgetter("document_id")):
            yield Sheet(document_id=document_id, readings=tuple(map(view, readings)))

    def passages(
        self, sheets: Sequence[Sheet], *, context_chars: int, images: PageImages | None
    ) -> dict[str, list[list[Window]]]:
        """The passages round the evidence of each reading, by document; those without a text to show are left out.

        The pages on which it stands are drawn, too, if there are to be `images`.
        """
        marked = {sheet.document_id: sheet for sheet in sheets if any(view.marks for view in sheet.readings)}
        passages: dict[str, list[list[Window]]] = {}
        for document in self.texts.fetch([*marked]) if self.texts else ():
            sheet = marked[document.document_id]
            passages[document.document_id] = [
                windows(document.text, view.marks, context_chars=context_chars) for view in sheet.readings
            ]
            if images is not None:
                images.draw(sheet, document, self.sources)
        return passages


def write_site(
    outputs: Sequence[Location],
    target: Location,
    *,
    context_chars: int,
    is_large_allowed: bool,
    has_page_images: bool = False,
) -> WrittenSite:
    """Writes the site of the last finished run of one or several outputs, such as slices, whole or not at all.

    `context_chars` of the document stand on either side of evidence. It shows more than `LARGE_ANSWERS` only if that
    is allowed. With `has_page_images` the source files are read again, and the pages of PDFs shown as images.

    Raises:
        OutputError: no run has finished, a table is gone, the target holds other files, or the site is too large.
        InputError: texts are to be shown, and the documents can't be reached.
        StorageError: the site can't be written.
    """
    past_runs, later_runs = list[PastRun](), []
    for output in outputs:
        with output_errors(output.uri):
            past_runs.append(find_run(output))
            later_runs.append(warn_of_later_run(output, past_runs[-1].manifest))
    read_owner_record(target, SITE_RECORD_FILE, layout=LAYOUT, remedy="choose an empty folder with --to")
    num_answers = sum(run.manifest["counts"]["answers_rows"] for run in past_runs)
    if num_answers > LARGE_ANSWERS and not is_large_allowed:
        raise OutputError(
            f"the site would show {num_answers:,} answers; more than {LARGE_ANSWERS:,} take about 1 GB: pass --yes to "
            "write it"
        )
    runs = []
    for run in past_runs:
        batches = run.evidence().to_batches(columns=["document_id", "document_hash"])
        wanted = {row["document_id"]: row["document_hash"] for batch in batches for row in batch.to_pylist()}
        texts = DocumentTexts(run.output, run.manifest, wanted=wanted) if wanted else None
        runs.append(_ShownRun(run=run, changes=changes_of(run), texts=texts, sources=SourceFiles(run)))
    later = [*filter(None, later_runs)]
    return _write_pages(runs, target, context_chars=context_chars, later_runs=later, has_page_images=has_page_images)


def _write_pages(
    runs: Sequence[_ShownRun],
    target: Location,
    *,
    context_chars: int,
    later_runs: Sequence[str],
    has_page_images: bool,
) -> WrittenSite:
    manifest = _joined_manifest([run.run.manifest for run in runs])
    changes = _joined_changes([run.changes for run in runs])
    removed = [name for run in runs for name in run.changes.removed][:SHOWN_REMOVED]
    with open_site(target) as files, ExitStack() as stack:
        images = stack.enter_context(PageImages(files.write_image)) if has_page_images else None
        table = AnswerTable(files, changes=changes)
        for run in runs:
            for sheets in into_batches(
                run.sheets(), size=lambda sheet: len(sheet.readings), max_size=PAGE_BATCH_READINGS
            ):
                passages = run.passages(sheets, context_chars=context_chars, images=images)
                for sheet in sheets:
                    values = template_values(sheet, passages.get(sheet.document_id, []))
                    values |= {"since": run.changes.since, "index": SHEET_TO_INDEX}
                    values["images"] = images and images.take(sheet)
                    values["site"] = {
                        "columns": SIGN_SHEET_COLUMNS,
                        "root": SHEET_TO_ROOT,
                        "readings": [*map(_to_sign, sheet.readings)],
                    }
                    page = render("document.html", values, scripts=("sign.js",), images=has_page_images)
                    table.add(sheet, path=files.write(DOCUMENTS_FOLDER, page))
        table.write()
        values = _index_values(table, runs, manifest=manifest, changes=changes)
        values |= {"documents_folder": DOCUMENTS_FOLDER, "later_runs": later_runs, "removed": removed}
        index = render("index.html", values, scripts=("sign.js", "grid.js"), frames=True)
        publish_site(files, index)
    summary = table.summary.values(manifest, changes=changes, removed=removed) | {"later_runs": later_runs}
    text = _page_templates().get_template(TEXT_FILE).render(**summary)
    written = {
        TEXT_FILE: text.encode("utf-8", errors="backslashreplace"),
        "summary.html": render("summary.html", summary),
        "summary.json": json_bytes(summary),
    }
    for name, data in written.items():
        (target / name).write_bytes(data)
    return WrittenSite(
        page=str(target / SITE_INDEX_FILE),
        summary=str(target / TEXT_FILE),
        run_id=manifest["run_id"],
        readings=table.outcomes.total(),
        documents=table.num_documents,
        files=len(files.paths) + 1 + len(written),
        new_files=files.num_new + 1 + len(written),
        bytes=files.num_bytes + len(index) + sum(map(len, written.values())),
        page_images=images.num_images if images else 0,
        documents_without_images=images.num_without if images else 0,
    )


def _joined_manifest(manifests: Sequence[Manifest]) -> Manifest:
    """What the site says of all runs together: sums, the names of all, the longest time."""
    joined: Any = {**manifests[0], "run_id": ", ".join(manifest["run_id"] for manifest in manifests)}
    for name in ("counts", "spent", "totals"):
        if all(manifest.get(name) for manifest in manifests):
            joined[name] = _summed([cast("Any", manifest)[name] for manifest in manifests])
    if all("cost" in manifest for manifest in manifests):
        joined["cost"] = sum(manifest["cost"] for manifest in manifests)
    changes = [manifest["changes"] for manifest in manifests]
    joined["changes"] = {name: _summed([each[name] for each in changes]) for name in ("documents", "readings")}
    for name in ("finished_at", "seconds"):
        joined[name] = max(cast("Any", manifest)[name] for manifest in manifests)
    return cast("Manifest", joined)


def _summed(counts: Sequence[Mapping[str, int]]) -> dict[str, int]:
    return {name: sum(each.get(name, 0) for each in counts) for name in counts[0]}


def _joined_changes(changes: Sequence[RunChanges]) -> RunChanges:
    """What all runs changed; since when is said of none if one of them is the first of its output."""
    since = [each.since for each in changes if each.since is not None]
    return RunChanges(
        since=", ".join(since) if len(since) == len(changes) else None,
        readings={key: change for each in changes for key, change in each.readings.items()},
        num_removed=sum(each.num_removed for each in changes),
        problem=next((each.problem for each in changes if each.problem), None),
    )


def _index_values(
    table: AnswerTable, runs: Sequence[_ShownRun], *, manifest: Manifest, changes: RunChanges
) -> dict[str, Any]:
    counted = Counter(change.kind.value.replace("added", "new") for change in changes.readings.values())
    num_readings = table.outcomes.total()
    models = dict.fromkeys(run.run.manifest["settings"]["model"] for run in runs)
    return {
        "name": ", ".join(_name_of(run.run.output) for run in runs),
        "run_id": manifest["run_id"],
        "finished_at": manifest["finished_at"][:16].replace("T", " ") + " UTC",
        "model": manifest["settings"]["model"],
        "limits": [MODEL_LIMITS[model] for model in models if model in MODEL_LIMITS],
        "policy_kind": manifest["settings"]["policy"]["kind"],
        "changes": changes,
        "facts": {
            "documents": table.num_documents,
            "questions": len(table.question_ids),
            "asked": num_readings,
            **{outcome: table.outcomes[outcome] for outcome in OUTCOMES if table.outcomes[outcome]},
            **(dict.fromkeys(("changed", "new"), 0) | dict(counted) if changes.is_known else {}),
            **({"signed off": table.num_signed} if table.num_signed else {}),
        },
        "estimates": [each for run in runs for each in latest_estimates(run.run.output)],
        "measures": list(Measure),
        "site": {
            "columns": SIGN_SHEET_COLUMNS,
            "root": "./",
            "files": table.paths,
            "num_readings": num_readings,
            "needs": NEEDS,
        },
    }


def _name_of(output: Location) -> str:
    """What people call an output: its folder; of the answers of a scan, the scan's."""
    parts = str(output).rstrip("/").split("/")
    return parts[-2] if parts[-1] == ANSWERS_TABLE and len(parts) > 1 else parts[-1]


def _to_sign(view: ReadingView) -> dict[str, Any]:
    row = view.answer
    asked = {"question": row["question_id"], "type": row["answer_type"], "unit": row["value_unit"]}
    reading = {"doc": row["document_id"], **asked, "sample": row["sample"], "hash": view.hash}
    return reading | {"signed": view.signed is not None, "outcome": view.outcome}


@contextmanager
def open_site(target: Location) -> Iterator[SiteFiles]:
    """Begins a new build. If the block fails, the site that was there stays; a later build removes what was written.

    The caller ends it with `publish_site`.
    """
    if not (target / SITE_RECORD_FILE).exists():
        (target / SITE_RECORD_FILE).write_bytes(json_bytes({"format": LAYOUT}))
    with ThreadPoolExecutor(_THREADS) as threads:
        files = SiteFiles(target, threads)
        try:
            yield files
        except BaseException:
            threads.shutdown(wait=True, cancel_futures=True)
            files.record.delete()
            raise


def publish_site(files: SiteFiles, index: bytes) -> None:
    """Shows the build, by the one write of the index, and removes files that no build needs any more.

    The files of a build stay until a later one is a day old: until then another build may be using them.
    """
    files.finish()
    target = files.target
    (target / SITE_INDEX_FILE).write_bytes(index)
    listed = files_of(target)
    builds = read_builds(target)  # behind the list of files: the record of a build is there before its files are
    long_ago = f"{datetime.now(UTC) - LONGEST_BUILD:{_BUILD_TIME}}"
    newest_old = max((name for name, paths in builds.items() if paths and name < long_ago), default="")
    dead = {name for name, paths in builds.items() if name < (newest_old if paths else long_ago)} - {files.build}
    _remove_builds(target, dead, builds=builds, listed=listed)


def vacuum_site(target: Location) -> int:
    """Removes at once what the newest build of a site does not show; returns the number of files, 0 without a site.

    While another build is being written, only records of earlier builds go: which files it shares is not known.

    Raises:
        StorageError: the site can't be listed, or a file can't be removed.
    """
    if not (target / SITE_RECORD_FILE).exists():
        return 0
    listed = files_of(target)
    builds = read_builds(target)
    newest = max((name for name, paths in builds.items() if paths), default="")
    dead = {name for name, paths in builds.items() if paths and name < newest}
    return _remove_builds(target, dead, builds=builds, listed=listed)


def _remove_builds(
    target: Location, dead: Collection[str], *, builds: Mapping[str, frozenset[str]], listed: Mapping[str, str]
) -> int:
    """Removes the records of builds, and files that no other build has; returns their number."""
    unneeded = {f"{BUILDS_FOLDER}/{name}" for name in dead}
    kept = [builds[name] for name in builds.keys() - {*dead}]
    if all(kept):  # else one is being written: which files it has is not known
        needed = frozenset[str]().union(*kept)
        unneeded |= {path for path in listed if _FILE_OF_BUILD.match(path) and path not in needed}
    removed = [listed[path] for path in unneeded if path in listed]
    target.delete_files(removed)
    return len(removed)


def render(
    template: str,
    values: Mapping[str, Any],
    *,
    scripts: Sequence[str] = (),
    frames: bool = False,
    images: bool = False,
) -> bytes:
    """A page, UTF-8."""
    return page_bytes(
        _page_templates().get_template(template),
        values,
        style=page_style(_PACKAGE, "pages.css"),
        script=page_script(_PACKAGE, *scripts) if scripts else None,
        frames=frames,
        images=images,
    )


@cache
def _page_templates() -> jinja2.Environment:
    environment = page_environment((_PACKAGE, "."))
    environment.filters |= {"percent": percent, "run_time": run_time, "share": share_words}
    environment.globals["confidence_meaning"] = CONFIDENCE_MEANING
    return environment
