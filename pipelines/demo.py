"""The corpus of `make demo`: needle documents of 2 K to 200 K tokens with a question each, and its score."""

import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.tasks import Haystack, NeedleTask, make_task
from memagent_batch.wiring import TINY_MODEL

NUM_DOCUMENTS = 24
NUM_SHARDS = 4
SHORTEST_TOKENS = 2_000
LONGEST_TOKENS = 200_000
NUM_DISTRACTORS = 3
"""Other needles in each document: four keys in all, as in RULER's first multi-key task."""
SEED = 20_260_101


def make_corpus(folder: Path, *, seed: int = SEED) -> None:
    """Writes `documents/*.parquet` and `questions.parquet`: words, keys and texts that the policy was not trained on.

    Lengths grow geometrically; every shard has short and long documents.
    """
    tasks = list(_tasks(seed))
    (folder / "documents").mkdir(parents=True)
    for shard in range(NUM_SHARDS):
        rows = [
            {"document_id": _document_id(number), "text": task.document}
            for number, task in enumerate(tasks)
            if number % NUM_SHARDS == shard
        ]
        pq.write_table(pa.Table.from_pylist(rows), folder / "documents" / f"shard-{shard}.parquet")
    questions = [
        {
            "question_id": f"q-{number:02d}",
            "document_id": _document_id(number),
            "question": task.question,
            "references": [task.answer],
        }
        for number, task in enumerate(tasks)
    ]
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")


def score(folder: Path) -> list[dict[str, Any]]:
    """The rows of `answers` in order of length, with `references` and whether the answer is right."""
    questions = pq.read_table(folder / "questions.parquet").to_pylist()
    references = {(row["document_id"], row["question_id"]): row["references"] for row in questions}
    rows = pq.read_table(folder / "run" / "answers").to_pylist()
    for row in rows:
        row["references"] = references[(row["document_id"], row["question_id"])]
        row["right"] = row["answer"] in row["references"]
    return sorted(rows, key=lambda row: row["num_document_tokens"] or 0)


def _tasks(seed: int) -> Iterator[NeedleTask]:
    rng = random.Random(seed)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    growth = (LONGEST_TOKENS / SHORTEST_TOKENS) ** (1 / (NUM_DOCUMENTS - 1))
    haystacks = list(Haystack)
    for number in range(NUM_DOCUMENTS):
        length = round(SHORTEST_TOKENS * growth**number)
        yield make_task(
            rng,
            length=length,
            length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
            haystack=haystacks[number % len(haystacks)],
            num_distractors=NUM_DISTRACTORS,
            split=Split.HELD_OUT,
        )


def _document_id(number: int) -> str:
    return f"document-{number:02d}"
