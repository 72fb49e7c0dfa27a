"""`make demo`: makes a small corpus, runs the main job over it with the shipped policy, and shows the answers.

Documents of 2 K to 200 K tokens hide a needle each, of words, keys and texts that the policy was not trained on.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from jobs.answer import main as answer
from memagent_batch.engines.tokenizer import load_tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.tasks import Haystack, NeedleTask, make_task
from memagent_batch.wiring import TINY_MODEL

JOB_FILE = Path(__file__).parent / "configs" / "tiny.yaml"
NUM_DOCUMENTS = 24
NUM_SHARDS = 4
SHORTEST_DOCUMENT_TOKENS = 2_000
LONGEST_TOKENS = 200_000
NUM_DISTRACTORS = 3
"""Other needles in each document: four keys in all, as in RULER's first multi-key task."""
DEMO_SEED = 20_260_101


def main() -> int:
    """Makes the corpus if it is not there, runs `memagent answer`, prints a table; returns the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, default=Path("demo"), help="folder to write to (default: demo)")
    folder: Path = options.parse_args().output
    if not (folder / "questions.parquet").exists():
        print(f"making the documents in {folder}/documents", flush=True)
        shutil.rmtree(folder / "documents", ignore_errors=True)
        make_corpus(folder)
    code = answer(
        [
            *("--config", str(JOB_FILE)),
            *("--documents", str(folder / "documents")),
            *("--questions", str(folder / "questions.parquet")),
            *("--output", str(folder / "run")),
        ]
    )
    if code == 0:
        _print_scores(folder)
    return code


def make_corpus(folder: Path) -> None:
    """Writes `documents/*.parquet` and `questions.parquet`; every shard has short and long documents."""
    tasks = list(_tasks())
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


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredAnswer:
    """A row of `answers`, and whether it is right."""

    document_id: str
    """The document."""
    num_document_tokens: int
    """Its length, tokens."""
    num_turns: int
    """Turns of the reading."""
    num_prompt_tokens: int
    """Prompt tokens of all turns."""
    seconds: float
    """From the reading's start to its end."""
    answer: str | None
    """The answer."""
    references: list[str]
    """Right answers."""

    @property
    def is_right(self) -> bool:
        """Whether it is one of the references."""
        return self.answer in self.references


def scored_answers(folder: Path) -> list[ScoredAnswer]:
    """The answers of a run in order of length."""
    questions = pq.read_table(folder / "questions.parquet").to_pylist()
    references = {(row["document_id"], row["question_id"]): row["references"] for row in questions}
    answers = [
        ScoredAnswer(
            document_id=row["document_id"],
            num_document_tokens=row["num_document_tokens"] or 0,
            num_turns=row["num_turns"],
            num_prompt_tokens=row["num_prompt_tokens"],
            seconds=(row["finished_at"] - row["started_at"]).total_seconds() if row["started_at"] else 0.0,
            answer=row["answer"],
            references=references[(row["document_id"], row["question_id"])],
        )
        for row in pq.read_table(folder / "run" / "answers").to_pylist()
    ]
    return sorted(answers, key=lambda each: each.num_document_tokens)


def _print_scores(folder: Path) -> None:
    answers = scored_answers(folder)
    print(f"\n{'document':<13}{'tokens':>9}{'turns':>7}{'prompt tokens':>15}{'seconds':>9}  {'answer':<14}reference")
    for each in answers:
        print(
            f"{each.document_id:<13}{each.num_document_tokens:>9,}{each.num_turns:>7}{each.num_prompt_tokens:>15,}"
            f"{each.seconds:>9.1f}  {each.answer or '-':<14}{each.references[0]:<14}"
            f"{'right' if each.is_right else 'WRONG'}"
        )
    counts = json.loads((folder / "run" / "manifest.json").read_text())["counts"]
    right = sum(each.is_right for each in answers)
    print(f"\n{right} of {len(answers)} right ({right / len(answers):.0%})")
    ends = f"ok {counts['ok']} + failed {counts['failed']} + not read {counts['not_read']}"
    print(f"asked {counts['asked']} = {ends}; rows: {counts['answers_rows']}")
    print(f"answers {folder}/run/answers, memories {folder}/run/memories, manifest {folder}/run/manifest.json")


def _tasks() -> Iterator[NeedleTask]:
    """Documents whose lengths grow geometrically."""
    rng = random.Random(DEMO_SEED)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    growth = (LONGEST_TOKENS / SHORTEST_DOCUMENT_TOKENS) ** (1 / (NUM_DOCUMENTS - 1))
    haystacks = list(Haystack)
    for number in range(NUM_DOCUMENTS):
        length = round(SHORTEST_DOCUMENT_TOKENS * growth**number)
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


if __name__ == "__main__":
    sys.exit(main())
