"""Suites of an evaluation: what `evaluate make` writes, and a user's own questions with references as a suite.

A suite is ordinary input of the main job: `documents/*.parquet` and `questions.parquet`, beside `suite.json`.
"""

import hashlib
import logging
import posixpath
import random
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Annotated, Any, TypedDict

import pyarrow as pa
import pyarrow.parquet as pq

from memagent_batch.apps.evaluation.haystacks import SampleRequest, TokenMeter, prose
from memagent_batch.apps.evaluation.tasks import TASKS
from memagent_batch.config.job import CONTAINMENT_METRICS
from memagent_batch.data.documents.questions import TypeFields, read_questions, type_fields, value_type_of
from memagent_batch.data.store.columns import Column, arrow_schema
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.json_files import read_owner_record, require_complete, write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.errors import InputError, OutputError, ValueTypeError
from memagent_batch.loop.follow_ups.values import says_not_stated, written_value
from memagent_batch.loop.scores import Metric
from memagent_batch.loop.tokens.tokenizer import load_tokenizer
from memagent_batch.masking import mask_url
from memagent_batch.run.manifest import package_versions
from memagent_batch.run.tables import DocumentId, QuestionId, QuestionText
from memagent_batch.run.wiring import resolve_model

GENERATOR = 5
"""Rises with every change after which the same arguments make other documents."""
SUITE_FILE = "suite.json"
"""What was asked for: tasks, lengths, samples, seed, tokeniser. Written last: without it a suite is not whole."""
DOCUMENTS_FOLDER = "documents"
QUESTIONS_FILE = "questions.parquet"
SUITE_FORMAT = "memagent-suite/3"
"""Changes with every change of layout that an older version can't read."""
ASKED_ENTRY = "asked"
"""Entry of `suite.json` that says all that decides what is in a suite."""
SHORT_CHARACTERS = 4
"""References with fewer characters may stand in a wrong answer by chance, such as `no` in `There is no limit`."""

log = logging.getLogger(__name__)


class GoldSpanRow(TypedDict):
    """A place in a document."""

    char_start: int
    char_end: int


class SuiteDocument(TypedDict):
    """One row for each document."""

    document_id: DocumentId
    text: Annotated[str, Column("the document")]


class _AskedColumns(TypedDict):
    question_id: QuestionId
    document_id: DocumentId
    question: QuestionText
    references: Annotated[list[str], Column("right answers; what they mean together is up to the metric")]
    task: Annotated[str, Column("name of the task, such as niah_single_1")]
    length_tokens: Annotated[int | None, Column("length of the document that was asked for", "tokens")]
    depth: Annotated[float | None, Column("where the (only) needle begins, from 0 to 1; null without one")]
    metric: Annotated[str, Column("the task's own metric: " + ", ".join(Metric))]


class SuiteQuestion(_AskedColumns, TypeFields):
    """One row for each question."""

    is_absent: Annotated[bool, Column("whether the document does not state the answer")]
    gold_spans: Annotated[
        list[GoldSpanRow] | None,
        Column(
            "sentences that support the answer, as spans of code points; empty where the document does not state it, "
            "null if they are not known"
        ),
    ]


SUITE_DOCUMENTS = arrow_schema(SuiteDocument)
SUITE_QUESTIONS = arrow_schema(SuiteQuestion)


@dataclass(frozen=True, slots=True, kw_only=True)
class SuitePlan:
    """What a suite is made of."""

    tasks: tuple[str, ...]
    lengths: tuple[int, ...]
    samples: int
    seed: int
    typed: bool = False
    """Whether questions ask for a type, where the answers of their task have one."""

    def requests(self, *, task: str, length: int) -> Iterator[SampleRequest]:
        """Yields a request for each sample; depths are spread evenly over the document, in random order."""
        rng = random.Random(f"{self.seed}/{task}-{length}/depths")
        strata = rng.sample(range(self.samples), self.samples)
        for number, stratum in enumerate(strata):
            yield SampleRequest(
                task=task,
                rng=random.Random(f"{self.seed}/{task}-{length}/{number}"),
                length=length,
                depth=(stratum + rng.random()) / self.samples,
            )


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
    if _is_made(output, asked):
        return False
    for task in plan.tasks:  # the shortest length fails first if any does
        TASKS[task].make(next(plan.requests(task=task, length=plan.lengths[0])), meter)
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
    record = {ASKED_ENTRY: asked, "inputs": inputs, "cells": cells, "versions": package_versions()}
    write_json(output / SUITE_FILE, {"format": SUITE_FORMAT, **record})
    return True


def _is_made(output: Location, asked: Mapping[str, Any]) -> bool:
    """Checks that a suite may be written here; returns whether it is there already, whole.

    Raises:
        OutputError: the place holds another suite, half a suite, or something else; says what to do.
    """
    remedy = "delete them if they are of a suite that was not finished, or choose an empty folder"
    record = read_owner_record(output, SUITE_FILE, layout=SUITE_FORMAT, remedy=remedy)
    if record is None:
        return False
    old = record.get(ASKED_ENTRY) or {}
    if different := sorted(name for name in {*asked, *old} if asked.get(name) != old.get(name)):
        raise OutputError(
            f"output: {output.uri} holds a suite that was made with other {', '.join(different)}; choose another "
            "folder, or delete this one"
        )
    return True


def _write_cell(
    plan: SuitePlan, meter: TokenMeter, file: Path, *, task: str, length: int
) -> tuple[list[SuiteQuestion], list[int]]:
    """Writes the documents of a task and length, each a row group; returns their questions and lengths in tokens."""
    rows, num_tokens = [], []
    with pq.ParquetWriter(file, SUITE_DOCUMENTS, compression="zstd") as documents:
        for number, request in enumerate(plan.requests(task=task, length=length)):
            sample = TASKS[task].make(request, meter)
            document_id = f"{task}-{length}-{number:03d}"
            row = {"document_id": document_id, "text": sample.document}
            documents.write_table(pa.Table.from_pylist([row], schema=SUITE_DOCUMENTS))
            rows.append(
                SuiteQuestion(
                    question_id=document_id,
                    document_id=document_id,
                    question=sample.question,
                    references=list(sample.references),
                    task=task,
                    length_tokens=length,
                    depth=sample.depth,
                    metric=TASKS[task].metric.value,
                    **type_fields(TASKS[task].value_type if plan.typed else None),
                    is_absent=not sample.gold,
                    gold_spans=[GoldSpanRow(char_start=start, char_end=end) for start, end in sample.gold],
                )
            )
            num_tokens.append(sample.num_tokens)
    return rows, num_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Questions with right answers over documents: of `evaluate make`, or a user's own."""

    name: str
    questions_of: Callable[[pa.Table], pa.Table]
    """Its questions, a table of `SUITE_QUESTIONS`, by the answers to them (`ANSWER_COLUMNS`)."""


def open_suite(place: Location) -> Suite:
    """Opens the suite that `evaluate make` wrote at a place, without its documents.

    Raises:
        InputError: it is not whole, or its questions can't be scored.
    """
    questions = read_suite_questions(place)
    return Suite(name=mask_url(place.fs.unstrip_protocol(place.path)), questions_of=lambda _: questions)


def read_suite_questions(suite: Location) -> pa.Table:
    """Reads the questions of a whole suite, a table of `SUITE_QUESTIONS`.

    Raises:
        InputError: the suite is not whole, or a question can't be scored; names it.
    """
    missing = "give the folder of `memagent evaluate make`, or run that command again to its end"
    require_complete(suite, SUITE_FILE, layout=SUITE_FORMAT, missing=missing, remedy="make it again")
    place = suite / QUESTIONS_FILE
    with input_errors(place.uri):
        table = read_parquet(place)
    lacking = [name for name in SUITE_QUESTIONS.names if name not in table.column_names]
    if lacking:
        raise InputError(f"{place.uri} has no column {lacking[0]!r}, which every suite has; make the suite again")
    with input_errors(place.uri):
        questions = table.select(SUITE_QUESTIONS.names).cast(SUITE_QUESTIONS)
    _require_scorable(questions.to_pylist(), where=place.uri)
    return questions


def own_suite(questions: Location, *, documents: Sequence[str], metric: Metric) -> Suite:
    """Makes a suite of a question list with references. Rows without a document_id are asked of every document.

    The metric is that of questions without a type; typed ones have `value`. The documents give the suite its name.

    Raises:
        InputError: the list can't be read, or a question can't be scored.
    """
    task = posixpath.splitext(posixpath.basename(questions.path))[0]
    rows = []
    for row in read_questions(questions, ask=()).to_pylist():
        references = row["references"] or []
        is_absent = bool(references) and all(map(says_not_stated, references))
        rows.append(
            SuiteQuestion(
                question_id=row["question_id"],
                document_id=row["document_id"],
                question=row["question"],
                references=references,
                task=task,
                length_tokens=None,
                depth=None,
                metric=Metric.VALUE.value if row["answer_type"] else metric.value,
                **type_fields(value_type_of(row)),
                is_absent=is_absent,
                gold_spans=[] if is_absent else None,
            )
        )
    _require_scorable(rows, where=questions.uri)
    _warn_of_short_references(rows)
    return Suite(
        name=" over ".join([mask_url(questions.uri), *([", ".join(map(mask_url, documents))] if documents else [])]),
        questions_of=partial(_asked_questions, rows),
    )


def _asked_questions(questions: Sequence[SuiteQuestion], answers: pa.Table) -> pa.Table:
    """Each question with each document that it is asked of: its own, or all those of the answers.

    A question of several documents is a separate task.
    """
    documents = defaultdict[str, dict[str, None]](dict)
    for answer in answers.select(["document_id", "question_id"]).to_pylist():
        documents[answer["question_id"]][answer["document_id"]] = None
    rows = [
        {**row, "document_id": document_id}
        for row in questions
        for document_id in ([row["document_id"]] if row["document_id"] else documents[row["question_id"]])
    ]
    times = Counter(row["question_id"] for row in rows)
    tasks = ({"task": row["question_id"]} if times[row["question_id"]] > 1 else {} for row in rows)
    return pa.Table.from_pylist([{**row, **task} for row, task in zip(rows, tasks, strict=True)], SUITE_QUESTIONS)


def _warn_of_short_references(questions: Sequence[SuiteQuestion]) -> None:
    short = [
        (question["question_id"], reference)
        for question in questions
        if question["metric"] in CONTAINMENT_METRICS
        for reference in question["references"]
        if 0 < len(reference.strip()) < SHORT_CHARACTERS
    ]
    if short:
        question_id, reference = short[0]
        log.warning(
            f"question_id {question_id!r}: a wrong answer may contain the reference {reference!r}, too "
            f"({len(short)} references have fewer than {SHORT_CHARACTERS} characters); give such questions an "
            "answer_type, or use --metric em"
        )


def _require_scorable(questions: Sequence[SuiteQuestion], *, where: str) -> None:
    """Checks what scores need: references, and a metric that fits. The run itself checks all else before it reads.

    Raises:
        InputError: names the question and the remedy.
    """
    for row in questions:
        name = f"{where}: question_id {row['question_id']!r} of document_id {row['document_id']!r}"
        if not any(reference and reference.strip() for reference in row["references"] or ()):
            raise InputError(f"{name} has no reference to score against; add one, or leave the question out")
        if row["metric"] not in set(Metric):
            raise InputError(f"{name} has the metric {row['metric']!r}; known are {', '.join(Metric)}")
        try:
            value_type = value_type_of(row)
        except ValueTypeError as error:
            raise InputError(f"{name}: {error}") from error
        if value_type is None and row["metric"] == Metric.VALUE:
            raise InputError(f"{name} has the metric value and asks for no type; give it an answer_type")
        problems = (written_value(each, value_type).problem for each in row["references"]) if value_type else ()
        if value_type and (problem := next(filter(None, problems), None)) is not None:
            raise InputError(f"{name}: its reference is not a {value_type.type.value}: {problem}")
