"""Draws of totals that allow for people's own errors, as readings with two or three labels show them. Pure, seeded.

People err. Where one document in a hundred is what is looked for, a reviewer who errs once in fifty doubles it. Labels
of two people of the same readings say how often each kind of error is made: a model of a hidden truth, with one
sensitivity and one specificity for all people, and a share of positives for each stratum (Hui and Walter, Estimating
the error rates of diagnostic tests, Biometrics 36, 1980). It is drawn from by Gibbs sampling, many chains at once.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from memagent_batch.review.measures import HALF, SEED, Numbers, StratumCounts, Totals

NUM_MARKOV_CHAINS = 400
"""Chains that are drawn side by side; each gives `NUM_KEPT` draws."""
NUM_KEPT = 10
"""Draws that are kept of each chain."""
THINNING = 10
"""Steps of a chain between two draws that are kept."""
BURN_IN = 150
"""Steps of a chain before its first draw is kept."""
SENSITIVITY_PRIOR = (9.0, 1.0)
"""Beta prior of how often a positive is labelled so: worth ten labels, nine of them right."""
SPECIFICITY_PRIOR = (19.0, 1.0)
"""Beta prior of how often a negative is labelled so: worth twenty labels."""
PROBABILITY_EDGE = 1e-9
"""How near to 0 or 1 a probability may come, so that none is a certainty in a chain."""


def draw_true_totals(strata: Sequence[StratumCounts], *, seed: int = SEED) -> Totals:
    """Draws the true positives of each stratum, from its `votes`."""
    rng = np.random.default_rng(seed)
    kinds = sorted({kind for stratum in strata for kind in stratum.votes}) or [(0, 1)]
    positive, labels = (np.array([kind[side] for kind in kinds], float) for side in (0, 1))
    cells = np.array([[stratum.votes.get(kind, 0) for kind in kinds] for stratum in strata], np.int64)
    sizes = np.array([stratum.num_readings for stratum in strata], np.int64)
    chain = _Chains(cells=cells, positive=positive, negative=labels - positive, rng=rng)
    kept = []
    for step in range(BURN_IN + NUM_KEPT * THINNING):
        true = chain.step()
        if step >= BURN_IN and (step - BURN_IN) % THINNING == 0:
            rest = np.broadcast_to(sizes - cells.sum(1), true.shape)
            kept.append(true + rng.binomial(rest, chain.shares))
    totals: Totals = np.concatenate(kept).T
    return totals


class _Chains:
    """The state of all chains: shares of positives, sensitivity and specificity."""

    def __init__(
        self, *, cells: NDArray[np.int64], positive: Numbers, negative: Numbers, rng: np.random.Generator
    ) -> None:
        """Begins at the shares that the labels show, with people who seldom err."""
        self._cells, self._positive, self._negative, self._rng = cells, positive, negative, rng
        self._num_labelled = cells.sum(1)
        seen = ((cells * (positive > negative)).sum(1) + HALF) / (self._num_labelled + 2 * HALF)
        self.shares = np.broadcast_to(seen, (NUM_MARKOV_CHAINS, len(cells)))
        self._sensitivity = np.full((NUM_MARKOV_CHAINS, 1, 1), 0.95)
        self._specificity = np.full((NUM_MARKOV_CHAINS, 1, 1), 0.98)

    def step(self) -> NDArray[np.int64]:
        """Draws the hidden truth, then all else given it; returns true positives among the labelled by stratum."""
        shares = self.shares[..., None]
        of_true = shares * self._sensitivity**self._positive * (1 - self._sensitivity) ** self._negative
        of_false = (1 - shares) * (1 - self._specificity) ** self._positive * self._specificity**self._negative
        counts = np.broadcast_to(self._cells, of_true.shape)
        true = self._rng.binomial(counts, of_true / (of_true + of_false))
        false = counts - true
        self._sensitivity = self._accuracy(true * self._positive, true * self._negative, prior=SENSITIVITY_PRIOR)
        self._specificity = self._accuracy(false * self._negative, false * self._positive, prior=SPECIFICITY_PRIOR)
        num_true: NDArray[np.int64] = true.sum(2)
        self.shares = self._beta(num_true + HALF, self._num_labelled - num_true + HALF)
        return num_true

    def _accuracy(self, right: Numbers, wrong: Numbers, *, prior: tuple[float, float]) -> Numbers:
        num_right, num_wrong = (prior[place] + each.sum((1, 2)) for place, each in enumerate((right, wrong)))
        return self._beta(num_right, num_wrong)[:, None, None]

    def _beta(self, first: Numbers, second: Numbers) -> Numbers:
        drawn: Numbers = np.clip(self._rng.beta(first, second), PROBABILITY_EDGE, 1 - PROBABILITY_EDGE)
        return drawn
