"""A collection of files as one document: facts that only two files together give, and where the evidence finds them.

Each file has some pages, each page is a row, and all rows are one document, as docs/how-to/collections.md makes them of
converted files. A question names a key whose value is said, in another file, to be that of a second key. The real job
with real vLLM reads the whole for every question. A line for each question has its answer and what its evidence cites;
the last line has the sums. With `--output` a run that was killed goes on where it was.

A small one first: --documents 20 --questions 4
"""

import argparse
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import yaml

from benchmarks.tiny_job import CONFIG
from memagent_batch.domain.scoring.intervals import wilson
from memagent_batch.domain.scoring.scores import Metric, score
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import Story, StoryKind, make_story
from memagent_batch.evaluation.needles.tasks import Haystack, haystack_units
from memagent_batch.runs.tables.table_files import table_files
from memagent_batch.wiring import TINY_MODEL

FILE_TOKENS = 1430
"""Tokens of a file: 700 of them have a million."""
PAGE_TOKENS = 300
"""Tokens of a page, about: three fit a chunk of the shipped policy."""
CASE = "case"
LOCATOR = "{file}, page {page}"
INPUT = {"document_id_column": "case_id", "order_columns": ["file", "page"], "locator": LOCATOR}

POLICY = {"break_at": "rows", "overlap_tokens": 0}
"""No border cuts a page, so that nothing needs to be shown twice."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question about the whole collection."""

    question: str
    """The question."""
    reference: str
    """The right answer."""
    places: tuple[str, ...]
    """Locators of the sentences that give it together."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Collection:
    """The rows of all files, and what is asked of them."""

    rows: list[dict[str, Any]]
    """Rows: case_id, file, page, text."""
    asked: list[Asked]
    """Questions, each with a text of its own."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--documents", type=int, default=700, help="files of the collection (default: 700)")
    parser.add_argument("--tokens", type=int, help="of the collection (default: 1,430 a file; 700 have a million)")
    parser.add_argument("--questions", type=int, default=20, help="asked of the whole (default: 20)")
    parser.add_argument("--model", default="tiny", help="model (default: tiny)")
    parser.add_argument("--policy", default="parallel", help="policy.kind (default: parallel)")
    parser.add_argument("--config", type=Path, default=CONFIG, help="job file of the model (default: tiny.yaml)")
    parser.add_argument("--knobs", default="", help="further knobs of the job, such as '--policy.rounds 2'")
    parser.add_argument("--output", type=Path, help="folder of collection and run, kept (default: none is)")
    parser.add_argument("--seed", type=int, default=0, help="of the collection (default: 0)")


def measure(arguments: argparse.Namespace) -> Iterator[dict[str, Any]]:
    tokenizer = load_tokenizer(str(TINY_MODEL))
    collection = make_collection(
        documents=arguments.documents,
        num_tokens=arguments.tokens or FILE_TOKENS * arguments.documents,
        questions=arguments.questions,
        seed=arguments.seed,
        length_of=lambda text: len(tokenizer.encode(text)),
    )
    with tempfile.TemporaryDirectory() as folder:
        place = arguments.output or Path(folder)
        began = time.monotonic()
        _run(place, collection, arguments)
        seconds = time.monotonic() - began
        tables = [_table(place / "run", name) for name in ("answers", "evidence")]
    *lines, sums = figures(collection.asked, *tables)
    yield from lines
    shown = {name: getattr(arguments, name) for name in ("model", "policy", "documents")}
    yield {**shown, "pages": len(collection.rows), **sums, "seconds": round(seconds, 1)}


def make_collection(
    *, documents: int, num_tokens: int, questions: int, seed: int, length_of: Callable[[str], int]
) -> Collection:
    """Files of running text with the facts hidden in them, each sentence in another file than the one it goes with.

    Args:
        documents: Files; at least two.
        num_tokens: Length of all of them, about.
        questions: Questions.
        seed: Source of every choice.
        length_of: Measures a text.
    """
    rng = random.Random(seed)
    num_pages = max(1, round(num_tokens / documents / PAGE_TOKENS))
    units = haystack_units(rng, haystack=Haystack.RUNNING, split=Split.HELD_OUT)
    page_tokens = num_tokens / documents / num_pages
    pages = {
        (f"{number:04d}.pdf", page): _units(units, num_tokens=page_tokens, length_of=length_of)
        for number in range(1, documents + 1)
        for page in range(1, num_pages + 1)
    }
    asked = []
    for story in _stories(rng, questions):
        asked.append(
            Asked(
                question=story.question,
                reference=story.values[-1],
                places=tuple(_hide(rng, pages, story.statements)),
            )
        )
        _hide(rng, pages, story.rivals)
    rows = [
        {"case_id": CASE, "file": file, "page": page, "text": "".join(units).strip()}
        for (file, page), units in pages.items()
    ]
    return Collection(rows=rows, asked=asked)


def figures(
    asked: Sequence[Asked], answers: Sequence[Mapping[str, Any]], evidence: Sequence[Mapping[str, Any]]
) -> Iterator[dict[str, Any]]:
    """A line for each question, and one with the sums.

    Args:
        asked: The questions.
        answers: Rows of the table `answers`.
        evidence: Rows of the table `evidence`.
    """
    rows = {row["question"]: row for row in answers}
    lines = [_figures_of(each, rows[each.question], evidence) for each in asked]
    yield from lines
    right, cited = sum(line["right"] for line in lines), sum(len(line["cited"]) for line in lines)
    interval = wilson(right, len(lines))
    yield {
        "document_tokens": max((row["num_document_tokens"] or 0 for row in answers), default=0),
        "chunks": max((row["num_chunks"] or 0 for row in answers), default=0),
        "questions": len(lines),
        "right": right,
        "low": round(interval.low, 4),
        "high": round(interval.high, 4),
        "failed": sum(row["status"] != "ok" for row in answers),
        "with_both_places_cited": sum(line["places_cited"] == len(line["places"]) for line in lines),
        "with_one_place_cited": sum(line["places_cited"] >= 1 for line in lines),
        "citations": cited,
        "citations_right": sum(line["citations_right"] for line in lines),
        "turns": sum(row["num_turns"] for row in answers),
        "prompt_tokens": sum(row["num_prompt_tokens"] for row in answers),
    }


def _figures_of(asked: Asked, row: Mapping[str, Any], evidence: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """What came of one question; an answer is right where it equals the value, both normalised."""
    cited = [
        each["locator"]
        for each in evidence
        if each["how"] == "chosen" and each["question_id"] == row["question_id"] and each["locator"] is not None
    ]
    return {
        "question": asked.question,
        "reference": asked.reference,
        "answer": row["answer"],
        "right": score(Metric.EM, row["answer"], [asked.reference]) == 1,
        "places": list(asked.places),
        "cited": cited,
        "places_cited": len(set(asked.places) & set(cited)),
        "citations_right": sum(place in asked.places for place in cited),
    }


def _stories(rng: random.Random, number: int) -> Iterator[Story]:
    """Stories of two statements, no two of them about the same keys."""
    keys: set[str] = set()
    while number:
        story = make_story(rng, StoryKind.LINKED, split=Split.HELD_OUT)
        if len(story.statements) == 2 and keys.isdisjoint(story.keys):
            keys.update(story.keys)
            number -= 1
            yield story


def _units(units: Iterator[str], *, num_tokens: float, length_of: Callable[[str], int]) -> list[str]:
    """As many pieces of text as a page has room for."""
    taken: list[str] = []
    length = 0
    while length < num_tokens:
        taken.append(next(units))
        length += length_of(taken[-1])
    return taken


def _hide(rng: random.Random, pages: dict[tuple[str, int], list[str]], sentences: Sequence[str]) -> list[str]:
    """Puts each sentence into a file of its own; returns their locators."""
    files = rng.sample(sorted({file for file, _ in pages}), len(sentences))
    places = []
    for file, sentence in zip(files, sentences, strict=True):
        page = rng.choice([number for name, number in pages if name == file])
        units = pages[file, page]
        units.insert(rng.randrange(1, len(units) + 1), f" {sentence}")
        places.append(LOCATOR.format(file=file, page=page))
    return places


def _run(place: Path, collection: Collection, arguments: argparse.Namespace) -> None:
    """The command over the collection."""
    place.mkdir(parents=True, exist_ok=True)
    pq.write_table(pa.Table.from_pylist(collection.rows), place / "rows.parquet")
    pq.write_table(
        pa.Table.from_pylist([{"question": each.question} for each in collection.asked]), place / "q.parquet"
    )
    base: dict[str, Any] = yaml.safe_load(arguments.config.read_text())
    job = {
        **base,
        "model": arguments.model,
        "documents": str(place / "rows.parquet"),
        "questions": str(place / "q.parquet"),
        "output": str(place / "run"),
        "input": INPUT,
        "policy": {**base.get("policy", {}), **POLICY, "kind": arguments.policy},
        "closing": {"evidence": True},
    }
    (place / "job.yaml").write_text(yaml.safe_dump(job))
    command = [
        sys.executable,
        "-m",
        "memagent_batch.cli.answer",
        "--config",
        str(place / "job.yaml"),
        *arguments.knobs.split(),
    ]
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)


def _table(output: Path, name: str) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = pa.concat_tables(map(pq.read_table, table_files(str(output), name))).to_pylist()
    return rows
