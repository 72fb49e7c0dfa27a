"""What pending readings cost, estimated from documents drawn at random from strata of about equal size. Pure."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

SAMPLE_DOCUMENTS = 1_000
"""Documents of a sample. More are counted only where each stratum needs its least."""
SAMPLE_BYTES = 16 << 20
"""Text of a sample, about: some four million tokens, which take seconds."""
LEAST_OF_STRATUM = 3
"""Documents drawn of each stratum: with fewer nobody knows how much they differ."""
STRATA_PER_DOUBLING = 2
"""Strata between a size and its double."""
MAX_STRATA = 128
NORMAL_95 = 1.96
"""Standard errors on either side of an estimate in a 95 % interval."""

Integers = npt.NDArray[np.int64]


def find_strata(sizes: Integers) -> Integers:
    """Returns the stratum of each document by its size in bytes."""
    strata = np.floor(STRATA_PER_DOUBLING * np.log2(np.maximum(sizes, 1))).astype(np.int64)
    return np.asarray(np.minimum(strata, MAX_STRATA - 1))


@dataclass(slots=True, kw_only=True)
class Population:
    """How many pending documents each stratum has, and their text in bytes; holds no document."""

    num_documents: Integers = field(default_factory=lambda: np.zeros(MAX_STRATA, np.int64))
    num_bytes: Integers = field(default_factory=lambda: np.zeros(MAX_STRATA, np.int64))

    @property
    def size(self) -> int:
        """Documents of all strata."""
        return int(self.num_documents.sum())

    def add(self, sizes: Integers) -> None:
        """Counts documents of these sizes, bytes."""
        strata = find_strata(sizes)
        self.num_documents += np.bincount(strata, minlength=MAX_STRATA)
        self.num_bytes += np.bincount(strata, weights=sizes, minlength=MAX_STRATA).astype(np.int64)

    def allocate(self) -> Integers:
        """Returns how many documents to draw of each stratum: all of a small population, else by its share of the text.

        Large documents weigh most in what a run costs, and differ most.
        """
        if self.num_documents.sum() <= SAMPLE_DOCUMENTS and self.num_bytes.sum() <= SAMPLE_BYTES:
            return self.num_documents
        share = self.num_bytes / max(1, self.num_bytes.sum())
        mean_bytes = self.num_bytes / np.maximum(self.num_documents, 1)
        affordable = share * SAMPLE_BYTES / np.maximum(mean_bytes, 1)
        wanted = np.ceil(np.minimum(share * SAMPLE_DOCUMENTS, affordable)).astype(np.int64)
        return np.asarray(np.minimum(np.maximum(wanted, LEAST_OF_STRATUM), self.num_documents))


def draw_documents(bundles: Iterable[pa.Table], population: Population, *, seed: int) -> Iterator[pa.Table]:
    """Yields the drawn rows of each bundle: of each stratum so many as `Population.allocate` says, at random.

    The bundles have a column `num_bytes` and are those that the population was counted from, in the same order.
    """
    random = np.random.default_rng(seed)
    wanted = population.allocate()
    ranks = {
        int(stratum): np.sort(random.choice(population.num_documents[stratum], wanted[stratum], replace=False))
        for stratum in np.flatnonzero(population.num_documents)
    }
    seen = np.zeros(MAX_STRATA, np.int64)
    for bundle in bundles:
        strata = find_strata(bundle["num_bytes"].to_numpy())
        drawn = np.zeros(len(strata), bool)
        for stratum in np.unique(strata):
            rows = np.flatnonzero(strata == stratum)
            first = seen[stratum]
            chosen = ranks[int(stratum)]
            inside = chosen[np.searchsorted(chosen, first) : np.searchsorted(chosen, first + len(rows))]
            drawn[rows[inside - first]] = True
            seen[stratum] += len(rows)
        if drawn.any():
            yield bundle.filter(pa.array(drawn))


@dataclass(frozen=True, slots=True, kw_only=True)
class Estimate:
    """A sum over all documents, and its 95 % interval, which has no width if all were counted."""

    value: int
    low: int
    high: int


class Sample:
    """Sums of some quantities over the drawn documents, by stratum; holds no document."""

    def __init__(self, names: Sequence[str]) -> None:
        """Takes the names of the quantities."""
        self._names = tuple(names)
        self._num_documents = np.zeros(MAX_STRATA, np.int64)
        self._sums = np.zeros((len(names), MAX_STRATA))
        self._squares = np.zeros((len(names), MAX_STRATA))

    @property
    def num_documents(self) -> int:
        """Documents that were drawn."""
        return int(self._num_documents.sum())

    def add(self, counted: pa.Table) -> None:
        """Adds a row for each drawn document: its `num_bytes`, and a column for each quantity."""
        strata = find_strata(counted["num_bytes"].to_numpy())
        self._num_documents += np.bincount(strata, minlength=MAX_STRATA)
        for row, name in enumerate(self._names):
            values = counted[name].to_numpy().astype(float)
            self._sums[row] += np.bincount(strata, weights=values, minlength=MAX_STRATA)
            self._squares[row] += np.bincount(strata, weights=values**2, minlength=MAX_STRATA)

    def estimate(self, population: Population) -> dict[str, Estimate]:
        """Estimates the sum of each quantity over the population that the documents were drawn from."""
        num_drawn, num_all = np.maximum(self._num_documents, 1), population.num_documents
        means = self._sums / num_drawn
        spread = np.maximum(self._squares - num_drawn * means**2, 0.0) / np.maximum(num_drawn - 1, 1)
        variances = num_all**2 * np.maximum(1 - num_drawn / np.maximum(num_all, 1), 0.0) * spread / num_drawn
        totals, margins = (num_all * means).sum(axis=1), NORMAL_95 * np.sqrt(variances.sum(axis=1))
        return {
            name: Estimate(value=round(total), low=max(0, round(total - margin)), high=round(total + margin))
            for name, total, margin in zip(self._names, totals.tolist(), margins.tolist(), strict=True)
        }


def pending_documents(bundles: Iterable[pa.Table]) -> Iterator[pa.Table]:
    """Yields the documents of bundles that have readings to do; others have only follow-up questions left."""
    for bundle in bundles:
        rows = bundle.filter(pc.greater(pc.list_value_length(bundle["readings"]), 0))
        if rows.num_rows:
            yield rows
