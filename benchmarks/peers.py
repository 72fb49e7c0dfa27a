"""The job against datatrove and a script of asyncio, which run the published memory loop over the same chunks.

Documents, questions and budgets are the same too. Seconds are from the first request to the last result, without the
start of an engine. The peers ask a server of vLLM, started once, which forgets its prefix cache before each run. Runs
alternate. With `--policy overwrite` the job runs the same loop; with another one it asks less of the engine, so `right`
is how many of the facts each has found. With `--questions` each document is asked for the facts of others too, which it
does not state.
"""

import argparse
import json
import math
import os
import random
import signal
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.harness import ROOT, TINY_JOB, copy_tokenizer, engine_of, make_tasks, spread, write_tasks
from benchmarks.peer_server import VllmServer, vllm_server
from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.loop.engines.vllm.start import GIB_BYTES
from memagent_batch.loop.prompt_sets.files import load_prompt_set
from memagent_batch.run.wiring import make_tokenizer, resolve_model


class Mode(StrEnum):
    """Settings of the engines."""

    SAME = "same"
    """The job's for all: engine arguments, environment, requests in flight; no speculation, prefix cache on."""
    SHIPPED = "shipped"
    """Everyone's own defaults; only window and KV cache are set, which this machine and the model ask for."""


class Peer(StrEnum):
    """Programs that the job is compared with."""

    DATATROVE = "datatrove"
    ASYNCIO = "asyncio"


PEER_COMMANDS = {
    Peer.DATATROVE: (str(ROOT / ".venv-peers" / "bin" / "python"), "-m", "benchmarks.peer_datatrove"),
    Peer.ASYNCIO: (sys.executable, "-m", "benchmarks.peer_asyncio"),
}
"""How they are started; datatrove has its own environment, made by `make bench-peers`."""

SAME_ENGINE = '{"speculative_config": null, "max_num_batched_tokens": 4096}'
"""Engine arguments that vLLM or the job would choose by where the engine runs; tokens of one engine step."""
MODE_ARGUMENTS = {
    Mode.SAME: ("--vllm.engine-args", SAME_ENGINE),
    Mode.SHIPPED: ("--vllm.enforce-eager", "false"),  # the default, which the job files for short work change
}
QUIET_RAY = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""By default Ray's workers, and the engine below them, wait for everything else that the machine does; it also reports
its use to its makers."""
SEED = 20_260_702
"""Of lengths, their order, and texts."""
MEDIAN_CHUNKS = 2
"""Median length of a document."""
SPREAD = 0.6
"""Standard deviation of the logarithm of a length, those at the end of the tail apart."""
BODY_CHUNKS = 10
"""Longest document, those at the end of the tail apart."""
NUM_LONGEST = 3
"""Documents at the end of the tail."""
MAX_CHUNKS = 50 * MEDIAN_CHUNKS
"""Their length."""
PUBLISHED_PROMPTS = "default"
"""The prompt set of the peers' loop, whatever the job's policy."""
SHORT_TOKENS = 200
"""Length of the documents that only lend their questions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerResult:
    """What a run brings back."""

    seconds: float
    """From the first request to the last result."""
    num_turns: int
    responses: dict[str, str]


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--modes", nargs="+", type=Mode, default=list(Mode), choices=list(Mode))
    parser.add_argument("--peers", nargs="+", type=Peer, default=list(Peer), choices=list(Peer))
    parser.add_argument("--config", type=Path, default=TINY_JOB, help="the job's file of settings (default: tiny)")
    parser.add_argument("--policy", default="overwrite", help="the job's policy (default: overwrite)")
    parser.add_argument("--documents", type=int, default=400, help="(default: 400)")
    parser.add_argument("--chunks", type=int, help="of each document (default: around 2, and three of 100)")
    parser.add_argument("--questions", type=int, default=1, help="asked of each document (default: 1)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that a server does not outlive the command
    with tempfile.TemporaryDirectory() as folder:
        corpus = Path(folder, "corpus")
        counts = [arguments.chunks] * arguments.documents if arguments.chunks else chunk_counts(arguments.documents)
        agent = job_settings(Mode.SAME, arguments).agent
        work, facts = make_corpus(corpus, counts=counts, num_questions=arguments.questions, agent=agent)
        num_turns = sum(len(document["chunks"]) + 1 for document in work["documents"])
        for mode in arguments.modes:
            pairs: dict[Peer, list[tuple[PeerResult, PeerResult]]] = {peer: [] for peer in arguments.peers}
            job = job_settings(mode, arguments)
            in_flight = job.pool.readings_in_flight if mode == Mode.SAME else None
            with start_server(mode, job.agent, folder=Path(folder, f"server-{mode}")) as server:
                for run in range(arguments.runs):
                    output = Path(folder, f"{mode}-{run}")
                    own = run_job(mode, arguments, corpus, output=output)
                    for peer in arguments.peers:
                        other = run_peer(peer, work | {"in_flight": in_flight}, server=server, folder=output)
                        if other.num_turns != num_turns:
                            raise RuntimeError(f"the corpus takes {num_turns} turns, {peer} made {other.num_turns}")
                        pairs[peer].append((own, other))
            for peer, results in pairs.items():
                what = {"mode": mode, "peer": peer, "model": job.agent.model, "policy": arguments.policy}
                yield {**what, "turns_of_peer": num_turns, **summarise(results, facts=facts)}


def job_words(mode: Mode, arguments: argparse.Namespace) -> list[str]:
    """The words of the job's command, apart from documents, questions and output."""
    cut = ["--policy.break-at", "length"]  # as the peer's loop cuts
    return ["--config", str(arguments.config), "--policy.kind", arguments.policy, *cut, *MODE_ARGUMENTS[mode]]


def job_settings(mode: Mode, arguments: argparse.Namespace) -> JobConfig:
    """The job's settings, apart from documents, questions and output."""
    places = ("--documents", "documents", "--ask", "Who?", "--output", "run")
    return read_command(Answer, [*job_words(mode, arguments), *places]).job()


def run_job(mode: Mode, arguments: argparse.Namespace, corpus: Path, *, output: Path) -> PeerResult:
    """Runs the real job in its own process; the result is read from its tables."""
    words = [
        *(*job_words(mode, arguments), "--executor", "ray"),
        *("--documents", str(corpus / "documents.parquet"), "--questions", str(corpus / "questions.parquet")),
        *("--output", str(output)),
    ]
    _run([sys.executable, "-m", "memagent_batch", "answer", *words], log=output.with_suffix(".log"))
    rows = pq.read_table(output / "answers").to_pylist()
    failed = [row["document_id"] for row in rows if row["status"] != "ok"]
    if failed:
        raise RuntimeError(f"readings failed: {failed}")
    return PeerResult(
        seconds=(max(row["finished_at"] for row in rows) - min(row["started_at"] for row in rows)).total_seconds(),
        num_turns=sum(row["num_turns"] for row in rows),
        responses={row["question_id"]: row["response"] for row in rows},
    )


def run_peer(peer: Peer, work: Mapping[str, Any], *, server: VllmServer, folder: Path) -> PeerResult:
    """Runs a peer in its own process against the server, after the server's prefix cache is emptied."""
    server.forget()
    work_file, result_file = folder / f"{peer}-work.json", folder / f"{peer}-result.json"
    work_file.write_text(json.dumps({**work, "url": server.url, "model": server.model}))
    _run([*PEER_COMMANDS[peer], str(work_file), str(result_file)], log=result_file.with_suffix(".log"))
    return PeerResult(**json.loads(result_file.read_text()))


def start_server(mode: Mode, agent: AgentConfig, *, folder: Path) -> AbstractContextManager[VllmServer]:
    """The server of the peers, while the block lasts; its files go to the folder."""
    arguments, environment = engine_of(agent)
    if mode == Mode.SHIPPED:
        kv_cache = agent.vllm.cpu_kv_cache_gib * GIB_BYTES
        arguments = {"max_model_len": agent.window_tokens, "kv_cache_memory_bytes": kv_cache}
        environment = {}
    model = resolve_model(agent.model)
    copy_tokenizer(folder / "tokenizer", model=Path(model))
    arguments = arguments | {"model": model, "tokenizer": str(folder / "tokenizer")}
    return vllm_server(arguments, environment=environment, log=folder / "server.log")


def _run(command: Sequence[str], *, log: Path) -> None:
    """Runs a command to its end; its output goes to the log, and into the error if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(ROOT), **QUIET_RAY}
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}): {log.read_text(errors='replace')[-3000:]}")


def summarise(pairs: Sequence[tuple[PeerResult, PeerResult]], *, facts: Mapping[str, Sequence[str]]) -> dict[str, Any]:
    """Medians and ranges over pairs of a run of the job and one of a peer, made one after the other."""
    same = [
        statistics.mean(peer.responses[name] == text for name, text in job.responses.items()) for job, peer in pairs
    ]
    return {
        "runs": len(pairs),
        **spread("job_seconds", [job.seconds for job, _ in pairs], digits=2),
        **spread("peer_seconds", [peer.seconds for _, peer in pairs], digits=2),
        **spread("times_as_fast", [peer.seconds / job.seconds for job, peer in pairs], digits=2),
        "identical_answers": round(statistics.mean(same), 4),
        "facts": len(facts),
        "right_of_job": [count_right(job, facts) for job, _ in pairs],
        "right_of_peer": [count_right(peer, facts) for _, peer in pairs],
    }


def count_right(result: PeerResult, facts: Mapping[str, Sequence[str]]) -> int:
    """How many questions about a document's own facts have all of them in their response."""
    return sum(all(fact in result.responses[name] for fact in asked) for name, asked in facts.items())


def chunk_counts(num_documents: int) -> list[int]:
    """Length of each document in chunks: log-normal around the median, and a few of fifty times that, in any order."""
    rng = random.Random(SEED)
    body = [
        min(BODY_CHUNKS, max(1, round(rng.lognormvariate(math.log(MEDIAN_CHUNKS), SPREAD))))
        for _ in range(num_documents - NUM_LONGEST)
    ]
    counts = body + [MAX_CHUNKS] * NUM_LONGEST
    rng.shuffle(counts)
    return counts


def make_corpus(
    folder: Path, *, counts: Sequence[int], num_questions: int, agent: AgentConfig
) -> tuple[dict[str, Any], dict[str, Sequence[str]]]:
    """Writes the corpus for the job; returns it for datatrove, with the texts of the prompts and their budgets.

    Chunks are cut as the job cuts them, with the policy's chunk size and overlap.

    Returns the facts, too: what the answers to the questions about a document's own facts hold.
    """
    folder.mkdir()
    stride = agent.policy.chunk_tokens - agent.policy.overlap_tokens
    lengths = [count * stride - stride // 2 for count in counts]  # some way into the last chunk
    num_more = max(0, num_questions - len(counts))  # so that all questions of a document differ
    all_tasks = make_tasks([*lengths, *[SHORT_TOKENS] * num_more], seed=SEED, model=resolve_model(agent.model))
    tasks = all_tasks[: len(counts)]
    asked = [
        [all_tasks[(number + step) % len(all_tasks)] for step in range(num_questions)] for number in range(len(tasks))
    ]
    rows = [
        {"document_id": f"d{number:04d}", "question_id": f"d{number:04d}-{step:02d}", "question": task.question}
        for number, others in enumerate(asked)
        for step, task in enumerate(others)
    ]
    write_tasks(folder, tasks)
    pq.write_table(pa.Table.from_pylist(rows), folder / "questions.parquet")
    chunks = {f"d{number:04d}": chunk_texts(task.document, agent) for number, task in enumerate(tasks)}
    prompts = load_prompt_set(PUBLISHED_PROMPTS)
    work = {
        "update": prompts.update,
        "answer": prompts.answer,
        "first_memory": prompts.first_memory,
        "memory_tokens": agent.policy.memory_tokens,
        "answer_tokens": agent.policy.answer_tokens,
        "documents": [row | {"chunks": chunks[row["document_id"]]} for row in rows],
    }
    return work, {f"d{number:04d}-00": task.references for number, task in enumerate(tasks)}


def chunk_texts(text: str, agent: AgentConfig) -> list[str]:
    """The document's chunks as text: its tokens cut as the job cuts them, each chunk decoded."""
    tokenizer, policy = make_tokenizer(agent), agent.policy
    chunks = tokenizer.document(text).chunks(policy.chunk_tokens, overlap_tokens=policy.overlap_tokens)
    return [tokenizer.decode(chunk.token_ids) for chunk in chunks]
