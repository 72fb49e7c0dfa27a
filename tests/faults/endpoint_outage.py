"""A job over many tiny documents whose endpoint goes away in the middle: time that the readings wait, and what is lost.

The real `memagent answer` with engine `openai` against an endpoint on loopback that answers at once. After half of the
requests that the job will send the endpoint goes away for a while: it refuses connections (or answers 503 with
`--how 503`). Prints counts, seconds and the exit code as one JSON line.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from tests.faults.corpus import make_corpus
from tests.faults.loopback.endpoint import MODEL, LoopbackEndpoint

TURNS = 2
"""Turns of each reading: one chunk, and the answer."""
POLL_SECONDS = 0.01
TOKENIZER = "tiny"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--readings", type=int, default=40_000, help="tiny documents, one reading each (40,000)")
    parser.add_argument("--down", type=float, default=300, help="seconds for which the endpoint is away (300)")
    parser.add_argument("--how", choices=["refused", "503"], default="refused", help="how it is away (refused)")
    parser.add_argument("--outage-seconds", type=float, default=1800, help="openai.outage_seconds (1800)")
    parser.add_argument("--replicas", type=int, default=1, help="pool.replicas (1)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options)
    print(json.dumps(figures))
    return int(figures["exit_code"])


def measure(folder: Path, options: argparse.Namespace) -> dict[str, Any]:
    """Runs the job once; the endpoint goes away after half of its requests."""
    corpus = make_corpus(folder, chunks=[1] * options.readings, chunk_tokens=64, memory_tokens=64)
    with LoopbackEndpoint(completion="a") as endpoint:
        command = [
            *(
                sys.executable,
                "-m",
                "memagent_batch.cli.answer",
                *corpus.arguments(),
                "--model",
                MODEL,
                "--tokenizer",
                TOKENIZER,
            ),
            *("--engine", "openai", "--openai.base-url", f"{endpoint.url}/v1", "--output", str(folder / "run")),
            *("--openai.outage-seconds", str(options.outage_seconds), "--pool.replicas", str(options.replicas)),
        ]
        began = time.monotonic()
        job = subprocess.Popen(command, stdout=subprocess.DEVNULL)
        while job.poll() is None and endpoint.num_completions < options.readings * TURNS // 2:
            time.sleep(POLL_SECONDS)
        if job.poll() is None:
            _leave(endpoint, options)
        exit_code = job.wait()
    return {
        "readings": options.readings,
        "how": options.how,
        "down_seconds": options.down,
        "outage_seconds": options.outage_seconds,
        "exit_code": exit_code,
        "seconds": round(time.monotonic() - began, 1),
        "served_requests": endpoint.num_completions,
        "refused_requests": endpoint.num_refused,
        "outcomes": _outcomes(folder / "run"),
        "counts": _counts(folder / "run"),
    }


def _leave(endpoint: LoopbackEndpoint, options: argparse.Namespace) -> None:
    if options.how == "refused":
        endpoint.refuse()
    else:
        endpoint.answer_503()
    time.sleep(options.down)
    endpoint.come_back()


def _outcomes(run: Path) -> dict[str, int]:
    """Readings in the log by status."""
    folder = run / "log" / "outcomes"
    if not folder.exists():
        return {}
    counts = pq.read_table(folder, columns=["status"])["status"].value_counts().to_pylist()
    return {row["values"]: row["counts"] for row in counts}


def _counts(run: Path) -> dict[str, Any]:
    """The manifest's counts; empty where the run was not closed."""
    manifest = run / "manifest.json"
    counts: dict[str, Any] = json.loads(manifest.read_text())["counts"] if manifest.exists() else {}
    return counts


if __name__ == "__main__":
    sys.exit(main())
