"""What clusters and stores do at night, done to the real job: what is lost, doubled or repeated, and how long it takes.

The real job with the simulated engine, so that a fault can strike at any moment of it: signals, a second attempt at the
same output, an object store that fails (a proxy before a real S3 API), a disk that fills up. `benchmarks.kills` does
the same to vLLM. Prints a JSON line for each fault, and the table in Markdown at the end.
"""

import argparse
import json
import random
import signal
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import asdict, dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq
from moto.server import ThreadedMotoServer

from benchmarks.chaos_report import ChaosReport, read_report, table
from benchmarks.fault_proxy import Fault, FaultProxy
from benchmarks.killed_job import KilledJob, Role
from benchmarks.small_disk import small_disk
from memagent_batch.storage.location import Location
from memagent_batch.wiring import TINY_MODEL

TURN_SECONDS = 0.1
FLUSH_SECONDS = 0.5
TURN_FILES = (2, 8)
"""Fewest and most log files before the fault strikes."""
OUTAGE_SECONDS = 15.0
"""How long the store is down, or the disk full, where it comes back."""
SHORT_PATIENCE_SECONDS = 5.0
"""`log.outage_seconds` where it does not."""
START_TRIES = 3
GONE_SECONDS = 60.0
"""Longest time that a process may outlive its driver."""
FAILING_SHARE = 0.3
"""Share of requests that a flaky store fails."""
QUICK_CLIENT = {"connect_timeout": 2, "read_timeout": 2, "retries": {"mode": "standard", "max_attempts": 4}}
"""Knobs of the S3 client, so that it does not sit out the outage by itself."""


class Trouble(StrEnum):
    """What strikes a run in mid-reading."""

    DRIVER_KILLED = "driver: kill -9"
    """And the command is given again; so it is after each signal to the driver."""
    DRIVER_TERMINATED = "driver: SIGTERM"
    """As `ray job stop` and a spot notice do."""
    DRIVER_INTERRUPTED = "driver: SIGINT"
    """As a person at a terminal does."""
    ACTOR_KILLED = "actor: kill -9"
    """Ray replaces it."""
    ACTOR_TERMINATED = "actor: SIGTERM"
    """As when one node is taken away."""
    SECOND_ATTEMPT = "second attempt"
    """The same command, while the first one still runs."""
    STORE_FLAKY = "store: 3 of 10 requests fail"
    """With 500, 503, 429, resets, lost answers and slow ones, until the run ends."""
    STORE_SILENT = "store: 1 of 10 requests hangs"
    """Until the client gives the request up."""
    STORE_OUTAGE = "store: down for a while"
    """And then it comes back."""
    STORE_DOWN = "store: stays down"
    """Until the run has given up; then the command is given again."""
    DISK_FULL = "disk: full for a while"
    """And then there is room."""


SLOW_ARGUMENTS = ("--simulated.turn-seconds", "5")
"""The first of two attempts must still be reading when the second one has started Ray and made its plan."""

ON_STORE = (Trouble.STORE_FLAKY, Trouble.STORE_SILENT, Trouble.STORE_OUTAGE, Trouble.STORE_DOWN)
FLAKY = (Fault.INTERNAL_ERROR, Fault.UNAVAILABLE, Fault.THROTTLED, Fault.RESET, Fault.LOST_ANSWER, Fault.SLOW)
EXIT_CODES = {
    Trouble.DRIVER_KILLED: -9,
    Trouble.DRIVER_TERMINATED: 143,
    Trouble.DRIVER_INTERRUPTED: 130,
    Trouble.SECOND_ATTEMPT: 3,
    Trouble.STORE_DOWN: 1,
}
"""How the command ends that is struck, where it ends."""
SIGNALS = {
    Trouble.DRIVER_TERMINATED: signal.SIGTERM,
    Trouble.DRIVER_INTERRUPTED: signal.SIGINT,
    Trouble.DRIVER_KILLED: signal.SIGKILL,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class World:
    """Where a run takes place."""

    arguments: tuple[str, ...]
    """All of the command's."""
    output: Location
    """Where it writes, reached without faults."""
    job_folder: Path
    """Where the console is kept."""
    disk: Path | None
    """The small disk that holds the output, if one does."""
    proxy: FaultProxy | None
    """What stands before the store that holds the output, if one does."""


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


def strike(trouble: Trouble, folder: Path, *, rng: random.Random, documents: int = 8, chunks: int = 30) -> ChaosReport:
    """Runs the job, lets the trouble strike in mid-reading, and lets the job finish.

    Raises:
        RuntimeError: a command ended otherwise than it should; shows the end of the console.
    """
    with ExitStack() as stack:
        world = stack.enter_context(make_world(trouble, folder, documents=documents, chunks=chunks))
        slow = SLOW_ARGUMENTS if trouble == Trouble.SECOND_ATTEMPT else ()
        job = stack.enter_context(KilledJob([*world.arguments, *slow], output=world.job_folder / "job"))
        _start_reading(job, world, files=rng.randint(*TURN_FILES))
        began = time.time()
        left = _strike(trouble, job, world)
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


def _strike(trouble: Trouble, job: KilledJob, world: World) -> list[str]:
    """Lets the trouble strike; the job runs when this returns. Returns processes that should be gone and are not."""
    match trouble:
        case Trouble.DRIVER_TERMINATED | Trouble.DRIVER_INTERRUPTED | Trouble.DRIVER_KILLED:
            _find(job, Role.DRIVER).send_signal(SIGNALS[trouble])
            return _again(trouble, job)
        case Trouble.ACTOR_KILLED:
            _find(job, Role.ACTOR).kill()
        case Trouble.ACTOR_TERMINATED:
            _find(job, Role.ACTOR).terminate()
        case Trouble.SECOND_ATTEMPT:
            with KilledJob(list(world.arguments), output=world.job_folder / "second") as second:
                second.start()
                _require_code(trouble, job)
                if code := second.finish():
                    raise RuntimeError(f"the second attempt ended with {code}: {second.last_words()}")
        case Trouble.DISK_FULL:
            _fill_disk(world)
        case _:
            return _trouble_store(trouble, job, world)
    return []


def _trouble_store(trouble: Trouble, job: KilledJob, world: World) -> list[str]:
    if world.proxy is None:
        raise RuntimeError(f"{trouble}: the output is in no store")
    match trouble:
        case Trouble.STORE_FLAKY:
            world.proxy.strike(*FLAKY, rate=FAILING_SHARE)
        case Trouble.STORE_SILENT:
            world.proxy.strike(Fault.SILENT, rate=0.1)
        case Trouble.STORE_OUTAGE:
            world.proxy.strike(Fault.UNAVAILABLE, Fault.RESET, rate=1)
            time.sleep(OUTAGE_SECONDS)
            world.proxy.strike(rate=0)
        case Trouble.STORE_DOWN:
            world.proxy.strike(Fault.UNAVAILABLE, Fault.RESET, rate=1)
            _require_code(trouble, job)
            world.proxy.strike(rate=0)
            return _again(trouble, job)
    return []


def _again(trouble: Trouble, job: KilledJob) -> list[str]:
    """Gives the command again once it has ended as it should; returns what outlived it."""
    _require_code(trouble, job)
    _, left = job.wait_until_gone(patience=GONE_SECONDS)
    job.start()
    return left


def _require_code(trouble: Trouble, job: KilledJob) -> None:
    if (code := job.finish()) != EXIT_CODES[trouble]:
        raise RuntimeError(f"{trouble}: exit code {code}, not {EXIT_CODES[trouble]}: {job.last_words()}")


def _find(job: KilledJob, role: Role) -> psutil.Process:
    process = job.find(role)
    if process is None:
        raise RuntimeError(f"there is no {role}: {job.last_words()}")
    return process


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


@contextmanager
def make_world(trouble: Trouble, folder: Path, *, documents: int, chunks: int) -> Iterator[World]:
    """Documents, and a place for the output in which the trouble can happen."""
    rows = [
        {"document_id": f"d{number}", "text": f"document {number}. " + "the fox jumps over 12345 dogs. " * 3 * chunks}
        for number in range(documents)
    ]
    pq.write_table(pa.Table.from_pylist(rows), folder / "documents.parquet")
    arguments = [
        *("--documents", str(folder / "documents.parquet"), "--ask", "Who?", "--engine", "simulated"),
        *("--model", str(TINY_MODEL), "--window-tokens", "1000", "--policy.chunk-tokens", "50"),
        *("--policy.question-tokens", "60", "--policy.memory-tokens", "40", "--policy.answer-tokens", "40"),
        *("--simulated.turn-seconds", str(TURN_SECONDS), "--pool.readings-in-flight", "4"),
        *("--log.flush-seconds", str(FLUSH_SECONDS)),
    ]
    with ExitStack() as stack:
        if trouble in ON_STORE:
            output, proxy, options = _bucket(stack)
            patience = SHORT_PATIENCE_SECONDS if trouble == Trouble.STORE_DOWN else 300.0
            arguments += ["--storage-options", json.dumps(options), "--log.outage-seconds", str(patience)]
            disk = None
        else:
            disk = stack.enter_context(small_disk(folder / "disk")) if trouble == Trouble.DISK_FULL else None
            output, proxy = Location(uri=str((disk or folder) / "run")), None
        arguments += ["--output", output.uri]
        yield World(arguments=tuple(arguments), output=output, job_folder=folder, disk=disk, proxy=proxy)


def _bucket(stack: ExitStack) -> tuple[Location, FaultProxy, dict[str, Any]]:
    """A bucket of a store in this process, the proxy before it, and the options that lead through the proxy."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    stack.callback(server.stop)
    host, port = server.get_host_and_port()
    proxy = stack.enter_context(FaultProxy(upstream=f"http://{host}:{port}"))
    keys: dict[str, Any] = {"key": "test", "secret": "test"}
    bucket = Location(uri="s3://chaos", storage_options={**keys, "client_kwargs": {"endpoint_url": proxy.upstream}})
    bucket.fs.mkdir(bucket.path)
    options = {**keys, "client_kwargs": {"endpoint_url": proxy.url}, "config_kwargs": QUICK_CLIENT}
    return bucket / "run", proxy, options


if __name__ == "__main__":
    main()
