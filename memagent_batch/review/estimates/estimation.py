"""All that a review says of a scan, from the labels that count. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memagent_batch.review.estimates.counting import counts_of, right_counts
from memagent_batch.review.estimates.evidence import EvidenceEstimate
from memagent_batch.review.estimates.standing_labels import CountedLabels
from memagent_batch.review.sample.strata import UNANSWERED
from memagent_batch.review.statistics.agreement import Agreement, agreement_of
from memagent_batch.review.statistics.counts import StratumCounts
from memagent_batch.review.statistics.measures import (
    Measure,
    MeasureEstimate,
    estimate_error_rate,
    estimate_measures,
)
from memagent_batch.review.statistics.reviewers import draw_true_totals
from memagent_batch.review.statistics.sequences import sequence_measures
from memagent_batch.review.statistics.totals import draw_totals

MeasureEstimates = Mapping[Measure, MeasureEstimate]


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
    recall_at_worst: MeasureEstimate | None
    """Recall if all readings of documents that nobody can read were looked for, and missed; None without such."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEstimate:
    """What a review says of a scan."""

    values: Sequence[ValueEstimate]
    """One in a review by a condition, else one for each value."""
    error_rate: MeasureEstimate
    """Wrong or missing answers, of all readings, those of documents that nobody can read included."""
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
    num_unreadable: int,
    values: Sequence[str],
    evidence: EvidenceEstimate | None,
    is_sequence: bool,
) -> ReviewEstimate:
    """All measures of a review.

    Args:
        counted: The labels that count.
        sizes: Readings of each stratum.
        num_unreadable: Further readings, of documents whose text nobody can read: none of them has an answer.
        values: Values that the scan gave; empty in a review by a condition.
        evidence: What the labels of sentences say.
        is_sequence: Whether the intervals must hold however often one looks.
    """
    right = right_counts(counted.units, sizes)
    num_unanswered = num_unreadable + sum(size for name, size in sizes.items() if name in UNANSWERED)
    looked_for: list[str | None] = [*values] if values else [None]
    return ReviewEstimate(
        values=[
            _value_estimate(
                counts_of(counted.units, sizes, value=value),
                value=value,
                num_unreadable=num_unreadable,
                is_sequence=is_sequence,
            )
            for value in looked_for
        ],
        error_rate=_sequence_error(right, num_unanswered=num_unanswered)
        if is_sequence
        else estimate_error_rate(right, draw_totals(right), num_unanswered=num_unanswered),
        agreement=agreement_of(counted.pairs),
        evidence=evidence,
        is_sequence=is_sequence,
    )


def _value_estimate(
    strata: Sequence[StratumCounts], *, value: str | None, num_unreadable: int, is_sequence: bool
) -> ValueEstimate:
    has_seconds = any(labels > 1 for stratum in strata for _, labels in stratum.votes)
    corrected = has_seconds and not is_sequence
    return ValueEstimate(
        value=value,
        strata=strata,
        measures=sequence_measures(strata) if is_sequence else estimate_measures(strata, draw_totals(strata)),
        allowing_for_errors=_allowing_for_errors(strata) if corrected else None,
        recall_at_worst=_recall_at_worst(strata, num_unreadable, is_sequence=is_sequence, corrected=corrected)
        if num_unreadable
        else None,
    )


def _allowing_for_errors(strata: Sequence[StratumCounts]) -> MeasureEstimates:
    """The labels' own estimates are not those of the model: its draws' middle is."""
    return estimate_measures(strata, draw_true_totals(strata), is_point_of_draws=True)


def _recall_at_worst(
    strata: Sequence[StratumCounts], num_unreadable: int, *, is_sequence: bool, corrected: bool
) -> MeasureEstimate:
    """Recall where a stratum more is known to be positive, and was not found."""
    missed = StratumCounts(
        name="unreadable", num_readings=num_unreadable, num_labelled=num_unreadable, num_positive=num_unreadable
    )
    whole = [*strata, missed]
    if is_sequence:
        return sequence_measures(whole)[Measure.RECALL]
    draws = draw_true_totals(strata) if corrected else draw_totals(strata)
    draws = np.vstack([draws, np.full(draws.shape[1], num_unreadable)])
    return estimate_measures(whole, draws, is_point_of_draws=corrected)[Measure.RECALL]


def _sequence_error(right: Sequence[StratumCounts], *, num_unanswered: int) -> MeasureEstimate:
    """The richness of right answers, turned round."""
    answered = sum(stratum.num_readings for stratum in right)
    size = answered + num_unanswered
    found = sequence_measures(right)[Measure.RICHNESS] if right else MeasureEstimate(value=None, low=0.0, high=1.0)
    low, high = (1 - end * answered / size if size else end for end in (found.high, found.low))
    value = None if found.value is None else 1 - found.value * answered / size
    return MeasureEstimate(value=value, low=low, high=high)
