"""Peak memory of a process."""

import re
from pathlib import Path


def peak_mib() -> float:
    """Resident memory of this process at its peak, MiB; not `ru_maxrss`, which counts the process that started it, too.

    Raises:
        RuntimeError: the kernel does not report it.
    """
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text(encoding="ascii"))
    if peak is None:
        raise RuntimeError("/proc/self/status has no VmHWM")
    return int(peak[1]) / 1024
