"""The page that people label on: static, without a server, blind until a label is saved.

The page itself holds no answer. Texts and answers lie in files beside it, one for each document, which hand what they
hold to the page through a frame; an answer's file is asked for once its label is saved. No page runs a script but its
own, by its hash. A person who opens the files of answers by hand sees them: a static page can't keep them locked.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

import jinja2

from memagent_batch.evaluation.report.templates import frame_page, page_bytes, page_environment
from memagent_batch.evaluation.report.visible import visible
from memagent_batch.review.labels.sheet import SHEET_COLUMNS
from memagent_batch.review.sample.draw import DrawnUnit
from memagent_batch.review.sample.record import Review

DOCUMENT_FRAMES_FOLDER, ANSWER_FRAMES_FOLDER = "documents", "answers"
"""Folders of the parts, beside the page."""
NAME_DIGITS = 20
"""Digits of the permanent random number that name a part's file: they say nothing of the stratum."""

_PAGE_FILES = files("memagent_batch.review") / "labelling"


def label_page(review: Review, units: Sequence[DrawnUnit], *, role: str) -> bytes:
    """The page for these readings of a sample, in their order. It holds neither answer nor stratum.

    `role`: whose page it is: first, second or third; labels of each are kept apart in the browser.
    """
    style = (files("memagent_batch.evaluation") / "report" / "page.css").read_text(encoding="utf-8")
    record = review.record
    items = [
        {
            "name": part_name(each),
            "document_id": each.unit.document_id,
            "shown": visible(each.unit.document_id),
            "question": each.unit.question,
            "shown_question": visible(each.unit.question),
            "document_hash": each.unit.document_hash,
            "question_hash": each.unit.question_hash,
        }
        for each in units
    ]
    values = {
        "review_id": record["review_id"],
        "choices": record["choices"],
        "instruction": visible(review.instruction),
        "role": role,
        "columns": list(SHEET_COLUMNS),
        "items": items,
    }
    return page_bytes(
        _environment().get_template("label.html"),
        {"review": values},
        style=style + _file_text("label.css"),
        script=_file_text("label.js"),
        frames=True,
    )


def document_part(text: str | None) -> bytes:
    """A document's file: its whole text, with a sign for each character that can't be seen; None where it is gone."""
    return frame_page(_environment(), {"text": None if text is None else visible(text)})


def answer_part(row: Mapping[str, Any] | None, evidence: Sequence[Mapping[str, Any]]) -> bytes:
    """An answer's file.

    Args:
        row: Its row of `answers`; None where the run has none any more.
        evidence: Its chosen rows of `evidence`.
    """
    sentences = [
        {"text": visible(each["text"] or ""), "start": each["char_start"], "end": each["char_end"]} for each in evidence
    ]
    value, answer = ("nothing: the reading is gone", "") if row is None else _answer_words(row)
    values = {"value": visible(value), "answer": visible(answer), "evidence": sentences}
    return frame_page(_environment(), values)


def part_name(drawn: DrawnUnit) -> str:
    """Name of a reading's files."""
    return drawn.number[:NAME_DIGITS]


def _answer_words(row: Mapping[str, Any]) -> tuple[str, str]:
    """The value in a few words, and the answer."""
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
def _environment() -> jinja2.Environment:
    packages = (("memagent_batch.review", "labelling"), ("memagent_batch.evaluation", "report"))
    return page_environment(jinja2.ChoiceLoader([jinja2.PackageLoader(*each) for each in packages]))


@cache
def _file_text(name: str) -> str:
    return (_PAGE_FILES / name).read_text(encoding="utf-8")
