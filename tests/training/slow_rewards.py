"""A user's own reward in a module that takes longer to import than a sample may take."""

import time
from collections.abc import Sequence

time.sleep(1.5)


def length(response: str, references: Sequence[str]) -> float:
    return float(len(response))
