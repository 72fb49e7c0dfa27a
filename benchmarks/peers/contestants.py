"""The contestants, their settings, and one run of each."""

import os
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.peers.corpus import MadeCorpus
from benchmarks.peers.server import VllmServer
from benchmarks.peers.text_loop import PeerResult, load_result
from benchmarks.tiny_job import CONFIG, ROOT
from memagent_batch.cli.answer import Answer
from memagent_batch.cli.main import read_command
from memagent_batch.config.agent import AgentConfig
from memagent_batch.config.job import JobConfig
from memagent_batch.engines.vllm.start import GIB_BYTES, engine_arguments, engine_environment
from memagent_batch.wiring import resolve_model

PEERS_PYTHON = ROOT / ".venv-peers" / "bin" / "python"
"""Environment of datatrove, made by `make bench-peers`."""


class Mode(StrEnum):
    """Settings of the engines."""

    SAME = "same"
    """The job's for all: engine arguments, environment, requests in flight; no speculation, prefix cache on."""
    SHIPPED = "shipped"
    """Everyone's own defaults; only window and KV cache are set, which this machine and the model ask for."""


class Peer(StrEnum):
    """What the job is compared with."""

    ROUNDS = "rounds"
    """One execution of `ray.data.llm` for each chunk index."""
    DATATROVE = "datatrove"
    """InferenceRunner with a rollout function."""
    CLIENT = "client"
    """An asyncio client: all documents at once, one semaphore over their requests."""


MODULES = {
    Peer.ROUNDS: "benchmarks.peers.ray_llm_rounds",
    Peer.DATATROVE: "benchmarks.peers.datatrove_rollout",
    Peer.CLIENT: "benchmarks.peers.text_client",
}

SAME_ENGINE = '{"speculative_config": null, "max_num_batched_tokens": 4096}'
"""Engine arguments that vLLM or the job would choose by where the engine runs; tokens of one engine step."""

MODE_ARGUMENTS = {Mode.SAME: ("--vllm.engine-args", SAME_ENGINE), Mode.SHIPPED: ()}
"""Arguments of the job beside its job file."""

QUIET_RAY = {"RAY_worker_niceness": "0", "RAY_USAGE_STATS_ENABLED": "0"}
"""By default Ray's workers, and the engine below them, wait for everything else that the machine does; it also reports
its use to its makers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobRun:
    """One run of the job."""

    result: PeerResult
    """What came of it."""
    start_seconds: float
    """From the command to the first turn: Ray, plan, engine."""


def job_arguments(mode: Mode, made: MadeCorpus, *, output: Path, knobs: Sequence[str] = ()) -> list[str]:
    """Command line of `memagent answer`."""
    return [
        *("--config", str(CONFIG), "--executor", "ray", *MODE_ARGUMENTS[mode], *knobs),
        *("--documents", str(made.documents), "--questions", str(made.questions), "--output", str(output)),
    ]


def job_settings(mode: Mode) -> JobConfig:
    """The job's knobs, apart from documents, questions and output."""
    places = ("--documents", "documents", "--ask", "Who?", "--output", "run")
    return read_command(Answer, ["--config", str(CONFIG), *MODE_ARGUMENTS[mode], *places]).job()


def run_job(mode: Mode, made: MadeCorpus, *, output: Path, knobs: Sequence[str] = ()) -> JobRun:
    """Runs the real job in a process of its own; the result is read from its tables."""
    began = time.time()
    arguments = job_arguments(mode, made, output=output, knobs=knobs)
    _run([sys.executable, "-m", "memagent_batch", "answer", *arguments], log=output.with_suffix(".log"))
    rows = pq.read_table(output / "answers").to_pylist()
    failed = [row["document_id"] for row in rows if row["status"] != "ok"]
    if failed:
        raise RuntimeError(f"readings failed: {failed}")
    result = PeerResult(
        seconds=(max(row["finished_at"] for row in rows) - min(row["started_at"] for row in rows)).total_seconds(),
        num_turns=sum(row["num_turns"] for row in rows),
        responses={row["question_id"]: row["response"] for row in rows},
    )
    return JobRun(result=result, start_seconds=min(row["started_at"] for row in rows).timestamp() - began)


def run_peer(peer: Peer, mode: Mode, made: MadeCorpus, *, server: VllmServer, output: Path) -> PeerResult:
    """Runs a peer in a process of its own against the server, after its prefix cache is emptied."""
    server.forget()
    python = PEERS_PYTHON if peer == Peer.DATATROVE else Path(sys.executable)
    options = ["--work", str(made.work), "--url", server.url, "--model", server.model, "--output", str(output)]
    if mode == Mode.SAME:
        options += ["--concurrency", str(job_settings(mode).pool.readings_in_flight)]
    _run([str(python), "-m", MODULES[peer], *options], log=output.with_suffix(".log"))
    return load_result(output)


def make_server(mode: Mode, *, folder: Path) -> VllmServer:
    """The peers' server, not started; its files go to the folder."""
    job = job_settings(mode)
    if mode == Mode.SAME:
        arguments, environment = engine_of(job.agent)
    else:
        kv_cache = job.agent.vllm.cpu_kv_cache_gib * GIB_BYTES
        arguments = {"max_model_len": job.agent.window_tokens, "kv_cache_memory_bytes": kv_cache}
        environment = {}
    arguments |= {"tokenizer": _bare_tokenizer(resolve_model(job.agent.model), folder / "tokenizer")}
    return VllmServer(
        model=resolve_model(job.agent.model), arguments=arguments, environment=environment, log=folder / "server.log"
    )


def _bare_tokenizer(model: str, folder: Path) -> str:
    """The tokeniser alone: beside a config.json of Qwen2, transformers 5 splits text in its own way instead."""
    folder.mkdir(parents=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(Path(model) / name, folder)
    return str(folder)


def engine_of(agent: AgentConfig) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Arguments and environment of the job's engine, from the engine itself, so that they can't drift apart."""
    arguments = engine_arguments(
        agent.vllm,
        model=resolve_model(agent.model),
        tokenizer=agent.tokenizer,
        window_tokens=agent.window_tokens,
        sampling=agent.sampling,
    )
    return {name: value for name, value in arguments.items() if name != "model"}, engine_environment(arguments)


def _run(command: Sequence[str], *, log: Path) -> None:
    """Runs a command to its end; its output goes to the log, and into the error if it fails."""
    environment = {name: value for name, value in os.environ.items() if name != "RAY_ADDRESS"}
    environment |= {"PYTHONPATH": str(ROOT), **QUIET_RAY}
    with log.open("wb") as output:
        done = subprocess.run(command, stdout=output, stderr=output, env=environment, cwd=ROOT, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed ({done.returncode}): {log.read_text(errors='replace')[-3000:]}")
