"""A user's own rewards: one that works, and others that do not."""

import os
import time
from collections.abc import Sequence

NO_FUNCTION = 7


def length(response: str, references: Sequence[str]) -> float:
    return len(response) / len(references[0])


def raises(response: str, references: Sequence[str]) -> float:
    raise KeyError("score")


def hangs(response: str, references: Sequence[str]) -> float:
    time.sleep(600)
    return 1.0


def dies(response: str, references: Sequence[str]) -> float:
    os._exit(9)


def says(response: str, references: Sequence[str]) -> str:
    return "good"


def not_finite(response: str, references: Sequence[str]) -> float:
    return float("nan")
