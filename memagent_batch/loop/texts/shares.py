"""Shares, probabilities and counts as people read them, on pages, cards and terminals alike."""

CLOSE_TO_CERTAIN = 0.01
"""Distance from 0 and 1 below which a second decimal is shown."""
SMALLEST_SHOWN = 0.0001
"""What is closer to 0 or 1, and is neither, is shown as this far from it."""
EXACT_DIGITS = 12
"""Decimals from which a difference is one of floating-point arithmetic."""


def percent(share: float | None) -> str:
    """A share as per cent; 0 % and 100 % only if it is exactly that. None is `not known`."""
    if share is None:
        return "not known"
    if round(share, EXACT_DIGITS) in {0, 1}:
        return f"{100 * share:.0f} %"
    shown = min(max(share, SMALLEST_SHOWN), 1 - SMALLEST_SHOWN)
    is_close = shown < CLOSE_TO_CERTAIN or shown > 1 - CLOSE_TO_CERTAIN
    return f"{100 * shown:.{2 if is_close else 1}f} %"


def quantity(number: int, noun: str) -> str:
    """A count with its noun, such as `1 reading` or `2,000 readings`."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"
