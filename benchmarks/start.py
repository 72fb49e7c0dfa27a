"""Seconds from the command to its first turn, and where they go: the real job with the tiny policy and real vLLM.

Every run is a separate process, with its own Ray. Its parts, one after the other:

- import: the interpreter, and everything that the driver imports
- ray: Ray's start on this machine
- plan: settings, tokeniser and inputs, until the run is recorded
- processes: the actor and vLLM's engine process start and import vLLM; all but what the next two count
- model: vLLM builds the model and loads the weights (its own log lines)
- warm_up: vLLM makes the KV cache and warms up (its own log lines)
- first_turn: from asking the engine to its last token
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.harness import TINY_JOB, make_tasks, spread, write_tasks

_CHILD = (
    "import json, sys, time\n"
    "import memagent_batch.cli.answer, memagent_batch.cli.main, memagent_batch.flows.answer\n"
    "from memagent_batch.executors.ray.session import ray_session\n"
    "imported, stdout = time.time(), sys.stdout\n"
    "with ray_session():\n"
    "    sys.stdout = stdout  # the session keeps it for the command, which is in it here\n"
    "    print(json.dumps({'imported': imported, 'ray': time.time()}), flush=True)\n"
    "    sys.exit(memagent_batch.cli.main.main(['answer', *sys.argv[1:]]))\n"
)
"""The command, with Ray started before it, so that its start is measured apart from the plan."""
PARTS = ("import", "ray", "plan", "processes", "model", "warm_up", "first_turn")
MODEL_LINE = re.compile(r"(?:Initializing model|Loading weights) took ([\d.]+) seconds")
WARM_UP_LINE = re.compile(r"init engine .* took ([\d.]+) s")
"""What vLLM 0.32 logs of its start."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--runs", type=int, default=3, help="runs of each (default: 3)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    runs = []
    for _ in range(arguments.runs):
        with tempfile.TemporaryDirectory(prefix="start-") as folder:  # short: Ray's sockets lie below it
            runs.append(_run(Path(folder)))
    for part in ("total", *PARTS):
        seconds = [sum(run.values()) if part == "total" else run[part] for run in runs]
        yield {"part": part, "runs": arguments.runs, **spread("seconds", seconds, digits=2)}


def _run(folder: Path) -> dict[str, float]:
    """Seconds of each part of one run."""
    write_tasks(folder, make_tasks([512]))
    arguments = [
        *("--config", str(TINY_JOB), "--log-format", "json", "--output", str(folder / "run")),
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.parquet")),
    ]
    began = time.time()
    job = subprocess.run(
        [sys.executable, "-c", _CHILD, *arguments],
        capture_output=True,
        text=True,
        check=True,
        env=os.environ | {"RAY_TMPDIR": str(folder)},
    )
    marks = json.loads(job.stdout.splitlines()[0])
    planned = _time_of("run_started", job.stderr)
    began_turn, answered = _first_turn(folder / "run")
    log = "\n".join(path.read_text(errors="replace") for path in folder.glob("ray/session_2*/logs/worker-*"))
    model = sum(float(seconds) for seconds in MODEL_LINE.findall(log))
    warm_up = sum(float(seconds) for seconds in WARM_UP_LINE.findall(log))
    if not model or not warm_up:
        raise RuntimeError("vLLM's log lines about its start were not found in the logs of Ray's workers")
    return {
        "import": marks["imported"] - began,
        "ray": marks["ray"] - marks["imported"],
        "plan": planned - marks["ray"],
        "processes": began_turn - planned - model - warm_up,
        "model": model,
        "warm_up": warm_up,
        "first_turn": answered - began_turn,
    }


def _time_of(event: str, lines: str) -> float:
    """When the run logged the event, seconds since 1970."""
    records = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return next(datetime.fromisoformat(line["time"]).timestamp() for line in records if line["event"] == event)


def _first_turn(output: Path) -> tuple[float, float]:
    """Start and end of the run's first turn, seconds since 1970."""
    rows = pq.read_table(output / "log" / "turns", columns=["finished_at", "engine_seconds"]).to_pylist()
    first = min(rows, key=lambda row: row["finished_at"])
    answered = first["finished_at"].timestamp()
    return answered - first["engine_seconds"], answered
