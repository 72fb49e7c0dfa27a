"""The page that people label on: static, without a server, blind until a label is saved.

The page itself holds no answer. Texts and answers lie in files beside it, one for each document, which hand what they
hold to the page through a frame; an answer's file is asked for once its label is saved. No page runs a script but its
own, by its hash. A person who opens the files of answers by hand sees them: a static page can't keep them locked.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cache
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.review.estimates import CountedLabels
from memagent_batch.apps.review.labels import NO, YES
from memagent_batch.apps.review.population import SampleRow, rows_of_question
from memagent_batch.apps.review.record import Review
from memagent_batch.apps.review.sheet import SHEET_COLUMNS, sheet_bytes
from memagent_batch.apps.templates.pages import frame_page, page_bytes, page_environment, page_script, page_style
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.run.document_texts import DocumentTexts
from memagent_batch.run.evidence import How
from memagent_batch.run.history import PastRun
from memagent_batch.run.tables import ANSWERS_TABLE, EVIDENCE_TABLE

DOCUMENT_FRAMES_FOLDER, ANSWER_FRAMES_FOLDER = "documents", "answers"
NAME_DIGITS = 20
"""Digits of the permanent random number that name a part's file: they say nothing of the stratum."""
_PACKAGE = "memagent_batch.apps.review"
SHOWN_ANSWER_COLUMNS = ("document_id", "status", "answer", "value", "value_status", "error_message")
SHOWN_EVIDENCE_COLUMNS = ("document_id", "how", "rank", "text")
ROLES = ("first", "second", "third")
"""People who read, in the order in which they do."""


def units_left(counted: CountedLabels) -> dict[str, list[SampleRow]]:
    """Readings that the first, second and third reviewer have to label.

    A second person reads a share by lot, and all whose label contradicts the scan; a third one where two disagree.
    """
    left: dict[str, list[SampleRow]] = {role: [] for role in ROLES}
    for unit in counted.units:
        values = [label["value"] for label in unit.labels]
        needs_second = unit.drawn["is_second"] or unit.contradicts
        if not values and not unit.is_unclear:
            left["first"].append(unit.drawn)
        elif len(values) == 1 and needs_second:
            left["second"].append(unit.drawn)
        elif len(values) == 2 and values[0] != values[1]:
            left["third"].append(unit.drawn)
    return left


def write_labelling(
    runs: Sequence[PastRun], review: Review, left: Mapping[str, Sequence[SampleRow]], *, with_page: bool
) -> dict[str, Location]:
    """Writes pages and sheets of what is left into the review's folder; removes those that nobody needs any more.

    Returns:
        The pages that there are to label on, by reviewer.
    """
    if with_page:
        _write_frames(runs, review, {unit["document_id"]: unit for units in left.values() for unit in units})
    pages = dict[str, Location]()
    for role, units in left.items():
        end = "" if role == ROLES[0] else f"-{role}"
        page, sheet = review.folder / f"page{end}.html", review.folder / f"labels{end}.csv"
        if not units:
            page.delete()
            sheet.delete()
            continue
        if with_page:
            page.write_bytes(_label_page(review, units, role=role))
        if page.exists():
            pages[role] = page
        sheet.write_bytes(sheet_bytes(units, review=review))
    return pages


def _label_page(review: Review, units: Sequence[SampleRow], *, role: str) -> bytes:
    """The page for these readings of a sample, in their order. It holds neither answer nor stratum.

    `role`: whose page it is: first, second or third; labels of each are kept apart in the browser.
    """
    shown = {"document_id", "question", "document_hash", "question_hash", "source", "source_unread"}
    values = {
        "review_id": review.record["review_id"],
        "choices": [YES, NO],
        "instruction": review.instruction,
        "role": role,
        "columns": list(SHEET_COLUMNS),
        "items": [
            {"name": _frame_name(unit), **{name: value for name, value in unit.items() if name in shown}}
            for unit in units
        ],
    }
    return page_bytes(
        _label_templates().get_template("label.html"),
        {"review": values},
        style=page_style(_PACKAGE, "label.css"),
        script=page_script(_PACKAGE, "label.js"),
        frames=True,
    )


def _write_frames(runs: Sequence[PastRun], review: Review, units: Mapping[str, SampleRow]) -> None:
    """Writes the files beside the pages: texts of documents that are not there yet, and all answers."""

    def write(folder: str, unit: SampleRow, values: Mapping[str, Any]) -> None:
        (review.folder / f"{folder}/{_frame_name(unit)}.html").write_bytes(frame_page(_label_templates(), values))

    written = {path.rpartition("/")[2] for path in (review.folder / DOCUMENT_FRAMES_FOLDER).files()}
    new = {name: unit for name, unit in units.items() if f"{_frame_name(unit)}.html" not in written}
    for run in runs if new else ():
        wanted = {name: unit["document_hash"] for name, unit in new.items()}
        texts = DocumentTexts(run.output, run.manifest, wanted=wanted)
        for document in texts.fetch(texts.document_ids):
            write(DOCUMENT_FRAMES_FOLDER, new[document.document_id], {"text": document.text})
    question_id = review.record["question_id"]
    answers, evidence = (
        _rows_by_document(rows_of_question(runs, table, question_id=question_id, columns=columns), units)
        for table, columns in ((ANSWERS_TABLE, SHOWN_ANSWER_COLUMNS), (EVIDENCE_TABLE, SHOWN_EVIDENCE_COLUMNS))
    )
    for name, unit in units.items():
        chosen = sorted((row for row in evidence[name] if row["how"] == How.CHOSEN), key=lambda row: row["rank"])
        value, answer = _answer_words(answers[name][-1]) if answers[name] else ("nothing: the reading is gone", "")
        sentences = [row["text"] or "" for row in chosen]
        write(ANSWER_FRAMES_FOLDER, unit, {"value": value, "answer": answer, "evidence": sentences})


def _frame_name(unit: SampleRow) -> str:
    return unit["number"][:NAME_DIGITS]


def _answer_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """Value and answer of a row of `answers`, as the page shows them."""
    if row["status"] != "ok":
        return f"nothing: {row['status']}", row["error_message"] or ""
    answer, status, value = row["answer"] or "", row["value_status"], row["value"]
    if status is None:
        return answer or "nothing", answer
    if status != "ok" or value is None:
        return status.replace("_", " "), answer
    return {"true": "yes", "false": "no"}.get(value, value), answer


def _rows_by_document(tables: Iterable[pa.Table], document_ids: Collection[str]) -> defaultdict[str, list[Row]]:
    found, wanted = defaultdict[str, list[Row]](list), pa.array(document_ids, pa.string())
    for rows in tables:
        for row in rows.filter(pc.field("document_id").isin(wanted)).to_pylist():
            found[row["document_id"]].append(row)
    return found


@cache
def _label_templates() -> jinja2.Environment:
    return page_environment((_PACKAGE, "."))
