"""The page that people label on: static, without a server, blind until a label is saved.

The page itself holds no answer. Texts and answers lie in files beside it, one for each document, which hand what they
hold to the page through a frame; an answer's file is asked for once its label is saved. No page runs a script but its
own, by its hash. A person who opens the files of answers by hand sees them: a static page can't keep them locked.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import jinja2
import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.apps.review.estimates import CountedLabels, LabelledUnit, contradicts
from memagent_batch.apps.review.labels import NO, YES
from memagent_batch.apps.review.population import ReviewedScan, SampleRow
from memagent_batch.apps.review.record import Review
from memagent_batch.apps.review.sheet import SHEET_COLUMNS, sheet_bytes
from memagent_batch.apps.templates.pages import frame_page, page_bytes, page_environment, page_script, page_style
from memagent_batch.data.documents.document_index import SOURCE_UNREAD
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.run.document_texts import DocumentTexts
from memagent_batch.run.evidence import How
from memagent_batch.run.tables import ANSWERS_TABLE, EVIDENCE_TABLE

DOCUMENT_FRAMES_FOLDER, ANSWER_FRAMES_FOLDER = "documents", "answers"
NAME_DIGITS = 20
"""Digits of the permanent random number that name a part's file: they say nothing of the stratum."""
_PACKAGE = "memagent_batch.apps.review.labelling"
SHOWN_ANSWER_COLUMNS = ("document_id", "status", "answer", "value", "value_status", "error_message")
SHOWN_EVIDENCE_COLUMNS = ("document_id", "how", "rank", "text")
ROLES = ("first", "second", "third")
"""People who read, in the order in which they do."""


def label_page(review: Review, units: Sequence[SampleRow], *, role: str) -> bytes:
    """The page for these readings of a sample, in their order. It holds neither answer nor stratum.

    `role`: whose page it is: first, second or third; labels of each are kept apart in the browser.
    """
    record = review.record
    items = [
        {
            "name": part_name(each),
            "document_id": each["document_id"],
            "question": each["question"],
            "document_hash": each["document_hash"],
            "question_hash": each["question_hash"],
            "source": each.get("source"),
            "source_unread": each.get(SOURCE_UNREAD),
        }
        for each in units
    ]
    values = {
        "review_id": record["review_id"],
        "choices": [YES, NO],
        "instruction": review.instruction,
        "role": role,
        "columns": list(SHEET_COLUMNS),
        "items": items,
    }
    return page_bytes(
        _label_templates().get_template("label.html"),
        {"review": values},
        style=page_style(_PACKAGE, "label.css"),
        script=page_script(_PACKAGE, "label.js"),
        frames=True,
    )


def document_part(text: str) -> bytes:
    """A document's file: its whole text."""
    return frame_page(_label_templates(), {"text": text})


def answer_part(row: Mapping[str, Any] | None, evidence: Sequence[Mapping[str, Any]]) -> bytes:
    """An answer's file, of its row of `answers`, if the run still has it, and its rows of `evidence`."""
    chosen = sorted((each for each in evidence if each["how"] == How.CHOSEN), key=lambda each: each["rank"])
    value, answer = ("nothing: the reading is gone", "") if row is None else _answer_words(row)
    values = {"value": value, "answer": answer, "evidence": [each["text"] or "" for each in chosen]}
    return frame_page(_label_templates(), values)


def part_name(drawn: SampleRow) -> str:
    """Name of a reading's files."""
    return drawn["number"][:NAME_DIGITS]


@dataclass(frozen=True, slots=True, kw_only=True)
class WrittenLabelling:
    """What was written."""

    left: Mapping[str, int]
    pages: Mapping[str, Location]
    """Pages that there are to label on, by reviewer."""


def units_left(counted: CountedLabels) -> dict[str, list[SampleRow]]:
    """Readings that the first, second and third reviewer have to label.

    A second person reads a share by lot, and all whose label contradicts the scan; a third one where two disagree.
    """
    left: dict[str, list[SampleRow]] = {role: [] for role in ROLES}
    for unit in counted.units:
        role = _role(unit)
        if role is not None:
            left[role].append(unit.drawn)
    return left


def write_labelling(scan: ReviewedScan, review: Review, counted: CountedLabels, *, with_page: bool) -> WrittenLabelling:
    """Writes pages and sheets into the review's folder; removes those that nobody needs any more."""
    left = units_left(counted)
    needed = [unit for units in left.values() for unit in units]
    if with_page:
        _write_parts(scan, review, needed)
    pages = dict[str, Location]()
    for role, units in left.items():
        end = "" if role == ROLES[0] else f"-{role}"
        files = (review.folder / f"page{end}.html", review.folder / f"labels{end}.csv")
        if not units:
            for file in files:
                file.delete()
            continue
        if with_page:
            files[0].write_bytes(label_page(review, units, role=role))
        if files[0].exists():
            pages[role] = files[0]
        files[1].write_bytes(sheet_bytes(units, review=review))
    return WrittenLabelling(left={role: len(units) for role, units in left.items()}, pages=pages)


def _answer_words(row: Mapping[str, Any]) -> tuple[str, str]:
    if row["status"] != "ok":
        return f"nothing: {row['status']}", row.get("error_message") or ""
    answer = row.get("answer") or ""
    status, value = row.get("value_status"), row.get("value")
    if status is None:
        return answer or "nothing", answer
    if status != "ok" or value is None:
        return str(status).replace("_", " "), answer
    return {"true": "yes", "false": "no"}.get(value, value), answer


@cache
def _label_templates() -> jinja2.Environment:
    return page_environment((_PACKAGE, "."))


def _role(unit: LabelledUnit) -> str | None:
    if unit.is_unclear:
        return None
    values = [label["value"] for label in unit.labels]
    if not values:
        return ROLES[0]
    if len(values) == 1 and (unit.drawn["is_second"] or contradicts(unit)):
        return ROLES[1]
    return ROLES[2] if len(values) == 2 and values[0] != values[1] else None


def _write_parts(scan: ReviewedScan, review: Review, needed: Sequence[SampleRow]) -> None:
    """Writes the parts of pages that are not there yet."""
    units = {unit["document_id"]: unit for unit in needed}
    there = {path.rpartition("/")[2] for path in (review.folder / DOCUMENT_FRAMES_FOLDER).files()}
    new = {name: unit for name, unit in units.items() if f"{part_name(unit)}.html" not in there}
    for run in scan.runs if new else ():
        wanted = {name: unit["document_hash"] for name, unit in new.items()}
        texts = DocumentTexts(run.output, run.manifest, wanted=wanted)
        for document in texts.fetch(texts.document_ids):
            place = _frame_place(review, DOCUMENT_FRAMES_FOLDER, new[document.document_id])
            place.write_bytes(document_part(document.text))
    question_id = review.record["question_id"]
    answers, evidence = (
        _rows_by_document(scan.rows_of_question(table, question_id=question_id, columns=columns), units)
        for table, columns in ((ANSWERS_TABLE, SHOWN_ANSWER_COLUMNS), (EVIDENCE_TABLE, SHOWN_EVIDENCE_COLUMNS))
    )
    for name, unit in units.items():
        row = answers[name][-1] if answers[name] else None
        _frame_place(review, ANSWER_FRAMES_FOLDER, unit).write_bytes(answer_part(row, evidence[name]))


def _rows_by_document(tables: Iterable[pa.Table], document_ids: Collection[str]) -> defaultdict[str, list[Row]]:
    found, wanted = defaultdict[str, list[Row]](list), pa.array(document_ids, pa.string())
    for rows in tables:
        for row in rows.filter(pc.field("document_id").isin(wanted)).to_pylist():
            found[row["document_id"]].append(row)
    return found


def _frame_place(review: Review, folder: str, unit: SampleRow) -> Location:
    return review.folder / f"{folder}/{part_name(unit)}.html"
