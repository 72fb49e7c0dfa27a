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
    return [
        _stratum_counts(name, size, units, positive=agreeing(name), found=False)
        for name, size in sizes.items()
        if name not in UNANSWERED
    ]


def agreeing(stratum: str) -> set[str]:
    """The labels that agree with what the scan says of a stratum; none where it has no answer."""
    if stratum in UNANSWERED:
        return set()
    if stratum.startswith(VALUE_PREFIX):
        return {stratum.removeprefix(VALUE_PREFIX)}
    return {YES} if stratum == Stratum.FLAGGED else {NO, NONE_OF_THESE}


def contradicts(unit: LabelledUnit) -> bool:
    """Whether the label that counts says otherwise than the scan, so that a second person should look."""
    stratum = unit.drawn.unit.stratum
    if unit.value is None:
        return False
    if stratum in UNANSWERED:
        return unit.value not in {NO, NONE_OF_THESE}
    return unit.value not in agreeing(stratum)


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
