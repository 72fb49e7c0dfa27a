"""Which processes still run: one that has ended counts as ended before anybody has asked how."""

import time
from collections.abc import Sequence

import psutil

POLL_SECONDS = 0.05


def runs(process: psutil.Process) -> bool:
    """Whether it has not ended; a process without a parent stays in the table until the machine's init looks."""
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def left_after(seconds: float, processes: Sequence[psutil.Process]) -> list[psutil.Process]:
    """Those that still run then; returns as soon as all have ended."""
    deadline = time.monotonic() + seconds
    while (left := [process for process in processes if runs(process)]) and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    return left
