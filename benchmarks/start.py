"""Seconds from the command to its first turn, and where they go: the real job with the tiny policy and real vLLM.

Every run is a process of its own, with a Ray of its own. Its parts, one after the other:

- import: the interpreter, and everything that the driver imports
- ray: Ray's start on this machine
- plan: settings, tokeniser and inputs, until the run is recorded
- processes: the actor and vLLM's engine process start and import vLLM; all that the next two do not say
- model: vLLM builds the model and loads the weights (its own log lines)
- warm_up: vLLM makes the KV cache and warms up (its own log lines)
- first_turn: from asking the engine to its last token

With --messages: seconds from a command to its first message and to its end, for runs that are refused.
"""

import argparse
import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from datetime import datetime
from pathlib import Path

import pyarrow.parquet as pq

from benchmarks.needle_corpus import make_tasks, write_corpus

CONFIG = Path(__file__).parent.parent / "jobs" / "configs" / "tiny.yaml"

_CHILD = (
    "import json, sys, time\n"
    "import jobs.answer, pipelines.answer\n"
    "from memagent_batch.ray_data.session import ray_session\n"
    "imported = time.time()\n"
    "with ray_session():\n"
    "    print(json.dumps({'imported': imported, 'ray': time.time()}), flush=True)\n"
    "    sys.exit(jobs.answer.main(sys.argv[1:]))\n"
)
"""The command, with Ray started before it, so that its start can be told from the plan."""

REFUSED = {
    "knob": ["--window-tokens", "wide"],
    "path": ["--documents", "absent"],
    "column": ["--input.text-column", "body"],
    "model": ["--model", "/absent"],
}
"""Mistakes, with what is added to the command for each."""

PARTS = ("import", "ray", "plan", "processes", "model", "warm_up", "first_turn")

MODEL_LINE = re.compile(r"(?:Initializing model|Loading weights) took ([\d.]+) seconds")
WARM_UP_LINE = re.compile(r"init engine .* took ([\d.]+) s")
"""What vLLM 0.32 says of its start."""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--runs", type=int, default=3, help="runs (default: 3)")
    options.add_argument("--json", action="store_true", help="JSON lines only")
    options.add_argument("--messages", action="store_true", help="the first message, and runs that are refused")
    options.add_argument("--checkout", type=Path, default=Path(__file__).parent.parent, help="whose messages")
    known = options.parse_args()
    if known.messages:
        _tell_messages(runs=known.runs, checkout=known.checkout)
        return
    runs = []
    for _ in range(known.runs):
        with tempfile.TemporaryDirectory(prefix="start-") as folder:  # short: Ray's sockets lie below it
            runs.append(_run(Path(folder)))
    for part in ("total", *PARTS):
        seconds = [sum(run.values()) if part == "total" else run[part] for run in runs]
        figures = {
            "benchmark": "start",
            "part": part,
            "runs": known.runs,
            "seconds_median": round(statistics.median(seconds), 2),
            "seconds_range": [round(min(seconds), 2), round(max(seconds), 2)],
        }
        print(json.dumps(figures), flush=True)
    if not known.json:
        total = statistics.median(sum(run.values()) for run in runs)
        print(f"from the command to the end of its first turn: {total:.1f} s")


def _tell_messages(*, runs: int, checkout: Path) -> None:
    """Prints a line for each kind of refused run."""
    with tempfile.TemporaryDirectory(prefix="start-") as name:
        folder = Path(name)
        (folder / "rows.jsonl").write_text(json.dumps({"document_id": "a", "text": "a text"}))
        for refused, arguments in REFUSED.items():
            given = ["--ask", "Who?", "--output", "run", "--documents", "rows.jsonl", *arguments]
            seconds = [_refused(given, folder=folder, checkout=checkout) for _ in range(runs)]
            figures = {"benchmark": "start_messages", "refused": refused, "runs": runs}
            for moment, values in zip(("first_message", "end"), zip(*seconds, strict=True), strict=True):
                figures[f"{moment}_seconds_median"] = round(statistics.median(values), 2)
                figures[f"{moment}_seconds_range"] = [round(min(values), 2), round(max(values), 2)]
            print(json.dumps(figures), flush=True)


def _refused(arguments: list[str], *, folder: Path, checkout: Path) -> tuple[float, float]:
    """Seconds from the command to its first message, and to its end."""
    began = time.monotonic()
    with subprocess.Popen(
        [sys.executable, "-m", "jobs.cli", "answer", *arguments],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        cwd=folder,
        env=os.environ | {"PYTHONPATH": str(checkout.resolve()), "RAY_TMPDIR": str(folder)},
    ) as job:
        if job.stderr is None or not job.stderr.read(1):
            raise RuntimeError("the command said nothing")
        said = time.monotonic() - began
        job.stderr.read()
    return said, time.monotonic() - began


def _run(folder: Path) -> dict[str, float]:
    """Seconds of each part of one run."""
    write_corpus(folder, make_tasks(1, num_tokens=512))
    arguments = [
        *("--config", str(CONFIG), "--log-format", "json", "--output", str(folder / "run")),
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
    asked, answered = _first_turn(folder / "run")
    log = "\n".join(path.read_text(errors="replace") for path in folder.glob("ray/session_2*/logs/worker-*"))
    model = sum(float(seconds) for seconds in MODEL_LINE.findall(log))
    warm_up = sum(float(seconds) for seconds in WARM_UP_LINE.findall(log))
    if not model or not warm_up:
        raise RuntimeError("vLLM's log lines about its start were not found in the logs of Ray's workers")
    return {
        "import": marks["imported"] - began,
        "ray": marks["ray"] - marks["imported"],
        "plan": planned - marks["ray"],
        "processes": asked - planned - model - warm_up,
        "model": model,
        "warm_up": warm_up,
        "first_turn": answered - asked,
    }


def _time_of(event: str, lines: str) -> float:
    """When the run told the event, seconds since 1970."""
    told = [json.loads(line) for line in lines.splitlines() if line.startswith("{")]
    return next(datetime.fromisoformat(line["time"]).timestamp() for line in told if line["event"] == event)


def _first_turn(output: Path) -> tuple[float, float]:
    """When the run's first turn was asked and answered, seconds since 1970."""
    rows = pq.read_table(output / "log" / "turns", columns=["finished_at", "engine_seconds"]).to_pylist()
    first = min(rows, key=lambda row: row["finished_at"])
    answered = first["finished_at"].timestamp()
    return answered - first["engine_seconds"], answered


if __name__ == "__main__":
    main()
