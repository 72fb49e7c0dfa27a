"""How sure a "no" must be to stand: the threshold at which a scan finds its share of what is looked for. Pure.

Readings that the scan flags are found. Of the others, those whose confidence is at most the threshold are read again
by something better, and those above it stand. The threshold follows from readings that people labelled, drawn uniformly
of all.

It is tested by betting. Someone bets, draw by draw, against the claim that at most `share` of all are found. Under the
claim nobody can expect to win, so that capital passes 1 / delta with probability delta at most (Ville's inequality), at
any time and at all times together. The bets are those of someone who believes the share of the draws so far: a draw
that is found multiplies the capital by belief / share, and one that is missed by (1 - belief) / (1 - share).
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

ALL, NONE = 1.0, 0.0
"""Thresholds at which all readings that are not flagged are read again, and none."""
HALF = 0.5
"""By so many draws the first belief is above the claim."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """What a threshold must do."""

    recall: float
    """Share of what is looked for that is flagged or read again, at least; above 0 and below 1."""
    delta: float
    """How often the threshold may miss this."""


def is_found(confidence: float | None, *, up_to: float) -> bool:
    """Whether a reading is flagged, or read again.

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


def capital(found: Iterable[bool], *, share: float) -> float:
    """The highest capital of who bets against "at most `share` of all are found"; begins with 1.

    Bets only while the draws so far have at least `share` found. What is left of a population that has at most `share`
    in all then has at most `share` too, so that draws without replacement need no correction, and no size of it.

    Args:
        found: The draws in their order, which must not follow from what was found.
        share: What is claimed at most, above 0 and below 1.
    """
    weight = 1 / min(share, 1 - share)  # draws that the first belief weighs: in as many, one is found or missed
    believed = weight * share + HALF
    money = highest = 1.0
    num_found = 0
    for number, is_found in enumerate(found):
        if num_found >= share * number:
            belief = (believed + num_found) / (weight + number)
            if belief > share:
                money *= belief / share if is_found else (1 - belief) / (1 - share)
        highest = max(highest, money)
        num_found += is_found
    return highest


def fewest_draws(*, share: float, delta: float) -> int:
    """Draws after which the claim is refuted where each one is found: with fewer, no sample refutes it."""
    number = 1
    while capital([True] * number, share=share) < 1 / delta:
        number += 1
    return number
