"""Documents from 10 thousand to 10 million tokens: seconds per million tokens, and peak memory of driver and actor.

The real job in its own process, one reading at a time, with the simulated engine, which answers at once: the time is
tokenising, and the reading loop with replay and turn log. A length has as many documents as make a million tokens, at
least one.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import QUESTION, SENTENCE, TINY_JOB
from memagent_batch.cli.settings import job_of
from memagent_batch.documents.indexing import index_shard
from memagent_batch.documents.questions import read_questions
from memagent_batch.documents.shards import list_shards
from memagent_batch.executors.tokenise import tokenise
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.runs.plan import Plan
from memagent_batch.store.location import Location
from memagent_batch.store.turn_log.index import LogIndex
from memagent_batch.tokens.tokenizer import load_tokenizer

MILLION = 1_000_000
SAMPLE_SECONDS = 0.5
"""Time between two looks at the memory of the job's processes."""


def add_options(parser: argparse.ArgumentParser) -> None:
    lengths = [10_000, 100_000, MILLION, 10 * MILLION]
    parser.add_argument("--tokens", type=int, nargs="+", default=lengths, help="lengths (default: 10 K to 10 M)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for num_tokens in arguments.tokens:
        with tempfile.TemporaryDirectory() as folder:
            yield _run(Path(folder), num_tokens=num_tokens, num_documents=max(MILLION // num_tokens, 1))


def _run(folder: Path, *, num_tokens: int, num_documents: int) -> dict[str, float]:
    _corpus(folder, num_tokens=num_tokens, num_documents=num_documents)
    tokenising = _tokenising_seconds(folder)
    command = [
        *(sys.executable, "-m", "memagent_batch", "answer", "--config", str(TINY_JOB), "--ask", QUESTION),
        *("--documents", str(folder / "documents"), "--output", str(folder / "run")),
        *("--executor", "ray", "--engine", "simulated", "--pool.readings-in-flight", "1"),
    ]
    job = subprocess.Popen(command)
    peaks = _peak_memory(job)
    if job.returncode != 0:
        raise RuntimeError(f"the job ended with exit code {job.returncode}")
    rows = pq.read_table(folder / "run" / "answers").to_pylist()
    if len(rows) != num_documents or any(row["status"] != "ok" for row in rows):
        raise RuntimeError(
            f"{num_documents} readings were requested, their statuses are {[row['status'] for row in rows]}"
        )
    total = sum(row["num_document_tokens"] for row in rows)
    reading = sum((row["finished_at"] - row["started_at"]).total_seconds() for row in rows)
    return {
        "documents": num_documents,
        "tokens_each": round(total / num_documents),
        "tokenising_seconds_per_million_tokens": round(tokenising / total * MILLION, 3),
        "reading_seconds_per_million_tokens": round(reading / total * MILLION, 3),
        **peaks,
    }


def _corpus(folder: Path, *, num_tokens: int, num_documents: int) -> None:
    """Writes documents one by one, each a shard."""
    tokens = len(load_tokenizer(str(TINY_MODEL)).encode(SENTENCE * 100)) / 100
    (folder / "documents").mkdir()
    for number in range(num_documents):
        row = {"document_id": f"d{number}", "text": f"{number} {SENTENCE * int(num_tokens / tokens)}"}
        pq.write_table(pa.Table.from_pylist([row]), folder / "documents" / f"{number}.parquet")


def _tokenising_seconds(folder: Path) -> float:
    """Of fetching, tokenising and cutting all documents, one after the other in this process."""
    job = job_of(documents=str(folder / "documents"), output=str(folder / "run"), model="tiny", ask=(QUESTION,))
    shards = list_shards(Location(uri=job.documents[0]), settings=job.input)
    index = [table for shard in shards for table in index_shard(shard, settings=job.input, storage_options={})]
    plan = Plan(pa.concat_tables(index), read_questions(None, ask=job.ask), samples=1)
    bundles = list(plan.pending(LogIndex(), retry_failed=False))
    began = time.monotonic()
    for bundle in bundles:
        for _ in tokenise(bundle, agent=job.agent, sources=job):
            pass
    return time.monotonic() - began


def _peak_memory(job: "subprocess.Popen[bytes]") -> dict[str, float]:
    """Peaks of the private memory of driver and actor, MiB."""
    peaks = {"driver_mib": 0.0, "actor_mib": 0.0}
    driver = psutil.Process(job.pid)
    while job.poll() is None:
        with suppress(psutil.Error):  # a process ended between the look and the measure
            for process in (driver, *driver.children(recursive=True)):
                is_actor = "MapBatches(Replica)" in " ".join(process.cmdline())
                if is_actor or process == driver:
                    name = "actor_mib" if is_actor else "driver_mib"
                    peaks[name] = max(peaks[name], round(process.memory_full_info().uss / 2**20, 1))
        time.sleep(SAMPLE_SECONDS)
    return peaks
