import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from memagent_batch.apps.evaluation.suite import (
    SUITE_FORMAT,
    SUITE_QUESTIONS,
    SuitePlan,
    make_suite,
    read_suite_questions,
)
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, StorageError

QUESTION = {
    "question_id": "q",
    "document_id": "d",
    "question": "Who?",
    "references": ["fox"],
    "task": "t",
    "metric": "em",
    "is_absent": False,
}
LABELLED = QUESTION | {"answer_type": "label", "labels": ["fox", "dog"], "metric": "value"}


def write_suite(folder: Path, *questions: dict[str, Any]) -> Location:
    pq.write_table(pa.Table.from_pylist(list(questions), schema=SUITE_QUESTIONS), folder / "questions.parquet")
    (folder / "suite.json").write_text(json.dumps({"format": SUITE_FORMAT}))
    return Location(uri=str(folder))


@pytest.mark.parametrize(
    ("questions", "message"),
    [
        ([QUESTION | {"references": []}], "question_id 'q' of document_id 'd' has no reference"),
        ([QUESTION | {"references": [" ", ""]}], "has no reference"),
        ([QUESTION | {"metric": "bleu"}], "metric 'bleu'; known are em, f1"),
        ([QUESTION | {"metric": "value"}], "metric value and asks for no type; give it an answer_type"),
        ([LABELLED | {"references": ["cat"]}], "its reference is not a label: 'cat' is not one of fox, dog"),
        ([LABELLED | {"references": ["not stated"], "not_stated": False}], "'not stated' is not one of fox, dog"),
    ],
)
def test_read_suite_questions_that_cannot_be_scored_are_refused(
    tmp_path: Path, questions: list[dict[str, Any]], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        read_suite_questions(write_suite(tmp_path, *questions))


@pytest.mark.parametrize(
    ("break_it", "message"),
    [
        (lambda folder: (folder / "suite.json").unlink(), r"no suite\.json, so it is not whole"),
        (lambda folder: (folder / "suite.json").write_text('{"format": "memagent-suite/9"}'), "memagent-suite/9"),
        (lambda folder: (folder / "suite.json").write_text("{"), r"suite\.json is not valid JSON"),
        (
            lambda folder: pq.write_table(pa.table({"question_id": ["q"]}), folder / "questions.parquet"),
            "no column 'document_id'",
        ),
    ],
)
def test_read_suite_questions_of_half_a_suite_or_another_version_are_refused(
    tmp_path: Path, break_it: Callable[[Path], object], message: str
) -> None:
    suite = write_suite(tmp_path, QUESTION)
    break_it(tmp_path)
    with pytest.raises(InputError, match=message):
        read_suite_questions(suite)


@pytest.mark.parametrize("error", [StorageError("the disk is full"), KeyboardInterrupt()])
def test_suite_that_stops_on_the_way_leaves_nothing_and_can_be_made_again(error: BaseException, tmp_path: Path) -> None:
    plan = SuitePlan(tasks=("vt", "niah_single_1"), lengths=(512,), samples=2, seed=0)
    output = Location(uri=str(tmp_path / "suite"))

    def stop(_: str) -> None:
        raise error

    with pytest.raises(type(error)):
        make_suite(plan, "tiny", output, say=stop)
    assert not output.files()
    assert make_suite(plan, "tiny", output, say=print)
    assert read_suite_questions(output)["question_id"].to_pylist()[:2] == ["vt-512-000", "vt-512-001"]
