"""Scores as a person reads them at the end of `evaluate run` and `evaluate score`."""

from collections.abc import Sequence

import pyarrow as pa

from memagent_batch.evaluation.comparison import Comparison, compare
from memagent_batch.evaluation.measures import Measures, measure
from memagent_batch.evaluation.scoring import CellSummary, Grouping, summarise

TABLE_HEADER = ("VARIANT", "TASK", "LENGTH", "N", "SCORE", "95 % INTERVAL", "FAILED", "NO ANSWER", "MISSING")
NUM_TEXT_COLUMNS = 2
"""Columns from the left whose values begin at the left."""


MEASURES_HEADER = (
    "VARIANT", "TASK", "VALUES", "RIGHT", "MACRO F1", "INVALID", "EVIDENCE F1", "HIT", "ABSENT RIGHT", "PRESENT LOST",
    "CALIBRATION ERROR",
)  # fmt: skip


COMPARISON_HEADER = ("VARIANT", "TASK", "BETTER", "WORSE", "EQUAL", "CHANCE, CORRECTED")


def score_table(scores: pa.Table) -> str:
    """Each task at each length, then all of them together for each variant.

    Below, the further variants against the first one, and what was asked after the answer.
    """
    cells = [*summarise(scores), *summarise(scores, grouping=Grouping.VARIANT)]
    blocks = [[TABLE_HEADER, *(_table_row(cell) for cell in cells)]]
    if comparisons := compare(scores):
        blocks.append([COMPARISON_HEADER, *(_comparison_row(each) for each in comparisons)])
    if measures := measure(scores):
        blocks.append([MEASURES_HEADER, *(_measures_row(each) for each in measures)])
    return "\n\n".join(_table_block(rows) for rows in blocks)


def _table_block(rows: Sequence[Sequence[str]]) -> str:
    widths = [max(len(row[column]) for row in rows) for column in range(len(rows[0]))]
    return "\n".join(_table_line(row, widths) for row in rows)


def _table_row(cell: CellSummary) -> tuple[str, ...]:
    return (
        cell.variant,
        cell.task,
        "-" if cell.length_tokens is None else f"{cell.length_tokens:,}",
        f"{cell.n:,}",
        f"{cell.score:.3f}",
        f"{cell.low:.3f} to {cell.high:.3f}",
        *(f"{count:,}" for count in (cell.num_failed, cell.num_unanswered, cell.num_missing)),
    )


def _comparison_row(each: Comparison) -> tuple[str, ...]:
    documents = each.documents
    counts = (documents.num_better, documents.num_worse, documents.num_equal)
    variant = f"{each.variant} against {each.base}"
    return (variant, each.task, *(f"{count:,}" for count in counts), f"{each.p_corrected:.4f}")


def _measures_row(each: Measures) -> tuple[str, ...]:
    value, evidence, abstention = each.value, each.evidence, each.abstention
    return (
        each.variant,
        each.task,
        f"{value.right.n:,}" if value else "-",
        _number_label(value.right.share if value else None),
        _number_label(value.macro_f1 if value else None),
        _number_label(value.invalid.share if value else None),
        _number_label(evidence.f1 if evidence else None),
        _number_label(evidence.hit.share if evidence else None),
        _number_label(abstention.right.share if abstention and abstention.right else None),
        _number_label(abstention.lost.share if abstention and abstention.lost else None),
        _number_label(each.calibration.error if each.calibration else None),
    )


def _number_label(number: float | None) -> str:
    return "-" if number is None else f"{number:.3f}"


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    texts = [
        value.ljust(width) if column < NUM_TEXT_COLUMNS else value.rjust(width)
        for column, (value, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(texts).rstrip()
