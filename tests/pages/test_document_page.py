"""What the page of a document and `memagent show` say of a reading."""

import pytest

from memagent_batch.pages.document_page import shown_evidence
from memagent_batch.pages.readings import RunReading

CHOSEN = {"how": "chosen", "rank": 0, "char_start": 3}
NOWHERE = {"how": "aligned", "rank": 0, "char_start": None}
FOUND = {"how": "aligned", "rank": 1, "char_start": 9}


@pytest.mark.parametrize(
    ("columns", "shown"),
    [
        ({"value_bool": False}, [CHOSEN, FOUND]),
        ({"value_label": "Delaware"}, [CHOSEN, FOUND]),
        ({"value_number": 1.0, "value_bool": None}, [CHOSEN, NOWHERE, FOUND]),
        ({}, [CHOSEN, NOWHERE, FOUND]),
    ],
)
def test_words_of_a_choice_that_the_document_lacks_are_no_evidence_to_show(
    columns: dict[str, object], shown: list[dict[str, object]]
) -> None:
    assert shown_evidence(RunReading(answer=columns, turns=[], evidence=[FOUND, NOWHERE, CHOSEN])) == shown
