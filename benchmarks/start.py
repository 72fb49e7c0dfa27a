"""Seconds from the command to its first turn, and where they go: the real job with the tiny policy and real vLLM.

Every run is a separate process. Its parts, one after the other:

- plan: the interpreter, the executor's start, settings, tokeniser and inputs, until the run is recorded
- engine: the actor and vLLM's engine process start, load the weights and warm up
- first_turn: from asking the engine to its last token
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import make_tasks, spread


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")
    parser.add_argument("--executor", choices=["local", "ray"], default="ray", help="(default: ray)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    runs = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(prefix="start-") as folder:  # short: Ray's sockets lie below it
            runs.append(_run(Path(folder), executor=arguments.executor))
    for part in runs[0]:
        what = {"executor": arguments.executor, "part": part, "runs": arguments.runs}
        yield {**what, **spread("seconds", [run[part] for run in runs], digits=2)}


def _run(folder: Path, *, executor: str) -> dict[str, float]:
    (task,) = make_tasks([512])
    (folder / "document.txt").write_text(task.document)
    command = [
        *(sys.executable, "-m", "memagent_batch", "answer", "--config", "tiny", "--executor", executor),
        *("--log-format", "json", "--output", str(folder / "run")),
        *("--documents", str(folder / "document.txt"), "--ask", task.question),
    ]
    began = time.time()
    environment = os.environ | {"RAY_TMPDIR": str(folder)}
    job = subprocess.run(command, capture_output=True, text=True, check=True, env=environment)
    lines = [json.loads(line) for line in job.stderr.splitlines() if line.startswith("{")]
    planned = next(datetime.fromisoformat(line["time"]) for line in lines if line["event"] == "run_started").timestamp()
    (turn, *_) = pq.read_table(folder / "run" / "log" / "turns").sort_by("finished_at").to_pylist()
    answered = turn["finished_at"].timestamp()
    asked = answered - turn["engine_seconds"]
    return {
        "total": answered - began,
        "plan": planned - began,
        "engine": asked - planned,
        "first_turn": answered - asked,
    }
