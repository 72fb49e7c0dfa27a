"""What so many labels will say, before anyone reads: by simulated reviews of assumed truths. Pure, seeded."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from memagent_batch.review.measures import (
    SEED,
    Measure,
    MeasureEstimate,
    StratumCounts,
    draw_totals,
    estimate_measures,
)
from memagent_batch.review.strata import UNANSWERED, allocate, is_found

NUM_REVIEWS = 40
"""Simulated reviews of a design; their mean width is right to about 3 %."""
NUM_PLAN_DRAWS = 1_000
"""Draws of each of them."""
ASSUMED_ELUSIONS = (0.001, 0.002, 0.005, 0.01, 0.02, 0.05)
"""Assumed shares of what was not flagged that should have been."""
TRIED_LABELS = (100, 200, 400, 800, 1600, 3200, 6400)
"""Numbers of labels that are tried; the last one is weeks of a reviewer's work."""
POOR_RICHNESS = 0.01
"""Share of all readings below which a sample of a size that people can read says little of recall."""


def expected_intervals(
    strata: Sequence[StratumCounts], shares: Mapping[str, float], *, seed: int = SEED
) -> dict[Measure, MeasureEstimate]:
    """The measures under an assumed truth, with the mean intervals of simulated reviews in which everyone labels right.

    Args:
        strata: The population; `num_labelled` is how many of each would be labelled.
        shares: Assumed share of positives in each.
        seed: Seed of the simulation.
    """
    rng = np.random.default_rng(seed)
    reviews = []
    for _ in range(NUM_REVIEWS):
        counts = [_simulated(stratum, shares[stratum.name], rng=rng) for stratum in strata]
        draws = draw_totals(counts, seed=int(rng.integers(2**31)), num_draws=NUM_PLAN_DRAWS)
        reviews.append(estimate_measures(counts, draws))
    assumed = [replace(each, num_labelled=10**9, num_positive=round(10**9 * shares[each.name])) for each in strata]
    truth = estimate_measures(assumed, np.zeros((len(strata), 0), np.int64))
    return {
        name: MeasureEstimate(
            value=truth[name].value or 0.0,
            low=float(np.mean([review[name].low for review in reviews])),
            high=float(np.mean([review[name].high for review in reviews])),
        )
        for name in truth
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanRow:
    """What so many labels will say under one assumed truth."""

    value: str | None
    """The value that is looked for; None in a review by a condition."""
    elusion: float
    """Assumed share of what was not found that should have been."""
    richness: float
    """Share of all readings that are what is looked for, under this truth."""
    recall: MeasureEstimate
    precision: MeasureEstimate
    num_labels_needed: int | None
    """Labels with which the interval of recall is as narrow as is wanted, of `TRIED_LABELS`; None where none is."""

    @property
    def helps(self) -> bool:
        """Whether a sample that people can read says something useful of recall."""
        return self.num_labels_needed is not None


def plan_rows(
    sizes: Mapping[str, int],
    drawn: Mapping[str, int],
    *,
    values: Sequence[str],
    precision: float,
    width: float,
) -> Iterator[PlanRow]:
    """A row for each assumed truth.

    Args:
        sizes: Readings of each stratum.
        drawn: Of these, to be labelled.
        values: Values of a review by values; empty in one by a condition.
        precision: Assumed share of what is flagged that is right.
        width: Wanted width of the interval of recall.
    """
    looked_for: list[str | None] = [*values] if values else [None]
    for value in looked_for:
        for elusion in ASSUMED_ELUSIONS:
            shares = _assumed(sizes, value=value, precision=precision, elusion=elusion)
            promises = expected_intervals(_strata(sizes, drawn, value=value), shares)
            yield PlanRow(
                value=value,
                elusion=elusion,
                richness=promises[Measure.RICHNESS].value or 0.0,
                recall=promises[Measure.RECALL],
                precision=promises[Measure.PRECISION],
                num_labels_needed=_needed(sizes, shares, value=value, width=width),
            )


def _simulated(stratum: StratumCounts, share: float, *, rng: np.random.Generator) -> StratumCounts:
    num_positive = int(rng.binomial(stratum.num_readings, share))
    num_drawn = 0
    if stratum.num_labelled:
        others = stratum.num_readings - num_positive
        num_drawn = int(rng.hypergeometric(num_positive, others, stratum.num_labelled))
    return replace(stratum, num_positive=num_drawn)


def _needed(sizes: Mapping[str, int], shares: Mapping[str, float], *, value: str | None, width: float) -> int | None:
    size = sum(sizes.values())
    for number in dict.fromkeys(min(number, size) for number in TRIED_LABELS):
        strata = _strata(sizes, allocate(number, sizes), value=value)
        if expected_intervals(strata, shares)[Measure.RECALL].width <= width:
            return number
    return None


def _assumed(sizes: Mapping[str, int], *, value: str | None, precision: float, elusion: float) -> dict[str, float]:
    """Readings without an answer are like all the others together."""
    found = {name: is_found(name, value=value) for name in sizes}
    answered = {name: size for name, size in sizes.items() if name not in UNANSWERED}
    shares = {name: precision if found[name] else elusion for name in answered}
    mean = sum(shares[name] * size for name, size in answered.items()) / max(1, sum(answered.values()))
    return {name: shares.get(name, mean) for name in sizes}


def _strata(sizes: Mapping[str, int], drawn: Mapping[str, int], *, value: str | None) -> list[StratumCounts]:
    return [
        StratumCounts(
            name=name,
            num_readings=size,
            num_labelled=drawn.get(name, 0),
            num_positive=0,
            is_found=is_found(name, value=value),
        )
        for name, size in sizes.items()
    ]
