"""What the page of a document shows of its readings: answer, evidence in its passages, trace, commands."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from memagent_batch.evaluation.report.traces import Trace, make_trace
from memagent_batch.log.index import Row
from memagent_batch.pages.changes import Change, RunChanges
from memagent_batch.pages.readings import ReadingKey, RunReading, key_of
from memagent_batch.pages.values import outcome_of, shown_value
from memagent_batch.pages.windows import Mark, Window

CHOSEN = "chosen"
"""`how` of a sentence that the model pointed at."""
MAX_SHEET_READINGS = 50
"""Most readings of one file: a document with more has several."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadingView:
    """One reading on the page of its document."""

    answer: Row
    """Its row of `answers`."""
    value: str
    """The answer in a few words."""
    outcome: str
    """See `outcome_of`."""
    trace: Trace
    """The memory, turn by turn."""
    evidence: tuple[Row, ...]
    """Rows of `evidence`, numbered from 1: chosen sentences first, by rank."""
    change: Change | None
    """How the answer changed since the run before; None where it did not, or where that is not known."""
    commands: tuple[str, ...]
    """What shows more in a terminal."""

    @property
    def key(self) -> ReadingKey:
        """Document, question and sample."""
        return key_of(self.answer)

    @property
    def marks(self) -> list[Mark]:
        """Spans of the document to mark, by the number of their evidence."""
        return [
            Mark(number=number, start=row["char_start"], end=row["char_end"])
            for number, row in enumerate(self.evidence, start=1)
            if row["char_start"] is not None
        ]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sheet:
    """One file: readings of one document."""

    number: int
    """Its number among all sheets, from 0."""
    document_id: str
    """The document."""
    first: int
    """Which reading of the document is its first, from 0."""
    is_last: bool
    """Whether no other sheet of the document follows."""
    readings: tuple[ReadingView, ...]
    """Its readings, in the order of `answers`."""

    @property
    def path(self) -> str:
        """Its file, below the folder of the build."""
        return sheet_path(self.number)


@dataclass(frozen=True, slots=True, kw_only=True)
class Passages:
    """The passages of a document round the evidence of its readings on one sheet."""

    windows: tuple[list[Window], ...] = ()
    """Of each reading of the sheet, in their order; empty where there is no text to show."""
    missing: str | None = None
    """Why there is no text to show though there is evidence."""


def sheet_path(number: int) -> str:
    """Where a sheet lies; no folder holds more than a thousand."""
    return f"documents/{number // 1000:04d}/{number:07d}.html"


def view_reading(reading: RunReading, *, changes: RunChanges, output: str, run_id: str) -> ReadingView:
    """What the page shows of a reading, but for the passages of its document."""
    row = reading.answer
    sought = {row["answer"], row.get("value_label")} - {None, ""}
    return ReadingView(
        answer=row,
        value=shown_value(row),
        outcome=outcome_of(row),
        trace=make_trace(reading.turns, references=sorted(sought), alternatives=True),
        evidence=tuple(shown_evidence(reading)),
        change=changes.readings.get(reading.key),
        commands=_commands(reading, output=output, before=changes.since, run_id=run_id),
    )


def shown_evidence(reading: RunReading) -> list[Row]:
    """Rows of `evidence`, chosen sentences first, by rank.

    Of a yes, a no or a label no words are sought in the document: they need not stand there.
    """
    is_choice = any(reading.answer.get(column) is not None for column in ("value_bool", "value_label"))
    rows = [row for row in reading.evidence if not (is_choice and row["char_start"] is None)]
    return sorted(rows, key=lambda row: (row["how"] != CHOSEN, row["rank"]))


def _commands(reading: RunReading, *, output: str, before: str | None, run_id: str) -> tuple[str, ...]:
    names = [reading.document_id, reading.question_id]
    show = ["memagent", "show", output, *names]
    options = ["--document", names[0], "--question", names[1]]
    diff = ["memagent", "diff", output, "--before", before or "", "--after", run_id, *options]
    return tuple(shlex.join(command) for command in ([show, diff] if before else [show]))


def template_values(sheet: Sheet, passages: Passages) -> dict[str, Any]:
    """What the template of a document's page takes."""
    rows: Sequence[Row] = [view.answer for view in sheet.readings]
    first = rows[0]
    lengths = [row["num_document_tokens"] for row in rows if row["num_document_tokens"] is not None]
    return {
        "sheet": sheet,
        "passages": passages,
        "num_tokens": lengths[0] if lengths else None,
        "num_chunks": max((row["num_chunks"] or 0 for row in rows), default=0),
        "document_hash": first["document_hash"],
        "model": first["model"],
        "before": sheet_path(sheet.number - 1) if sheet.first else None,
        "after": None if sheet.is_last else sheet_path(sheet.number + 1),
        "columns": {
            "confidence": any(row.get("confidence") is not None for row in rows),
            "support": any(row.get("support") is not None for row in rows),
            "change": any(view.change for view in sheet.readings),
        },
        "chosen": CHOSEN,
    }
