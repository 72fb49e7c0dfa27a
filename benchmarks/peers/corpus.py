"""Corpora to compare on: needle documents of chosen lengths, as shards for the job and as text for the peers."""

import math
import random
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.peers.text_loop import TextDocument, Work, save
from memagent_batch.config.agent import AgentConfig
from memagent_batch.domain.document import token_windows
from memagent_batch.evaluation.needles import Haystack, make_task
from memagent_batch.wiring import make_prompt_set, make_tokenizer

SEED = 20_260_702
"""Of lengths, their order, and texts."""
MEDIAN_CHUNKS = 2
"""Median length of the heavy-tailed corpus."""
SPREAD = 0.6
"""Standard deviation of the logarithm of a length, the longest ones apart."""
BODY_CHUNKS = 10
"""Longest document of the heavy-tailed corpus, the longest ones apart."""
NUM_LONGEST = 3
"""Documents at the end of the tail."""
LONGEST_CHUNKS = 50 * MEDIAN_CHUNKS
"""Their length."""
EVEN_CHUNKS = 4
"""Length of every document of the even corpus."""


class Corpus(StrEnum):
    """How lengths are spread."""

    HEAVY_TAIL = "heavy-tail"
    """Log-normal around the median, and a few of fifty times the median at random places."""
    EVEN = "even"
    """All of one length."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MadeCorpus:
    """A corpus on disk."""

    folder: Path
    """Holds `documents.parquet`, `questions.parquet` and `work.json`."""
    num_documents: int
    """Documents."""
    num_turns: int
    """Turns that they take."""

    @property
    def documents(self) -> Path:
        """The job's documents."""
        return self.folder / "documents.parquet"

    @property
    def questions(self) -> Path:
        """The job's questions."""
        return self.folder / "questions.parquet"

    @property
    def work(self) -> Path:
        """The peers' work."""
        return self.folder / "work.json"


def chunk_counts(corpus: Corpus, *, num_documents: int) -> list[int]:
    """Length of each document in chunks, in input order."""
    if corpus == Corpus.EVEN:
        return [EVEN_CHUNKS] * num_documents
    rng = random.Random(SEED)
    body = [
        min(BODY_CHUNKS, max(1, round(rng.lognormvariate(math.log(MEDIAN_CHUNKS), SPREAD))))
        for _ in range(num_documents - NUM_LONGEST)
    ]
    counts = body + [LONGEST_CHUNKS] * NUM_LONGEST
    rng.shuffle(counts)
    return counts


def make_corpus(folder: Path, corpus: Corpus, *, num_documents: int, agent: AgentConfig) -> MadeCorpus:
    """Writes the corpus; chunks are cut as the job cuts them, with the policy's chunk size and overlap."""
    folder.mkdir()
    rng, tokenizer = random.Random(SEED), make_tokenizer(agent)
    stride = agent.policy.chunk_tokens - agent.policy.overlap_tokens
    rows, questions, documents = [], [], []
    for number, count in enumerate(chunk_counts(corpus, num_documents=num_documents)):
        task = make_task(
            rng,
            length=count * stride - stride // 2,  # some way into the last chunk
            length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
            haystack=list(Haystack)[number % len(Haystack)],
            num_distractors=3,
        )
        name = f"d{number:04d}"
        rows.append({"document_id": name, "text": task.document})
        questions.append({"document_id": name, "question_id": name, "question": task.question})
        documents.append(
            TextDocument(question_id=name, question=task.question, chunks=chunk_texts(task.document, agent))
        )
    return save_corpus(folder, rows, questions, documents, agent=agent)


def save_corpus(
    folder: Path,
    rows: list[dict[str, str]],
    questions: list[dict[str, str]],
    documents: list[TextDocument],
    *,
    agent: AgentConfig,
) -> MadeCorpus:
    """Writes documents and questions for the job, and the same readings as text for the peers."""
    made = MadeCorpus(
        folder=folder,
        num_documents=len(rows),
        num_turns=sum(len(document.chunks) + 1 for document in documents),
    )
    pq.write_table(pa.Table.from_pylist(rows), made.documents)
    pq.write_table(pa.Table.from_pylist(questions), made.questions)
    save(_work(agent, documents), made.work)
    return made


def chunk_texts(text: str, agent: AgentConfig) -> list[str]:
    """The document's chunks as text: its tokens cut as the job cuts them, each chunk decoded."""
    tokenizer = make_tokenizer(agent)
    token_ids = tokenizer.encode(text)
    windows = token_windows(
        len(token_ids), chunk_tokens=agent.policy.chunk_tokens, overlap_tokens=agent.policy.overlap_tokens
    )
    return [tokenizer.decode(token_ids[start:end]) for start, end in windows]


def _work(agent: AgentConfig, documents: list[TextDocument]) -> Work:
    prompts = make_prompt_set(agent)
    return Work(
        update=prompts.update,
        answer=prompts.answer_text(agent.answer_form),
        first_memory=prompts.first_memory,
        memory_tokens=agent.policy.memory_tokens,
        answer_tokens=agent.policy.answer_tokens,
        documents=documents,
    )
