"""Makes a suite: for each task and length the samples one by one, each written before the next one is made."""

import hashlib
import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.apps.evaluation.haystacks import SampleRequest, SuiteSample, TokenMeter, prose
from memagent_batch.apps.evaluation.suite import (
    ASKED_ENTRY,
    DOCUMENTS_FOLDER,
    QUESTIONS_FILE,
    SUITE_DOCUMENTS,
    SUITE_QUESTIONS,
    SuiteQuestion,
    claim_suite,
    span_rows,
    write_suite_record,
)
from memagent_batch.apps.evaluation.tasks import TASKS
from memagent_batch.data.documents.questions import type_fields
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from memagent_batch.run.manifest import package_versions
from memagent_batch.run.wiring import resolve_model

GENERATOR = 5
"""Rises with every change after which the same arguments make other documents."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """What is asked for."""

    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    samples: int
    seed: int
    typed: bool = False
    """Whether questions ask for a type, where the answers of their task have one."""


def make_suite(plan: SuitePlan, model: str, output: Location, *, say: Callable[[str], None]) -> bool:
    """Writes the suite; returns False where it is there already, made from the same.

    Takes memory for one document at a time, whatever the number of samples. Nothing is written before all are made.
    Lengths are in tokens of the model. `say` shows a line of progress.

    Raises:
        OutputError: the folder holds something else.
        SettingsError: the model has no tokeniser, or a task can't be made at a length.
    """
    tokenizer = load_tokenizer(resolve_model(model))
    meter = TokenMeter(tokenizer)
    inputs = {
        "tokenizer": {"name": model, "sha256": tokenizer.sha256},
        "essays": {"name": "own", "sha256": hashlib.sha256("\0".join(map("\n".join, prose())).encode()).hexdigest()},
    }
    asked = {
        "generator": GENERATOR,
        "tasks": list(plan.tasks),
        "lengths_tokens": list(plan.lengths),
        "samples": plan.samples,
        "seed": plan.seed,
        "typed": plan.typed,
        **{f"{name}_sha256": value["sha256"] for name, value in inputs.items()},
    }
    if claim_suite(output, asked):
        return False
    for task in plan.tasks:  # the shortest length fails first if any does
        TASKS[task].make(next(sample_requests(plan, task=task, length=plan.lengths[0])), meter)
    cells, questions = [], list[SuiteQuestion]()
    with TemporaryDirectory() as folder:
        for task, length in product(plan.tasks, plan.lengths):
            file = Path(folder) / f"{task}-{length}.parquet"
            rows, num_tokens = _write_cell(plan, meter, file, task=task, length=length)
            questions += rows
            tokens = {"tokens_least": min(num_tokens), "tokens_most": max(num_tokens)}
            cells.append({"task": task, "length_tokens": length, **tokens})
            say(f"{task}-{length}: {plan.samples} documents of {max(num_tokens):,} tokens")
        for file in Path(folder).iterdir():
            (output / f"{DOCUMENTS_FOLDER}/{file.name}").write_file(file)
    (output / QUESTIONS_FILE).write_bytes(parquet_bytes(pa.Table.from_pylist(questions, schema=SUITE_QUESTIONS)))
    write_suite_record(output, {ASKED_ENTRY: asked, "inputs": inputs, "cells": cells, "versions": package_versions()})
    return True


def sample_requests(plan: SuitePlan, *, task: str, length: int) -> Iterator[SampleRequest]:
    """One request for each sample of a cell; their depths are spread evenly over the document, in random order."""
    rng = random.Random(f"{plan.seed}/{task}-{length}/depths")
    strata = rng.sample(range(plan.samples), plan.samples)
    for number, stratum in enumerate(strata):
        yield SampleRequest(
            task=task,
            rng=random.Random(f"{plan.seed}/{task}-{length}/{number}"),
            length=length,
            depth=(stratum + rng.random()) / plan.samples,
        )


def _write_cell(
    plan: SuitePlan, meter: TokenMeter, file: Path, *, task: str, length: int
) -> tuple[list[SuiteQuestion], list[int]]:
    """Writes the documents of a task and length, each a row group; returns their questions and lengths in tokens."""
    rows, num_tokens = [], []
    with pq.ParquetWriter(file, SUITE_DOCUMENTS, compression="zstd") as documents:
        for number, request in enumerate(sample_requests(plan, task=task, length=length)):
            sample = TASKS[task].make(request, meter)
            document_id = f"{task}-{length}-{number:03d}"
            row = {"document_id": document_id, "text": sample.document}
            documents.write_table(pa.Table.from_pylist([row], schema=SUITE_DOCUMENTS))
            rows.append(_question_row(sample, document_id=document_id, request=request, typed=plan.typed))
            num_tokens.append(sample.num_tokens)
    return rows, num_tokens


def _question_row(sample: SuiteSample, *, document_id: str, request: SampleRequest, typed: bool) -> SuiteQuestion:
    task = TASKS[request.task]
    return SuiteQuestion(
        question_id=document_id,
        document_id=document_id,
        question=sample.question,
        references=list(sample.references),
        task=request.task,
        length_tokens=request.length,
        depth=sample.depth,
        metric=task.metric.value,
        **type_fields(task.value_type if typed else None),
        is_absent=not sample.gold,
        gold_spans=span_rows(sample.gold),
    )
