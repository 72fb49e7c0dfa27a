"""A long run under random faults: many short readings and some long ones, struck again and again until they are done.

The real job with the simulated engine. Every few seconds of reading, a random process is killed or asked to leave. A
command that was struck is given again. Prints one JSON line.
"""

import argparse
import json
import random
import signal
import tempfile
import time
from collections import Counter
from dataclasses import asdict
from pathlib import Path

import psutil

from memagent_batch.files.location import Location
from memagent_batch.log.writer import TURNS_FOLDER
from tests.faults.corpus import make_corpus
from tests.faults.killed_job import GONE_SECONDS, KilledJob, Role
from tests.faults.report import make_report, read_results

LONG_CHUNKS = 100
"""Chunks of a long document, about; a short one has one."""
PAUSE_SECONDS = (3.0, 12.0)
"""Shortest and longest time of reading between two faults."""
STRIKES = (
    (Role.DRIVER, signal.SIGKILL),
    (Role.DRIVER, signal.SIGTERM),
    (Role.ACTOR, signal.SIGKILL),
    (Role.ACTOR, signal.SIGTERM),
)
"""What is struck, and with which signal."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--short", type=int, default=10_000, help="short readings (default: 10000)")
    parser.add_argument("--long", type=int, default=50, help="long readings (default: 50)")
    parser.add_argument("--faults", type=int, default=6, help="most faults (default: 6)")
    parser.add_argument("--seed", type=int, default=0, help="seed of the faults (default: 0)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        report = soak(
            Path(folder), short=options.short, long=options.long, faults=options.faults, rng=random.Random(options.seed)
        )
    print(json.dumps({"benchmark": "soak", **report}))


def soak(folder: Path, *, short: int, long: int, faults: int, rng: random.Random) -> dict[str, object]:
    """Runs the job to its end, through at most `faults` strikes; returns the report's figures, and the strikes."""
    output, began = Location(uri=str(folder / "run")), time.time()
    struck: Counter[str] = Counter()
    with KilledJob(job_arguments(folder, short=short, long=long), output=folder / "run") as job:
        job.start()
        for _ in range(faults):
            files = len((output / TURNS_FOLDER).files())
            job.wait_until(lambda seen=files: len((output / TURNS_FOLDER).files()) > seen)  # type: ignore[misc]
            time.sleep(rng.uniform(*PAUSE_SECONDS))
            role, number = rng.choice(STRIKES)
            if (victim := _wait_for(job, role)) is None:
                break  # the readings have ended
            struck[f"{role}: {signal.Signals(number).name}"] += 1
            victim.send_signal(number)
            if role == Role.DRIVER:
                job.finish()
                job.start()
        if code := job.finish():
            raise RuntimeError(f"the run did not go on, exit code {code}: {job.last_words()}")
        _, left = job.wait_until_gone(patience=GONE_SECONDS)
        report = make_report(
            read_results(output),
            fault="soak",
            asked=short + long,
            began=began,
            seconds_to_recover=[],
            processes_left=left,
            console=job.last_words(),
        )
    kept = {name: value for name, value in asdict(report).items() if name not in ("console", "seconds_to_recover")}
    return {**kept, "struck": dict(struck)}


def _wait_for(job: KilledJob, role: Role) -> psutil.Process | None:
    """The process in that role once there is one; None if the command ends before."""
    job.wait_until(lambda: job.find(role) is not None)
    return job.find(role)


def job_arguments(folder: Path, *, short: int, long: int) -> list[str]:
    """Writes the documents; the command's arguments."""
    corpus = make_corpus(folder, chunks=[*[1] * short, *[LONG_CHUNKS] * long])
    return [
        *(*corpus.arguments(), "--output", str(folder / "run"), "--engine", "simulated"),
        *("--simulated.turn-seconds", "0.4", "--log.flush-seconds", "1"),
    ]


if __name__ == "__main__":
    main()
