"""What several measurements share: corpora, the jobs that read them, and the form of repeated figures."""

import os
import random
import shutil
import statistics
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from itertools import cycle
from pathlib import Path
from typing import Any

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.apps.evaluation.haystacks import SampleRequest, SuiteSample, TokenMeter
from memagent_batch.apps.evaluation.tasks import TASKS
from memagent_batch.config.agent import AgentConfig
from memagent_batch.loop.engines.vllm.start import engine_arguments, engine_environment
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from memagent_batch.run.wiring import resolve_model

ROOT = Path(__file__).parents[1]
TINY_JOB = ROOT / "jobs" / "tiny.yaml"
QUESTION = "What colour is the sky?"
NEEDLE_TASKS = ("niah_multikey_1", "niah_single_1")
"""Tasks of the suites that documents are made of, in turn."""


def spread(name: str, values: Sequence[float], *, digits: int) -> dict[str, float | list[float]]:
    """`NAME_median` and `NAME_range`, rounded."""
    return {
        f"{name}_median": round(statistics.median(values), digits),
        f"{name}_range": [round(min(values), digits), round(max(values), digits)],
    }


def make_tasks(lengths: Sequence[int], *, seed: int = 0, model: str = str(TINY_MODEL)) -> list[SuiteSample]:
    """Documents of about these lengths in tokens of a model, each with one needle or four."""
    meter = TokenMeter(load_tokenizer(model))
    tasks = []
    for number, (name, length) in enumerate(zip(cycle(NEEDLE_TASKS), lengths, strict=False)):
        rng = random.Random(f"{seed}/{number}")
        tasks.append(TASKS[name].make(SampleRequest(task=name, rng=rng, length=length, depth=rng.random()), meter))
    return tasks


def write_tasks(folder: Path, tasks: list[SuiteSample]) -> None:
    """Writes `documents.parquet` and `questions.parquet`; document and question of a task have the same id."""
    ids = [{"document_id": f"d{number:04d}"} for number in range(len(tasks))]
    documents = [each | {"text": task.document} for each, task in zip(ids, tasks, strict=True)]
    questions = [
        each | {"question_id": each["document_id"], "question": task.question}
        for each, task in zip(ids, tasks, strict=True)
    ]
    pq.write_table(pa.Table.from_pylist(documents), folder / "documents.parquet")
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")


def copy_tokenizer(folder: Path, *, model: Path = TINY_MODEL) -> None:
    """Copies a model's tokeniser alone: without `config.json`, which transformers would read it by."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja"):
        shutil.copy(model / name, folder)


def engine_of(agent: AgentConfig) -> tuple[dict[str, Any], Mapping[str, str]]:
    """Arguments and environment of the job's engine, from the engine itself, so that they can't drift apart."""
    arguments = engine_arguments(
        agent.vllm,
        model=resolve_model(agent.model),
        tokenizer=agent.tokenizer,
        window_tokens=agent.window_tokens,
        sampling=agent.sampling,
    )
    return arguments, engine_environment(arguments)


ENGINE_PROCESS = "VLLM::EngineCore"
"""What vLLM calls the process that computes."""
PIN_SECONDS = 0.5
"""Time between looks for new threads of it."""


@contextmanager
def engine_on_own_core() -> Iterator[None]:
    """Keeps engine processes that start in the block on one core, with one thread, and all others on another core.

    Raises:
        RuntimeError: this process may use one core only.
    """
    before = os.sched_getaffinity(0)
    if len(before) < 2:
        raise RuntimeError("pinning needs two cores")
    engine_core, other_core = sorted(before)[:2]
    ended = threading.Event()

    began = time.time()

    def pin_engines() -> None:
        while not ended.wait(PIN_SECONDS):
            for process in psutil.process_iter(["cmdline", "create_time"]):
                is_engine = ENGINE_PROCESS in " ".join(process.info["cmdline"] or ())
                if is_engine and process.info["create_time"] >= began:
                    _pin(process, {engine_core})

    _pin(psutil.Process(), {other_core})  # processes that start later inherit it
    watcher = threading.Thread(target=pin_engines, daemon=True)
    watcher.start()
    try:
        yield
    finally:
        ended.set()
        watcher.join()
        _pin(psutil.Process(), before)


def _pin(process: psutil.Process, cores: set[int]) -> None:
    with suppress(psutil.NoSuchProcess):
        for thread in process.threads():
            with suppress(ProcessLookupError):  # it has just ended
                os.sched_setaffinity(thread.id, cores)
