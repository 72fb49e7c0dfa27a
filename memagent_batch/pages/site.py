"""The answers of a finished run as a site without a server: a table of all answers, and a page for each document.

One pass over the tables of the run; held are the readings of some pages, and a note on every answer that changed.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, TypedDict

from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.evaluation.report.visible import shorten
from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.pages.document_page import (
    MAX_SHEET_READINGS,
    Passages,
    ReadingView,
    Sheet,
    Window,
    template_values,
    view_reading,
    windows,
)
from memagent_batch.pages.readings import OUTCOMES, RunChanges, changes_of, documents_of, stream_readings, table_rows
from memagent_batch.pages.site_files import SiteFiles, claim_site, open_site, publish, render, render_frame
from memagent_batch.runs.document_texts import DocumentTexts
from memagent_batch.runs.estimates import latest_estimates
from memagent_batch.runs.manifest import Manifest, require_manifest

LARGE_ANSWERS = 100_000
"""Answers above which a site is written only if the user allows it: at some 11 kB each it takes 1 GB."""
ROWS_PER_FILE = 1_000
"""Most rows of the table in one file."""
BATCH_READINGS = 200
"""Readings whose texts are fetched together, about."""
MAX_CELL_CHARACTERS = 240
"""Of an answer or question, characters in the table."""
SHEET_TO_INDEX = "../../../index.html"
"""From a document's page to the index."""


class WrittenSite(TypedDict):
    """Where a site is, and what it shows."""

    page: str
    run_id: str
    readings: int
    documents: int
    documents_without_text: int
    files: int
    bytes: int


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
    claim_site(target)
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
        while num_readings < BATCH_READINGS and (following := next(sheets, None)):
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
                shown = _sheet_windows(sheet, fetched.text, context_chars=context_chars)
                found[sheet.number] = Passages(windows=shown)
    return found


def _sheet_windows(sheet: Sheet, text: str, *, context_chars: int) -> tuple[list[Window], ...]:
    return tuple(windows(text, view.marks, context_chars=context_chars) for view in sheet.readings)


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
