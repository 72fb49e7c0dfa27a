"""Right answers of every policy on every task, at lengths that are multiples of the window, with intervals.

`memagent evaluate make` writes the suite and `memagent evaluate run` reads it: the real job with real vLLM, the shipped
policy unless `--knobs` names another model. Killed and started again, it goes on where it was. Further lines compare
each policy with the first one over the same documents (exact sign test, both sides, and corrected for the number of
tasks and policies). `table.md` in the output has the scores as a table.

A small one first: --samples 4 --times 1 4 --tasks niah_single_2 pair --policies overwrite retrieve
"""

import argparse
import subprocess
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.tiny_job import CONFIG
from memagent_batch.evaluation.comparison import compare
from memagent_batch.evaluation.scoring import summarise

POLICIES: dict[str, dict[str, Any]] = {
    "overwrite": {"kind": "overwrite"},
    "gated": {"kind": "gated"},
    "parallel-1": {"kind": "parallel", "rounds": 1},
    "parallel-2": {"kind": "parallel", "rounds": 2},
    "parallel-3": {"kind": "parallel", "rounds": 3},
    "retrieve": {"kind": "retrieve"},
    "truncate": {"kind": "truncate"},
}
"""Policies with their knobs."""
TIMES = (1, 4, 16, 64)
"""Lengths of documents, windows."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--output", type=Path, required=True, help="folder of suite and evaluation; kept")
    parser.add_argument("--samples", type=int, default=100, help="documents of each task and length (default: 100)")
    parser.add_argument(
        "--times", type=int, nargs="+", default=list(TIMES), help="lengths, windows (default: 1 4 16 64)"
    )
    parser.add_argument("--tasks", nargs="+", default=["all"], help="names of tasks, or all (default)")
    parser.add_argument("--policies", nargs="+", choices=POLICIES, default=list(POLICIES), help="default: all")
    parser.add_argument("--config", type=Path, default=CONFIG, help="job file of the model (default: tiny.yaml)")
    parser.add_argument("--knobs", default="", help="further knobs of the job, such as '--vllm.max-num-seqs 64'")
    parser.add_argument("--seed", type=int, default=0, help="of the suite (default: 0)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    settings = yaml.safe_load(arguments.config.read_text())
    window, output = settings["window_tokens"], arguments.output
    _make(arguments, window=window, model=settings["model"])
    _read(arguments)
    places = [output / "evaluation" / "scores" / f"{name}.parquet" for name in arguments.policies]
    scores = pa.concat_tables([pq.read_table(place) for place in places])
    lines = list(figures(scores, window=window))
    (output / "table.md").write_text(table([line for line in lines if "score" in line]))
    yield from lines


def figures(scores: pa.Table, *, window: int) -> Iterator[dict[str, Any]]:
    """One line for each policy, task and length of a table of `SCORES`, then each further policy against the first."""
    for cell in summarise(scores):
        yield {
            "policy": cell.variant,
            "task": cell.task,
            "windows": round((cell.length_tokens or 0) / window),
            "length_tokens": cell.length_tokens,
            "n": cell.n,
            "score": round(cell.score, 4),
            "low": round(cell.low, 4),
            "high": round(cell.high, 4),
            "failed": cell.num_failed,
            "turns": round(cell.mean_turns or 0, 1),
            "prompt_tokens": round(cell.mean_prompt_tokens or 0),
            "engine_seconds": round(cell.mean_engine_seconds or 0, 2),
        }
    for each in compare(scores):
        yield {
            "policy": each.variant,
            "against": each.base,
            "task": each.task,
            "better": each.documents.num_better,
            "worse": each.documents.num_worse,
            "p": round(each.documents.p, 4),
            "p_corrected": round(each.p_corrected, 4),
        }


def table(lines: Sequence[Mapping[str, Any]]) -> str:
    """The scores in Markdown: a row for each task and length, a column for each policy."""
    policies = list(dict.fromkeys(line["policy"] for line in lines))
    cells = {(line["task"], line["windows"], line["policy"]): line for line in lines}
    rows = [
        ["task", "windows", *policies],
        ["---", "--:", *["--:"] * len(policies)],
        *(
            [task, str(windows), *(_cell_text(cells.get((task, windows, policy))) for policy in policies)]
            for task, windows in dict.fromkeys((line["task"], line["windows"]) for line in lines)
        ),
    ]
    return "".join(f"| {' | '.join(row)} |\n" for row in rows)


def _make(arguments: argparse.Namespace, *, window: int, model: str) -> None:
    lengths = [str(window * times) for times in arguments.times]
    _command(
        *("make", "--output", str(arguments.output / "suite"), "--model", model, "--seed", str(arguments.seed)),
        *("--samples", str(arguments.samples), "--lengths", *lengths, "--tasks", *arguments.tasks),
    )


def _read(arguments: argparse.Namespace) -> None:
    variants = arguments.output / "variants.yaml"
    variants.write_text(yaml.safe_dump({name: {"policy": POLICIES[name]} for name in arguments.policies}))
    _command(
        *("run", "--suite", str(arguments.output / "suite"), "--output", str(arguments.output / "evaluation")),
        *("--config", str(arguments.config), "--variants", str(variants), *arguments.knobs.split()),
    )


def _command(name: str, *arguments: str) -> None:
    """Runs a command of `memagent evaluate`; its messages go where those of this program go, and no figures."""
    subprocess.run([sys.executable, "-m", f"jobs.evaluate.{name}", *arguments], check=True, stdout=sys.stderr)


def _cell_text(line: Mapping[str, Any] | None) -> str:
    return "" if line is None else f"{line['score']:.2f} ({line['low']:.2f}-{line['high']:.2f})"
