"""How often a learnt threshold misses its target, and what it saves: simulated scans with labels.

In each scan some documents are what is looked for. A first reader flags some of them, and is more or less sure of its
"no" to the others. Labels of a uniform sample teach the threshold below which a better reader, or a
person, looks again. A scan misses its target where fewer than `recall` of all that is looked for are flagged or looked
at. `calls` are readings of the better one, whose cost without a threshold is one for each document.
"""

import argparse
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import NDArray

from memagent_batch.review.calibration.threshold import ALL, Target, is_found, learn_threshold

DELTA = 0.05


class Confidence(StrEnum):
    """How the first reader's confidence follows from what is true."""

    GOOD = "good"
    """It is seldom sure where it is wrong."""
    WEAK = "weak"
    """It is often as sure where it is wrong."""
    STEPS = "steps"
    """It has four values alone, and the lowest threshold that is right leaves just more than the target."""


SEPARATION = {Confidence.GOOD: 3.0, Confidence.WEAK: 1.5, Confidence.STEPS: 2.0}
"""Distance between the scores of what is looked for and of the rest, standard deviations."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """A kind of scan, what is asked of its threshold, and how much is labelled."""

    confidence: Confidence
    richness: float
    recall: float
    labels: int


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--scans", type=int, default=200, help="simulated scans of each cell (default: 200)")
    parser.add_argument("--documents", type=int, default=10_000, help="documents of a scan (default: 10,000)")
    parser.add_argument("--seed", type=int, default=1)


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for number, values in enumerate(product(Confidence, (0.05, 0.3), (0.9, 0.95), (500, 2_000))):
        confidence, richness, recall, labels = values
        cell = Cell(confidence=confidence, richness=richness, recall=recall, labels=labels)
        rng = np.random.default_rng([arguments.seed, number])
        yield {**asdict(cell), **figures(cell, scans=arguments.scans, documents=arguments.documents, rng=rng)}


def figures(cell: Cell, *, scans: int, documents: int, rng: np.random.Generator) -> dict[str, Any]:
    """What the thresholds of some scans come to."""
    target = Target(recall=cell.recall, delta=DELTA)
    recalls, looked, learnt = [], [], 0
    for _ in range(scans):
        truth, doubts = simulated_scan(cell, documents=documents, rng=rng)
        drawn = rng.permutation(documents)[: cell.labels]
        positives = [None if np.isnan(doubts[row]) else float(doubts[row]) for row in drawn if truth[row]]
        up_to = learn_threshold(positives, target)
        found = np.isnan(doubts) | (doubts <= up_to)
        recalls.append(float(found[truth].mean()))
        looked.append(int((doubts <= up_to).sum()))
        learnt += up_to < ALL
    return {
        "scans": scans,
        "share_missed": round(sum(recall < cell.recall for recall in recalls) / scans, 4),
        "share_learnt": round(learnt / scans, 4),
        "recall_reached": round(float(np.mean(recalls)), 4),
        "recall_unaided": round(_unaided(cell, documents=documents, rng=rng), 4),
        "calls": round(float(np.mean(looked))),
        "calls_of_all": documents,
    }


def simulated_scan(
    cell: Cell, *, documents: int, rng: np.random.Generator
) -> tuple[NDArray[np.bool_], NDArray[np.float64]]:
    """What is true of each document, and how sure the first reader is of its "no"; NaN where it says "yes"."""
    truth = rng.random(documents) < cell.richness
    scores = rng.normal(size=documents) + SEPARATION[cell.confidence] * (truth - 0.5)
    no = 1 / (1 + np.exp(SEPARATION[cell.confidence] * scores))
    if cell.confidence is not Confidence.STEPS:
        return truth, np.where(no < 0.5, np.nan, no)
    levels = np.array([np.nan, 0.6, 0.8, 0.95])
    beyond = 1 - cell.recall + 0.005  # so much of what is looked for is missed where the last but one level is taken
    of_true = rng.choice(4, size=documents, p=[0.6, 0.2, 0.2 - beyond, beyond])
    of_false = rng.choice(4, size=documents, p=[0.02, 0.08, 0.2, 0.7])
    return truth, levels[np.where(truth, of_true, of_false)]


def _unaided(cell: Cell, *, documents: int, rng: np.random.Generator) -> float:
    """Recall of the first reader alone."""
    truth, doubts = simulated_scan(cell, documents=documents, rng=rng)
    return sum(is_found(None if np.isnan(each) else each, up_to=0.0) for each in doubts[truth]) / int(truth.sum())
