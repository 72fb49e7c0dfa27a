from typing import Any

import pytest

from memagent_batch.domain.closing.answer_types import Bool
from memagent_batch.runs.comparison import AskedReading, Cause, causes_between


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
