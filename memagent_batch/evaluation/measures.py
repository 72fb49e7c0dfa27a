"""What typed values, evidence and `not stated` come to for each variant and task, from the scores of its readings."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa

from memagent_batch.domain.closing.answer_types import NOT_STATED_ENTRY, AnswerType
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.scoring.intervals import Interval, mean_interval
from memagent_batch.domain.scoring.measures import Calibration, calibration, macro_f1
from memagent_batch.evaluation.scoring import ALL_TASKS, by_document
from memagent_batch.evaluation.suites.schemas import CLOSING_SCORES
from memagent_batch.log.index import Row

LABEL_TYPES = frozenset({AnswerType.BOOL, AnswerType.LABEL, AnswerType.LABELS})
"""Types whose values are classes."""

SCORE_COLUMNS = [
    "variant",
    "document_id",
    "task",
    "answer_type",
    "status",
    "score",
    *(field.name for field in CLOSING_SCORES),
]
"""Columns of the scores that are used."""


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
    """Mean over the classes of yes and no, or labels, `not stated` among them; None where there are no such types."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceMeasures:
    """Evidence, where the right sentences are known and there are some."""

    n: int
    """Readings."""
    precision: float
    """Mean share of the evidence that overlaps a right sentence."""
    recall: float
    """Mean share of the right sentences that evidence overlaps."""
    f1: float
    """Mean harmonic mean of both."""
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
    """What was evaluated."""
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


def measure(scores: pa.Table) -> list[Measures]:
    """The measures of each variant: all tasks together, then each task by name; those that are empty are left out.

    Args:
        scores: A table of `SCORES`.
    """
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
