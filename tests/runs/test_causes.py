from typing import Any

import pytest

from memagent_batch.domain.closing.answer_types import Bool
from memagent_batch.runs.comparison import (
    AnswerChange,
    AskedReading,
    Cause,
    causes_between,
    causes_of_presence,
    change_between,
)


def asked(**values: Any) -> AskedReading:
    given = {"document_hash": "d", "question_hash": "q", "reader_fingerprint": "f", "extraction": "auto"}
    return AskedReading(**given | values)


@pytest.mark.parametrize(
    ("values", "causes"),
    [
        ({}, [Cause.SAME_INPUTS]),
        ({"document_hash": "e"}, [Cause.DOCUMENT]),
        ({"document_hash": None}, [Cause.DOCUMENT]),
        ({"question_hash": "r"}, [Cause.QUESTION]),
        ({"reader_fingerprint": "g"}, [Cause.READER]),
        ({"extraction": "raw"}, [Cause.EXTRACTION]),
        ({"value_type": Bool()}, [Cause.TYPE]),
        ({"document_hash": "e", "reader_fingerprint": "g"}, [Cause.DOCUMENT, Cause.READER]),
    ],
)
def test_causes_between_name_all_that_differs(values: dict[str, Any], causes: list[Cause]) -> None:
    assert causes_between(asked(), asked(**values)) == causes


@pytest.mark.parametrize(
    ("document_there", "question_there", "causes"),
    [
        (False, True, [Cause.DOCUMENT]),
        (True, False, [Cause.QUESTION]),
        (False, False, [Cause.DOCUMENT, Cause.QUESTION]),
        (True, True, [Cause.SAMPLE]),
    ],
)
def test_causes_of_presence_name_what_the_other_run_lacks(
    document_there: bool, question_there: bool, causes: list[Cause]
) -> None:
    assert causes_of_presence(document_there=document_there, question_there=question_there) == causes


def test_change_between_says_which_run_asked() -> None:
    assert change_between(asked_before=False, asked_after=True) is AnswerChange.ADDED
    assert change_between(asked_before=True, asked_after=True) is AnswerChange.CHANGED
    assert change_between(asked_before=True, asked_after=False) is AnswerChange.REMOVED
