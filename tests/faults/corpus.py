"""The documents and questions that every job under faults reads, and the arguments of `memagent answer` for them."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.evaluation.needles import prose
from memagent_batch.evaluation.tasks import Wordform, different_keys, make_value, question_on, state
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.tokens.tokenizer import Tokenizer, load_tokenizer

QUESTION_TOKENS = 60
"""Budget of a question; the longest one takes about half of it."""
SHARED_QUESTION = "What is the document about?"


@dataclass(frozen=True, slots=True, kw_only=True)
class Corpus:
    """Documents, each with one fact and a question about it."""

    documents: Path
    """Parquet file of the documents."""
    questions: Path
    """Parquet file of the questions."""
    num_readings: int
    """Readings that a job over the corpus asks for."""
    num_unreadable: int = 0
    """Readings among them that fail without a turn, since their document has no text."""
    settings: tuple[str, ...]
    """Arguments that name model, window and policy, or a job file."""

    def arguments(self) -> list[str]:
        """Arguments of `memagent answer` that read it; engine, pool, log and output are not among them."""
        return ["--documents", str(self.documents), "--questions", str(self.questions), *self.settings]


def make_corpus(
    folder: Path, *, chunks: Sequence[int], chunk_tokens: int = 50, memory_tokens: int = 40, unreadable: bool = False
) -> Corpus:
    """Writes the corpus; its documents differ throughout, so that no prompt profits from the prefix cache of another.

    Args:
        folder: where its two files are written.
        chunks: number of chunks of each document, about.
        chunk_tokens: tokens of a chunk.
        memory_tokens: budget of a memory, and of an answer.
        unreadable: adds a document without text, and a question about every document.
    """
    rng, tokenizer = random.Random(0), load_tokenizer(str(TINY_MODEL))
    keys = list(islice(different_keys(rng), len(chunks)))
    sentences = _sentences(rng)
    texts = [
        _document(key, sentences, tokenizer, rng=rng, num_tokens=(count - 0.5) * chunk_tokens)
        for key, count in zip(keys, chunks, strict=True)
    ]
    names = [f"d{number}" for number in range(len(texts))]
    documents = pa.table({"document_id": [*names, "empty"], "text": [*texts, None]})
    questions: list[tuple[str, str | None, str]] = [
        ("own", name, question_on([key], Wordform.NUMBER, alone=True)) for name, key in zip(names, keys, strict=True)
    ]
    if unreadable:
        questions.append(("shared", None, SHARED_QUESTION))
    columns = ("question_id", "document_id", "question")
    pq.write_table(
        documents if unreadable else documents.slice(0, len(names)), folder / "documents.parquet", row_group_size=4
    )
    pq.write_table(
        pa.table(dict(zip(columns, map(list, zip(*questions, strict=True)), strict=True))),
        folder / "questions.parquet",
    )
    return Corpus(
        documents=folder / "documents.parquet",
        questions=folder / "questions.parquet",
        num_readings=2 * len(texts) + 1 if unreadable else len(texts),
        num_unreadable=int(unreadable),
        settings=(
            *("--model", str(TINY_MODEL), "--window-tokens", "1024", "--policy.chunk-tokens", str(chunk_tokens)),
            *("--policy.question-tokens", str(QUESTION_TOKENS)),
            *("--policy.memory-tokens", str(memory_tokens), "--policy.answer-tokens", str(memory_tokens)),
        ),
    )


def _sentences(rng: random.Random) -> Iterator[str]:
    """Endless running text."""
    while True:
        yield from (f" {sentence}" for sentence in rng.choice(prose()))


def _document(
    key: str, sentences: Iterator[str], tokenizer: Tokenizer, *, rng: random.Random, num_tokens: float
) -> str:
    """A document of about `num_tokens` tokens with the fact in its middle."""
    fact = state(key, make_value(rng, Wordform.NUMBER), Wordform.NUMBER)
    room = num_tokens - len(tokenizer.encode(fact))
    parts: list[str] = []
    while room > 0 and (size := len(tokenizer.encode(sentence := next(sentences)))) < 2 * room:
        parts.append(sentence)
        room -= size
    half = len(parts) // 2
    return "".join([*parts[:half], " ", fact, *parts[half:]]).strip()
