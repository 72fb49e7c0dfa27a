"""`memagent show`: the answers of one document in the terminal, with their evidence."""

import json
from collections.abc import Iterator
from shutil import get_terminal_size
from textwrap import wrap

from pydantic import Field

from memagent_batch.apps.pages.document_page import shown_evidence
from memagent_batch.apps.pages.readings import RunReading, document_ids, find_readings, shown_value, unread_of
from memagent_batch.apps.review.sign_offs import SignOffs, signed_words
from memagent_batch.cli.screen import evidence_text
from memagent_batch.cli.settings import OutputCommand
from memagent_batch.data.documents.document_index import SOURCE_NOTES
from memagent_batch.data.store.errors import output_errors
from memagent_batch.data.store.turn_log.index import Row
from memagent_batch.loop.texts.escapes import visible
from memagent_batch.loop.texts.shares import percent
from memagent_batch.masking import printable
from memagent_batch.run.history import find_run
from memagent_batch.run.state import warn_of_later_run
from memagent_batch.types import Status

LABEL_WIDTH = 12
"""Columns of the screen that hold names."""


class Show(OutputCommand):
    """Shows the answers of one document: value, confidence, support, evidence with its place, and why a reading failed.
    Without a document it lists the ids. `--json` adds the memory turn by turn.
    """

    command = "memagent show"
    examples = ("memagent show out/ contract-7.txt", "memagent show out/ contract-7.txt notice-period --json")
    pages = ("docs/how-to/page.md",)
    words = ("output", "document", "question")

    document: str | None = None
    """The document_id."""
    question: str | None = None
    """The question_id (default: all questions)."""
    as_json: bool = Field(default=False, alias="json")
    """Print each reading as a JSON object on its own line."""

    def run(self) -> None:
        output = self.location
        with output_errors(output.uri):
            run = find_run(output)
            warn_of_later_run(output, run.manifest)
        if self.document is None:
            print("\n".join(map(printable, document_ids(run))))
            return
        signed = SignOffs(output)
        readings = find_readings(run, document_id=self.document, question_id=self.question)
        if self.as_json:
            for reading in readings:
                row = {"answer": reading.answer, "evidence": reading.evidence, "memories": reading.turns}
                print(json.dumps(row, ensure_ascii=False, default=str))
            return
        width = get_terminal_size().columns
        pages = ("\n".join(_reading_lines(reading, signed=signed, width=width)) for reading in readings)
        print("\n\n".join(pages))


def _reading_lines(reading: RunReading, *, signed: SignOffs, width: int) -> Iterator[str]:
    row = reading.answer
    by, before = signed.of(row), signed.before(row)
    sample = f", sample {row['sample']}" if row["sample"] else ""
    error = f"{row['error_type']}: {row['error_message']}"
    problem = row.get("follow_up_error") if row["error_message"] is None else error
    texts = {
        "document": row["document_id"],
        "question": f"{row['question']} ({row['question_id']}{sample})",
        "answer": shown_value(row),
        "said": row["answer"] if row["answer"] not in {None, shown_value(row)} else None,
        "signed off": by and signed_words(by, row),
        "open again": before and f"its text or answer has changed; before: {signed_words(before, row)}",
        "signs": _signs(row),
        "why" if row["status"] != Status.OK else "problem": problem,
        "not read": unread_of(row),
        "source": row.get("source"),
        "note": row.get(SOURCE_NOTES),
        "response": row["response"] if row["answer"] is None else None,
    }
    for label, text in texts.items():
        if text:
            yield from _labelled_text(label, text, width=width)
    for number, item in enumerate(shown_evidence(reading)):
        label = "" if number else "evidence"
        yield from _labelled_text(label, evidence_text(item), width=width)


def _signs(row: Row) -> str:
    signs = {name: row.get(name) for name in ("confidence", "support", "votes", "coverage")}
    shown = {
        name: percent(sign) if isinstance(sign, float) else sign for name, sign in signs.items() if sign is not None
    }
    if "confidence" in shown:
        shown["confidence"] += " (of its own words, not of being right)"
    if "support" in shown and row.get("support_probability") is not None:
        shown["support"] += f" ({percent(row['support_probability'])})"
    return ", ".join(f"{name} {sign}" for name, sign in shown.items())


def _labelled_text(label: str, text: str, *, width: int) -> Iterator[str]:
    """The text behind its label; no character of it steers the terminal."""
    column = max(20, width - LABEL_WIDTH)
    lines = [line for part in visible(text).splitlines() for line in wrap(part, column) or [""]] or [""]
    for number, line in enumerate(lines):
        yield f"{'' if number else label:<{LABEL_WIDTH}}{line}"
