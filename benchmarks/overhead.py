"""Cost of everything that is not the engine: seconds per 1,000 turns with an engine that answers at once.

The real job (Ray Data, actor, turn log, tables) over a corpus of short chunks; and, side by side in the same run, the
reading loop alone on one event loop without Ray, log or tables.
"""

import argparse
import asyncio
import tempfile
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import QUESTION, SENTENCE, simulated_job, spread, write_documents
from memagent_batch.config.job import JobConfig
from memagent_batch.domain.addresses import ReadingAddress
from memagent_batch.domain.document import Document
from memagent_batch.domain.readings import Question
from memagent_batch.executors.ray.session import ray_session
from memagent_batch.flows.answer import answer
from memagent_batch.reading.agent import LoadedAgent, make_agent
from memagent_batch.reading.read import read
from memagent_batch.reading.turns import ReadingTurns
from memagent_batch.wiring import make_engine, make_tokenizer


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=5, help="runs of each (default: 5)")
    parser.add_argument("--documents", type=int, default=200, help="documents (default: 200)")
    parser.add_argument("--chunks", type=int, default=24, help="chunks of each document (default: 24)")
    parser.add_argument("--chunk-tokens", type=int, default=1024, help="tokens of a chunk (default: 1024)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    with tempfile.TemporaryDirectory() as folder, ray_session():
        place = Path(folder)
        config = simulated_job(place, chunk_tokens=arguments.chunk_tokens)
        write_documents(config, num_documents=arguments.documents, num_chunks=arguments.chunks)
        turns = arguments.documents * (arguments.chunks + 1)
        job = [_job(config, place / f"run-{run}", turns) for run in range(arguments.runs)]
        loop = [_loop(config, arguments.documents, arguments.chunks) for _ in range(arguments.runs)]
    for name, seconds in (("job", job), ("loop", loop)):
        figures = spread("seconds_per_1000_turns", seconds, digits=3)
        yield {"what": name, "turns": turns, "runs": arguments.runs, **figures}


def _job(job: JobConfig, output: Path, turns: int) -> float:
    """Seconds per 1,000 turns of the whole job, from the first reading's start to the last one's durable end."""
    answer(job.model_copy(update={"output": str(output)}))
    rows = pq.read_table(output / "answers", columns=["started_at", "finished_at", "num_turns"])
    done = sum(rows["num_turns"].to_pylist())
    if done != turns:
        raise RuntimeError(f"expected {turns} turns, the tables hold {done}")
    began, ended = min(rows["started_at"].to_pylist()), max(rows["finished_at"].to_pylist())
    return float((ended - began).total_seconds() / turns * 1000)


def _loop(job: JobConfig, num_documents: int, num_chunks: int) -> float:
    """Seconds per 1,000 turns of the policy over the same engine, 64 readings at once, nothing else."""
    size = job.agent.policy.chunk_tokens
    text = make_tokenizer(job.agent).document(SENTENCE * num_chunks * size)
    document = replace(text, token_ids=text.token_ids[: num_chunks * size])
    began = time.monotonic()
    asyncio.run(_read_all(job, document, num_documents))
    return (time.monotonic() - began) / (num_documents * (num_chunks + 1)) * 1000


async def _read_all(job: JobConfig, document: Document, num_documents: int) -> None:
    slots, agent = asyncio.Semaphore(job.pool.readings_in_flight), make_agent(job.agent)
    await asyncio.gather(*[_read(job, document, agent, number, slots) for number in range(num_documents)])


async def _read(job: JobConfig, document: Document, agent: LoadedAgent, number: int, slots: asyncio.Semaphore) -> None:
    address = ReadingAddress(document_hash=str(number), question_hash="", sample=0, fingerprint="")
    turns = ReadingTurns(engine=make_engine(job.agent), address=address, seed=0)
    async with slots:
        await read(document, Question(question_id="q", text=QUESTION), agent=agent, turns=turns)
