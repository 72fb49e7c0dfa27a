"""Cost of everything that is not the engine: seconds per 1,000 turns with an engine that answers at once.

The real job (Ray Data, actor, turn log, tables) over a corpus of short chunks.
"""

import argparse
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import simulated_job, spread, write_documents
from memagent_batch.config.job import JobConfig
from memagent_batch.executors.ray.session import ray_session
from memagent_batch.flows.answer import answer

CHUNKS = 24
"""Of each document."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="runs (default: 5)")
    parser.add_argument("--documents", type=int, default=200, help="documents (default: 200)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, ray_session():
        place = Path(folder)
        config = simulated_job(place, chunk_tokens=1024)
        write_documents(config, num_documents=arguments.documents, num_chunks=CHUNKS)
        turns = arguments.documents * (CHUNKS + 1)
        seconds = [_job(config, place / f"run-{run}", turns) for run in range(arguments.runs)]
    yield {"turns": turns, "runs": arguments.runs, **spread("seconds_per_1000_turns", seconds, digits=3)}


def _job(job: JobConfig, output: Path, turns: int) -> float:
    """Seconds per 1,000 turns of the whole job, from the first reading's start to the last one's durable end."""
    answer(job.model_copy(update={"output": str(output)}))
    rows = pq.read_table(output / "answers", columns=["started_at", "finished_at", "num_turns"])
    done = sum(rows["num_turns"].to_pylist())
    if done != turns:
        raise RuntimeError(f"expected {turns} turns, the tables hold {done}")
    began, ended = min(rows["started_at"].to_pylist()), max(rows["finished_at"].to_pylist())
    return float((ended - began).total_seconds() / turns * 1000)
