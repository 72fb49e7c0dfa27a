"""The documents and questions that every job under faults reads, and the arguments of `memagent answer` for them."""

import random
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.apps.evaluation.haystacks import TokenMeter, prose
from memagent_batch.loop.models.shipped import TINY_MODEL
from memagent_batch.loop.tokens.tokenizer import load_tokenizer

CHUNK_TOKENS, QUESTION_TOKENS, WRITTEN_TOKENS = 50, 60, 40
"""Budgets of a chunk, a question, and of a memory or an answer."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    documents: Path
    questions: Path
    settings: tuple[str, ...]
    """Arguments that name model, window and policy, or a job file."""

    def arguments(self) -> list[str]:
        """Arguments of `memagent answer` that read it; engine, pool, log and output are not among them."""
        return ["--documents", str(self.documents), "--questions", str(self.questions), *self.settings]


def make_corpus(folder: Path, *, num_documents: int, num_chunks: int) -> Corpus:
    """Writes documents of random sentences, each of so many chunks, and a question about each.

    Documents differ throughout, so that no prompt profits from the prefix cache of another.
    """
    rng, meter = random.Random(0), TokenMeter(load_tokenizer(str(TINY_MODEL)))
    sentences, num_tokens = [sentence for text in prose() for sentence in text], num_chunks * CHUNK_TOKENS
    texts = [meter.cut(" ".join(rng.choices(sentences, k=num_tokens // 4)), num_tokens) for _ in range(num_documents)]
    names = [f"d{number}" for number in range(num_documents)]
    asked = [f"What does document {name} say?" for name in names]
    questions = pa.table({"question_id": ["own"] * num_documents, "document_id": names, "question": asked})
    pq.write_table(pa.table({"document_id": names, "text": texts}), folder / "documents.parquet", row_group_size=4)
    pq.write_table(questions, folder / "questions.parquet")
    return Corpus(
        documents=folder / "documents.parquet",
        questions=folder / "questions.parquet",
        settings=(
            *("--model", str(TINY_MODEL), "--window-tokens", "1024", "--policy.chunk-tokens", str(CHUNK_TOKENS)),
            *("--policy.question-tokens", str(QUESTION_TOKENS)),
            *("--policy.memory-tokens", str(WRITTEN_TOKENS), "--policy.answer-tokens", str(WRITTEN_TOKENS)),
        ),
    )
