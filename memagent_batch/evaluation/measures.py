"""What typed values, evidence and `not stated` come to for each variant and task, from the scores of its readings."""

import json
import math
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY, AnswerType
from memagent_batch.domain.follow_ups.values import ValueStatus
from memagent_batch.evaluation.scoring import ALL_TASKS, CellSummary, Grouping, by_document, summarise
from memagent_batch.evaluation.statistics import (
    Calibration,
    Interval,
    Paired,
    calibration,
    holm,
    macro_f1,
    mean_interval,
    paired,
)
from memagent_batch.evaluation.suite import FOLLOW_UP_SCORES
from memagent_batch.store.turn_log.index import Row

LABEL_TYPES = frozenset({AnswerType.BOOL, AnswerType.LABEL, AnswerType.LABELS})
"""Types whose values are classes."""

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
_DocumentScores = Mapping[tuple[str, str], Mapping[str, float]]
TABLE_HEADER = ("VARIANT", "TASK", "LENGTH", "N", "SCORE", "95 % INTERVAL", "FAILED", "NO ANSWER", "MISSING")
NUM_TEXT_COLUMNS = 2
"""Columns from the left whose values begin at the left."""

MEASURES_HEADER = (
    "VARIANT", "TASK", "VALUES", "RIGHT", "MACRO F1", "INVALID", "EVIDENCE F1", "HIT", "ABSENT RIGHT", "PRESENT LOST",
    "CALIBRATION ERROR",
)  # fmt: skip

COMPARISON_HEADER = ("VARIANT", "TASK", "BETTER", "WORSE", "EQUAL", "CHANCE, CORRECTED")


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """A part of some readings."""

    n: int
    """Readings, at least one."""
    share: float
    """The part, from 0 to 1."""
    interval: Interval
    """95 % interval; readings of one document are not counted as independent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueMeasures:
    """Typed values."""

    right: Share
    """Values that equal a reference, among all readings of typed questions."""
    invalid: Share
    """Values that do not fit their type."""
    macro_f1: float | None
    """Mean over the classes of yes and no, or labels, `not stated` among them; None if there are no such types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceMeasures:
    """Evidence, where the right sentences are known and there are some."""

    n: int
    precision: float
    """Mean share of the evidence that overlaps a right sentence."""
    recall: float
    """Mean share of the right sentences that evidence overlaps."""
    f1: float
    hit: Share
    """Readings with evidence on a right sentence."""
    hit_where_right: Share | None
    """The same among readings that score 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Abstention:
    """Answers that say `not stated`."""

    right: Share | None
    """Among questions whose answer the document does not state; None where none are asked."""
    lost: Share | None
    """Among the others, whose answer it does state: answers that are lost."""
    no_evidence: Share | None
    """Readings without evidence, among questions whose answer is not stated; None where no evidence was asked for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measures:
    """What a variant reached in a task; each part is None where nothing of the kind was asked."""

    variant: str
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    value: ValueMeasures | None
    evidence: EvidenceMeasures | None
    abstention: Abstention | None
    calibration: Calibration | None

    @property
    def is_empty(self) -> bool:
        """Whether nothing of all this was asked."""
        return not (self.value or self.evidence or self.abstention)


@dataclass(frozen=True, slots=True, kw_only=True)
class Comparison:
    """A variant against the first one in a task. The unit is a document: the mean score of its readings."""

    variant: str
    base: str
    task: str
    """Name of the task; `ALL_TASKS` where they are taken together."""
    documents: Paired
    """Documents that it reads better, worse, and equally well."""
    p_corrected: float
    """The chance, corrected (Holm) for all comparisons of single tasks, or for those of all tasks together."""


def measure(scores: pa.Table) -> list[Measures]:
    """The measures of each variant: all tasks together, then each task by name; those that are empty are left out."""
    rows = scores.select(SCORE_COLUMNS).to_pylist()
    variants = list(dict.fromkeys(row["variant"] for row in rows))
    tasks = [ALL_TASKS, *sorted({row["task"] for row in rows})]
    found = (
        _task_measures(
            [row for row in rows if row["variant"] == variant and task in {ALL_TASKS, row["task"]}], task=task
        )
        for variant in variants
        for task in tasks
    )
    return [measures for measures in found if measures is not None and not measures.is_empty]


def _task_measures(rows: Sequence[Row], *, task: str) -> Measures | None:
    if not rows:
        return None
    sure = [
        (row["confidence"], bool(row["value_right"]))
        for row in rows
        if row["confidence"] is not None and row["value_right"] is not None
    ]
    return Measures(
        variant=rows[0]["variant"],
        task=task,
        value=_value_measures([row for row in rows if row["value_right"] is not None]),
        evidence=_evidence_measures([row for row in rows if row["evidence_f1"] is not None]),
        abstention=_abstention(rows),
        calibration=calibration(sure),
    )


def _value_measures(rows: Sequence[Row]) -> ValueMeasures | None:
    if not rows:
        return None
    classes = [pair for row in rows if row["answer_type"] in LABEL_TYPES for pair in _classes(row)]
    return ValueMeasures(
        right=_share_of(rows, [row["value_right"] for row in rows]),
        invalid=_share_of(rows, [row["value_status"] == ValueStatus.INVALID for row in rows]),
        macro_f1=macro_f1(classes) if classes else None,
    )


def _classes(row: Row) -> Iterator[tuple[list[str], list[str]]]:
    """Classes that a value gives, and the right ones; a reading without a value gives none."""
    given = _named(row["value"]) if row["value_status"] in {ValueStatus.OK, ValueStatus.NOT_STATED} else []
    wanted = _named(row["reference_value"])
    if given or wanted:
        yield given, wanted


def _named(value: str | None) -> list[str]:
    """A value as names of classes."""
    if value is None:
        return [NOT_STATED_ENTRY]
    parsed = json.loads(value)
    return [str(each) for each in parsed] if isinstance(parsed, list) else [str(parsed)]


def _evidence_measures(rows: Sequence[Row]) -> EvidenceMeasures | None:
    if not rows:
        return None
    right = [row for row in rows if row["score"] == 1]
    return EvidenceMeasures(
        n=len(rows),
        precision=_mean(rows, "evidence_precision"),
        recall=_mean(rows, "evidence_recall"),
        f1=_mean(rows, "evidence_f1"),
        hit=_share_of(rows, [row["evidence_hit"] for row in rows]),
        hit_where_right=_share_of(right, [row["evidence_hit"] for row in right]) if right else None,
    )


def _abstention(rows: Sequence[Row]) -> Abstention | None:
    """None where nothing absent is asked, and no question may be answered with `not stated` by its type."""
    absent = [row for row in rows if row["is_absent"]]
    present = [row for row in rows if not row["is_absent"]]
    if not absent and all(row["answer_type"] is None for row in rows):
        return None
    asked = [row for row in absent if row["num_evidence"] is not None]
    return Abstention(
        right=_share_of(absent, [row["abstained"] for row in absent]) if absent else None,
        lost=_share_of(present, [row["abstained"] for row in present]) if present else None,
        no_evidence=_share_of(asked, [row["num_evidence"] == 0 for row in asked]) if asked else None,
    )


def _share_of(rows: Sequence[Row], members: Sequence[bool]) -> Share:
    interval = mean_interval(by_document(rows, [float(member) for member in members]))
    return Share(n=len(rows), share=sum(members) / len(rows), interval=interval)


def _mean(rows: Sequence[Row], name: str) -> float:
    return float(sum(row[name] for row in rows)) / len(rows)


def compare(scores: pa.Table) -> list[Comparison]:
    """Each further variant against the first: all tasks together, then each task by name."""
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
