"""Evaluation suites and scores as tables: what `evaluate make` writes, `run` reads, `score` and `report` work on.

A suite is ordinary input of the main job: `documents/*.parquet` and `questions.parquet`, beside `suite.json`.
"""

import logging
import posixpath
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, TypedDict

import pyarrow as pa

from memagent_batch.config.job import CONTAINMENT_METRICS
from memagent_batch.data.documents.questions import TypeFields, read_questions, type_fields, value_type_of
from memagent_batch.data.store.claims import read_owner_record, require_complete
from memagent_batch.data.store.columns import Column, arrow_schema, column
from memagent_batch.data.store.errors import input_errors
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import read_parquet
from memagent_batch.errors import InputError, OutputError, ValueTypeError
from memagent_batch.loop.follow_ups.values import says_not_stated, written_value
from memagent_batch.loop.scores import TEXT_METRICS, Metric
from memagent_batch.masking import mask_url
from memagent_batch.run.tables import ANSWERS, READING_COLUMNS, DocumentId, QuestionId, QuestionText

SUITE_FILE = "suite.json"
"""What was asked for: tasks, lengths, samples, seed, tokeniser. Written last: without it a suite is not whole."""
DOCUMENTS_FOLDER = "documents"
QUESTIONS_FILE = "questions.parquet"
SUITE_FORMAT = "memagent-suite/3"
"""Changes with every change of layout that an older version can't read."""
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


class FollowUpScores(TypedDict):
    """Scores of what was asked after the answer."""

    value_right: Annotated[bool | None, Column("whether the typed value equals a reference; null without a type")]
    reference_value: Annotated[str | None, Column("the first reference as a typed value, as JSON; null for not stated")]
    abstained: Annotated[bool, Column("whether the value, or the answer of a question without a type, is `not stated`")]
    evidence_precision: Annotated[
        float | None,
        Column(
            "share of these that overlap a sentence that supports the answer; null if that is not known or there is "
            "none"
        ),
    ]
    evidence_recall: Annotated[
        float | None, Column("share of the sentences that support the answer that evidence overlaps")
    ]
    evidence_f1: Annotated[float | None, Column("harmonic mean of both")]
    evidence_hit: Annotated[bool | None, Column("whether any evidence overlaps a sentence that supports the answer")]


SUITE_DOCUMENTS = arrow_schema(SuiteDocument)
SUITE_QUESTIONS = arrow_schema(SuiteQuestion)
FOLLOW_UP_SCORES = arrow_schema(FollowUpScores)
ASKED_ENTRY = "asked"
"""Entry of `suite.json` that says all that decides what is in a suite."""
STATUS_MISSING = "missing"
"""Status of a reading that the suite asks for and that the answers have no row of."""
COSTS = ("num_turns", "num_prompt_tokens", "num_cached_prompt_tokens", "num_completion_tokens", "engine_seconds")
"""What a reading took, as an answers table says it."""
VALUES = ("value", "value_status", "confidence")
"""What it says of the typed value."""
_SCORED = (*READING_COLUMNS, "status", "answer", "response", *VALUES, "num_evidence", "num_document_tokens", *COSTS)
ANSWER_COLUMNS = pa.schema(map(ANSWERS.field, _SCORED))
"""What of an answers table is scored."""

SCORES = pa.schema(
    [
        column("variant", pa.string(), "what was evaluated: a policy, a model, or both"),
        *map(ANSWERS.field, READING_COLUMNS),
        *map(SUITE_QUESTIONS.field, ("task", "length_tokens", "depth", "metric")),
        column("score", pa.float64(), "the task's own metric; 0 if there is nothing to score"),
        column("scored_on", pa.string(), "what `score` is of: response, answer or value"),
        *[column(metric.value, pa.float64(), f"metric {metric.value}") for metric in TEXT_METRICS],
        column("status", pa.string(), "ok or failed; missing where the answers have no row of it"),
        column("answered", pa.bool_(), "whether there was anything to score: an answer, or a response"),
        ANSWERS.field("answer"),
        *map(SUITE_QUESTIONS.field, ("references", "answer_type")),
        *map(ANSWERS.field, VALUES),
        *map(FOLLOW_UP_SCORES.field, ("value_right", "reference_value")),
        SUITE_QUESTIONS.field("is_absent"),
        FOLLOW_UP_SCORES.field("abstained"),
        ANSWERS.field("num_evidence"),
        *map(FOLLOW_UP_SCORES.field, ("evidence_precision", "evidence_recall", "evidence_f1", "evidence_hit")),
        *map(ANSWERS.field, ("num_document_tokens", *COSTS)),
    ]
)
"""One row for each reading that the suite asks for."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Suite:
    """Questions with right answers over documents: of `evaluate make`, or a user's own."""

    name: str
    questions_of: Callable[[pa.Table], pa.Table]
    """Its questions, a table of `SUITE_QUESTIONS`, by the answers to them (`ANSWER_COLUMNS`)."""


def open_suite(place: Location) -> Suite:
    """The suite that `evaluate make` wrote at a place, without its documents.

    Raises:
        InputError: it is not whole, or its questions can't be scored.
    """
    questions = read_suite_questions(place)
    return Suite(
        name=mask_url(place.fs.unstrip_protocol(place.path)),
        questions_of=lambda _: questions,
    )


def own_suite(questions: Location, *, documents: Sequence[str], metric: Metric) -> Suite:
    """The suite of a question list with references. Rows without a document_id are asked of every document.

    The metric is that of questions without a type; typed ones have `value`. The documents give the suite its name.

    Raises:
        InputError: the list can't be read, or a question can't be scored.
    """
    stem = posixpath.splitext(posixpath.basename(questions.path))[0]
    listed = read_questions(questions, ask=()).to_pylist()
    rows = [_suite_question(row, task=stem, metric=metric) for row in listed]
    _require_scorable(rows, where=questions.uri)
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


def span_rows(spans: Sequence[tuple[int, int]] | None) -> list[GoldSpanRow] | None:
    """Places in a document as a column of a question."""
    return None if spans is None else [GoldSpanRow(char_start=start, char_end=end) for start, end in spans]


def read_suite_questions(suite: Location) -> pa.Table:
    """The questions of a whole suite, a table of `SUITE_QUESTIONS`.

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
        _require_value(row, name=name)


def _require_value(row: SuiteQuestion, *, name: str) -> None:
    try:
        value_type = value_type_of(row)
    except ValueTypeError as error:
        raise InputError(f"{name}: {error}") from error
    if value_type is None:
        if row["metric"] == Metric.VALUE:
            raise InputError(f"{name} has the metric value and asks for no type; give it an answer_type")
        return
    for reference in row["references"]:
        if (problem := written_value(reference, value_type).problem) is not None:
            raise InputError(f"{name}: its reference is not a {value_type.type.value}: {problem}")


def claim_suite(output: Location, asked: Mapping[str, Any]) -> bool:
    """Checks that a suite may be written here; returns whether it is there already, whole.

    Raises:
        OutputError: the place holds another suite, half a suite, or something else; says what to do.
    """
    remedy = "delete them if they are of a suite that was not finished, or choose an empty folder"
    record = read_owner_record(output, SUITE_FILE, layout=SUITE_FORMAT, remedy=remedy)
    if record is None:
        return False
    if record.get(ASKED_ENTRY) != asked:
        there = record.get(ASKED_ENTRY) or {}
        different = sorted(name for name in {*asked, *there} if asked.get(name) != there.get(name))
        raise OutputError(
            f"output: {output.uri} holds a suite that was made with other {', '.join(different)}; choose another "
            "folder, or delete this one"
        )
    return True


def write_suite_record(output: Location, record: Mapping[str, Any]) -> None:
    """Writes `suite.json`, which makes the suite whole."""
    write_json(output / SUITE_FILE, {"format": SUITE_FORMAT, **record})
