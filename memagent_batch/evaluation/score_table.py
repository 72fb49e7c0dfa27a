"""Scores as a person reads them at the end of `evaluate run` and `evaluate score`."""

from collections.abc import Sequence

import pyarrow as pa

from memagent_batch.evaluation.scoring import CellSummary, Grouping, summarise

HEADER = ("VARIANT", "TASK", "LENGTH", "N", "SCORE", "95 % INTERVAL", "FAILED", "NO ANSWER", "MISSING")
NUM_TEXT_COLUMNS = 2
"""Columns from the left whose values begin at the left."""


def score_table(scores: pa.Table) -> str:
    """Each task at each length, then all of them together for each variant."""
    cells = [*summarise(scores), *summarise(scores, grouping=Grouping.VARIANT)]
    rows = [HEADER, *(_table_row(cell) for cell in cells)]
    widths = [max(len(row[column]) for row in rows) for column in range(len(HEADER))]
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


def _table_line(row: Sequence[str], widths: Sequence[int]) -> str:
    texts = [
        value.ljust(width) if column < NUM_TEXT_COLUMNS else value.rjust(width)
        for column, (value, width) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(texts).rstrip()
