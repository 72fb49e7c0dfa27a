"""From labelled readings to the counts of each stratum, for one value that is looked for."""

from collections import Counter
from collections.abc import Mapping, Sequence

from memagent_batch.review.estimates.standing_labels import LabelledUnit
from memagent_batch.review.labels.label import NO, NONE_OF_THESE, YES
from memagent_batch.review.sample.strata import UNANSWERED, VALUE_PREFIX, Stratum, is_found
from memagent_batch.review.statistics.counts import StratumCounts


def counts_of(
    units: Sequence[LabelledUnit], sizes: Mapping[str, int], *, value: str | None = None
) -> list[StratumCounts]:
    """What the labels say of each stratum.

    Args:
        units: The sample.
        sizes: Readings of each stratum.
        value: The value that counts as positive; None for `yes`.
    """
    positive = YES if value is None else value
    return [
        _stratum_counts(name, size, units, positive={positive}, found=is_found(name, value=value))
        for name, size in sizes.items()
    ]


def right_counts(units: Sequence[LabelledUnit], sizes: Mapping[str, int]) -> list[StratumCounts]:
    """Of each stratum with an answer, how many labels agree with it."""
    by_value = any(name.startswith(VALUE_PREFIX) for name in sizes)
    return [
        _stratum_counts(name, size, units, positive=_agreeing(name, by_value=by_value), found=False)
        for name, size in sizes.items()
        if name not in UNANSWERED
    ]


def contradicts(unit: LabelledUnit) -> bool:
    """Whether the label that counts says otherwise than the scan, so that a second person should look."""
    if unit.value is None:
        return False
    decisions = [label.decision for label in unit.labels if label.decision is not None]
    by_value = any(NONE_OF_THESE in decision.choices for decision in decisions)
    stratum = unit.drawn.unit.stratum
    agreeing = {_negative(by_value=by_value)} if stratum in UNANSWERED else _agreeing(stratum, by_value=by_value)
    return unit.value not in agreeing


def _agreeing(stratum: str, *, by_value: bool) -> set[str]:
    """The labels that agree with what the scan says of a stratum; none where it has no answer."""
    if stratum in UNANSWERED:
        return set()
    if stratum.startswith(VALUE_PREFIX):
        return {stratum.removeprefix(VALUE_PREFIX)}
    return {YES} if stratum == Stratum.FLAGGED else {_negative(by_value=by_value)}


def _negative(*, by_value: bool) -> str:
    """The label that says that nothing is there; in a review by values, `no` is a value like others."""
    return NONE_OF_THESE if by_value else NO


def _stratum_counts(
    name: str, size: int, units: Sequence[LabelledUnit], *, positive: set[str], found: bool
) -> StratumCounts:
    labelled = [unit for unit in units if unit.drawn.unit.stratum == name and unit.labels]
    votes = Counter((sum(label.value in positive for label in unit.labels), len(unit.labels)) for unit in labelled)
    return StratumCounts(
        name=name,
        num_readings=size,
        num_labelled=len(labelled),
        num_positive=sum(unit.value in positive for unit in labelled),
        is_found=found,
        votes=votes,
    )
