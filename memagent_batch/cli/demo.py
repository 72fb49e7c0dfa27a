"""`make demo`: makes a small corpus, runs the main job over it with the shipped policy, and shows the answers.

Documents of 2 K to 200 K tokens hide a needle each, of words, keys and texts that the policy was not trained on. Every
sixth question asks for what its document does not say. Each answer is shown with the sentence that it rests on.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.api.run import Run
from memagent_batch.cli.main import main as memagent
from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY, AnswerType
from memagent_batch.domain.follow_ups.values import ValueStatus
from memagent_batch.evaluation.needles import Haystack, NeedleTask, make_needle, make_task
from memagent_batch.models.shipped import TINY_MODEL
from memagent_batch.runs.evidence import How
from memagent_batch.tokens.tokenizer import load_tokenizer

NUM_DOCUMENTS, NUM_SHARDS = 24, 4
MIN_DOCUMENT_TOKENS, MAX_TOKENS = 2_000, 200_000
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
    inputs = f"--documents={folder}/documents --questions={folder}/questions.parquet --output={folder}/run".split()
    code = memagent(["answer", "--config", "tiny", *inputs, "--follow-ups.evidence", "--follow-ups.support"])
    if code == 0:
        print("\n".join(_lines(folder)))
    return code


def make_corpus(folder: Path) -> None:
    """Writes `documents/*.parquet` and `questions.parquet`; every shard has short and long documents."""
    (folder / "documents").mkdir(parents=True)
    documents, questions = [], []
    for number, task in enumerate(_tasks()):
        name = {"document_id": f"document-{number:02d}"}
        documents.append(name | {"text": task.document})
        questions.append({"question_id": f"q-{number:02d}"} | name | _question(number, task))
    for shard in range(NUM_SHARDS):
        table = pa.Table.from_pylist(documents[shard::NUM_SHARDS])
        pq.write_table(table, folder / "documents" / f"shard-{shard}.parquet")
    pq.write_table(pa.Table.from_pylist(questions), folder / "questions.parquet")


def _tasks() -> Iterator[NeedleTask]:
    """Documents whose lengths grow geometrically."""
    rng = random.Random(DEMO_SEED)
    tokenizer = load_tokenizer(str(TINY_MODEL))
    growth = (MAX_TOKENS / MIN_DOCUMENT_TOKENS) ** (1 / (NUM_DOCUMENTS - 1))
    haystacks = list(Haystack)
    for number in range(NUM_DOCUMENTS):
        yield make_task(
            rng,
            length=round(MIN_DOCUMENT_TOKENS * growth**number),
            length_of=lambda text: len(tokenizer.encode_document(text).token_ids),
            haystack=haystacks[number % len(haystacks)],
            num_distractors=NUM_DISTRACTORS,
        )


def _question(number: int, task: NeedleTask) -> dict[str, Any]:
    """The question, the type of its value, and its reference; now and then one that the document does not answer."""
    is_absent = (number + 1) % EVERY_ABSENT == 0
    other = make_needle(random.Random(DEMO_SEED + number)) if is_absent else task
    return {
        "question": other.question,
        "answer_type": AnswerType.NUMBER if other.answer.isdigit() else AnswerType.TEXT,
        "references": [NOT_STATED_ENTRY if is_absent else task.answer],
    }


def _lines(folder: Path) -> Iterator[str]:
    """The answers in order of length, each with its evidence; how many are right; and where they are."""
    run = Run.at(folder / "run")
    questions = pq.read_table(folder / "questions.parquet").to_pylist()
    references = {row["document_id"]: row["references"][0] for row in questions}
    sentences = [row for row in run.evidence().sort_by("rank").to_pylist() if row["how"] == How.CHOSEN]
    is_right = {}
    yield f"\n{'document':<13}{'tokens':>9}{'turns':>7}{'prompt tokens':>15}{'seconds':>9}  {'value':<22}reference"
    for row in run.answers().sort_by("num_document_tokens").to_pylist():
        name, value = row["document_id"], _value(row)
        is_right[name] = value == references[name]
        seconds = (row["finished_at"] - row["started_at"]).total_seconds() if row["started_at"] else 0.0
        yield (
            f"{name:<13}{row['num_document_tokens'] or 0:>9,}{row['num_turns']:>7}{row['num_prompt_tokens']:>15,}"
            f"{seconds:>9.1f}  {value:<22}{references[name]:<22}{'right' if is_right[name] else 'WRONG'}"
        )
        yield from (f"{'':<13}{_shown(each)}" for each in sentences if each["document_id"] == name)
    counts = run.manifest["counts"]
    absent = [right for name, right in is_right.items() if references[name] == NOT_STATED_ENTRY]
    stated = [right for name, right in is_right.items() if references[name] != NOT_STATED_ENTRY]
    yield f"\n{_share([*is_right.values()])} right"
    yield f"of questions that the document answers, {_share(stated)}; of the others, {_share(absent)}"
    ends = f"ok {counts['ok']} + failed {counts['failed']} + not read {counts['not_read']}"
    yield f"asked {counts['asked']} = {ends}; rows: {counts['answers_rows']}"
    yield f"answers {folder}/run/answers, evidence {folder}/run/evidence, memories {folder}/run/memories"
    yield f"pages to read them: memagent page {folder}/run"


def _value(row: Mapping[str, Any]) -> str:
    return NOT_STATED_ENTRY if row["value_status"] == ValueStatus.NOT_STATED else str(json.loads(row["value"] or '""'))


def _shown(sentence: Mapping[str, Any]) -> str:
    """A sentence of the evidence in one line, and its place."""
    text = " ".join((sentence["text"] or "").split())
    text = text if len(text) <= SENTENCE_CHARACTERS else f"{text[:SENTENCE_CHARACTERS]}…"
    return f'"{text}" (characters {sentence["char_start"]:,} to {sentence["char_end"]:,})'


def _share(right: Sequence[bool]) -> str:
    return f"{sum(right)} of {len(right)} ({sum(right) / len(right):.0%})"


if __name__ == "__main__":
    sys.exit(main())
