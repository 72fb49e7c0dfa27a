"""Needle documents of one length, with a question each: the corpus of the benchmarks that run a real engine."""

import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.document import Document
from memagent_batch.evaluation.needles import Haystack, NeedleTask, make_task
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.tokens.tokenizer import load_tokenizer
from memagent_batch.wiring import make_tokenizer


def make_tasks(num_documents: int, *, num_tokens: int, seed: int = 0, near: bool = False) -> list[NeedleTask]:
    """Documents of a little over `num_tokens` tokens of the tiny policy's tokeniser, three distracting needles each.

    With `near`, those are made to be mixed up with the one that is asked for.
    """
    rng = random.Random(seed)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    return [
        make_task(
            rng,
            length=num_tokens,
            length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
            haystack=list(Haystack)[number % len(Haystack)],
            num_distractors=3,
            near=near,
        )
        for number in range(num_documents)
    ]


def write_corpus(folder: Path, tasks: list[NeedleTask]) -> None:
    """Writes `documents.parquet` and `questions.parquet`."""
    documents = [{"document_id": f"d{number}", "text": task.document} for number, task in enumerate(tasks)]
    questions = [{"document_id": f"d{number}", "question": task.question} for number, task in enumerate(tasks)]
    pq.write_table(pa.Table.from_pylist(documents), folder / "documents.parquet")
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")


def document_of(text: str, agent: AgentConfig) -> Document:
    """The text as the job tokenises it."""
    return make_tokenizer(agent).document(text)
