"""The tail of a run: time to read a corpus of very unequal documents over the least time that any order could take.

The real job on two replicas with the simulated engine, in the order of the plan (longest first), in the file's order
and shuffled. No order can take less than the longest document alone, nor less than all turns over all readings in
flight; the ratio is to the larger of the two. Beside it: how much longer than its turns' sleeps a reading took, and
which share of the time the places of the readings in flight were filled.
"""

import argparse
import json
import math
import random
import statistics
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pyarrow as pa

from benchmarks.simulated_job import ReadingTime, simulated_settings, time_reading, write_corpus
from memagent_batch.ray_data.session import ray_session
from memagent_batch.settings import PoolSettings, Settings, SimulatedSettings

REPLICAS = 2
READINGS_IN_FLIGHT = 8
PARETO_SHAPE = 1.1
"""Exponent of the lengths' tail: the longest of 250 documents is some 60 times the shortest."""
SHORTEST_CHUNKS = 2

Order = Callable[..., list[pa.Table]]


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--documents", type=int, default=250, help="documents (default: 250)")
    options.add_argument("--turn-seconds", type=float, default=0.1, help="time of a turn (default: 0.1)")
    options.add_argument("--runs", type=int, default=3, help="runs of each order (default: 3)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    known = options.parse_args()
    found: dict[str, list[ReadingTime]] = {name: [] for name in ORDERS}
    least: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ray_session():
        for run in range(known.runs):
            rng = random.Random(run)
            settings = _settings(Path(folder), known.turn_seconds)
            chunks = _lengths(rng, num_documents=known.documents)
            write_corpus(settings, chunks)
            least.append(_least_seconds(chunks, known.turn_seconds))
            for name, order in ORDERS.items():
                place = settings.model_copy(update={"output": str(Path(folder) / f"{name}-{run}")})
                found[name].append(time_reading(place, arrange=partial(order, rng=rng)))
    for name, times in found.items():
        ratios = [time.seconds / bound for time, bound in zip(times, least, strict=True)]
        overruns = [time.inside / (time.num_turns * known.turn_seconds) for time in times]
        filled = [time.inside / (time.seconds * REPLICAS * READINGS_IN_FLIGHT) for time in times]
        figures = {
            "benchmark": "tail",
            "order": name,
            "documents": known.documents,
            "turn_seconds": known.turn_seconds,
            "runs": known.runs,
            "over_least_median": round(statistics.median(ratios), 3),
            "over_least_range": [round(min(ratios), 3), round(max(ratios), 3)],
            "over_sleeps_median": round(statistics.median(overruns), 3),
            "places_filled_median": round(statistics.median(filled), 3),
        }
        print(json.dumps(figures), flush=True)
        if not known.json:
            print(f"{name}: {statistics.median(ratios):.2f} times the least time")


def _settings(place: Path, turn_seconds: float) -> Settings:
    return simulated_settings(
        place,
        pool=PoolSettings(replicas=REPLICAS, readings_in_flight=READINGS_IN_FLIGHT),
        simulated=SimulatedSettings(turn_seconds=turn_seconds),
    )


def _lengths(rng: random.Random, *, num_documents: int) -> list[int]:
    """Chunks of each document, by a power law."""
    most = SHORTEST_CHUNKS * num_documents ** (1 / PARETO_SHAPE) / 3
    drawn = [SHORTEST_CHUNKS * rng.paretovariate(PARETO_SHAPE) for _ in range(num_documents)]
    return [math.ceil(min(chunks, most)) for chunks in drawn]


def _least_seconds(chunks: list[int], turn_seconds: float) -> float:
    turns = [count + 1 for count in chunks]
    return turn_seconds * max(max(turns), sum(turns) / (REPLICAS * READINGS_IN_FLIGHT))


def _as_planned(bundles: list[pa.Table], *, rng: random.Random) -> list[pa.Table]:
    return bundles


def _as_filed(bundles: list[pa.Table], *, rng: random.Random) -> list[pa.Table]:
    """Documents alone, in the order of the file."""
    documents = pa.concat_tables(bundles).sort_by([("start", "ascending"), ("stop", "ascending")])
    return [documents.slice(row, 1).combine_chunks() for row in range(documents.num_rows)]


def _shuffled(bundles: list[pa.Table], *, rng: random.Random) -> list[pa.Table]:
    documents = _as_filed(bundles, rng=rng)
    return rng.sample(documents, len(documents))


ORDERS: dict[str, Order] = {"longest-first": _as_planned, "file": _as_filed, "shuffled": _shuffled}


if __name__ == "__main__":
    main()
