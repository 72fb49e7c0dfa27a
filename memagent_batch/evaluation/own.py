"""A user's own questions as a suite: a question list with references, over the user's own documents."""

import logging
import posixpath
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from typing import Any

import pyarrow as pa

from memagent_batch.documents.questions import read_questions, type_fields, value_type_of
from memagent_batch.domain.follow_ups.values import says_not_stated
from memagent_batch.domain.scores import CONTAINMENT_METRICS, Metric
from memagent_batch.evaluation.suite import SUITE_QUESTIONS, Suite, SuiteQuestion, require_scorable
from memagent_batch.masking import mask_url
from memagent_batch.store.location import Location

log = logging.getLogger(__name__)
SHORT_CHARACTERS = 4
"""References with fewer characters may stand in a wrong answer by chance, such as `no` in `There is no limit`."""


def own_suite(questions: Location, *, documents: Sequence[str], metric: Metric) -> Suite:
    """The suite of a question list with references. Rows without a document_id are asked of every document.

    The metric is that of questions without a type; typed ones have `value`. The documents give the suite its name.

    Raises:
        InputError: the list can't be read, or a question can't be scored.
    """
    stem = posixpath.splitext(posixpath.basename(questions.path))[0]
    listed = read_questions(questions, ask=()).to_pylist()
    rows = [_suite_question(row, task=stem, metric=metric) for row in listed]
    require_scorable(rows, where=questions.uri)
    _warn_of_short_references(rows)
    return Suite(
        name=" over ".join([mask_url(questions.uri), *([", ".join(map(mask_url, documents))] if documents else [])]),
        questions_of=partial(_asked_questions, rows),
    )


def _asked_questions(listed: Sequence[SuiteQuestion], answers: pa.Table) -> pa.Table:
    """Each question with each document that it is asked of: its own, or all those of the answers.

    A question of several documents is a separate task.
    """
    documents = defaultdict[str, dict[str, None]](dict)
    for answer in answers.select(["document_id", "question_id"]).to_pylist():
        documents[answer["question_id"]][answer["document_id"]] = None
    rows = [
        {**row, "document_id": document_id}
        for row in listed
        for document_id in ([row["document_id"]] if row["document_id"] else documents[row["question_id"]])
    ]
    times = Counter(row["question_id"] for row in rows)
    tasks = ({"task": row["question_id"]} if times[row["question_id"]] > 1 else {} for row in rows)
    return pa.Table.from_pylist([{**row, **task} for row, task in zip(rows, tasks, strict=True)], SUITE_QUESTIONS)


def _suite_question(row: Mapping[str, Any], *, task: str, metric: Metric) -> SuiteQuestion:
    references = row["references"] or []
    is_absent = bool(references) and all(says_not_stated(reference) for reference in references)
    return SuiteQuestion(
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


def _warn_of_short_references(questions: Iterable[SuiteQuestion]) -> None:
    short = [
        (question, reference)
        for question in questions
        if question["metric"] in CONTAINMENT_METRICS
        for reference in question["references"]
        if 0 < len(reference.strip()) < SHORT_CHARACTERS
    ]
    if short:
        question, reference = short[0]
        log.warning(
            f"question_id {question['question_id']!r}: a wrong answer may contain the reference {reference!r}, too "
            f"({len(short)} references have fewer than {SHORT_CHARACTERS} characters); give such questions an "
            "answer_type, or use --metric em"
        )
