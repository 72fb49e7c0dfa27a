"""The labelled readings that a threshold follows from: drawn uniformly of all, with the scan's confidence."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import pyarrow.compute as pc

from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.readings import Status
from memagent_batch.errors import OutputError
from memagent_batch.files.location import Location
from memagent_batch.review.estimates.standing_labels import CountedLabels, LabelledUnit
from memagent_batch.review.labels.label import YES
from memagent_batch.review.sample.population import answer_tables
from memagent_batch.review.sample.record import Review
from memagent_batch.runs.manifest import Manifest

COLUMNS = ("document_id", "question_id", "question_hash", "sample", "status", "value_status", "value", "confidence")


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanAnswer:
    """What the scan says of a document."""

    is_yes: bool
    """Whether it says yes."""
    confidence: float | None
    """How sure it is; None where it has no value, or its engine gives no probabilities."""

    @property
    def sure_no(self) -> float | None:
        """How sure its "no" is; None where it says yes, or nothing."""
        return None if self.is_yes else self.confidence


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledReading:
    """A reading that people labelled."""

    answer: ScanAnswer
    """What the scan says."""
    is_positive: bool
    """Whether people say that it is what is looked for."""
    labelled_at: datetime
    """When the last label of it was given."""


def scan_answers(output: Location, manifest: Manifest, *, question_id: str) -> dict[str, ScanAnswer]:
    """What the scan says of each document, sample 0.

    Raises:
        OutputError: a table file is gone or can't be read.
    """
    found: dict[str, ScanAnswer] = {}
    for answers in answer_tables(output, manifest, columns=COLUMNS):
        rows = answers.filter((pc.field("question_id") == question_id) & (pc.field("sample") == 0))
        found.update({row["document_id"]: _scan_answer(row) for row in rows.to_pylist()})
    return found


def uniform_readings(
    review: Review, counted: CountedLabels, answers: Mapping[str, ScanAnswer]
) -> list[LabelledReading]:
    """The labelled readings that are a uniform sample of all, in the order of their permanent numbers.

    Each stratum has its smallest numbers in the sample. Below the largest number of the stratum that ends first the
    sample has all readings of that number, whatever their strata. Readings that nobody could judge are passed over.

    Raises:
        OutputError: some of them are not labelled: those that are would be no fair sample of them.
    """
    units = list(_in_order(review, counted))
    num_left = sum(not unit.labels and not unit.is_unclear for unit in units)
    if num_left:
        raise OutputError(
            f"review {review.record['review_id']}: {num_left:,} of {len(units):,} readings that a threshold is learnt "
            "from are not labelled; label them, and import the labels"
        )
    return [_labelled(unit, answers) for unit in units if unit.labels]


def limiting_stratum(review: Review, counted: CountedLabels) -> str | None:
    """The stratum that ends first of those that were not drawn whole: with more labels of it, more of all count."""
    ends = _ends(review, counted)
    return min(ends, key=lambda name: ends[name]) if ends else None


def _ends(review: Review, counted: CountedLabels) -> dict[str, str]:
    """The largest number in the sample of each stratum that was not drawn whole."""
    last: dict[str, str] = {}
    for unit in counted.units:
        stratum = unit.drawn.unit.stratum
        last[stratum] = max(last.get(stratum, ""), unit.drawn.number)
    record = review.record
    return {
        name: last.get(name, "") for name, size in record["readings"].items() if record["drawn"].get(name, 0) < size
    }


def _in_order(review: Review, counted: CountedLabels) -> Iterator[LabelledUnit]:
    """The readings of the sample up to the number at which the first stratum ends that was not drawn whole."""
    end = min(_ends(review, counted).values(), default=None)
    for unit in sorted(counted.units, key=lambda each: (each.drawn.number, each.drawn.unit.document_id)):
        if end is None or unit.drawn.number <= end:
            yield unit


def _labelled(unit: LabelledUnit, answers: Mapping[str, ScanAnswer]) -> LabelledReading:
    return LabelledReading(
        answer=answers[unit.drawn.unit.document_id],
        is_positive=unit.value == YES,
        labelled_at=max(label.labelled_at for label in unit.labels),
    )


def _scan_answer(row: Mapping[str, Any]) -> ScanAnswer:
    if row["status"] != Status.OK or row["value_status"] == ValueStatus.INVALID:
        return ScanAnswer(is_yes=False, confidence=None)
    return ScanAnswer(is_yes=row["value"] == "true", confidence=row["confidence"])


def positives_of(readings: Sequence[LabelledReading]) -> list[float | None]:
    """How sure the scan is of its "no" to those that are what is looked for; see `learn_threshold`."""
    return [reading.answer.sure_no for reading in readings if reading.is_positive]
