"""All that a review says of a scan, from the labels that count. Pure, seeded."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memagent_batch.evaluation.statistics import Interval
from memagent_batch.review.labels import (
    NO,
    UNCLEAR,
    YES,
    Label,
    LabelKey,
    Purpose,
    current_labels_of,
    label_key,
    verdict,
)
from memagent_batch.review.measures import (
    HALF,
    INTERVAL_ENDS,
    NUM_DRAWS,
    SEED,
    Agreement,
    Measure,
    MeasureEstimate,
    StratumCounts,
    agreement_of,
    draw_totals,
    estimate_error_rate,
    estimate_measures,
)
from memagent_batch.review.population import SampleRow
from memagent_batch.review.strata import UNANSWERED, Stratum


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEstimate:
    """How many of the sentences that the scan points at support the answer, as people see it."""

    num_sentences: int
    num_readings: int
    """Readings that they belong to."""
    share: float
    """Share of a reading's sentences that support its answer, mean over all readings with sentences in `strata`."""
    interval: Interval
    """Its 95 % interval, over readings."""
    strata: Sequence[str]
    """Strata that it is of."""
    strata_left: Sequence[str]
    """Strata whose sentences nobody labelled: nothing is known of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumSentences:
    """The sentences that answers of a stratum rest on, as far as people labelled them."""

    num_readings: int
    num_drawn: int
    """Of these, in the sample."""
    num_with_sentences: int
    """Of these, ones whose answers rest on sentences."""
    labelled: Sequence[Sequence[bool]]
    """Whether each labelled sentence supports the answer, by reading."""

    @property
    def shares(self) -> list[float]:
        """Share of its labelled sentences that support the answer, by reading."""
        return [sum(bears) / len(bears) for bears in self.labelled]

    @property
    def size(self) -> float:
        """Estimated readings of the whole stratum whose answers rest on sentences."""
        return self.num_readings * self.num_with_sentences / self.num_drawn


def estimate_evidence(strata: Mapping[str, StratumSentences]) -> EvidenceEstimate | None:
    """The share of sentences that support the answer; None where none was labelled.

    Each stratum counts by its size, however much of it was drawn. Its share is drawn from a beta distribution with the
    half prior of all other measures.

    Args:
        strata: The sentences of each stratum whose answers rest on some, by its name.
    """
    judged = {name: each for name, each in strata.items() if each.labelled}
    if not judged:
        return None
    rng = np.random.default_rng(SEED)
    size = sum(each.size for each in judged.values())
    share, draws = 0.0, np.zeros(NUM_DRAWS)
    for each in judged.values():
        right, number = sum(each.shares), len(each.shares)
        share += each.size / size * right / number
        draws += each.size / size * rng.beta(right + HALF, number - right + HALF, NUM_DRAWS)
    low, high = (float(end) for end in np.quantile(draws, INTERVAL_ENDS))
    return EvidenceEstimate(
        num_sentences=sum(len(bears) for each in judged.values() for bears in each.labelled),
        num_readings=sum(len(each.labelled) for each in judged.values()),
        share=share,
        interval=Interval(low=min(low, share), high=max(high, share)),
        strata=sorted(judged),
        strata_left=sorted(strata.keys() - judged.keys()),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledUnit:
    """A reading of the sample with the labels that count for it."""

    drawn: SampleRow
    labels: Sequence[Label]
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
    def num_unclear(self) -> int:
        """Readings that nobody could judge."""
        return sum(unit.is_unclear for unit in self.units)

    @property
    def num_judged_seen(self) -> int:
        """Readings for which a label counts that was given with the answer in view."""
        return sum(not all(label.blind for label in unit.labels) for unit in self.units)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """First and second label of the readings that a second person reads by lot; not of those that contradict."""
        both = [unit.labels for unit in self.units if unit.drawn["is_second"] and len(unit.labels) > 1]
        return [(labels[0].value, labels[1].value) for labels in both]


def count_labels(
    sample: Sequence[SampleRow], labels: Iterable[Label], *, purpose: Purpose, decision: str, with_seen: bool
) -> CountedLabels:
    """The labels of each reading of a sample, whatever review they were made in.

    Args:
        sample: The sample.
        labels: All labels of the output.
        purpose: What the labels must have been made for.
        decision: What they must have decided.
        with_seen: Whether labels count that were given with the answer in view.
    """
    of_key: dict[LabelKey, list[Label]] = defaultdict(list)
    for label in labels:
        of_key[label.key].append(label)
    units: list[LabelledUnit] = []
    num_develop = num_seen = num_other = 0
    for row in sample:
        of_unit = of_key.get(label_key(row), [])
        made_for = [label for label in of_unit if label.purpose is purpose]
        fitting = [label for label in made_for if label.decision == decision]
        units.append(_labelled_unit(row, fitting, with_seen=with_seen))
        num_develop += any(label.purpose is Purpose.DEVELOP for label in of_unit)
        num_seen += not with_seen and bool(fitting) and not any(label.blind for label in fitting)
        num_other += bool(made_for) and not fitting
    return CountedLabels(units=units, num_develop=num_develop, num_seen=num_seen, num_other=num_other)


def sentence_labels(labels: Iterable[Label], *, purpose: Purpose) -> Mapping[LabelKey, str]:
    """What counts of each sentence: whether it supports the answer, by labels made for a purpose."""
    of_key: dict[LabelKey, list[Label]] = defaultdict(list)
    of_sentences = (label for label in labels if label.key.char_start is not None and label.purpose is purpose)
    for label in current_labels_of(of_sentences):
        of_key[label.key].append(label)
    return {key: verdict(of_sentence) for key, of_sentence in of_key.items()}


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEstimate:
    """The measures of what is looked for."""

    strata: Sequence[StratumCounts]
    measures: Mapping[Measure, MeasureEstimate]
    """The labels are taken for the truth."""
    recall_at_worst: MeasureEstimate | None
    """Recall if all readings of documents that nobody can read were looked for, and missed; None without such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEstimate:
    """What a review says of a scan."""

    values: Sequence[ValueEstimate]
    """One."""
    error_rate: MeasureEstimate
    """Wrong or missing answers, of all readings, those of documents that nobody can read included."""
    agreement: Agreement
    evidence: EvidenceEstimate | None
    """None where no sentence was labelled."""


def estimate_review(
    counted: CountedLabels,
    sizes: Mapping[str, int],
    *,
    num_unreadable: int,
    evidence: EvidenceEstimate | None,
) -> ReviewEstimate:
    """All measures of a review.

    Args:
        counted: The labels that count.
        sizes: Readings of each stratum.
        num_unreadable: Further readings, of documents whose text nobody can read: none of them has an answer.
        evidence: What the labels of sentences say.
    """
    right = right_counts(counted.units, sizes)
    num_unanswered = num_unreadable + sum(size for name, size in sizes.items() if name in UNANSWERED)
    return ReviewEstimate(
        values=[_value_estimate(counts_of(counted.units, sizes), num_unreadable=num_unreadable)],
        error_rate=estimate_error_rate(right, draw_totals(right), num_unanswered=num_unanswered),
        agreement=agreement_of(counted.pairs),
        evidence=evidence,
    )


def counts_of(units: Sequence[LabelledUnit], sizes: Mapping[str, int]) -> list[StratumCounts]:
    """What the labels say of each stratum; `sizes` are its readings."""
    return [
        _stratum_counts(name, size, units, positive=YES, found=name == Stratum.FLAGGED) for name, size in sizes.items()
    ]


def right_counts(units: Sequence[LabelledUnit], sizes: Mapping[str, int]) -> list[StratumCounts]:
    """Of each stratum with an answer, how many labels agree with it."""
    return [
        _stratum_counts(name, size, units, positive=_agreeing(name), found=False)
        for name, size in sizes.items()
        if name not in UNANSWERED
    ]


def contradicts(unit: LabelledUnit) -> bool:
    """Whether the label that counts says otherwise than the scan, so that a second person should look."""
    return unit.value is not None and unit.value != _agreeing(unit.drawn["stratum"])


def _labelled_unit(drawn: SampleRow, labels: Sequence[Label], *, with_seen: bool) -> LabelledUnit:
    counted = current_labels_of(label for label in labels if label.blind or with_seen)
    clear = [label for label in counted if label.value != UNCLEAR]
    return LabelledUnit(drawn=drawn, labels=clear, is_unclear=bool(counted) and not clear)


def _value_estimate(strata: Sequence[StratumCounts], *, num_unreadable: int) -> ValueEstimate:
    return ValueEstimate(
        strata=strata,
        measures=estimate_measures(strata, draw_totals(strata)),
        recall_at_worst=_recall_at_worst(strata, num_unreadable) if num_unreadable else None,
    )


def _recall_at_worst(strata: Sequence[StratumCounts], num_unreadable: int) -> MeasureEstimate:
    """Recall where a stratum more is known to be positive, and was not found."""
    missed = StratumCounts(
        name="unreadable", num_readings=num_unreadable, num_labelled=num_unreadable, num_positive=num_unreadable
    )
    whole = [*strata, missed]
    return estimate_measures(whole, draw_totals(whole))[Measure.RECALL]


def _agreeing(stratum: str) -> str:
    """The label that agrees with what the scan says of a stratum; nothing is found where it has no answer."""
    return YES if stratum == Stratum.FLAGGED else NO


def _stratum_counts(
    name: str, size: int, units: Sequence[LabelledUnit], *, positive: str, found: bool
) -> StratumCounts:
    labelled = [unit for unit in units if unit.drawn["stratum"] == name and unit.labels]
    return StratumCounts(
        name=name,
        num_readings=size,
        num_labelled=len(labelled),
        num_positive=sum(unit.value == positive for unit in labelled),
        is_found=found,
    )
