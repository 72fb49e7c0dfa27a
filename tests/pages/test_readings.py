import json
from typing import Any

import pytest

from memagent_batch.apps.pages.readings import NEEDS, OUTCOMES, need_of, outcome_of, run_time, said_words, shown_value
from memagent_batch.data.documents.document_index import UNREAD_SOURCE
from memagent_batch.loop.follow_ups.doubts import Doubt
from memagent_batch.run.tables import ANSWERS

UNREAD = {"status": "failed", "value_status": "not_read", "error_type": UNREAD_SOURCE}
"""Columns of a reading of a source that has no text."""
SHOWN = "the model was shown 12.0 % of the text"
NOT_ALL = "not all of its source was read"


def row_of(**columns: object) -> dict[str, Any]:
    return {**dict.fromkeys(ANSWERS.names), "status": "ok", "answer": "an answer", **columns}


@pytest.mark.parametrize(
    ("columns", "value", "outcome"),
    [
        ({"answer": "Paris"}, "Paris", "answered"),
        ({"answer": None}, "no answer", "no answer"),
        ({"answer": "x", "status": "failed"}, "failed", "failed"),
        ({"answer": None, "status": "not_read"}, "not read", "not read"),
        ({"value_status": "ok", "value": "true"}, "yes", "answered"),
        ({"value_status": "ok", "value": "1234567.5", "value_unit": "EUR"}, "1234567.5 EUR", "answered"),
        *[
            ({"value_status": "ok", "value": number, "value_unit": unit}, shown, "answered")
            for number, unit, shown in (("1.0", "days", "1 day"), ("11", "days", "11 days"), ("1", "lbs", "1 lbs"))
        ],
        ({"value_status": "ok", "value": "1234567890.1234567"}, "1234567890.1234567", "answered"),
        ({"value_status": "ok", "value": "8054091.0", "value_unit": "1"}, "8054091", "answered"),
        ({"value_status": "ok", "value": "1e+30"}, "1e+30", "answered"),
        ({"value_status": "ok", "value": '"2027-01-31"'}, "2027-01-31", "answered"),
        ({"value_status": "ok", "value": '["a", "b"]'}, "a, b", "answered"),
        ({"value_status": "ok", "value": "[]"}, "none", "answered"),
        ({"value_status": "ok", "value": '{"a": "é"}'}, '{"a": "é"}', "answered"),
        ({"value_status": "ok", "value": None, "answer": "free text"}, "free text", "answered"),
        ({"value_status": "not_stated", "answer": "x"}, "not stated", "not stated"),
        ({"value_status": "invalid", "answer": "x"}, "invalid", "invalid"),
        ({"value_status": "not_read", "coverage": 0.12}, f"not read: {SHOWN}", "not read"),
        ({"value_status": "not_read", "coverage": 0.5, "source_unread": "page 2"}, "not read", "not read"),
        ({"value_status": "ok", "value": "5", "coverage": 0.12}, "5", "answered"),
    ],
)
def test_value_is_shown_as_a_person_reads_it(columns: dict[str, object], value: str, outcome: str) -> None:
    row = row_of(**columns)
    assert (shown_value(row), outcome_of(row)) == (value, outcome)
    assert outcome in OUTCOMES


@pytest.mark.parametrize(("status", "said"), [("ok", "sixty"), ("invalid", "sixty: refused")])
def test_answer_says_what_went_wrong_with_its_value_alone(status: str, said: str) -> None:
    row = row_of(answer="sixty", answer_type="number", value_status=status, value="60", follow_up_error="refused")
    assert said_words(row) == said


def test_run_time_is_read_from_a_run_id_or_the_id_stays() -> None:
    assert run_time("20261122T010203.000Z.ab12") == "2026-11-22 01:02 UTC"
    assert run_time("mine") == "mine"


@pytest.mark.parametrize(
    ("columns", "is_changed", "is_accepted", "why"),
    [
        ({}, False, False, None),
        ({"support": "contradicted", "value_status": "invalid"}, True, False, "the evidence contradicts the answer"),
        ({"support": "not enough"}, False, False, "the evidence says too little"),
        ({"status": "failed", "error_type": "EngineRequestError"}, False, True, "reading it failed"),
        (UNREAD, False, False, "not all of its source was read"),
        (UNREAD, False, True, None),
        ({"value_status": "not_read"}, False, False, "not all of its source was read"),
        ({"value_status": "not_read"}, True, True, "another answer than before"),
        ({"value_status": "not_read", "coverage": 0.12}, False, False, None),
        ({"value_status": "not_read", "coverage": 0.06, "source_unread": "page 2"}, False, False, NOT_ALL),
        ({"value_status": "invalid"}, False, False, "no valid answer"),
        ({"support": "partly"}, True, False, "the evidence says a part of the answer"),
        ({"support": "supported"}, True, False, "another answer than before"),
        *[({"value_status": "ok", "value_doubt": doubt}, True, False, doubt) for doubt in map(str, Doubt)],
    ],
)
def test_reading_needs_a_look_for_the_most_pressing_reason(
    columns: dict[str, object], is_changed: bool, is_accepted: bool, why: str | None
) -> None:
    row = row_of(**columns)
    assert [*NEEDS, None][need_of(row, [], is_changed=is_changed, is_accepted=is_accepted)] == why
    assert need_of(row, [], is_changed=is_changed, is_accepted=is_accepted, was_signed=True) == 0


@pytest.mark.parametrize(
    ("answer", "answer_type", "alignments", "expected"),
    [
        ("eight per cent", "number", ["none"], True),
        ("18", "number", ["none"], True),
        ("5", "number", ["none"], False),
        ("12", "number", ["none"], False),  # the sentence has it in words
        ("2025-06-18", "date", ["none"], True),
        ("Ada Byron", None, ["none"], True),
        ("twelve per year", "text", ["none"], False),  # all its words are in the sentence
        ("12 June 2025", "date", ["none", "exact"], False),
        ("2025-06-17", "date", ["none"], False),  # the sentence has it otherwise
        ("yes", "bool", ["none"], False),
        ("The tenant may end it at any time", None, ["none"], False),
        (None, "text", [], False),
    ],
)
def test_short_answer_whose_words_the_document_does_not_hold_is_nowhere(
    answer: str | None, answer_type: str | None, alignments: list[str], *, expected: bool
) -> None:
    value = json.dumps(answer) if answer_type == "date" else None
    row = row_of(answer=answer, answer_type=answer_type, support="contradicted", value=value)
    text = "From 17 June 2025 it pays twelve times per year, for five (5) years."
    sentence = {"how": "chosen", "alignment": "exact", "text": text}
    aligned = [{"how": "aligned", "alignment": alignment, "text": None} for alignment in alignments]
    need = need_of(row, [sentence, *aligned], is_changed=False, is_accepted=False)
    assert (NEEDS[need] == "the answer's words are nowhere in the document") is expected
