"""All that a review says of a scan, from the labels that count. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from memagent_batch.domain.scoring.intervals import Interval, mean_interval
from memagent_batch.review.estimates.counting import counts_of, right_counts
from memagent_batch.review.estimates.standing_labels import CountedLabels, LabelledUnit
from memagent_batch.review.sample.strata import UNANSWERED
from memagent_batch.review.statistics.agreement import Agreement, agreement_of
from memagent_batch.review.statistics.counts import StratumCounts
from memagent_batch.review.statistics.measures import Measure, MeasureEstimate, estimate_error_rate, estimate_measures
from memagent_batch.review.statistics.reviewers import draw_true_totals
from memagent_batch.review.statistics.sequences import sequence_measures
from memagent_batch.review.statistics.totals import draw_totals

MeasureEstimates = Mapping[Measure, MeasureEstimate]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEstimate:
    """How many of the sentences that the scan points at bear the answer, as people see it."""

    num_sentences: int
    """Sentences of the sample that were labelled."""
    num_readings: int
    """Readings that they belong to."""
    share: float
    """Share of its labelled sentences that bear the answer, mean over readings."""
    interval: Interval
    """Its 95 % interval, over readings."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ValueEstimate:
    """The measures of one value that is looked for."""

    value: str | None
    """The value; None in a review by a condition."""
    strata: Sequence[StratumCounts]
    """What the labels say of each stratum."""
    measures: MeasureEstimates
    """Where the labels are taken for the truth."""
    allowing_for_errors: MeasureEstimates | None
    """Where people's errors are allowed for, as second labels show them; None without second labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEstimate:
    """What a review says of a scan."""

    values: Sequence[ValueEstimate]
    """One in a review by a condition, else one for each value."""
    error_rate: MeasureEstimate
    """Wrong or missing answers, of all readings."""
    agreement: Agreement
    """Of the people who labelled the same readings."""
    evidence: EvidenceEstimate | None
    """None where no sentence was labelled."""
    is_sequence: bool
    """Whether the intervals are confidence sequences."""


def estimate_review(
    counted: CountedLabels,
    sizes: Mapping[str, int],
    *,
    values: Sequence[str],
    evidence: EvidenceEstimate | None,
    is_sequence: bool,
) -> ReviewEstimate:
    """All measures of a review.

    Args:
        counted: The labels that count.
        sizes: Readings of each stratum.
        values: Values that the scan gave; empty in a review by a condition.
        evidence: What the labels of sentences say.
        is_sequence: Whether the intervals must hold however often one looks.
    """
    right = right_counts(counted.units, sizes)
    num_unanswered = sum(size for name, size in sizes.items() if name in UNANSWERED)
    looked_for: list[str | None] = [*values] if values else [None]
    return ReviewEstimate(
        values=[_value_estimate(counted.units, sizes, value=value, is_sequence=is_sequence) for value in looked_for],
        error_rate=_sequence_error(right, num_unanswered=num_unanswered)
        if is_sequence
        else estimate_error_rate(right, draw_totals(right), num_unanswered=num_unanswered),
        agreement=agreement_of(counted.pairs),
        evidence=evidence,
        is_sequence=is_sequence,
    )


def estimate_evidence(sentences: Mapping[str, Sequence[bool]]) -> EvidenceEstimate | None:
    """The share of sentences that bear the answer; None where none was labelled.

    Args:
        sentences: Whether each labelled sentence does, by reading.
    """
    shares = [sum(bears) / len(bears) for bears in sentences.values() if bears]
    if not shares:
        return None
    return EvidenceEstimate(
        num_sentences=sum(map(len, sentences.values())),
        num_readings=len(shares),
        share=sum(shares) / len(shares),
        interval=mean_interval(shares),
    )


def _value_estimate(
    units: Sequence[LabelledUnit], sizes: Mapping[str, int], *, value: str | None, is_sequence: bool
) -> ValueEstimate:
    strata = counts_of(units, sizes, value=value)
    has_seconds = any(labels > 1 for stratum in strata for _, labels in stratum.votes)
    corrected = has_seconds and not is_sequence
    return ValueEstimate(
        value=value,
        strata=strata,
        measures=sequence_measures(strata) if is_sequence else estimate_measures(strata, draw_totals(strata)),
        allowing_for_errors=_allowing_for_errors(strata) if corrected else None,
    )


def _allowing_for_errors(strata: Sequence[StratumCounts]) -> MeasureEstimates:
    """The labels' own estimates are not those of the model: its draws' middle is."""
    return estimate_measures(strata, draw_true_totals(strata), is_point_of_draws=True)


def _sequence_error(right: Sequence[StratumCounts], *, num_unanswered: int) -> MeasureEstimate:
    """The richness of right answers, turned round."""
    answered = sum(stratum.num_readings for stratum in right)
    size = answered + num_unanswered
    found = sequence_measures(right)[Measure.RICHNESS] if right else MeasureEstimate(value=None, low=0.0, high=1.0)
    low, high = (1 - end * answered / size if size else end for end in (found.high, found.low))
    value = None if found.value is None else 1 - found.value * answered / size
    return MeasureEstimate(value=value, low=low, high=high)
