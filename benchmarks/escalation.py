"""A cheap reader for all documents, a better one for the doubtful answers: cost and right answers of each, and of both.

The real job with real vLLM and the shipped policy over needle documents that are longer than the window. `cheap` is one
prompt (`--cheap`, by default `truncate`), `better` the policy `--better`, `both` the cheap one whose answers "not
stated" the better one gives again. The shipped policy was taught to box these words where it finds nothing, and was not
taught closing turns, so that values, support and confidence say nothing here.
"""

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq

from benchmarks.needle_corpus import make_tasks, write_corpus
from memagent_batch.domain.scores import Metric, score
from memagent_batch.evaluation.needles.tasks import NeedleTask

CONFIG = Path(__file__).parent.parent / "jobs" / "configs" / "tiny.yaml"
NOT_STATED = "not stated"
"""What the shipped policy answers where it has found nothing."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100, help="documents (default: 100)")
    parser.add_argument("--tokens", type=int, default=8_000, help="tokens of a document, at least (default: 8,000)")
    parser.add_argument("--cheap", default="truncate", help="policy of the first reader (default: truncate)")
    parser.add_argument("--better", default="overwrite", help="policy of the second reader (default: overwrite)")
    parser.add_argument("--knobs", default="", help="further knobs of the job, such as '--pool.readings-in-flight 8'")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    tasks = make_tasks(arguments.documents, num_tokens=arguments.tokens)
    again = {"policy": {"kind": arguments.better}}
    escalate = ["--escalate.when", "answer", "--escalate.answers", NOT_STATED, "--escalate.to", json.dumps(again)]
    ways = {
        "cheap": ["--policy.kind", arguments.cheap],
        "better": ["--policy.kind", arguments.better],
        "both": ["--policy.kind", arguments.cheap, *escalate],
    }
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), tasks)
        for way, knobs in ways.items():
            seconds = _run(Path(folder), way, knobs=[*knobs, *arguments.knobs.split()])
            yield {"way": way, **_figures(Path(folder, way), tasks), "seconds_of_the_run": round(seconds, 1)}


def _run(folder: Path, way: str, *, knobs: Sequence[str]) -> float:
    """Seconds of the whole command."""
    command = [
        *(sys.executable, "-m", "jobs.answer", "--config", str(CONFIG), "--output", str(folder / way)),
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.parquet"), *knobs),
    ]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=sys.stderr)
    return time.monotonic() - began


def _figures(output: Path, tasks: Sequence[NeedleTask]) -> dict[str, Any]:
    """Right answers and cost of a run; a row of `answers` has the cost of both readers."""
    rows = pq.read_table(output / "answers").to_pylist()
    answers = {f"d{number}": task.answer for number, task in enumerate(tasks)}
    right = {row["document_id"]: score(Metric.ALL, row["answer"], [answers[row["document_id"]]]) == 1 for row in rows}
    second = [row["document_id"] for row in rows if row["tier"] == 2]
    return {
        "documents": len(rows),
        "right": sum(right.values()),
        "failed": sum(row["status"] == "failed" for row in rows),
        "escalated": len([row for row in rows if row["escalated_because"]]),
        "right_of_escalated": sum(right[name] for name in second),
        "turns": sum(row["num_turns"] for row in rows),
        "prompt_tokens": sum(row["num_prompt_tokens"] for row in rows),
        "completion_tokens": sum(row["num_completion_tokens"] for row in rows),
        "engine_seconds": round(sum(row["engine_seconds"] for row in rows), 2),
    }
