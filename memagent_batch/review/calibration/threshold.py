"""How sure a "no" must be to stand: the threshold at which a scan finds its share of what is looked for. Pure.

Readings that the scan flags are found. Of the others, those whose confidence is at most the threshold are looked at by
someone better, and those above it stand. Learnt from readings that people labelled, drawn uniformly of all.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from memagent_batch.review.calibration.betting import capital

ALL, NONE = 1.0, 0.0
"""Thresholds at which all readings that are not flagged are looked at, and none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a threshold must do."""

    recall: float
    """Share of what is looked for that is flagged or looked at, at least; above 0 and below 1."""
    delta: float
    """How often a threshold that was learnt may miss this."""


def is_found(confidence: float | None, *, up_to: float) -> bool:
    """Whether a reading is flagged, or looked at.

    Args:
        confidence: How sure the scan is of its "no"; None where it flags the reading or has no value for it.
        up_to: The threshold.
    """
    return confidence is None or confidence <= up_to


def learn_threshold(positives: Sequence[float | None], target: Target) -> float:
    """The lowest threshold that the labels allow; `ALL` where they are too few, or too much was missed with confidence.

    Thresholds are tested from the highest down, each against "at most `recall` of all are found", until the first that
    is not refuted. Lower thresholds find less, so the first one that misses the target is tested before all others
    that do: one test at `delta` decides whether any of them is taken. That holds for all values of confidence that
    the scan has; those between two labelled positives have the same sample and so the same test as the lower of them.

    Args:
        positives: Of each reading that people say is what is looked for, in the order of the draw: how sure the scan
            is of its "no", or None where it flags the reading or has no value for it.
        target: What the threshold must do.
    """
    up_to = ALL
    for level in (*sorted({each for each in positives if each is not None}, reverse=True), NONE):
        if capital((is_found(each, up_to=level) for each in positives), share=target.recall) < 1 / target.delta:
            break
        up_to = level
    return up_to


def has_drifted(positives: Sequence[float | None], target: Target, *, up_to: float) -> bool:
    """Whether fresh labels refute that a threshold still finds its share: the same bets, with the sides changed.

    Where nothing has changed, it says so with probability `delta` at most, however often it is asked of more labels.
    """
    missed = (not is_found(each, up_to=up_to) for each in positives)
    return capital(missed, share=1 - target.recall) >= 1 / target.delta
