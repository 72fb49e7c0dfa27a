"""From one replica to many on one machine: how much of the engines' time is used while the work grows with them.

The real job with the simulated engine, whose turns are sleeps so long that all replicas together need little of the
cores. Efficiency is the time of the sleeps alone over the time from the first reading's start to the last one's end.
The first wave is how long it takes until every place of every replica has had a reading: documents are handed out one
after the other. Without it, efficiency tells what is lost once all replicas are at work.
"""

import argparse
import json
import statistics
import tempfile
from pathlib import Path

from benchmarks.simulated_job import ReadingTime, simulated_settings, time_reading, write_corpus
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
            found = [_read(Path(folder), run, replicas, known) for run in range(known.runs)]
        places = replicas * READINGS_IN_FLIGHT
        sleeps = [time.num_turns * known.turn_seconds / places for time in found]
        whole = [alone / time.seconds for alone, time in zip(sleeps, found, strict=True)]
        waves = [time.begun[places - 1] for time in found]
        after = [alone / (time.seconds - wave) for alone, time, wave in zip(sleeps, found, waves, strict=True)]
        figures = {
            "benchmark": "scale",
            "replicas": replicas,
            "turns_per_second": places / known.turn_seconds,
            "runs": known.runs,
            "efficiency_median": round(statistics.median(whole), 3),
            "efficiency_range": [round(min(whole), 3), round(max(whole), 3)],
            "first_wave_seconds": [round(wave, 2) for wave in waves],
            "efficiency_without_first_wave_median": round(statistics.median(after), 3),
        }
        print(json.dumps(figures), flush=True)
        if not known.json:
            print(f"{replicas} replicas: {statistics.median(whole):.1%} of the engines' time used")


def _read(folder: Path, run: int, replicas: int, known: argparse.Namespace) -> ReadingTime:
    settings = simulated_settings(
        folder,
        pool=PoolSettings(replicas=replicas, readings_in_flight=READINGS_IN_FLIGHT, cpus_per_replica=NO_CPUS),
        simulated=SimulatedSettings(turn_seconds=known.turn_seconds),
    )
    write_corpus(settings, [known.chunks] * (replicas * READINGS_IN_FLIGHT * ROUNDS))
    return time_reading(settings.model_copy(update={"output": str(folder / f"run-{run}")}))


if __name__ == "__main__":
    main()
