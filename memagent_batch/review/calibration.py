"""How sure a "no" must be to stand: the threshold at which a scan finds its share of what is looked for. Pure.

Readings that the scan flags are found. Of the others, those whose confidence is at most the threshold are read again
by something better, and those above it stand. The threshold follows from readings that people labelled, drawn uniformly
of all.

It is tested by betting. Someone bets, draw by draw, against the claim that at most `share` of all are found. Under the
claim nobody can expect to win, so that capital passes 1 / delta with probability delta at most (Ville's inequality), at
any time and at all times together. The bets are those of someone who believes the share of the draws so far: a draw
that is found multiplies the capital by belief / share, and one that is missed by (1 - belief) / (1 - share).
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import repeat
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from memagent_batch.domain.follow_ups.values import ValueStatus
from memagent_batch.errors import OutputError
from memagent_batch.review.estimates import CountedLabels, LabelledUnit
from memagent_batch.review.labels import YES
from memagent_batch.review.record import Review

ALL_AGAIN, NONE_AGAIN = 1.0, 0.0
"""Thresholds at which all readings that are not flagged are read again, and none."""
PRIOR = 0.5
"""By so many draws the first belief is above the claim."""
CALIBRATION_COLUMNS = ("document_id", "value_status", "value_bool", "confidence")


def learn_threshold(positives: Sequence[float | None], *, recall: float, delta: float) -> float:
    """The lowest threshold that the labels allow; `ALL_AGAIN` if they are too few, or much was missed with confidence.

    `positives` are how sure the scan is of its "no", of each reading that people say is what is looked for, in the
    order of the draw; None where it flags the reading or has no value for it. At least the share `recall` (above 0 and
    below 1) of what is looked for is flagged or read again; `delta` is how often the threshold may miss this.

    Thresholds are tested from the highest down, each against "at most `recall` of all are found", until the first that
    is not refuted. Lower thresholds find less, so the first one that misses the target is tested before all others that
    do: one test at `delta` decides whether any of them is taken. That holds for all values of confidence that the scan
    has; those between two labelled positives have the same sample and so the same test as the lower of them.
    """
    up_to = ALL_AGAIN
    for level in (*sorted({each for each in positives if each is not None}, reverse=True), NONE_AGAIN):
        found = [each is None or each <= level for each in positives]
        if max(capitals(found, share=recall)) < 1 / delta:
            break
        up_to = level
    return up_to


def capitals(found: Iterable[bool], *, share: float) -> Iterator[float]:
    """The capital of who bets against "at most `share` of all are found": 1, and that after each draw.

    Bets only while the draws so far have at least `share` found. What is left of a population that has at most `share`
    in all then has at most `share` too, so that draws without replacement need no correction, and no size of it. The
    order of the draws must not follow from what was found.
    """
    weight = 1 / min(share, 1 - share)  # draws that the first belief weighs: in as many, one is found or missed
    believed = weight * share + PRIOR
    money = 1.0
    num_found = 0
    yield money
    for number, is_found in enumerate(found):
        if num_found >= share * number:
            belief = (believed + num_found) / (weight + number)
            if belief > share:
                money *= belief / share if is_found else (1 - belief) / (1 - share)
        yield money
        num_found += is_found


def fewest_draws(*, share: float, delta: float) -> int:
    """Draws after which the claim is refuted where each one is found: with fewer, no sample refutes it."""
    return next(number for number, money in enumerate(capitals(repeat(True), share=share)) if money >= 1 / delta)


def uniform_units(review: Review, counted: CountedLabels) -> list[LabelledUnit]:
    """The labelled readings that are a uniform sample of all, in the order of their permanent numbers.

    Each stratum has its smallest numbers in the sample. Below the largest number of the stratum that ends first the
    sample has all readings of that number, whatever their strata. Readings that nobody could judge are passed over.

    Raises:
        OutputError: some of them are not labelled: those that are would be no fair sample of them.
    """
    units = list(_uniform_part(review, counted))
    num_left = sum(not unit.labels and not unit.is_unclear for unit in units)
    if num_left:
        raise OutputError(
            f"review {review.record['review_id']}: {num_left:,} of {len(units):,} readings that a threshold is learnt "
            "from are not labelled; label them, and import the labels"
        )
    return [unit for unit in units if unit.labels]


def limiting_stratum(review: Review, counted: CountedLabels) -> str | None:
    """The stratum that ends first of those that were not drawn whole: with more labels of it, more of all count."""
    ends = _largest_numbers(review, counted)
    return min(ends, key=lambda name: ends[name]) if ends else None


def positives_of(units: Sequence[LabelledUnit], answers: pa.Table) -> list[float | None]:
    """How sure the scan is of its "no" to those that people say are looked for; see `learn_threshold`.

    `answers` has the `CALIBRATION_COLUMNS` of a question, a row for each document.
    """
    names = [unit.drawn["document_id"] for unit in units if unit.value == YES]
    rows = answers.filter(pc.field("document_id").isin(names)).to_pylist()
    sure_nos = {row["document_id"]: _sure_no(row) for row in rows}
    return [sure_nos[name] for name in names]


def _largest_numbers(review: Review, counted: CountedLabels) -> dict[str, str]:
    """The largest number in the sample of each stratum that was not drawn whole."""
    last: dict[str, str] = {}
    for unit in counted.units:
        stratum = unit.drawn["stratum"]
        last[stratum] = max(last.get(stratum, ""), unit.drawn["number"])
    record = review.record
    return {
        name: last.get(name, "") for name, size in record["readings"].items() if record["drawn"].get(name, 0) < size
    }


def _uniform_part(review: Review, counted: CountedLabels) -> Iterator[LabelledUnit]:
    """The readings of the sample up to the number at which the first stratum ends that was not drawn whole."""
    end = min(_largest_numbers(review, counted).values(), default=None)
    for unit in sorted(counted.units, key=lambda each: (each.drawn["number"], each.drawn["document_id"])):
        if end is None or unit.drawn["number"] <= end:
            yield unit


def _sure_no(row: Mapping[str, Any]) -> float | None:
    """How sure an answer is of its "no"; None where it says yes, or has no value."""
    is_no = row["value_bool"] is not True and row["value_status"] != ValueStatus.INVALID
    return row["confidence"] if is_no else None
