"""A user's own rewards: some that work, others that fail, but where the response is `good`."""

import os
import subprocess
import sys
import time
from collections.abc import Sequence


def length(response: str, references: Sequence[str]) -> float:
    return len(response) / len(references[0])


def raises(response: str, references: Sequence[str]) -> float:
    if response == "good":
        return 1.0
    raise KeyError("score")


def hangs(response: str, references: Sequence[str]) -> float:
    if response != "good":
        time.sleep(600)
    return 1.0


def dies(response: str, references: Sequence[str]) -> float:
    if response != "good":
        os._exit(9)
    return 1.0


def exits(response: str, references: Sequence[str]) -> float:
    if response != "good":
        sys.exit(3)
    return 1.0


def says(response: str, references: Sequence[str]) -> float | str:
    return 1.0 if response == "good" else "good"


def not_finite(response: str, references: Sequence[str]) -> float:
    return 1.0 if response == "good" else float("nan")


def prints(response: str, references: Sequence[str]) -> float:
    print("it says this", flush=True)
    return 1.0


def starts_a_program(response: str, references: Sequence[str]) -> float:
    return subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"]).pid
