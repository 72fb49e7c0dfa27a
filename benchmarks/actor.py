"""What many readings of a long document cost their actor: memory above idle, and how long its event loop was blocked.

The real reader with the simulated engine and a turn log on disk, in a process of its own. By default 64 questions over
one document of 256 chunks, all turns of a reading side by side.

`anonymous_mib` is the most memory that only this process can hold, above what it holds when the engine is up; looked at
every 20 ms. `blocked_milliseconds` is the longest time for which a task that sleeps was not woken.
"""

import argparse
import asyncio
import gc
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import pyarrow as pa

from benchmarks.harness import LOOK_SECONDS, MemoryWatch, anonymous_mib, spread
from memagent_batch.config.agent import AgentConfig, PolicyConfig
from memagent_batch.config.engines import SimulatedConfig
from memagent_batch.config.job import LogConfig, PoolConfig, RunConfig
from memagent_batch.documents.questions import read_questions
from memagent_batch.executors.actor import ReaderTask
from memagent_batch.executors.progress.board import Board
from memagent_batch.executors.reader import Reader
from memagent_batch.executors.tokenise import RowColumns, tokenise_rows
from memagent_batch.store.turn_log.question_list import with_hashes
from memagent_batch.store.turn_log.writer import new_run_id
from memagent_batch.wiring import identify_reader, make_tokenizer

CHUNK_TOKENS = 5000
SENTENCE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again.\n"
TURN_SECONDS = 0.5
"""Time of a turn in the simulated engine."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--policy", default="parallel", help="(default: parallel)")
    parser.add_argument("--readings", type=int, default=64, help="questions of the document (default: 64)")
    parser.add_argument("--chunks", type=int, default=256, help="chunks of the document (default: 256)")
    parser.add_argument("--runs", type=int, default=3, help="runs (default: 3)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    agent = AgentConfig(
        engine="simulated",
        window_tokens=CHUNK_TOKENS + 4096,
        simulated=SimulatedConfig(turn_seconds=TURN_SECONDS, completion_tokens=256),
        policy=PolicyConfig(kind=arguments.policy, chunk_tokens=CHUNK_TOKENS),
    )
    call = _call(agent, num_chunks=arguments.chunks, num_questions=arguments.readings)
    runs = []
    for _ in range(arguments.runs):
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as process:
            runs.append(process.submit(_run, agent, call, arguments.readings).result())
    yield {
        "policy": arguments.policy,
        "readings": arguments.readings,
        "chunks": arguments.chunks,
        "turns": runs[0]["turns"],
        "runs": arguments.runs,
        **spread("anonymous_mib", [run["anonymous_mib"] for run in runs], digits=0),
        **spread("blocked_milliseconds", [run["blocked_milliseconds"] for run in runs], digits=0),
        **spread("cpu_milliseconds_a_turn", [run["cpu_milliseconds_a_turn"] for run in runs], digits=2),
    }


def _call(agent: AgentConfig, *, num_chunks: int, num_questions: int) -> pa.Table:
    tokens = len(make_tokenizer(agent).encode(SENTENCE * 100)) / 100
    text = SENTENCE * int((num_chunks - 0.5) * CHUNK_TOKENS / tokens)
    rows = pa.table({"document_id": ["d"], "text": [text]})
    columns = RowColumns(document_id="document_id", text="text")
    (call,) = tokenise_rows(rows, agent=agent, columns=columns, asked={None: range(num_questions)}, samples=1)
    return call


def _run(agent: AgentConfig, call: pa.Table, num_questions: int) -> dict[str, float]:
    with tempfile.TemporaryDirectory() as folder:
        questions = read_questions(None, ask=tuple(f"What is line {number}?" for number in range(num_questions)))
        task = ReaderTask(
            agent=agent,
            pool=PoolConfig(readings_in_flight=num_questions),
            run_id=new_run_id(),
            fingerprint=identify_reader(agent).fingerprint,
            board=Board(),
            place=RunConfig(output=str(Path(folder, "run"))),
            log=LogConfig(),
            load_questions=partial(with_hashes, questions),
            is_planned=False,
        )
        return asyncio.run(_read(task, call))


async def _read(task: ReaderTask, call: pa.Table) -> dict[str, float]:
    reader = Reader(task)
    await reader.start()
    gc.collect()
    idle, watch, ended = anonymous_mib(), MemoryWatch(), asyncio.Event()
    blocked, cpu = asyncio.create_task(_longest_block(ended)), time.process_time()
    rows = await reader(call)
    cpu = time.process_time() - cpu
    ended.set()
    most, longest = watch.most, await blocked
    await reader.close()
    statuses, turns = set(rows["status"].to_pylist()), task.board.take().counts["turns"]
    if statuses != {"ok"}:
        raise RuntimeError(f"readings ended {statuses}")
    return {
        "turns": turns,
        "anonymous_mib": most - idle,
        "blocked_milliseconds": 1000 * longest,
        "cpu_milliseconds_a_turn": 1000 * cpu / turns,
    }


async def _longest_block(ended: asyncio.Event) -> float:
    """Longest time for which this task was ready and the loop did not run it, seconds."""
    longest = 0.0
    while not ended.is_set():
        due = time.monotonic() + LOOK_SECONDS
        await asyncio.sleep(LOOK_SECONDS)
        longest = max(longest, time.monotonic() - due)
    return longest
