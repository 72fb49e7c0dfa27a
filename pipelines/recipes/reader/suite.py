"""Makes a suite of facts in real text, of kinds, wordings, names and files that the reader is not trained on."""

import argparse
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.documents.questions import type_fields
from memagent_batch.domain.follow_ups.answer_types import NOT_STATED_ENTRY
from memagent_batch.domain.scores import Metric
from memagent_batch.evaluation.suite import (
    ASKED_ENTRY,
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_QUESTIONS,
    span_rows,
    write_suite_record,
)
from memagent_batch.store.location import Location
from pipelines.recipes.reader.facts import Fact, FactMaker
from pipelines.recipes.reader.papers import Papers
from pipelines.recipes.reader.samples import CHARS_A_TOKEN
from pipelines.recipes.reader.tasks import Tasks
from pipelines.recipes.reader.texts import Story, name_words, source_texts, story

FACTS, PAPERS = "facts", "papers"
CHUNK_TOKENS = 512
CELLS = [("2", "100"), ("8", "100"), ("32", "40"), ("128", "12")]
"""Lengths in chunks, each with the number of its documents: fewer of those that cost most."""
ABSENT_SHARE = 0.15
PAPER_CHUNKS = 3
"""Length of whole papers, chunks."""
PAPER_ASKED = {"num_asked": 4, "num_absent": 1}
RIVALS = 4
"""How many others of the same kind a fact has."""
WRITTEN = pa.field("written", pa.string())
"""The answer in the words of the document: what the memory agent should box."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Cell:
    """Documents of one kind and length."""

    name: str = FACTS
    """`FACTS`, `PAPERS`, or a real task."""
    num_chunks: int
    num_documents: int


def stories(tasks: Tasks, cell: Cell) -> Iterator[Story]:
    """The documents of a cell; those with facts have one question each."""
    num_chars = cell.num_chunks * CHUNK_TOKENS * CHARS_A_TOKEN
    papers = Papers(tasks.maker, tasks.texts)
    for _ in range(cell.num_documents):
        if cell.name == PAPERS:
            yield papers.story(num_chars=num_chars, **PAPER_ASKED)
            continue
        if cell.name != FACTS:
            yield tasks.story(cell.name, num_chars=num_chars, num_asked=1)
            continue
        absent = int(tasks.maker.rng.random() < ABSENT_SHARE)
        asked = {"num_facts": 3 + RIVALS, "num_asked": 1 - absent, "num_absent": absent}
        yield story(tasks.maker, tasks.texts, num_chars=num_chars, **asked)


def question_row(fact: Fact, *, document_id: str, number: int, cell: Cell) -> dict[str, object]:
    """A row of `SUITE_QUESTIONS` and `WRITTEN`. Evidence is right where the value stands."""
    resting = [fact.mentions[each] for each in fact.rests_on(range(len(fact.mentions)))]
    value = fact.value(range(len(fact.mentions)))
    words = NOT_STATED_ENTRY if value is None else value.text
    return {
        "question_id": f"{document_id}-{number}",
        "document_id": document_id,
        "question": fact.question,
        "references": [value.typed or words if value else words],
        "task": PAPERS if cell.name == PAPERS and value else fact.form,
        "length_tokens": cell.num_chunks * CHUNK_TOKENS,
        "depth": None,
        "metric": Metric.VALUE.value,
        **type_fields(fact.value_type),
        "is_absent": value is None,
        "gold_spans": span_rows([mention.value_span for mention in resting if mention.value is not None]),
        WRITTEN.name: words,
    }


def write_suite(tasks: Tasks, output: Path, *, cells: Sequence[Cell], seed: int) -> None:
    """Writes the suite into a new folder; the same seed makes the same suite from the same files."""
    documents, questions = [], []
    for cell in cells:
        tasks.maker.rng.seed(f"{seed}/{cell}")
        for place, told in enumerate(stories(tasks, cell)):
            name = f"{cell.name}-{cell.num_chunks}-{place:03}"
            documents.append({"document_id": name, "text": told.text})
            questions += [
                question_row(fact, document_id=name, number=number, cell=cell) for number, fact in enumerate(told.facts)
            ]
    places = output / DOCUMENTS_FOLDER / "documents.parquet", output / QUESTIONS_FILE
    places[0].parent.mkdir(parents=True)
    pq.write_table(pa.Table.from_pylist(documents, SUITE_DOCUMENTS), places[0], row_group_size=16)
    pq.write_table(pa.Table.from_pylist(questions, SUITE_QUESTIONS.append(WRITTEN)), places[1])
    asked = {"cells": [asdict(cell) for cell in cells], "seed": seed}
    write_suite_record(Location(uri=str(output)), {ASKED_ENTRY: asked})


def main() -> None:
    """Writes a suite for `memagent evaluate run`."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path, help="folder of the suite")
    parser.add_argument("--cells", nargs="+", default=CELLS, type=lambda cell: cell.split(":"), help="CHUNKS:DOCUMENTS")
    parser.add_argument("--real", type=int, default=0, help="documents of each real task")
    parser.add_argument("--papers", type=int, default=0, help="whole papers, with five questions each")
    parser.add_argument("--licences", type=Path, help="the wheel of licensedcode-data, for questions about licences")
    parser.add_argument(
        "--seen", action="store_true", help="of kinds and files that are trained on: to collect rollouts"
    )
    parser.add_argument("--seed", type=int, default=0)
    arguments = parser.parse_args()
    apart = not arguments.seen
    texts = source_texts(apart=apart)
    maker = FactMaker(random.Random(), apart=apart, rivals=(RIVALS, RIVALS), words=name_words(texts))
    tasks = Tasks(maker, texts, licences=arguments.licences)
    cells = [Cell(num_chunks=int(chunks), num_documents=int(number)) for chunks, number in arguments.cells]
    if arguments.real:
        cells += [Cell(name=name, num_chunks=2, num_documents=arguments.real) for name in tasks.names]
    if arguments.papers:
        cells.append(Cell(name=PAPERS, num_chunks=PAPER_CHUNKS, num_documents=arguments.papers))
    write_suite(tasks, arguments.output, cells=cells, seed=arguments.seed)


if __name__ == "__main__":
    main()
