"""The report of an evaluation: one HTML page that needs nothing beside it.

All that comes from a document, a question or a model is text: Jinja escapes every value, characters that can't be seen
are replaced by a sign, and the page forbids itself scripts and anything from outside.
"""

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.readings import Status
from memagent_batch.domain.scores import Metric
from memagent_batch.domain.texts.words import texts_in
from memagent_batch.domain.turns import notes_of
from memagent_batch.evaluation.measures import compare, measure
from memagent_batch.evaluation.record import (
    Evaluation,
    VariantRecord,
    open_evaluation,
    read_readings,
    read_scores,
)
from memagent_batch.evaluation.report.templates import page_environment
from memagent_batch.evaluation.scoring import ALL_TASKS, CellSummary, summarise
from memagent_batch.evaluation.suite import STATUS_MISSING
from memagent_batch.runs.tables import reading_ids
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import Row

REPORT_FOLDER = "report"
"""Where the report goes below the evaluation's output, by default."""
PAGE_FILE = "report.html"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#a6408b", "#e69f00", "#56b4e9", "#3b3b3b")
"""Of variants; colour-blind readers tell them apart: after Okabe and Ito, without yellow, which white swallows."""
FAILURES_PER_VARIANT = 50
"""Failures that the page lists."""


class Fault(StrEnum):
    """What is wrong with a reading."""

    NONE = "right"
    FAILED = "failed"
    """It was not read to its end."""
    MISSING = "missing"
    """The answers have no row of it."""
    UNANSWERED = "without answer"
    """Its response holds no answer."""
    WRONG = "wrong"
    """The answer scores 0."""
    PARTLY = "partly right"


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The readings of one variant that score below 1."""

    shown: Sequence[Row]
    """Rows of `SCORES` that are listed; by task, length and depth."""
    total: int
    by_fault: dict[Fault, int]
    """All failures, by what is wrong."""


def write_report(output: Location, *, target: Location) -> dict[str, str | int]:
    """Writes `report.html`; returns where it is and what it shows.

    Raises:
        OutputError: the output is not an evaluation, or a table of it is missing or broken.
        StorageError: the target can't be written.
    """
    page = make_page(output)
    (target / PAGE_FILE).write_bytes(render_report(page))
    views = page["variants"]
    return {
        "page": str(target / PAGE_FILE),
        "questions": page["num_questions"],
        "readings": sum(view["total"].n for view in views),
        "failures": sum(view["failures"].total for view in views),
    }


def make_page(output: Location) -> dict[str, Any]:
    """All that the template shows.

    Raises:
        OutputError: the output is not an evaluation, or a table of it is missing or broken.
    """
    evaluation = open_evaluation(output)
    scores = with_lengths(read_scores(output, evaluation))
    names = [record.name for record in evaluation.variants]
    cells, all_tasks = summarise(scores), summarise(scores, by=("length_tokens",))
    measures = measure(scores)
    return {
        "suite": evaluation.suite,
        "num_questions": len(
            set(zip(*(scores[name].to_pylist() for name in ("document_id", "question_id")), strict=True))
        ),
        "read_at": max(datetime.fromisoformat(variant.finished_at) for variant in evaluation.variants),
        "drawn_at": datetime.now(UTC),
        "names": names,
        "comparisons": compare(scores),
        "measures": _by_task(sorted(measures, key=lambda each: (each.task != ALL_TASKS, each.task))),
        "groups": _by_task(sorted([*all_tasks, *cells], key=lambda cell: _cell_order(cell, names))),
        "variants": _variant_views(output, scores, evaluation),
    }


def render_report(page: dict[str, Any]) -> bytes:
    """The page, UTF-8; sections for which there is nothing are left out."""
    environment = page_environment()
    environment.filters |= {
        "length": lambda tokens: "unknown" if tokens is None else f"{tokens:,}",
        "chance": lambda chance: "< 0.001" if chance < 0.001 else f"{chance:.3f}",
        "score": score_label,
    }
    names = page["names"]
    text = environment.get_template("page.html").render(
        page=page,
        names=names,
        colours={name: COLOURS[place % len(COLOURS)] for place, name in enumerate(names)},
        most_shown=FAILURES_PER_VARIANT,
    )
    return text.encode("utf-8", errors="backslashreplace")


def with_lengths(scores: pa.Table) -> pa.Table:
    """Gives readings a length if the suite asked for none: the power of two at or above the document's own.

    A reading that failed before its document was measured takes the length that another variant measured. It stays
    without one if none did.
    """
    documents, measured = scores["document_id"].to_pylist(), scores["num_document_tokens"].to_pylist()
    known = {name: 1 << (tokens - 1).bit_length() for name, tokens in zip(documents, measured, strict=True) if tokens}
    lengths = [
        known.get(name) if asked is None else asked
        for name, asked in zip(documents, scores["length_tokens"].to_pylist(), strict=True)
    ]
    place = scores.schema.get_field_index("length_tokens")
    return scores.set_column(place, scores.schema.field(place), pa.array(lengths, pa.int64()))


def fault_of(row: Row) -> Fault:
    """What is wrong with a reading, by its row of `SCORES`."""
    if row["status"] == Status.FAILED:
        return Fault.FAILED
    if row["status"] == STATUS_MISSING:
        return Fault.MISSING
    if not row["answered"]:
        return Fault.UNANSWERED
    if row["score"] >= 1:
        return Fault.NONE
    return Fault.PARTLY if row["score"] > 0 else Fault.WRONG


def choose_failures(rows: Sequence[Row], *, limit: int = FAILURES_PER_VARIANT) -> Failures:
    """Takes failures from each task and length in turn, the lowest scores of each first, until the limit is reached."""
    failures = [row for row in rows if fault_of(row) is not Fault.NONE]
    cells: dict[tuple[str, int | None], list[Row]] = defaultdict(list)
    for row in failures:
        cells[row["task"], row["length_tokens"]].append(row)
    ranked = [
        (rank, row) for cell in cells.values() for rank, row in enumerate(sorted(cell, key=lambda row: row["score"]))
    ]
    chosen = [row for _, row in sorted(ranked, key=lambda pair: pair[0])[:limit]]
    faults = Counter(fault_of(row) for row in failures)
    return Failures(
        shown=sorted(
            chosen, key=lambda row: (row["task"], row["length_tokens"] or 0, row["depth"] or 0, *reading_ids(row))
        ),
        total=len(failures),
        by_fault={fault: faults[fault] for fault in Fault if faults[fault]},
    )


def score_label(score: float) -> str:
    """Three digits; 1.000 and 0.000 only if nothing or everything is wrong."""
    if 0 < score < 1:
        score = min(max(score, 0.001), 0.999)
    return f"{score:.3f}"


def _variant_views(output: Location, scores: pa.Table, evaluation: Evaluation) -> list[dict[str, Any]]:
    totals = {cell.variant: cell for cell in summarise(scores, by=())}
    views = []
    for record in evaluation.variants:
        failures = choose_failures(scores.filter(pc.equal(scores["variant"], record.name)).to_pylist())
        views.append(
            {
                "record": record,
                "run": str(output / record.run),
                "total": totals[record.name],
                "failures": failures,
                "shown": _failure_views(output, record, failures),
            }
        )
    return views


def _failure_views(output: Location, record: VariantRecord, failures: Failures) -> list[dict[str, Any]]:
    """The failures that are shown, each with its error (None if it has none) and where the right answer went."""
    readings = read_readings(output / record.run, {reading_ids(row) for row in failures.shown})
    return [
        {
            "row": row,
            "fault": fault_of(row),
            "error": readings.answers.get(reading_ids(row), {}).get("error_message"),
            "verdict": memory_verdict(
                readings.memories.get(reading_ids(row), []),
                references=row["references"],
                alternatives=row["metric"] != Metric.RULER_ALL,
            ),
        }
        for row in failures.shown
    ]


def memory_verdict(turns: Sequence[Row], *, references: Sequence[str], alternatives: bool) -> str:
    """Where the right answer went, in one phrase.

    Args:
        turns: The reading's rows of `memories`, in order.
        references: Right answers.
        alternatives: Whether one of them is enough.
    """
    if not turns:
        return "no turn recorded"
    is_note = notes_of([row["kind"] for row in turns])
    if not any(row["changed"] and not note for row, note in zip(turns, is_note, strict=True)):
        return "the memory never changed"
    held = [texts_in(row["memory"], references) for row in turns]
    ever = frozenset[str]().union(*held)
    last = next((texts for texts, note in zip(held[::-1], is_note[::-1], strict=True) if not note), frozenset[str]())
    if alternatives or len(references) == 1:
        return "in the last memory" if last else "lost on the way" if ever else "never in the memory"
    parts = {"in the last memory": len(last), "lost": len(ever - last), "never noted": len(set(references) - ever)}
    return ", ".join(f"{number} {words}" for words, number in parts.items() if number)


def _cell_order(cell: CellSummary, names: Sequence[str]) -> tuple[bool, str, bool, int, int]:
    """All tasks together first; in each task the variants beside each other at each length."""
    length = cell.length_tokens
    return cell.task != ALL_TASKS, cell.task, length is None, length or 0, names.index(cell.variant)


def _by_task(items: Iterable[Any]) -> dict[str, list[Any]]:
    groups: dict[str, list[Any]] = {}
    for item in items:
        groups.setdefault(item.task, []).append(item)
    return groups
