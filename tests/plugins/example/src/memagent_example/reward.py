"""A reward: short responses are better."""

from collections.abc import Sequence


def brevity(response: str, references: Sequence[str]) -> float:
    """One over the number of words, 0 to 1."""
    return 1.0 / max(1, len(response.split()))
