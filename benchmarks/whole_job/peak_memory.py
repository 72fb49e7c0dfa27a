"""Peak memory of a running job's driver and actors, looked at from outside every half second."""

import subprocess
import time
from collections.abc import Iterator

import psutil

ROLES = ("driver", "actor", "engine")
KINDS = ("uss", "rss")
SAMPLE_SECONDS = 0.5


def watch(job: "subprocess.Popen[bytes]") -> dict[str, float]:
    """Peaks of private and resident memory by role, MiB."""
    names: list[str] = [f"{role}_{kind}_mib" for role in ROLES for kind in KINDS]
    peaks = dict.fromkeys(names, 0.0)
    while job.poll() is None:
        for role, process in _processes(job.pid):
            try:
                memory = process.memory_full_info()
            except psutil.Error:
                continue  # it ended between the look and the measure
            for kind in KINDS:
                name = f"{role}_{kind}_mib"
                peaks[name] = max(peaks[name], round(getattr(memory, kind) / 2**20, 1))
        time.sleep(SAMPLE_SECONDS)
    return peaks


def _processes(pid: int) -> Iterator[tuple[str, psutil.Process]]:
    try:
        driver = psutil.Process(pid)
        children = driver.children(recursive=True)
    except psutil.Error:
        return
    yield "driver", driver
    for process in children:
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "MapBatches(Replica)" in title:
            yield "actor", process
        elif "EngineCore" in title:
            yield "engine", process
