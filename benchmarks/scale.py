"""From one replica to many on one machine: how much of the engines' time is used while the work grows with them.

The real job with the simulated engine, whose turns are sleeps so long that all replicas together need little of the
cores. Efficiency is the time of the sleeps alone over the time from the first reading's start to the last one's end.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.simulated_job import simulated_settings, time_reading, write_corpus
from memagent_batch.ray_data.session import ray_session
from memagent_batch.settings import PoolSettings, SimulatedSettings

READINGS_IN_FLIGHT = 4
ROUNDS = 2
"""Documents that one after the other take the same place."""
NO_CPUS = 0.01
"""CPUs that Ray sets aside for a replica that only sleeps."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--replicas", type=int, nargs="+", default=[1, 8, 32], help="pool sizes (default: 1 8 32)")
    options.add_argument("--turn-seconds", type=float, default=1.0, help="time of a turn (default: 1)")
    options.add_argument("--chunks", type=int, default=7, help="chunks of a document (default: 7)")
    options.add_argument("--runs", type=int, default=1, help="runs of each size (default: 1)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    for replicas in known.replicas:
        with tempfile.TemporaryDirectory() as folder, ray_session():
            found = [_efficiency(Path(folder), run, replicas, known) for run in range(known.runs)]
        figures = {
            "benchmark": "scale",
            "replicas": replicas,
            "turns_per_second": replicas * READINGS_IN_FLIGHT / known.turn_seconds,
            "runs": known.runs,
            "efficiency_median": round(statistics.median(found), 3),
            "efficiency_range": [round(min(found), 3), round(max(found), 3)],
        }
        print(json.dumps(figures), flush=True)
        if not known.json:
            print(f"{replicas} replicas: {statistics.median(found):.1%} of the engines' time used")


def _efficiency(folder: Path, run: int, replicas: int, known: argparse.Namespace) -> float:
    settings = simulated_settings(
        folder,
        pool=PoolSettings(replicas=replicas, readings_in_flight=READINGS_IN_FLIGHT, cpus_per_replica=NO_CPUS),
        simulated=SimulatedSettings(turn_seconds=known.turn_seconds),
    )
    write_corpus(settings, [known.chunks] * (replicas * READINGS_IN_FLIGHT * ROUNDS))
    found = time_reading(settings.model_copy(update={"output": str(folder / f"run-{run}")}))
    return float(found.num_turns * known.turn_seconds / (replicas * READINGS_IN_FLIGHT) / found.seconds)


if __name__ == "__main__":
    main()
