"""What a run may take at most, and what a turn takes of it. Whole numbers, so that sums are exact in any order."""

from collections.abc import Sequence
from dataclasses import dataclass

Amounts = tuple[int, ...]
"""An amount for each meter of a run's bounds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Meter:
    """A bound on a sum over turns."""

    name: str
    """The knob that sets it."""
    most: int
    """The bound, in units of its own: tokens, or millionths of a millionth of the currency."""
    per_prompt_token: int
    """What a token of a prompt takes."""
    per_completion_token: int
    """What a token of a completion takes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """All bounds of a run."""

    meters: Sequence[Meter]
    """Bounds on sums over turns."""
    seconds: float | None = None
    """Time after the run began at which the last turn has ended; None for no bound."""
    seconds_knob: str = "max_hours"
    """The knob that sets it."""

    def amounts(self, *, prompt_tokens: int, completion_tokens: int) -> Amounts:
        """What a turn of this length takes."""
        return tuple(
            meter.per_prompt_token * prompt_tokens + meter.per_completion_token * completion_tokens
            for meter in self.meters
        )

    def lacking(self, need: Amounts, left: Amounts) -> str | None:
        """The first meter that has less left than is needed; None where all have enough."""
        short = (meter.name for meter, needed, has in zip(self.meters, need, left, strict=True) if needed > has)
        return next(short, None)
