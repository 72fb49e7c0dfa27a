"""The variants of an evaluation against the first one, over the same documents."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.domain.scoring.comparison import Paired, holm, paired
from memagent_batch.evaluation.scoring import ALL_TASKS
from memagent_batch.log.index import Row


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A variant against the first one in a task. The unit is a document: the mean score of its readings."""

    variant: str
    """Which variant."""
    base: str
    """The first variant."""
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    documents: Paired
    """Documents that it reads better, worse, and equally well."""
    p_corrected: float
    """The chance, corrected (Holm) for all comparisons of single tasks, or for those of all tasks together."""


_DocumentScores = Mapping[tuple[str, str], Mapping[str, float]]


def compare(scores: pa.Table) -> list[Comparison]:
    """Each further variant against the first: all tasks together, then each task by name.

    Args:
        scores: A table of `SCORES`.
    """
    rows = scores.select(["variant", "document_id", "task", "score"]).to_pylist()
    base, *others = dict.fromkeys(row["variant"] for row in rows)
    tasks = sorted({row["task"] for row in rows})
    documents = _document_scores(rows)
    totals = _compared(documents, [(variant, ALL_TASKS) for variant in others], base=base)
    by_task = _compared(documents, [(variant, task) for variant in others for task in tasks], base=base)
    return [each for variant in others for each in (*totals, *by_task) if each.variant == variant]


def _document_scores(rows: Sequence[Row]) -> _DocumentScores:
    """The mean score of each document, by variant and task."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for task in (row["task"], ALL_TASKS):
            scores[row["variant"], task][row["document_id"]].append(row["score"])
    return {
        cell: {name: math.fsum(values) / len(values) for name, values in of_cell.items()}
        for cell, of_cell in scores.items()
    }


def _compared(documents: _DocumentScores, cells: Sequence[tuple[str, str]], *, base: str) -> list[Comparison]:
    """The comparisons of these variants and tasks, corrected for each other."""
    pairs = [paired(documents.get(cell, {}), documents.get((base, cell[1]), {})) for cell in cells]
    corrected = holm([pair.p for pair in pairs])
    return [
        Comparison(variant=variant, base=base, task=task, documents=pair, p_corrected=p)
        for (variant, task), pair, p in zip(cells, pairs, corrected, strict=True)
    ]
