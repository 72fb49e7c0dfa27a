"""From one replica to many on one machine: how much of the engines' time is used while the work grows with them.

The real job with the simulated engine; its turns are sleeps so long that all replicas together need little of the
cores. Efficiency is the time of the sleeps alone over the time from the first reading's start to the last one's end.
The first wave is how long it takes until every place of every replica has had a reading: documents are handed out one
after the other. Without it, efficiency shows what is lost once all replicas are at work.
"""

import argparse
import statistics
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.spread import spread
from benchmarks.whole_job.simulated_job import ReadingTime, simulated_settings, time_reading, write_corpus
from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.config.job import PoolConfig
from memagent_batch.ray_data.session import ray_session

READINGS_IN_FLIGHT = 4
ROUNDS = 2
"""Documents that one after the other take the same place."""
NO_CPUS = 0.01
"""CPUs that Ray sets aside for a replica that only sleeps."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 8, 32], help="pool sizes (default: 1 8 32)")
    parser.add_argument("--turn-seconds", type=float, default=1.0, help="time of a turn (default: 1)")
    parser.add_argument("--chunks", type=int, default=7, help="chunks of a document (default: 7)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for replicas in arguments.replicas:
        with tempfile.TemporaryDirectory() as folder, ray_session():
            times = [_read(Path(folder), run, replicas, arguments) for run in range(arguments.runs)]
        places = replicas * READINGS_IN_FLIGHT
        sleeps = [time.num_turns * arguments.turn_seconds / places for time in times]
        whole = [alone / time.seconds for alone, time in zip(sleeps, times, strict=True)]
        waves = [time.begun[places - 1] for time in times]
        after = [alone / (time.seconds - wave) for alone, time, wave in zip(sleeps, times, waves, strict=True)]
        yield {
            "replicas": replicas,
            "turns_per_second": places / arguments.turn_seconds,
            "runs": arguments.runs,
            **spread("efficiency", whole, digits=3),
            "first_wave_seconds": [round(wave, 2) for wave in waves],
            "efficiency_without_first_wave_median": round(statistics.median(after), 3),
        }


def _read(folder: Path, run: int, replicas: int, arguments: argparse.Namespace) -> ReadingTime:
    job = simulated_settings(
        folder,
        pool=PoolConfig(replicas=replicas, readings_in_flight=READINGS_IN_FLIGHT, cpus_per_replica=NO_CPUS),
        simulated=SimulatedConfig(turn_seconds=arguments.turn_seconds),
    )
    write_corpus(job, [arguments.chunks] * (replicas * READINGS_IN_FLIGHT * ROUNDS))
    return time_reading(job.model_copy(update={"output": str(folder / f"run-{run}")}))
