"""`make demo`: makes a small corpus, runs the main job over it with the shipped policy, and shows the answers.

Documents of 2 K to 200 K tokens hide a needle each, of words, keys and texts that the policy was not trained on. Every
sixth question asks for what its document does not say. Each answer is shown with the sentence that it rests on.
"""

import argparse
import json
import random
import shutil
import sys
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.cli.main import main as memagent
from memagent_batch.cli.sources import JOB_FILES
from memagent_batch.domain.closing.answer_types import AnswerType
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.evaluation.needles import Haystack, NeedleTask, make_needle, make_task
from memagent_batch.evaluation.tasks import NOT_STATED
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.runs.evidence import How
from memagent_batch.runs.tables import EvidenceRow, table_files
from memagent_batch.tokens.tokenizer import load_tokenizer

JOB_FILE = JOB_FILES / "tiny.yaml"
NUM_DOCUMENTS = 24
NUM_SHARDS = 4
SHORTEST_DOCUMENT_TOKENS = 2_000
LONGEST_TOKENS = 200_000
NUM_DISTRACTORS = 3
"""Other needles in each document: four keys in all, as in RULER's first multi-key task."""
EVERY_ABSENT = 6
"""Each such question asks for something that its document does not state."""
DEMO_SEED = 20_260_101
SENTENCE_CHARACTERS = 90
"""Most characters of a sentence that is printed."""


def main() -> int:
    """Makes the corpus if it is not there, runs `memagent answer`, prints a table; returns the exit code."""
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--output", type=Path, default=Path("demo"), help="folder to write to (default: demo)")
    folder: Path = options.parse_args().output
    if not (folder / "questions.parquet").exists():
        print(f"making the documents in {folder}/documents", flush=True)
        shutil.rmtree(folder / "documents", ignore_errors=True)
        make_corpus(folder)
    code = memagent(
        [
            "answer",
            *("--config", str(JOB_FILE)),
            *("--documents", str(folder / "documents")),
            *("--questions", str(folder / "questions.parquet")),
            *("--output", str(folder / "run")),
            "--closing.evidence",
            "--closing.support",
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
            **_asked(number, task),
        }
        for number, task in enumerate(tasks)
    ]
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")


def _asked(number: int, task: NeedleTask) -> dict[str, str | list[str]]:
    """The question, the type of its value, and its reference; now and then one that the document does not answer."""
    if (number + 1) % EVERY_ABSENT == 0:
        other = make_needle(random.Random(DEMO_SEED + number))
        return {"question": other.question, "answer_type": _type_of(other.answer), "references": [NOT_STATED]}
    return {"question": task.question, "answer_type": _type_of(task.answer), "references": [task.answer]}


def _type_of(answer: str) -> AnswerType:
    return AnswerType.NUMBER if answer.isdigit() else AnswerType.TEXT


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
    value: str
    """The answer's value as text; `not stated` where the document does not state it."""
    evidence: Sequence[EvidenceRow]
    """The sentences that it rests on, the best first."""
    references: list[str]
    """Right answers."""

    @property
    def is_right(self) -> bool:
        """Whether its value is one of the references."""
        return self.value in self.references

    @property
    def is_absent(self) -> bool:
        """Whether the document does not say what is asked for."""
        return self.references == [NOT_STATED]


def scored_answers(folder: Path) -> list[ScoredAnswer]:
    """The answers of a run in order of length."""
    questions = pq.read_table(folder / "questions.parquet").to_pylist()
    references = {(row["document_id"], row["question_id"]): row["references"] for row in questions}
    evidence: dict[str, list[EvidenceRow]] = defaultdict(list)
    for found in sorted(_rows(folder, "evidence"), key=lambda row: row["rank"]):
        if found["how"] == How.CHOSEN:
            evidence[found["document_id"]].append(found)
    answers = [
        ScoredAnswer(
            document_id=row["document_id"],
            num_document_tokens=row["num_document_tokens"] or 0,
            num_turns=row["num_turns"],
            num_prompt_tokens=row["num_prompt_tokens"],
            seconds=(row["finished_at"] - row["started_at"]).total_seconds() if row["started_at"] else 0.0,
            value=NOT_STATED
            if row["value_status"] == ValueStatus.NOT_STATED
            else str(json.loads(row["value"] or '""')),
            evidence=evidence[row["document_id"]],
            references=references[(row["document_id"], row["question_id"])],
        )
        for row in _rows(folder, "answers")
    ]
    return sorted(answers, key=lambda each: each.num_document_tokens)


def _rows(folder: Path, table: str) -> list[Any]:
    """The rows of a table of the last finished run."""
    files = table_files(str(folder / "run"), table)
    return [row for file in files for row in pq.read_table(file).to_pylist()]


def _print_scores(folder: Path) -> None:
    answers = scored_answers(folder)
    print(f"\n{'document':<13}{'tokens':>9}{'turns':>7}{'prompt tokens':>15}{'seconds':>9}  {'value':<22}reference")
    for each in answers:
        print(
            f"{each.document_id:<13}{each.num_document_tokens:>9,}{each.num_turns:>7}{each.num_prompt_tokens:>15,}"
            f"{each.seconds:>9.1f}  {each.value:<22}{each.references[0]:<22}{'right' if each.is_right else 'WRONG'}"
        )
        for sentence in each.evidence:
            print(f"{'':<13}{_shown(sentence)}")
    counts = json.loads((folder / "run" / "manifest.json").read_text())["counts"]
    print(f"\n{_share(answers)} right")
    told = [each for each in answers if not each.is_absent]
    print(f"of questions that the document answers, {_share(told)}; of the others, ", end="")
    print(_share([each for each in answers if each.is_absent]))
    ends = f"ok {counts['ok']} + failed {counts['failed']} + not read {counts['not_read']}"
    print(f"asked {counts['asked']} = {ends}; rows: {counts['answers_rows']}")
    print(f"answers {folder}/run/answers, evidence {folder}/run/evidence, memories {folder}/run/memories")
    print(f"pages to read them: memagent page {folder}/run")


def _shown(sentence: EvidenceRow) -> str:
    """A sentence of the evidence in one line, and its place."""
    text = " ".join((sentence["text"] or "").split())
    text = text if len(text) <= SENTENCE_CHARACTERS else f"{text[:SENTENCE_CHARACTERS]}…"
    return f'"{text}" (characters {sentence["char_start"]:,} to {sentence["char_end"]:,})'


def _share(answers: Sequence[ScoredAnswer]) -> str:
    right = sum(each.is_right for each in answers)
    return f"{right} of {len(answers)} ({right / len(answers):.0%})"


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
        )


def _document_id(number: int) -> str:
    return f"document-{number:02d}"


if __name__ == "__main__":
    sys.exit(main())
