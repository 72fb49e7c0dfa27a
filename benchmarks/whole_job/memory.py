"""Peak memory of driver and actor over one document of 1 M tokens, and over ten; and whether the answers are right.

The real job with real vLLM in a process of its own; its driver, the actor's process and the engine's process are
sampled from outside. `uss` is private memory, `rss` counts shared pages (the object store) as well.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tiny_job import CONFIG
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.wiring import TINY_MODEL

SAMPLE_SECONDS = 0.5
ROLES = ("driver", "actor", "engine")
KINDS = ("uss", "rss")


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--tokens", type=int, default=1_000_000, help="tokens of a document (default: 1,000,000)")
    parser.add_argument("--documents", type=int, nargs="+", default=[1, 10], help="corpus sizes (default: 1 10)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, float]]:
    for num_documents in arguments.documents:
        with tempfile.TemporaryDirectory() as folder:
            yield _run(Path(folder), num_documents=num_documents, num_tokens=arguments.tokens)


def _run(folder: Path, *, num_documents: int, num_tokens: int) -> dict[str, float]:
    references = _corpus(folder, num_documents=num_documents, num_tokens=num_tokens)
    command = [
        *(sys.executable, "-m", "memagent_batch", "answer", "--config", str(CONFIG)),
        *("--documents", str(folder / "documents"), "--questions", str(folder / "questions.parquet")),
        *("--output", str(folder / "run")),
    ]
    began = time.monotonic()
    job = subprocess.Popen(command)
    peaks = watch(job)
    if job.returncode != 0:
        raise RuntimeError(f"the job ended with exit code {job.returncode}")
    rows = pq.read_table(folder / "run" / "answers").to_pylist()
    return {
        "documents": num_documents,
        "tokens_each": round(sum(row["num_document_tokens"] for row in rows) / len(rows)),
        "right": sum(row["answer"] == references[row["document_id"]] for row in rows),
        "turns": sum(row["num_turns"] for row in rows),
        "seconds": round(time.monotonic() - began, 1),
        **peaks,
    }


def _corpus(folder: Path, *, num_documents: int, num_tokens: int) -> dict[str, str]:
    """Writes documents one by one, each a shard, and returns the reference answers."""
    rng = random.Random(num_tokens)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    (folder / "documents").mkdir()
    questions, references = [], {}
    for number in range(num_documents):
        task = make_task(
            rng,
            length=num_tokens,
            length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
            haystack=list(Haystack)[number % len(Haystack)],
            num_distractors=3,
        )
        row = {"document_id": f"d{number}", "text": task.document}
        pq.write_table(pa.Table.from_pylist([row]), folder / "documents" / f"{number}.parquet")
        questions.append({"document_id": f"d{number}", "question": task.question, "references": [task.answer]})
        references[f"d{number}"] = task.answer
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    return references


def watch(job: "subprocess.Popen[bytes]") -> dict[str, float]:
    """Peaks of private and resident memory by role, MiB."""
    names: list[str] = [f"{role}_{kind}_mib" for role in ROLES for kind in KINDS]
    peaks = dict.fromkeys(names, 0.0)
    while job.poll() is None:
        for role, process in _processes(job.pid):
            try:
                memory = process.memory_full_info()
            except psutil.Error:
                continue  # it ended between the look and the measure
            for kind in KINDS:
                name = f"{role}_{kind}_mib"
                peaks[name] = max(peaks[name], round(getattr(memory, kind) / 2**20, 1))
        time.sleep(SAMPLE_SECONDS)
    return peaks


def _processes(pid: int) -> Iterator[tuple[str, psutil.Process]]:
    try:
        driver = psutil.Process(pid)
        children = driver.children(recursive=True)
    except psutil.Error:
        return
    yield "driver", driver
    for process in children:
        try:
            title = " ".join(process.cmdline())
        except psutil.Error:
            continue
        if "MapBatches(Reader)" in title:
            yield "actor", process
        elif "EngineCore" in title:
            yield "engine", process
