"""Measures a reader on kinds, wordings, names and texts that were never in training. See README.md."""

import argparse
import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa

import memagent_batch as ma
from memagent_batch.domain.scores import Metric, score
from memagent_batch.evaluation.statistics import wilson
from memagent_batch.models.adapter import merge_adapter
from pipelines.recipes.reader.facts import Fact, FactMaker
from pipelines.recipes.reader.samples import CHARS_A_TOKEN
from pipelines.recipes.reader.texts import Story, source_texts, story

CHUNK_TOKENS, MEMORY_TOKENS, ANSWER_TOKENS = 512, 256, 64
ABSENT_SHARE = 0.15
RIVALS = 4
"""How many others of the same kind most facts have."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Judged:
    """One reading, judged."""

    form: str
    """How the fact is stated: plain, two sentences, aliased, corrected, absent."""
    is_right: bool
    is_value_right: bool
    is_evidence_right: bool | None
    """Whether its first sentence of evidence holds the value; None if the answer is wrong or absent."""


def held_apart(texts: Sequence[str], *, num_documents: int, num_chunks: int, seed: int) -> list[Story]:
    """Documents of about so many chunks, with one question each."""
    rng = random.Random(seed)
    maker = FactMaker(rng, apart=True, rivals=(RIVALS, RIVALS))
    num_chars = CHUNK_TOKENS * CHARS_A_TOKEN * num_chunks
    told = []
    for _ in range(num_documents):
        absent = int(rng.random() < ABSENT_SHARE)
        asked = {"num_asked": 1 - absent, "num_absent": absent}
        told.append(story(maker, texts, num_chars=num_chars, num_facts=3 + RIVALS, **asked))
    return told


def read(told: Sequence[Story], agent: ma.Agent, *, output: str) -> Iterator[Judged]:
    """Reads the documents with `answer`, and judges each reading."""
    documents = pa.table(
        {"document_id": [f"d{number}" for number in range(len(told))], "text": [each.text for each in told]}
    )
    questions = [
        ma.Question(question=each.facts[0].question, document_id=f"d{number}", type=each.facts[0].value_type)
        for number, each in enumerate(told)
    ]
    run = ma.answer(
        documents=documents,
        questions=questions,
        output=output,
        agent=agent,
        input=ma.InputConfig(document_id_column="document_id", text_column="text"),
        follow_ups=ma.FollowUpConfig(evidence=True),
        executor="local",
    )
    first = {row["document_id"]: row for row in reversed(run.evidence().to_pylist())}
    for row in run.answers().to_pylist():
        number = int(row["document_id"][1:])
        yield judged(told[number].facts[0], row, first.get(row["document_id"]))


def judged(fact: Fact, row: dict[str, Any], evidence: dict[str, Any] | None) -> Judged:
    """A row of `answers` against the truth."""
    if not fact.mentions:
        is_right, is_value_right = (
            score(Metric.EM, row["answer"], ["not stated"]) == 1,
            row["value_status"] == "not_stated",
        )
        return Judged(form="absent", is_right=is_right, is_value_right=is_value_right, is_evidence_right=None)
    said = [mention for mention in fact.mentions if mention.value is not None]
    last = said[-1]
    assert last.value is not None
    form = "two sentences" if ". " in last.text else "plain"
    form = "corrected" if len(said) > 1 else "aliased" if last.aliased else form
    is_right = score(Metric.EM, row["answer"], [last.value.text]) == 1
    written = None if row["value"] is None else json.loads(row["value"])
    is_value_right = _as_typed(written) == (last.value.typed or last.value.text)
    is_evidence_right = None
    if is_right:
        start, end = last.value_span
        is_evidence_right = evidence is not None and evidence["char_start"] < end and start < evidence["char_end"]
    return Judged(form=form, is_right=is_right, is_value_right=is_value_right, is_evidence_right=is_evidence_right)


def _as_typed(value: Any) -> str:
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)


def summary(cell: dict[str, Any], judged: Sequence[Judged]) -> dict[str, Any]:
    """Counts of a cell: right of how many, by form, with the 95 % interval of all."""
    line = dict(cell)
    for form in ("plain", "two sentences", "aliased", "corrected", "absent"):
        of_form = [each.is_right for each in judged if each.form == form]
        line[form] = [sum(of_form), len(of_form)]
    right = sum(each.is_right for each in judged)
    interval = wilson(right, len(judged))
    pointed = [each.is_evidence_right for each in judged if each.is_evidence_right is not None]
    return line | {
        "right": [right, len(judged)],
        "interval": [round(interval.low, 3), round(interval.high, 3)],
        "values": [sum(each.is_value_right for each in judged), len(judged)],
        "evidence": [sum(pointed), len(pointed)],
    }


def main() -> None:
    """Writes a line a cell to `cells.jsonl`; the runs beside it have each reading."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("output", type=Path)
    parser.add_argument("--model", required=True, help="folder of the model that reads")
    parser.add_argument("--adapter", type=Path, help="folder of an adapter, which is merged into the model first")
    parser.add_argument("--policies", nargs="+", default=["gated", "overwrite", "parallel", "retrieve", "truncate"])
    parser.add_argument("--chunks", nargs="+", type=int, default=[2, 8, 32])
    parser.add_argument("--documents", type=int, default=100, help="documents of a cell")
    parser.add_argument("--max-files", type=int, default=300, help="source files to take text from")
    arguments = parser.parse_args()
    arguments.output.mkdir(parents=True, exist_ok=True)
    model = arguments.model
    if arguments.adapter:
        model = str(arguments.output / "model")
        Path(model).mkdir(exist_ok=True)
        merge_adapter(Path(arguments.model), arguments.adapter, Path(model))
    texts = source_texts(apart=True, max_files=arguments.max_files)
    for num_chunks in arguments.chunks:
        told = held_apart(texts, num_documents=arguments.documents, num_chunks=num_chunks, seed=num_chunks)
        for kind in arguments.policies:
            cell = {"policy": kind, "chunks": num_chunks}
            policy = ma.PolicyConfig(
                kind=kind, chunk_tokens=CHUNK_TOKENS, memory_tokens=MEMORY_TOKENS, answer_tokens=ANSWER_TOKENS
            )
            agent = ma.Agent(model=model, policy=policy, sampling=ma.SamplingConfig(temperature=0))
            readings = list(read(told, agent, output=str(arguments.output / f"{kind}-{num_chunks}")))
            with (arguments.output / "cells.jsonl").open("a") as file:
                file.write(json.dumps(line := summary(cell, readings)) + "\n")
            print(line, flush=True)


if __name__ == "__main__":
    main()
