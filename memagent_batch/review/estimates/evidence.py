"""How many of the sentences that a scan points at bear the answer, by people's labels of some of them. Pure, seeded."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from memagent_batch.evaluation.statistics import Interval
from memagent_batch.review.statistics.measures import INTERVAL_ENDS
from memagent_batch.review.statistics.totals import HALF, NUM_DRAWS, SEED


@dataclass(frozen=True, slots=True, kw_only=True)
class EvidenceEstimate:
    """How many of the sentences that the scan points at bear the answer, as people see it."""

    num_sentences: int
    """Sentences of the sample that were labelled."""
    num_readings: int
    """Readings that they belong to."""
    share: float
    """Share of a reading's sentences that bear its answer, mean over all readings with sentences in `strata`."""
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
    """Readings of the stratum."""
    num_drawn: int
    """Of these, in the sample."""
    num_with_sentences: int
    """Of these, ones whose answers rest on sentences."""
    labelled: Sequence[Sequence[bool]]
    """Whether each labelled sentence bears the answer, by reading."""

    @property
    def shares(self) -> list[float]:
        """Share of its labelled sentences that bear the answer, by reading."""
        return [sum(bears) / len(bears) for bears in self.labelled]

    @property
    def size(self) -> float:
        """Estimated readings of the whole stratum whose answers rest on sentences."""
        return self.num_readings * self.num_with_sentences / self.num_drawn


def estimate_evidence(strata: Mapping[str, StratumSentences]) -> EvidenceEstimate | None:
    """The share of sentences that bear the answer; None where none was labelled.

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
