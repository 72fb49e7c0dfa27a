"""The strata of a population, and how many labels each of them gets."""

from collections.abc import Mapping
from enum import StrEnum

from memagent_batch.errors import SettingsError

FLAGGED_PARTS = 5
"""A flagged stratum gets one label in so many: what was not flagged decides how wide the interval of recall is."""
UNANSWERED_PARTS = 10
"""Most labels of readings without an answer: one in so many."""
FEWEST = 5
"""Labels that each stratum gets at least, where it has as many readings."""


class Stratum(StrEnum):
    """Strata by the scan's own output."""

    FLAGGED = "flagged"
    """The answer fulfils the condition."""
    NOT_FLAGGED = "not_flagged"
    """It does not."""
    NO_VALUE = "invalid"
    """The reading ended, without an answer or value that the condition can be put to."""
    FAILED = "failed"
    """The reading failed, or was not read."""


UNANSWERED = frozenset({Stratum.NO_VALUE.value, Stratum.FAILED.value})
"""Strata whose readings have no answer."""


def allocate(num_labels: int, sizes: Mapping[str, int]) -> dict[str, int]:
    """How many readings of each stratum are drawn, where `num_labels` are wanted in all; never more than it has."""
    drawn = {name: min(size, FEWEST) for name, size in sizes.items()}
    wanted = {Stratum.FLAGGED.value: num_labels // FLAGGED_PARTS}
    unanswered = sum(sizes.get(name, 0) for name in UNANSWERED)
    for name in UNANSWERED & sizes.keys():
        in_proportion = num_labels * sizes[name] // max(1, sum(sizes.values()))
        wanted[name] = min(in_proportion, num_labels // UNANSWERED_PARTS * sizes[name] // max(1, unanswered))
    for name, number in wanted.items():
        if name in drawn:
            drawn[name] = min(sizes[name], max(drawn[name], number))
    rest = [name for name in sizes if name not in wanted]
    return _with_rest(drawn, sizes, rest=rest, num_labels=num_labels)


def _with_rest(drawn: dict[str, int], sizes: Mapping[str, int], *, rest: list[str], num_labels: int) -> dict[str, int]:
    """Gives what is left to these strata, in proportion to their sizes; then to any that has room."""
    drawn = dict(drawn)
    for names in (rest, list(sizes)):
        for name in sorted(names, key=lambda name: sizes[name]):
            left = num_labels - sum(drawn.values())
            later = sum(sizes[other] for other in names if sizes[other] >= sizes[name])
            share = -(-max(0, left) * sizes[name] // max(1, later))
            drawn[name] = min(sizes[name], drawn[name] + share)
    return drawn


def parse_labels(text: str, sizes: Mapping[str, int]) -> dict[str, int]:
    """The labels of each stratum: `750`, or `flagged=150,not_flagged=600`.

    Raises:
        SettingsError: it is neither, or names a stratum that is not there.
    """
    if text.isascii() and text.isdigit() and int(text):
        return allocate(int(text), sizes)
    drawn = {name: min(size, FEWEST) for name, size in sizes.items()}
    for part in text.split(","):
        name, _, number = part.strip().rpartition("=")
        if name not in sizes or not number.isascii() or not number.isdigit():
            raise SettingsError(
                f"--labels: {part.strip()!r} is not a number of labels; write 750, or a number for each stratum as in "
                f"{','.join(f'{name}=100' for name in sizes)}"
            )
        drawn[name] = min(int(number), sizes[name])
    return drawn
