"""A suite in its folder: `documents/`, `questions.parquet`, and `suite.json`, without which it is not whole."""

from collections.abc import Sequence
from typing import Any

import pyarrow as pa

from memagent_batch.domain.scoring.scores import Metric
from memagent_batch.errors import InputError, ValueTypeError
from memagent_batch.evaluation.suites.schemas import (
    QUESTIONS_FILE,
    SUITE_FILE,
    SUITE_FORMAT,
    SUITE_QUESTIONS,
    SuiteQuestion,
)
from memagent_batch.evaluation.suites.typed import written_value
from memagent_batch.files.claims import whole_record
from memagent_batch.files.errors import input_errors
from memagent_batch.files.location import Location
from memagent_batch.files.parquet import read_parquet
from memagent_batch.inputs.questions import value_type_of


def is_suite(location: Location) -> bool:
    """Whether the location is a folder with questions or a description of ours."""
    with input_errors(location.uri):
        return location.is_folder() and any((location / name).exists() for name in (SUITE_FILE, QUESTIONS_FILE))


def read_description(suite: Location) -> dict[str, Any]:
    """What `suite.json` says.

    Raises:
        InputError: it is not there, so the suite is not whole; or it is of another version.
    """
    missing = "run the command that was making it again"
    return whole_record(suite, SUITE_FILE, layout=SUITE_FORMAT, missing=missing, remedy="make it again")


def read_suite_questions(suite: Location) -> pa.Table:
    """The questions of a whole suite, a table of `SUITE_QUESTIONS`.

    Raises:
        InputError: the suite is not whole, holds no questions, or a question can't be scored; names it.
    """
    read_description(suite)
    place = suite / QUESTIONS_FILE
    with input_errors(place.uri):
        table = read_parquet(place)
    missing = [name for name in SUITE_QUESTIONS.names if name not in table.column_names]
    if missing:
        raise InputError(f"{place.uri} has no column {missing[0]!r}, which every suite has; make the suite again")
    with input_errors(place.uri):
        questions = table.select(SUITE_QUESTIONS.names).cast(SUITE_QUESTIONS)
    require_scorable(questions.to_pylist(), where=place.uri)
    return questions


def require_scorable(questions: Sequence[SuiteQuestion], *, where: str) -> None:
    """Checks that there are questions, each with a reference and a known metric, and each only once.

    Raises:
        InputError: names the question and the remedy.
    """
    if not questions:
        raise InputError(f"{where}: the suite is empty; there is nothing to score")
    seen = set()
    for row in questions:
        name = f"{where}: question_id {row['question_id']!r} of document_id {row['document_id']!r}"
        if not any(reference and reference.strip() for reference in row["references"] or ()):
            raise InputError(f"{name} has no reference to score against; add one, or leave the question out")
        if row["metric"] not in set(Metric):
            raise InputError(f"{name} has the metric {row['metric']!r}; known are {', '.join(Metric)}")
        _require_value(row, name=name)
        key = (row["document_id"], row["question_id"])
        if key in seen:
            raise InputError(f"{name} is there twice; give one of them another question_id")
        seen.add(key)


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
        try:
            written_value(reference, value_type)
        except ValueError as error:
            raise InputError(f"{name}: its reference is no {value_type.type.value}: {error}") from error
