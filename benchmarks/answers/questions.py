"""Many questions over one document: prompt tokens that vLLM computes for each, in several ways of asking.

The real job with real vLLM and the shipped policy: documents of one length, with 1, 4 and 16 questions. `published`
is the policy `overwrite` with the default prompt set, `section-first` the same with that prompt set, the other ways are
the policies of their names. Each question's fact stands in the document, so the answers are scored as well. With
`--one-by-one`, each way also reads the questions one after another without a prefix cache, and the lines show how many
answers are the same.
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.tiny_job import CONFIG
from memagent_batch.domain.scoring.scores import Metric, score
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.tasks import Haystack, make_task
from memagent_batch.wiring import TINY_MODEL

WAYS = {
    "published": (),
    "section-first": ("--prompt-set", "section-first"),
    "gated": ("--policy.kind", "gated"),
    "parallel": ("--policy.kind", "parallel"),
    "shared": ("--policy.kind", "shared"),
    "shared-parallel": ("--policy.kind", "shared-parallel"),
}
"""The knobs of each way."""
ALONE = ("--pool.readings-in-flight", "1", "--vllm.engine-args", '{"enable_prefix_caching": false}')
"""Knobs of a run in which no reading sees another."""
LIST_TOKENS = 512
"""Room for the longest question list; the same in all ways."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--questions", type=int, nargs="+", default=[1, 4, 16], help="of a document (default: 1 4 16)")
    parser.add_argument("--tokens", type=int, default=12_000, help="tokens of a document, at least (default: 12,000)")
    parser.add_argument("--ways", nargs="+", choices=WAYS, default=list(WAYS), help="ways of asking (default: all)")
    parser.add_argument("--one-by-one", action="store_true", help="also read the questions one after another")
    parser.add_argument("--runs", type=int, default=1, help="runs, each with documents of its own (default: 1)")
    parser.add_argument("--knobs", default="", help="further knobs of the job, such as '--pool.readings-in-flight 8'")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for run in range(arguments.runs):
        with tempfile.TemporaryDirectory() as folder:
            for line in _measure_once(Path(folder), arguments, run=run):
                yield {"run": run, **line}


def _measure_once(folder: Path, arguments: argparse.Namespace, *, run: int) -> Iterator[dict[str, Any]]:
    """All ways, over the same documents."""
    references = _corpus(folder, arguments.questions, num_tokens=arguments.tokens, run=run)
    knobs = arguments.knobs.split()
    for way in arguments.ways:
        alone: dict[tuple[str, str], str | None] | None = None
        if arguments.one_by_one:
            _run(folder, way, output=f"{way}-alone", knobs=[*knobs, *ALONE])
            rows = pq.read_table(folder / f"{way}-alone" / "answers").to_pylist()
            alone = {(row["document_id"], row["question"]): row["answer"] for row in rows}
        seconds = _run(folder, way, output=way, knobs=knobs)
        rows = pq.read_table(folder / way / "answers").to_pylist()
        yield from _figures(way, rows, references=references, alone=alone, seconds=seconds)


def _corpus(folder: Path, numbers: Sequence[int], *, num_tokens: int, run: int) -> dict[tuple[str, str], str]:
    """Writes a document for each number of questions, and returns the reference answers."""
    rng = random.Random(num_tokens + run)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    documents: list[dict[str, str]] = []
    questions: list[dict[str, str]] = []
    for number in numbers:
        tasks = [
            make_task(
                rng,
                length=num_tokens // max(numbers),
                length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
                haystack=Haystack.RUNNING,
            )
            for _ in range(max(numbers))
        ]
        documents.append({"document_id": f"d{number}", "text": "\n".join(task.document for task in tasks)})
        questions += [
            {"document_id": f"d{number}", "question": task.question, "references": task.answer}
            for task in tasks[:number]
        ]
    pq.write_table(pa.Table.from_pylist(documents), folder / "documents.parquet")
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")
    return {(row["document_id"], row["question"]): row["references"] for row in questions}


def _run(folder: Path, way: str, *, output: str, knobs: Sequence[str]) -> float:
    """Seconds of the whole command."""
    command = [
        *(sys.executable, "-m", "jobs.answer", "--config", str(CONFIG), "--output", str(folder / output)),
        *("--documents", str(folder / "documents.parquet"), "--questions", str(folder / "questions.parquet")),
        *("--policy.question-tokens", str(LIST_TOKENS), *WAYS[way], *knobs),
    ]
    began = time.monotonic()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.monotonic() - began


def _figures(
    way: str,
    rows: Sequence[dict[str, Any]],
    *,
    references: dict[tuple[str, str], str],
    alone: dict[tuple[str, str], str | None] | None,
    seconds: float,
) -> Iterator[dict[str, Any]]:
    """One line for each document of a run."""
    for document_id in dict.fromkeys(row["document_id"] for row in rows):
        own = [row for row in rows if row["document_id"] == document_id]
        prompt, cached = (sum(row[name] for row in own) for name in ("num_prompt_tokens", "num_cached_prompt_tokens"))
        same = alone and sum(row["answer"] == alone[document_id, row["question"]] for row in own)
        yield {
            "way": way,
            "questions": len(own),
            "document_tokens": own[0]["num_document_tokens"],
            "turns": sum(row["num_turns"] for row in own),
            "prompt_tokens": prompt,
            "cached_prompt_tokens": cached,
            "computed_per_question": round((prompt - cached) / len(own)),
            "computed_per_question_and_document_token": round(
                (prompt - cached) / len(own) / own[0]["num_document_tokens"], 4
            ),
            "computed_share": round((prompt - cached) / prompt, 4),
            "failed": sum(row["status"] == "failed" for row in own),
            "right": sum(
                score(Metric.RULER_ALL, row["answer"], [references[document_id, row["question"]]]) == 1 for row in own
            ),
            "same_answers_one_by_one": same,
            "memory_truncations": sum(row["memory_truncations"] for row in own),
            "seconds_of_the_run": round(seconds, 1),
        }
