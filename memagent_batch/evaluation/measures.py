"""What the readings of each variant come to, from their scores: measures, comparisons, and the report of both."""

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean

import pyarrow as pa

from memagent_batch.domain.follow_ups.values import ValueStatus
from memagent_batch.domain.texts.escapes import unescaped
from memagent_batch.evaluation.record import Evaluation
from memagent_batch.evaluation.scoring import ALL_TASKS, by_document, summarise
from memagent_batch.evaluation.statistics import Interval, holm, mean_interval, sign_test
from memagent_batch.evaluation.suite import FOLLOW_UP_SCORES
from memagent_batch.store.turn_log.index import Row
from memagent_batch.templates.pages import markdown_template

SCORE_COLUMNS = [
    "variant",
    "document_id",
    "task",
    "answer_type",
    "status",
    "score",
    *(field.name for field in FOLLOW_UP_SCORES),
]
"""Columns of the scores that are used."""

_TABLE = re.compile(r"^\|.*\n\|[-|: ]+\n(?:\|.*\n)+", re.MULTILINE)
_CELL_END = re.compile(r"(?<!\\)\|")


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedShare:
    """A part of some readings."""

    n: int
    """Readings, at least one."""
    share: float
    """The part, from 0 to 1."""
    interval: Interval
    """95 % interval; readings of one document are not counted as independent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a variant reached in a task; each part is None where nothing of the kind was asked."""

    variant: str
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    values_right: CountedShare | None
    """Values that equal a reference, among all readings of typed questions."""
    values_invalid: CountedShare | None
    """Values that do not fit their type."""
    evidence_precision: float | None
    """Mean share of the evidence that overlaps a right sentence."""
    evidence_recall: float | None
    """Mean share of the right sentences that evidence overlaps."""
    evidence_f1: float | None
    evidence_hit: CountedShare | None
    """Readings with evidence on a right sentence."""
    absent_right: CountedShare | None
    """Answers that say `not stated`, among questions whose answer the document does not state."""
    present_lost: CountedShare | None
    """The same among the others, whose answer it does state: answers that are lost."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A variant against the first one in a task. The unit is a document: the mean score of its readings."""

    variant: str
    base: str
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    num_better: int
    """Documents that it reads better, of those that both have a score of."""
    num_worse: int
    num_equal: int
    p_corrected: float
    """Chance of a split at least so uneven if neither is better (sign test), corrected (Holm) for all comparisons of
    single tasks, or for those of all tasks together."""


def measure(scores: pa.Table) -> list[Measures]:
    """The measures of each variant: all tasks together, then each task by name; those that are empty are left out."""
    cells: dict[tuple[str, str], list[Row]] = defaultdict(list)
    for row in scores.select(SCORE_COLUMNS).to_pylist():
        cells[row["variant"], ALL_TASKS].append(row)
        cells[row["variant"], row["task"]].append(row)
    variants = list(dict.fromkeys(variant for variant, _ in cells))
    ordered = sorted(cells, key=lambda cell: (variants.index(cell[0]), cell[1] != ALL_TASKS, cell[1]))
    found = (_task_measures(cells[cell], variant=cell[0], task=cell[1]) for cell in ordered)
    return [measures for measures in found if measures is not None]


def _task_measures(rows: Sequence[Row], *, variant: str, task: str) -> Measures | None:
    typed = [row for row in rows if row["value_right"] is not None]
    cited = [row for row in rows if row["evidence_f1"] is not None]
    absent = [row for row in rows if row["is_absent"]]
    may_abstain = absent or any(row["answer_type"] is not None for row in rows)
    present = [row for row in rows if not row["is_absent"]] if may_abstain else []
    if not (typed or cited or may_abstain):
        return None
    return Measures(
        variant=variant,
        task=task,
        values_right=_share_of(typed, [row["value_right"] for row in typed]),
        values_invalid=_share_of(typed, [row["value_status"] == ValueStatus.INVALID for row in typed]),
        evidence_precision=_mean(cited, "evidence_precision"),
        evidence_recall=_mean(cited, "evidence_recall"),
        evidence_f1=_mean(cited, "evidence_f1"),
        evidence_hit=_share_of(cited, [row["evidence_hit"] for row in cited]),
        absent_right=_share_of(absent, [row["abstained"] for row in absent]),
        present_lost=_share_of(present, [row["abstained"] for row in present]),
    )


def _share_of(rows: Sequence[Row], members: Sequence[bool]) -> CountedShare | None:
    """The part of the rows that are members; None of no rows."""
    if not rows:
        return None
    interval = mean_interval(by_document(rows, [float(member) for member in members]))
    return CountedShare(n=len(rows), share=sum(members) / len(rows), interval=interval)


def _mean(rows: Sequence[Row], name: str) -> float | None:
    return fmean(row[name] for row in rows) if rows else None


def compare(scores: pa.Table) -> list[Comparison]:
    """Each further variant against the first: all tasks together, then each task by name."""
    rows = scores.select(["variant", "document_id", "task", "score"]).to_pylist()
    base, *others = dict.fromkeys(row["variant"] for row in rows)
    tasks = sorted({row["task"] for row in rows})
    documents = _document_scores(rows)
    totals = _corrected(documents, [(variant, ALL_TASKS) for variant in others], base=base)
    by_task = _corrected(documents, [(variant, task) for variant in others for task in tasks], base=base)
    return [each for variant in others for each in (*totals, *by_task) if each.variant == variant]


def _document_scores(rows: Sequence[Row]) -> dict[tuple[str, str], dict[str, float]]:
    """The mean score of each document, by variant and task."""
    scores: dict[tuple[str, str], dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        for task in (row["task"], ALL_TASKS):
            scores[row["variant"], task][row["document_id"]].append(row["score"])
    return {cell: {name: fmean(values) for name, values in of_cell.items()} for cell, of_cell in scores.items()}


def _corrected(
    documents: Mapping[tuple[str, str], Mapping[str, float]], cells: Sequence[tuple[str, str]], *, base: str
) -> list[Comparison]:
    """The comparisons of these variants and tasks, corrected for each other."""
    counts = []
    for variant, task in cells:
        scores, others = documents.get((variant, task), {}), documents.get((base, task), {})
        shared = scores.keys() & others.keys()
        better = sum(scores[name] > others[name] for name in shared)
        worse = sum(scores[name] < others[name] for name in shared)
        counts.append((better, worse, len(shared) - better - worse))
    corrected = holm([sign_test(better, worse) for better, worse, _ in counts])
    return [
        Comparison(
            variant=variant, base=base, task=task, num_better=better, num_worse=worse, num_equal=equal, p_corrected=p
        )
        for (variant, task), (better, worse, equal), p in zip(cells, counts, corrected, strict=True)
    ]


def report_text(evaluation: Evaluation, scores: pa.Table) -> str:
    """All of it as Markdown, for the terminal or a file; the tables have all tasks together first."""
    cells = [*summarise(scores, by=("length_tokens",)), *summarise(scores)]
    text = markdown_template("memagent_batch.evaluation", "report.md.j2").render(
        evaluation=evaluation,
        totals={cell.variant: cell for cell in summarise(scores, by=())},
        comparisons=compare(scores),
        measures=sorted(measure(scores), key=lambda each: (each.task != ALL_TASKS, each.task)),
        cells=sorted(cells, key=lambda cell: (cell.task != ALL_TASKS, cell.task, cell.length_tokens or 0)),
    )
    return _TABLE.sub(lambda found: _aligned(found[0]), text)


def _aligned(table: str) -> str:
    """A Markdown table whose columns stand below each other once it is shown; numbers to the right."""
    head, _, *rows = ([cell.strip() for cell in _CELL_END.split(line)[1:-1]] for line in table.splitlines())
    columns = [*zip(head, *rows, strict=True)]
    widths = [max(2, *(len(unescaped(cell)) for cell in column)) for column in columns]
    are_texts = [any(cell[:1].isalpha() for cell in column[1:]) for column in columns]
    rule = [f"{'-' * (width - 1)}{'-' if is_text else ':'}" for width, is_text in zip(widths, are_texts, strict=True)]
    lines = []
    for line in (head, rule, *rows):
        gaps = [" " * (width - len(unescaped(cell))) for cell, width in zip(line, widths, strict=True)]
        padded = [
            cell + gap if is_text else gap + cell for cell, gap, is_text in zip(line, gaps, are_texts, strict=True)
        ]
        lines.append(f"| {' | '.join(padded)} |\n")
    return "".join(lines)
