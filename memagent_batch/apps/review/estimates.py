"""All that a review says of a scan, from the labels that count. Pure, seeded."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from memagent_batch.apps.evaluation.statistics import Interval, wilson
from memagent_batch.apps.review.labels import (
    NO,
    UNCLEAR,
    YES,
    LabelKey,
    LabelRow,
    Purpose,
    current_labels_of,
    label_key,
    verdict,
)
from memagent_batch.apps.review.measures import (
    Agreement,
    Measure,
    MeasureEstimate,
    StratumCounts,
    agreement_of,
    draw_totals,
    estimate_error_rate,
    estimate_measures,
)
from memagent_batch.apps.review.population import UNANSWERED, SampleRow, Stratum
from memagent_batch.data.documents.document_index import SOURCE_UNREAD

MEANINGS = {
    Measure.PRECISION: "of what was found is right",
    Measure.RECALL: "of all that is right was found",
    Measure.F1: "F1, the harmonic mean of the two",
    Measure.ELUSION: "of what was not found should have been",
    Measure.RICHNESS: "of all readings are what is looked for",
}
"""What follows the share, in words."""
CONFIDENCE_BANDS = (0.0, 0.5, 0.8, 0.95, 1.0)
"""Bounds of the bands of confidence. A band includes its lower bound, and the last one its upper bound too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledUnit:
    """A reading of the sample with the labels that count for it."""

    drawn: SampleRow
    labels: Sequence[LabelRow]
    """The last label of each person, unclear ones left out; the person who labelled first in front."""
    is_unclear: bool
    """Whether people labelled it, and nobody could say."""

    @property
    def value(self) -> str | None:
        """What counts; None where nobody has said."""
        return verdict(self.labels) if self.labels else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLabels:
    """The labels that count for a sample, and those that don't."""

    units: Sequence[LabelledUnit]
    """Every reading of the sample, in its order."""
    num_develop: int
    """Readings of the sample with labels made to develop by."""
    num_seen: int
    """Readings whose labels were given with the answer in view, and don't count for that."""
    num_other: int
    """Readings whose labels are of another decision, and don't count for that."""

    @property
    def num_left(self) -> int:
        """Readings that nobody has labelled."""
        return sum(not unit.labels and not unit.is_unclear for unit in self.units)

    @property
    def num_with_losses(self) -> int:
        """Readings of documents whose source was not read to the end."""
        return sum(unit.drawn.get(SOURCE_UNREAD) is not None for unit in self.units)

    @property
    def num_unclear(self) -> int:
        """Readings that nobody could judge."""
        return sum(unit.is_unclear for unit in self.units)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """First and second label of the readings that a second person reads by lot; not of those that contradict."""
        both = [unit.labels for unit in self.units if unit.drawn["is_second"] and len(unit.labels) > 1]
        return [(labels[0]["value"], labels[1]["value"]) for labels in both]


def count_labels(
    sample: Sequence[SampleRow], labels: Iterable[LabelRow], *, purpose: Purpose, decision: str
) -> CountedLabels:
    """The labels of each reading of a sample, whatever review they were made in, for this purpose and decision."""
    of_key: dict[LabelKey, list[LabelRow]] = defaultdict(list)
    for label in labels:
        of_key[label_key(label)].append(label)
    units: list[LabelledUnit] = []
    num_develop = num_seen = num_other = 0
    for row in sample:
        of_unit = of_key.get(label_key(row), [])
        made_for = [label for label in of_unit if label["purpose"] == purpose]
        fitting = [label for label in made_for if label["decision"] == decision]
        units.append(_labelled_unit(row, fitting))
        num_develop += any(label["purpose"] == Purpose.DEVELOP for label in of_unit)
        num_seen += bool(fitting) and not any(label["blind"] for label in fitting)
        num_other += bool(made_for) and not fitting
    return CountedLabels(units=units, num_develop=num_develop, num_seen=num_seen, num_other=num_other)


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfidenceBand:
    """The labelled answers of a stratum with a confidence from `low` to `high`."""

    stratum: str
    low: float
    high: float
    num_labelled: int
    num_wrong: int
    interval: Interval
    """Wilson's 95 % interval of the share that is wrong."""

    @property
    def error_rate(self) -> float:
        """Share of the labelled answers that is wrong."""
        return self.num_wrong / self.num_labelled


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEstimate:
    """What a review says of a scan. The labels are taken for the truth."""

    strata: Sequence[StratumCounts]
    measures: Mapping[Measure, MeasureEstimate]
    """The error rate is of all readings, those of documents that nobody can read included."""
    num_missed_at_worst: int
    """Readings of documents that nobody can read, or whose source was not read to the end and that were not found."""
    recall_at_worst: MeasureEstimate | None
    """Recall if all of these were looked for, and missed; None without such."""
    agreement: Agreement
    bands: Sequence[ConfidenceBand]
    """Errors by confidence: of each stratum the bands with a labelled answer."""


def estimate_review(
    counted: CountedLabels, sizes: Mapping[str, int], *, num_unreadable: int, losses: Mapping[str, int]
) -> ReviewEstimate:
    """All measures of a review; `sizes` are the readings of each stratum, `losses` those of an incomplete text.

    Nobody can read the text of further `num_unreadable` readings: none of them has an answer.
    """
    strata = _stratum_counts(counted.units, sizes, positive=lambda _: YES)
    answered = {name: size for name, size in sizes.items() if name not in UNANSWERED}
    right = _stratum_counts(counted.units, answered, positive=_agreeing)
    num_unanswered = num_unreadable + sum(size for name, size in sizes.items() if name in UNANSWERED)
    error_rate = estimate_error_rate(right, draw_totals(right), num_unanswered=num_unanswered)
    missed = {name: number for name, number in losses.items() if name != Stratum.FLAGGED}
    num_missed_at_worst = num_unreadable + sum(missed.values())
    whole = [unit for unit in counted.units if not (unit.drawn.get(SOURCE_UNREAD) and unit.drawn["stratum"] in missed)]
    sizes_of_whole = {name: size - missed.get(name, 0) for name, size in sizes.items()}
    strata_of_whole = _stratum_counts(whole, sizes_of_whole, positive=lambda _: YES)
    return ReviewEstimate(
        strata=strata,
        measures={**estimate_measures(strata, draw_totals(strata)), Measure.ERROR_RATE: error_rate},
        num_missed_at_worst=num_missed_at_worst,
        recall_at_worst=_recall_at_worst(strata_of_whole, num_missed_at_worst) if num_missed_at_worst else None,
        agreement=agreement_of(counted.pairs),
        bands=estimate_bands(counted.units),
    )


def estimate_bands(units: Sequence[LabelledUnit]) -> list[ConfidenceBand]:
    """Counts the wrong answers in each band of confidence, stratum by stratum.

    A sample is drawn at random within a stratum, but not evenly from all of them, so bands do not mix strata.
    """
    bands = []
    for stratum in (Stratum.FLAGGED, Stratum.NOT_FLAGGED):
        answers = [unit for unit in units if unit.drawn["stratum"] == stratum and unit.value is not None]
        rated = [(confidence, unit) for unit in answers if (confidence := unit.drawn.get("confidence")) is not None]
        for low, high in pairwise(CONFIDENCE_BANDS):
            wrong = [
                contradicts(unit)
                for confidence, unit in rated
                if low <= confidence < high or confidence == high == CONFIDENCE_BANDS[-1]
            ]
            if wrong:
                bands.append(
                    ConfidenceBand(
                        stratum=stratum.value,
                        low=low,
                        high=high,
                        num_labelled=len(wrong),
                        num_wrong=sum(wrong),
                        interval=wilson(sum(wrong), len(wrong)),
                    )
                )
    return bands


def contradicts(unit: LabelledUnit) -> bool:
    """Whether the label that counts says otherwise than the scan, so that a second person should look."""
    return unit.value is not None and unit.value != _agreeing(unit.drawn["stratum"])


def _labelled_unit(drawn: SampleRow, labels: Sequence[LabelRow]) -> LabelledUnit:
    counted = current_labels_of(label for label in labels if label["blind"])
    clear = [label for label in counted if label["value"] != UNCLEAR]
    return LabelledUnit(drawn=drawn, labels=clear, is_unclear=bool(counted) and not clear)


def _stratum_counts(
    units: Sequence[LabelledUnit], sizes: Mapping[str, int], *, positive: Callable[[str], str]
) -> list[StratumCounts]:
    """What the labels say of each stratum; `sizes` are its readings, `positive` the label of it that is counted."""
    values = defaultdict[str, list[str]](list)
    for unit in units:
        if unit.value is not None:
            values[unit.drawn["stratum"]].append(unit.value)
    return [
        StratumCounts(
            name=name,
            num_readings=size,
            num_labelled=len(values[name]),
            num_positive=values[name].count(positive(name)),
            is_found=name == Stratum.FLAGGED,
        )
        for name, size in sizes.items()
    ]


def _recall_at_worst(strata: Sequence[StratumCounts], num_missed: int) -> MeasureEstimate:
    """Recall where a stratum more is known to be positive, and was not found."""
    missed = StratumCounts(name="missed", num_readings=num_missed, num_labelled=num_missed, num_positive=num_missed)
    whole = [*strata, missed]
    return estimate_measures(whole, draw_totals(whole))[Measure.RECALL]


def _agreeing(stratum: str) -> str:
    """The label that agrees with what the scan says of a stratum; nothing is found where it has no answer."""
    return YES if stratum == Stratum.FLAGGED else NO
