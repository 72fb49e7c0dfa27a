"""What clusters and stores do at night, done to the real job: what is lost, doubled or repeated, and how long it takes.

The real job with the simulated engine, so that a fault can strike at any moment of it: signals, a second attempt at the
same output, an object store or an endpoint that fails (a proxy before it), a disk that fills up. `benchmarks.kills`
does the same to vLLM. Prints a JSON line for each fault, and the table in Markdown at the end.
"""

import argparse
import json
import random
import tempfile
import time
from contextlib import ExitStack
from dataclasses import asdict
from pathlib import Path

import psutil

from benchmarks.chaos_cluster import strike_cluster
from benchmarks.chaos_report import ChaosReport, read_report, table
from benchmarks.chaos_world import World, make_world
from benchmarks.fault_proxy import Fault
from benchmarks.killed_job import GONE_SECONDS, KilledJob, Role
from benchmarks.troubles import (
    ENDPOINT_OUTAGE_SECONDS,
    EXIT_CODES,
    ON_CLUSTER,
    ON_ENDPOINT,
    SIGNALS,
    Trouble,
)

TURN_FILES = (2, 8)
"""Fewest and most log files before the fault strikes."""
OUTAGE_SECONDS = 15.0
"""How long the store is down, or the disk full, where it comes back."""
START_TRIES = 3
FLAKY = (Fault.INTERNAL_ERROR, Fault.UNAVAILABLE, Fault.THROTTLED, Fault.RESET, Fault.LOST_ANSWER, Fault.SLOW)
FAILING_SHARE = 0.3
"""Share of requests that a flaky store fails."""
SLOW_ARGUMENTS = ("--simulated.turn-seconds", "5")
"""The first of two attempts must still be reading when the second one has started Ray and made its plan."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--seed", type=int, default=0, help="seed of the random moments (default: 0)")
    options.add_argument("--times", type=int, default=1, help="times that each fault is tried (default: 1)")
    options.add_argument("--faults", nargs="+", default=list(Trouble), help="which (default: all)")
    known = options.parse_args()
    reports: dict[str, list[ChaosReport]] = {}
    for trouble in map(Trouble, known.faults):
        for number in range(known.times):
            with tempfile.TemporaryDirectory() as folder:
                report = strike(trouble, Path(folder), rng=random.Random(f"{trouble}-{known.seed}-{number}"))
            reports.setdefault(trouble, []).append(report)
            print(json.dumps({"benchmark": "chaos", **asdict(report)}), flush=True)
    print(table(reports))


def strike(
    trouble: Trouble,
    folder: Path,
    *,
    rng: random.Random,
    documents: int = 8,
    chunks: int = 30,
    outage_share: float = 1.0,
) -> ChaosReport:
    """Runs the job, lets the trouble strike in mid-reading, and lets the job finish.

    Args:
        trouble: What strikes.
        folder: Where documents, output and console lie.
        rng: Draws the moment.
        documents: Number of documents.
        chunks: Chunks of each, about.
        outage_share: Part of `ENDPOINT_OUTAGE_SECONDS` for which an endpoint is away.

    Raises:
        RuntimeError: a command ended otherwise than it should; shows the end of the console.
    """
    if trouble in ON_CLUSTER:
        return strike_cluster(trouble, folder, documents=documents, chunks=chunks)
    with ExitStack() as stack:
        world = stack.enter_context(make_world(trouble, folder, documents=documents, chunks=chunks))
        slow = SLOW_ARGUMENTS if trouble == Trouble.SECOND_ATTEMPT else ()
        job = stack.enter_context(KilledJob([*world.arguments, *slow], output=world.job_folder / "job"))
        if trouble == Trouble.TEXTS_SILENT:
            _start_planned(job, world)
        else:
            _start_reading(job, world, files=rng.randint(*TURN_FILES))
        began = time.time()
        left = _strike(trouble, job, world, outage_seconds=ENDPOINT_OUTAGE_SECONDS.get(trouble, 0.0) * outage_share)
        if trouble != Trouble.SECOND_ATTEMPT and (code := job.finish()):
            raise RuntimeError(f"{trouble}: the run did not go on, exit code {code}: {job.last_words()}")
        _, outlived = job.wait_until_gone(patience=GONE_SECONDS)
        return read_report(
            world.output,
            trouble=trouble,
            asked=documents,
            began=began,
            processes_left=[*left, *outlived],
            said=job.last_words(),
        )


def _start_reading(job: KilledJob, world: World, *, files: int) -> None:
    """Gives the command until the log holds so many files; Ray may need several starts on a busy machine."""
    for _ in range(START_TRIES):
        job.start()
        if job.wait_until(lambda: len((world.output / "log/turns").files()) >= files):
            return
    raise RuntimeError(f"the command ended before the trouble struck: {job.last_words()}")


def _start_planned(job: KilledJob, world: World) -> None:
    """Gives the command until the run is on record: its plan is made, and no text has been fetched for reading."""
    for _ in range(START_TRIES):
        job.start()
        if job.wait_until((world.output / "run.json").exists):
            return
    raise RuntimeError(f"the command ended before the trouble struck: {job.last_words()}")


def _strike(trouble: Trouble, job: KilledJob, world: World, *, outage_seconds: float) -> list[str]:
    """Lets the trouble strike; the job runs when this returns. Returns processes that should be gone and are not."""
    match trouble:
        case Trouble.DRIVER_TERMINATED | Trouble.DRIVER_INTERRUPTED | Trouble.DRIVER_KILLED:
            _find(job, Role.DRIVER).send_signal(SIGNALS[trouble])
            _again(trouble, job)
        case Trouble.ACTOR_TERMINATED | Trouble.ACTOR_KILLED:
            _find(job, Role.ACTOR).send_signal(SIGNALS[trouble])
        case Trouble.ENGINE_HANGS:
            return _stop_engine(job)
        case Trouble.SECOND_ATTEMPT:
            with KilledJob(list(world.arguments), output=world.job_folder / "second") as second:
                second.start()
                _require_code(trouble, job)
                if code := second.finish():
                    raise RuntimeError(f"the second attempt ended with {code}: {second.last_words()}")
        case Trouble.DISK_FULL:
            _fill_disk(world)
        case _ if trouble in ON_ENDPOINT:
            _trouble_endpoint(trouble, job, world, outage_seconds=outage_seconds)
        case _:
            _trouble_store(trouble, job, world)
    return []


def _trouble_endpoint(trouble: Trouble, job: KilledJob, world: World, *, outage_seconds: float) -> None:
    if world.proxy is None:
        raise RuntimeError(f"{trouble}: no endpoint reads the documents")
    match trouble:
        case Trouble.ENDPOINT_REFUSED:
            world.proxy.refuse()
            time.sleep(outage_seconds)
            world.proxy.listen()
        case Trouble.KEY_EXPIRED:
            world.proxy.strike(Fault.UNAUTHORIZED, rate=1)
            _require_code(trouble, job)
            world.proxy.strike(rate=0)
            _again(trouble, job)
        case _:
            fault = Fault.THROTTLED if trouble == Trouble.ENDPOINT_QUOTA else Fault.UNAVAILABLE
            world.proxy.strike(fault, rate=1)
            time.sleep(outage_seconds)
            world.proxy.strike(rate=0)


def _trouble_store(trouble: Trouble, job: KilledJob, world: World) -> None:
    if world.proxy is None:
        raise RuntimeError(f"{trouble}: no store holds output or documents")
    match trouble:
        case Trouble.STORE_FLAKY:
            world.proxy.strike(*FLAKY, rate=FAILING_SHARE)
        case Trouble.STORE_SILENT:
            world.proxy.strike(Fault.SILENT, rate=0.1)
        case Trouble.STORE_REFUSED:
            world.proxy.refuse()
            time.sleep(OUTAGE_SECONDS)
            world.proxy.listen()
        case Trouble.STORE_OUTAGE:
            world.proxy.strike(Fault.UNAVAILABLE, Fault.RESET, rate=1)
            time.sleep(OUTAGE_SECONDS)
            world.proxy.strike(rate=0)
        case Trouble.TEXTS_SILENT:
            world.proxy.strike(Fault.SILENT, rate=1)
            _require_code(trouble, job)
            world.proxy.strike(rate=0)
            _again(trouble, job)
        case Trouble.STORE_DOWN:
            world.proxy.strike(Fault.UNAVAILABLE, Fault.RESET, rate=1)
            _require_code(trouble, job)
            world.proxy.strike(rate=0)
            _again(trouble, job)


def _again(trouble: Trouble, job: KilledJob) -> None:
    """Gives the command again as soon as it has ended as it should, whatever of it is still there."""
    _require_code(trouble, job)
    job.start()


def _require_code(trouble: Trouble, job: KilledJob) -> None:
    if (code := job.finish()) != EXIT_CODES[trouble]:
        raise RuntimeError(f"{trouble}: exit code {code}, not {EXIT_CODES[trouble]}: {job.last_words()}")


def _find(job: KilledJob, role: Role) -> psutil.Process:
    process = job.find(role)
    if process is None:
        raise RuntimeError(f"there is no {role}: {job.last_words()}")
    return process


def _stop_engine(job: KilledJob) -> list[str]:
    """Stops vLLM's process without ending it; its title if it is still there when the engine has been replaced."""
    engine = _find(job, Role.ENGINE)
    engine.suspend()
    job.wait_until(lambda: (now := job.find(Role.ENGINE)) is not None and now.pid != engine.pid)
    return [f"{engine.pid} (stopped)"] if engine.is_running() else []


def _fill_disk(world: World) -> None:
    if world.disk is None:
        raise RuntimeError("the output is on no small disk")
    ballast = world.disk / "ballast"
    with ballast.open("wb", buffering=0) as stream:
        try:
            while stream.write(bytes(4096)):
                pass
        except OSError:
            pass  # full
    time.sleep(OUTAGE_SECONDS)
    ballast.unlink()


if __name__ == "__main__":
    main()
