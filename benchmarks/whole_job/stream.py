"""A stream: documents that grow by about a chunk a night, scanned by the real job with the simulated engine.

For each night: the turns that the engine was asked, those that were held from the last versions, the seconds, and the
bytes that the log grew by. At the end, once: whether `answers` and `memories` equal those of the last versions
read from scratch.
"""

import argparse
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.whole_job import mindful_engine
from benchmarks.whole_job.simulated_job import simulated_settings, write_corpus
from memagent_batch.config.job import JobConfig, LogConfig, PoolConfig
from memagent_batch.flows.answer import answer_plan
from memagent_batch.flows.check import check
from memagent_batch.flows.plan import make_plan
from memagent_batch.log.writer import TURNS_FOLDER
from memagent_batch.ray_data.session import ray_session
from memagent_batch.runs.manifest import Manifest

FIRST_CHUNKS = 3
READINGS_IN_FLIGHT = 16
FLUSH_SECONDS = 1.0
OWN_COLUMNS = ["run_id", "started_at", "finished_at", "engine_seconds", "num_replayed_turns"]
"""Who read when, and what the log held."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=200, help="documents (default: 200)")
    parser.add_argument("--nights", type=int, default=30, help="nights (default: 30)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, ray_session():
        job, log_bytes = _settings(Path(folder)), 0
        for night in range(arguments.nights):
            write_corpus(job, [FIRST_CHUNKS + night] * arguments.documents)
            began = time.monotonic()
            manifest = _answer(job)
            seconds, before, log_bytes = time.monotonic() - began, log_bytes, _log_bytes(job)
            yield {
                "night": night + 1,
                "documents": arguments.documents,
                "chunks": FIRST_CHUNKS + night,
                **manifest["changes"]["turns"],
                "seconds": round(seconds, 1),
                "log_bytes": log_bytes - before,
            }
        anew = job.model_copy(update={"output": str(Path(folder) / "anew")})
        equal = _tables(job, manifest) == _tables(anew, _answer(anew))
        yield {"equal_to_reading_anew": equal, "log_bytes": log_bytes}


def _answer(job: JobConfig) -> Manifest:
    checked = check(job)
    return answer_plan(make_plan(job, inputs=checked.inputs, closing=checked.closing), checked)


def _settings(place: Path) -> JobConfig:
    return simulated_settings(
        place,
        pool=PoolConfig(readings_in_flight=READINGS_IN_FLIGHT),
        engine=mindful_engine.KIND,
        allow_code=True,
        log=LogConfig(flush_seconds=FLUSH_SECONDS),
    )


def _log_bytes(job: JobConfig) -> int:
    return sum(file.stat().st_size for file in (Path(job.output) / TURNS_FOLDER).glob("*.parquet"))


def _tables(job: JobConfig, manifest: Manifest) -> dict[str, list[str]]:
    """`answers` and `memories` without the columns that differ from run to run."""
    found = {}
    for name in ("answers", "memories"):
        table = pa.concat_tables([pq.read_table(Path(job.output) / file) for file in manifest["files"][name]])
        kept = table.select([column for column in table.schema.names if column not in OWN_COLUMNS])
        found[name] = sorted(map(str, kept.to_pylist()))
    return found
