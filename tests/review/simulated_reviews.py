"""Simulated reviews of scans of known truth: how often their intervals cover it.

Each simulated review draws its truth again, a sample is drawn and labelled, and each interval covers the truth or not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from memagent_batch.review.measures import (
    Measure,
    MeasureEstimate,
    StratumCounts,
    draw_totals,
    estimate_error_rate,
    estimate_measures,
)
from memagent_batch.review.population import Stratum, allocate

PRECISION = 0.8
SHARE_FAILED = 0.02
NUM_DRAWS = 1_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    documents: int
    richness: float
    elusion: float
    labels: int

    @property
    def sizes(self) -> dict[str, int]:
        failed = round(self.documents * SHARE_FAILED)
        answered = self.documents - failed
        flagged = round(answered * (self.richness - self.elusion) / (PRECISION - self.elusion))
        return {Stratum.FAILED: failed, Stratum.FLAGGED: flagged, Stratum.NOT_FLAGGED: answered - flagged}

    @property
    def shares(self) -> dict[str, float]:
        return {Stratum.FAILED: self.richness, Stratum.FLAGGED: PRECISION, Stratum.NOT_FLAGGED: self.elusion}


def coverage(cell: Cell, *, reviews: int, rng: np.random.Generator) -> dict[Measure, float]:
    """Share of the reviews in which the interval of a sample of fixed size covers the truth, by measure."""
    covered = []
    for _ in range(reviews):
        truth, counts = simulated(cell, rng=rng)
        true = true_measures(cell, truth)
        estimates = estimate_measures(counts, draw_totals(counts, seed=int(rng.integers(2**31)), num_draws=NUM_DRAWS))
        estimates[Measure.ERROR_RATE] = error_rate(cell, counts, rng=rng)
        covered.append([estimates[name].low <= true[name] <= estimates[name].high for name in true])
    return dict(zip(true, np.mean(covered, axis=0).tolist(), strict=True))


def simulated(cell: Cell, *, rng: np.random.Generator) -> tuple[dict[str, int], list[StratumCounts]]:
    """Positives of each stratum, and what a sample of it says."""
    drawn = allocate(cell.labels, cell.sizes)
    truth = {name: int(rng.binomial(size, cell.shares[name])) for name, size in cell.sizes.items()}
    counts = []
    for name, size in cell.sizes.items():
        number = int(rng.hypergeometric(truth[name], size - truth[name], drawn[name])) if drawn[name] else 0
        counts.append(_counts(cell, name, labelled=drawn[name], positive=number))
    return truth, counts


def true_measures(cell: Cell, truth: dict[str, int]) -> dict[Measure, float]:
    sizes = cell.sizes
    right, every = truth[Stratum.FLAGGED], sum(truth.values())
    flagged, size = sizes[Stratum.FLAGGED], sum(sizes.values())
    missed = truth[Stratum.NOT_FLAGGED]
    return {
        Measure.PRECISION: right / flagged,
        Measure.RECALL: right / every,
        Measure.F1: 2 * right / (flagged + every),
        Measure.ELUSION: (every - right) / (size - flagged),
        Measure.RICHNESS: every / size,
        Measure.ERROR_RATE: (flagged - right + missed + sizes[Stratum.FAILED]) / size,
    }


def error_rate(cell: Cell, counts: Sequence[StratumCounts], *, rng: np.random.Generator) -> MeasureEstimate:
    right = [
        each if each.is_found else replace(each, num_positive=each.num_labelled - each.num_positive)
        for each in counts
        if each.name != Stratum.FAILED
    ]
    draws = draw_totals(right, seed=int(rng.integers(2**31)), num_draws=NUM_DRAWS)
    return estimate_error_rate(right, draws, num_unanswered=cell.sizes[Stratum.FAILED])


def _counts(cell: Cell, name: str, *, labelled: int, positive: int) -> StratumCounts:
    return StratumCounts(
        name=name,
        num_readings=cell.sizes[name],
        num_labelled=labelled,
        num_positive=positive,
        is_found=name == Stratum.FLAGGED,
    )
