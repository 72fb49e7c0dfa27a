"""The tail of a run: time to read a corpus of very unequal documents over the least time that any order could take.

The real job on two replicas with the simulated engine, in the order of the plan (longest first), in the file's order
and shuffled. No order can take less than the longest document alone, nor less than all turns over all readings in
flight; the ratio is to the larger of the two. Beside it: how much longer than its turns' sleeps a reading took, and
which share of the time the places of the readings in flight were filled.
"""

import argparse
import math
import random
import statistics
import tempfile
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.spread import spread
from benchmarks.whole_job.simulated_job import ReadingTime, simulated_settings, time_reading, write_corpus
from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.config.job import JobConfig, PoolConfig
from memagent_batch.ray_data.session import ray_session

REPLICAS = 2
READINGS_IN_FLIGHT = 8
PARETO_SHAPE = 1.1
"""Exponent of the lengths' tail: the longest of 250 documents is some 60 times the shortest."""
SHORTEST_CHUNKS = 2

Arrangement = Callable[..., list[pa.Table]]
"""Puts the bundles of documents in an order."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=250, help="documents (default: 250)")
    parser.add_argument("--turn-seconds", type=float, default=0.1, help="time of a turn (default: 0.1)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    times: dict[str, list[ReadingTime]] = {name: [] for name in ORDERS}
    least: list[float] = []
    with tempfile.TemporaryDirectory() as folder, ray_session():
        for run in range(arguments.runs):
            rng = random.Random(run)
            job = _settings(Path(folder), arguments.turn_seconds)
            chunks = _lengths(rng, num_documents=arguments.documents)
            write_corpus(job, chunks)
            least.append(_least_seconds(chunks, arguments.turn_seconds))
            for name, arrange in ORDERS.items():
                place = job.model_copy(update={"output": str(Path(folder) / f"{name}-{run}")})
                times[name].append(time_reading(place, arrange=partial(arrange, rng=rng)))
    for name, runs in times.items():
        overruns = [run.inside / (run.num_turns * arguments.turn_seconds) for run in runs]
        filled = [run.inside / (run.seconds * REPLICAS * READINGS_IN_FLIGHT) for run in runs]
        yield {
            "order": name,
            "documents": arguments.documents,
            "turn_seconds": arguments.turn_seconds,
            "runs": arguments.runs,
            **spread("over_least", [run.seconds / bound for run, bound in zip(runs, least, strict=True)], digits=3),
            "over_sleeps_median": round(statistics.median(overruns), 3),
            "places_filled_median": round(statistics.median(filled), 3),
        }


def _settings(place: Path, turn_seconds: float) -> JobConfig:
    return simulated_settings(
        place,
        pool=PoolConfig(replicas=REPLICAS, readings_in_flight=READINGS_IN_FLIGHT),
        simulated=SimulatedConfig(turn_seconds=turn_seconds),
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


ORDERS: dict[str, Arrangement] = {"longest-first": _as_planned, "file": _as_filed, "shuffled": _shuffled}
