"""A cheap reader for all documents, a better one for the doubtful answers: cost and right answers of each, and of both.

The real job with real vLLM over needle documents that are longer than the window. `cheap` reads all documents with the
policy `--cheap`, `better` with `--better`, and `both` with the cheap one, whose doubtful answers the better one gives
again. What is doubtful is said by `--when`: by default a value that is not stated, and weak support by its sentences.
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

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.answers.needle_corpus import make_tasks, write_corpus
from benchmarks.tiny_job import CONFIG
from memagent_batch.domain.escalation import Doubt
from memagent_batch.domain.scoring.scores import Metric, score
from memagent_batch.evaluation.needles.tasks import NeedleTask

NOT_STATED = "not stated"
"""What the shipped policy answers where it has found nothing."""
DOUBTS = (Doubt.NOT_STATED.value, Doubt.WEAK_SUPPORT.value)
"""Reasons for a second look, unless others are asked for."""
OF_VALUES = {Doubt.INVALID, Doubt.NOT_STATED, Doubt.LOW_CONFIDENCE}
"""Reasons for which questions ask for a type."""
CONFIDENCE_BELOW = 0.5
"""Confidence below this is low, for `low_confidence`."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=100, help="documents (default: 100)")
    parser.add_argument("--tokens", type=int, default=8_000, help="tokens of a document, at least (default: 8,000)")
    parser.add_argument("--cheap", default="gated", help="policy of the first reader (default: gated)")
    parser.add_argument("--better", default="overwrite", help="policy of the second reader (default: overwrite)")
    reasons = [each.value for each in Doubt]
    parser.add_argument("--when", nargs="+", choices=reasons, default=DOUBTS, help=f"default: {' '.join(DOUBTS)}")
    parser.add_argument("--model", help="weights of both readers (default: those of --config)")
    parser.add_argument("--config", type=Path, default=CONFIG, help="job file of the model (default: tiny.yaml)")
    parser.add_argument("--knobs", default="", help="further knobs of the job, such as '--pool.readings-in-flight 8'")
    parser.add_argument("--seed", type=int, default=0, help="of the documents (default: 0)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    tasks = make_tasks(arguments.documents, num_tokens=arguments.tokens, seed=arguments.seed, near=True)
    ways = {
        "cheap": ["--policy.kind", arguments.cheap],
        "better": ["--policy.kind", arguments.better],
        "both": ["--policy.kind", arguments.cheap, *second_look(arguments)],
    }
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder), tasks)
        if OF_VALUES.intersection(arguments.when):
            _ask_for_numbers(Path(folder) / "questions.parquet", tasks)
        for way, knobs in ways.items():
            seconds = _run(Path(folder), way, arguments=arguments, knobs=knobs)
            yield {"way": way, **_figures(Path(folder, way), tasks), "seconds_of_the_run": round(seconds, 1)}


def second_look(arguments: argparse.Namespace) -> list[str]:
    """Knobs of the second reader."""
    knobs = ["--escalate.when", json.dumps(arguments.when)]
    knobs += ["--escalate.to", json.dumps({"policy": {"kind": arguments.better}})]
    if Doubt.ANSWER in arguments.when:
        knobs += ["--escalate.answers", NOT_STATED]
    if Doubt.LOW_CONFIDENCE in arguments.when:
        knobs += ["--escalate.confidence-below", str(CONFIDENCE_BELOW)]
    return knobs


def _ask_for_numbers(place: Path, tasks: Sequence[NeedleTask]) -> None:
    """Asks for a number where the answer is one; other questions stay free."""
    types = pa.array(["number" if task.answer.isdigit() else None for task in tasks], pa.string())
    pq.write_table(pq.read_table(place).append_column("answer_type", types), place)


def _run(folder: Path, way: str, *, arguments: argparse.Namespace, knobs: Sequence[str]) -> float:
    """Seconds of the whole command."""
    closing = ["--closing.evidence", "--closing.support"] if Doubt.WEAK_SUPPORT in arguments.when else []
    model = ["--model", arguments.model] if arguments.model else []
    command = [
        *(sys.executable, "-m", "jobs.answer", "--config", str(arguments.config), "--output", str(folder / way)),
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.parquet")),
        *(*model, *closing, *knobs, *arguments.knobs.split()),
    ]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=sys.stderr)
    return time.monotonic() - began


def _figures(output: Path, tasks: Sequence[NeedleTask]) -> dict[str, Any]:
    """Right answers and cost of a run; a row of `answers` has the cost of both readers."""
    rows = pq.read_table(output / "answers").to_pylist()
    answers = {f"d{number}": task.answer for number, task in enumerate(tasks)}
    right = {
        row["document_id"]: score(Metric.RULER_ALL, row["answer"], [answers[row["document_id"]]]) == 1 for row in rows
    }
    escalated = [row for row in rows if row["escalated_because"]]
    return {
        "documents": len(rows),
        "right": sum(right.values()),
        "failed": sum(row["status"] == "failed" for row in rows),
        "share_escalated": round(len(escalated) / len(rows), 4),
        "right_of_escalated": sum(right[row["document_id"]] for row in escalated),
        "turns": sum(row["num_turns"] for row in rows),
        "prompt_tokens": sum(row["num_prompt_tokens"] for row in rows),
        "completion_tokens": sum(row["num_completion_tokens"] for row in rows),
        "engine_seconds": round(sum(row["engine_seconds"] for row in rows), 2),
    }
