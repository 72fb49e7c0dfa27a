"""The page that people label on: static, without a server, blind until a label is saved.

The page itself holds no answer. Texts and answers lie in files beside it, one for each document, which hand what they
hold to the page through a frame; an answer's file is asked for once its label is saved. No page runs a script but its
own, by its hash. A person who opens the files of answers by hand sees them: a static page can't keep them locked.
"""

import base64
import json
from collections.abc import Mapping, Sequence
from functools import cache
from hashlib import sha256
from importlib.resources import files
from typing import Any

import jinja2
from markupsafe import Markup

from memagent_batch.evaluation.report.visible import visible
from memagent_batch.review.labels.sheet import COLUMNS
from memagent_batch.review.sample.draw import DrawnUnit
from memagent_batch.review.sample.record import Review

DOCUMENTS_FOLDER, ANSWERS_FOLDER = "documents", "answers"
"""Folders of the parts, beside the page."""
NAME_DIGITS = 20
"""Digits of the permanent random number that name a part's file: they say nothing of the stratum."""

_HERE = files("memagent_batch.review") / "labelling"
_UNSAFE_IN_JSON = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)
"""Characters of JSON that could end the element that holds it, or that older script engines end a line at."""


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
        "role": role,
        "columns": list(COLUMNS),
        "items": items,
    }
    return _render("label.html", {"review": values}, script="label.js", style=style + _source("label.css"))


def document_part(text: str | None) -> bytes:
    """A document's file: its whole text, with a sign for each character that can't be seen; None where it is gone."""
    return _part({"text": None if text is None else visible(text)})


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
    return _part({"value": visible(value), "answer": visible(answer), "evidence": sentences})


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


def _part(values: Mapping[str, Any]) -> bytes:
    return _render("frame.html", {"part": values}, script="frame.js", style=None)


def _render(template: str, values: Mapping[str, Any], *, script: str, style: str | None) -> bytes:
    program = _source(script)
    text = (
        _environment()
        .get_template(template)
        .render(
            **values,
            script=Markup(program),
            style=Markup(style or ""),
            policy=_policy(script=program, style=style),
        )
    )
    return text.encode("utf-8", errors="backslashreplace")


def _policy(*, script: str, style: str | None) -> str:
    """Nothing but this script and this style, by their hashes, and frames with files of the same place."""
    parts = ["default-src 'none'", "img-src data:", f"script-src {_hash(script)}"]
    if style is not None:
        parts += [f"style-src {_hash(style)}", "frame-src 'self' file:"]
    return "; ".join([*parts, "base-uri 'none'", "form-action 'none'"])


@cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("memagent_batch.review", "labelling"),
        autoescape=True,
        finalize=lambda value: visible(value) if type(value) is str else value,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["inert_json"] = _inert_json
    return environment


def _inert_json(value: Any) -> Markup:
    """JSON inside a `script` element that is data: no text of it can end the element."""
    return Markup(json.dumps(value, separators=(",", ":"), allow_nan=False).translate(_UNSAFE_IN_JSON))


@cache
def _source(name: str) -> str:
    return (_HERE / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    return f"'sha256-{base64.b64encode(sha256(text.encode()).digest()).decode()}'"
