"""All that a review says of a scan, from the labels that count: shares with 95 % intervals. Pure, seeded."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise
from math import nan

import numpy as np
from numpy.typing import NDArray

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
)
from memagent_batch.apps.review.population import UNANSWERED, SampleRow, Stratum

NUM_DRAWS = 4_000
"""Draws of a total: with so many, the ends of an interval move by about 2 % of its width between seeds."""
HALF = 0.5
"""Both parameters of the prior of a share: Jeffreys' (Webber's "half prior")."""
SEED = 20130131
"""Seed of the draws, so that the same labels always have the same intervals."""
Numbers = NDArray[np.floating]
Totals = NDArray[np.int64]
"""Positives of each stratum in each draw, shape (strata, draws)."""
INTERVAL_ENDS = (0.025, 0.975)
"""Quantiles of the draws between which 95 % of them lie."""
CONFIDENCE_BANDS = (0.0, 0.5, 0.8, 0.95, 1.0)
"""Bounds of the bands of confidence. A band includes its lower bound, and the last one its upper bound too."""


class Measure(StrEnum):
    """Measures of a scan, in the order in which people ask for them.

    Readings that failed or have no value count among those that were not found.
    """

    RECALL = "recall"
    """Share of all that is right which was found."""
    PRECISION = "precision"
    """Share of what was found that is right."""
    F1 = "f1"
    ELUSION = "elusion"
    """Share of what was not found that should have been."""
    RICHNESS = "richness"
    """Share of all readings that are what is looked for."""
    ERROR_RATE = "error_rate"
    """Share of all readings whose answer is wrong, or that have none."""


MEANINGS = {
    Measure.PRECISION: "of what was found is right",
    Measure.RECALL: "of all that is right was found",
    Measure.F1: "F1, the harmonic mean of the two",
    Measure.ELUSION: "of what was not found should have been",
    Measure.RICHNESS: "of all readings are what is looked for",
}
"""What follows the share, in words."""


@dataclass(frozen=True, slots=True, kw_only=True)
class StratumCounts:
    """One stratum: how large it is, how much of it was labelled, and what the labels say."""

    name: str
    num_readings: int
    num_labelled: int
    """Of these, drawn at random and labelled."""
    num_positive: int
    """Of the labelled, those that people say are what is looked for."""
    is_found: bool = False
    """Whether the scan's output says that these readings are what is looked for."""

    @property
    def is_unknown(self) -> bool:
        """Whether it has readings, and no label says anything of them."""
        return self.num_readings > 0 and self.num_labelled == 0

    @property
    def total(self) -> float:
        """Estimated positives of the whole stratum; NaN where nothing is known of it."""
        if self.is_unknown:
            return nan
        return self.num_readings * self.num_positive / max(1, self.num_labelled)


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasureEstimate:
    """A measure with its interval."""

    value: float | None
    """The estimate; None if nothing is known of it, as the precision of a scan that found nothing, or where it rests
    on a stratum without labels."""
    low: float
    """Lower end of the 95 % interval, from 0 to 1."""
    high: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Agreement:
    """Two readings of the same documents by two people."""

    num_pairs: int
    num_equal: int
    """Of these, with the same label."""
    interval: Interval
    """Wilson's 95 % interval of the share that is equal."""
    kappa: float | None
    """Cohen's kappa: agreement beyond what chance alone would bring, at most 1; None where it is not defined."""

    @property
    def share(self) -> float | None:
        """Share of the pairs that are equal; None without pairs."""
        return self.num_equal / self.num_pairs if self.num_pairs else None


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
        """What most people say, of equal sides the one who labelled first; None where nobody has said."""
        values = [label["value"] for label in self.labels]
        return max(dict.fromkeys(values), key=values.count) if values else None

    @property
    def contradicts(self) -> bool:
        """Whether the label that counts says otherwise than the scan, so that a second person should look."""
        return self.value is not None and self.value != _agreeing_label(self.drawn["stratum"])


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
        return sum(unit.drawn["source_unread"] is not None for unit in self.units)

    @property
    def num_unclear(self) -> int:
        """Readings that nobody could judge."""
        return sum(unit.is_unclear for unit in self.units)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """First and second label of the readings that a second person reads by lot; not of those that contradict."""
        both = [unit.labels for unit in self.units if unit.drawn["is_second"] and len(unit.labels) > 1]
        return [(labels[0]["value"], labels[1]["value"]) for labels in both]


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
        current = current_labels_of(label for label in fitting if label["blind"])
        clear = [label for label in current if label["value"] != UNCLEAR]
        units.append(LabelledUnit(drawn=row, labels=clear, is_unclear=bool(current) and not clear))
        num_develop += any(label["purpose"] == Purpose.DEVELOP for label in of_unit)
        num_seen += bool(fitting) and not any(label["blind"] for label in fitting)
        num_other += bool(made_for) and not fitting
    return CountedLabels(units=units, num_develop=num_develop, num_seen=num_seen, num_other=num_other)


def estimate_review(
    counted: CountedLabels, sizes: Mapping[str, int], *, num_unreadable: int, losses: Mapping[str, int]
) -> ReviewEstimate:
    """All measures of a review; `sizes` are the readings of each stratum, `losses` those of an incomplete text.

    Nobody can read the text of further `num_unreadable` readings: none of them has an answer.
    """
    strata = _stratum_counts(counted.units, sizes, positive=lambda _: YES)
    answered = {name: size for name, size in sizes.items() if name not in UNANSWERED}
    right = _stratum_counts(counted.units, answered, positive=_agreeing_label)
    num_unanswered = num_unreadable + sum(size for name, size in sizes.items() if name in UNANSWERED)
    error_rate = estimate_error_rate(right, draw_totals(right), num_unanswered=num_unanswered)
    missed = {name: number for name, number in losses.items() if name != Stratum.FLAGGED}
    num_missed, recall_at_worst = num_unreadable + sum(missed.values()), None
    if num_missed:  # a stratum more is known to be positive, and was not found
        whole = [
            unit for unit in counted.units if not (unit.drawn["source_unread"] and unit.drawn["stratum"] in missed)
        ]
        sizes_of_whole = {name: size - missed.get(name, 0) for name, size in sizes.items()}
        strata_at_worst = [
            *_stratum_counts(whole, sizes_of_whole, positive=lambda _: YES),
            StratumCounts(name="missed", num_readings=num_missed, num_labelled=num_missed, num_positive=num_missed),
        ]
        recall_at_worst = estimate_measures(strata_at_worst, draw_totals(strata_at_worst))[Measure.RECALL]
    return ReviewEstimate(
        strata=strata,
        measures={**estimate_measures(strata, draw_totals(strata)), Measure.ERROR_RATE: error_rate},
        num_missed_at_worst=num_missed,
        recall_at_worst=recall_at_worst,
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
        rated = [(confidence, unit) for unit in answers if (confidence := unit.drawn["confidence"]) is not None]
        for low, high in pairwise(CONFIDENCE_BANDS):
            wrong = [
                unit.contradicts
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


def _agreeing_label(stratum: str) -> str:
    """The label that agrees with what the scan says of a stratum; nothing is found where it has no answer."""
    return YES if stratum == Stratum.FLAGGED else NO


def draw_totals(strata: Sequence[StratumCounts], *, seed: int = SEED, num_draws: int = NUM_DRAWS) -> Totals:
    """Draws the positives of each stratum: those labelled so, and a beta-binomial number of the unlabelled.

    The way of Webber, Approximate recall confidence intervals, ACM TOIS 31(1), 2013. What was labelled is known, so
    that a stratum that was read whole has one total only.
    """
    rng = np.random.default_rng(seed)
    draws = np.empty((len(strata), num_draws), np.int64)
    for row, stratum in enumerate(strata):
        num_negative = stratum.num_labelled - stratum.num_positive
        shares = rng.beta(stratum.num_positive + HALF, num_negative + HALF, num_draws)
        draws[row] = stratum.num_positive + rng.binomial(stratum.num_readings - stratum.num_labelled, shares)
    return draws


def estimate_measures(strata: Sequence[StratumCounts], draws: Totals) -> dict[Measure, MeasureEstimate]:
    """All measures but the error rate; `draws` are the positives of each stratum."""
    totals = np.array([[stratum.total] for stratum in strata], float)
    points, of_draws = (_measures_of_totals(strata, each) for each in (totals, draws.astype(float)))
    return {name: _estimate_of_draws(points[name], of_draws[name]) for name in points}


def estimate_error_rate(strata: Sequence[StratumCounts], draws: Totals, *, num_unanswered: int) -> MeasureEstimate:
    """Share of wrong or missing answers: readings without one count as wrong.

    A stratum's positives are the labels that its answers agree with, and `draws` the right answers of each.
    """
    size = sum(stratum.num_readings for stratum in strata) + num_unanswered
    points = np.array([[stratum.total] for stratum in strata], float).reshape(len(strata), 1)
    point, of_draws = (_ratio(size - totals.sum(0), size) for totals in (points, draws.astype(float)))
    return _estimate_of_draws(point, of_draws)


def agreement_of(pairs: Sequence[tuple[str, str]]) -> Agreement:
    """Agreement of pairs of labels, first reviewer's first.

    Cohen's kappa (1960) is (agreed - expected) / (1 - expected), and not defined where all labels are the same.
    """
    num_equal = sum(first == second for first, second in pairs)
    firsts, seconds = (Counter(pair[side] for pair in pairs) for side in (0, 1))
    expected, possible = sum(number * seconds[label] for label, number in firsts.items()), len(pairs) ** 2
    kappa = None if possible == expected else (num_equal * len(pairs) - expected) / (possible - expected)
    interval = wilson(num_equal, len(pairs))
    return Agreement(num_pairs=len(pairs), num_equal=num_equal, interval=interval, kappa=kappa)


def _measures_of_totals(strata: Sequence[StratumCounts], totals: Numbers) -> dict[Measure, Numbers]:
    sizes = np.array([stratum.num_readings for stratum in strata], float)
    is_found = np.array([stratum.is_found for stratum in strata])
    found, missed = totals[is_found].sum(0), totals[~is_found].sum(0)
    num_found = sizes[is_found].sum()
    return {
        Measure.PRECISION: _ratio(found, num_found),
        Measure.RECALL: _ratio(found, found + missed),
        Measure.F1: _ratio(2 * found, found + missed + num_found),
        Measure.ELUSION: _ratio(missed, sizes.sum() - num_found),
        Measure.RICHNESS: _ratio(found + missed, sizes.sum()),
    }


def _ratio(upper: Numbers, lower: Numbers | float) -> Numbers:
    """The quotient; NaN if nothing is known of it, or nothing is known of a part."""
    lower = np.broadcast_to(np.asarray(lower, float), upper.shape)
    quotient: Numbers = np.divide(upper, lower, out=np.full(upper.shape, np.nan), where=lower > 0)
    return quotient


def _estimate_of_draws(point: Numbers, draws: Numbers) -> MeasureEstimate:
    """What the labels say, and the middle 95 % of the draws, which hold it: no wrong label among few leaves zero wrong
    ones possible.
    """
    value = None if np.isnan(point[0]) else float(point[0])
    draws = draws[~np.isnan(draws)]
    if not len(draws):
        return MeasureEstimate(value=value, low=0.0, high=1.0)
    low, high = (float(end) for end in np.quantile(draws, INTERVAL_ENDS))
    if value is None:
        return MeasureEstimate(value=None, low=low, high=high)
    return MeasureEstimate(value=value, low=min(low, value), high=max(high, value))
