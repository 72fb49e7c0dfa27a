"""What the page of a document and `memagent show` say of a reading."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.apps.pages.document_page import Mark, shown_evidence, windows
from memagent_batch.apps.pages.readings import RunReading
from memagent_batch.run.tables import ANSWERS

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
    row = dict.fromkeys(ANSWERS.names) | columns
    assert shown_evidence(RunReading(answer=row, turns=[], evidence=[FOUND, NOWHERE, CHOSEN])) == shown


@st.composite
def marked_texts(draw: st.DrawFn) -> tuple[str, list[Mark]]:
    text = draw(st.text(alphabet="ab \r\n\u0301\u05d0🦊", min_size=1, max_size=3000))
    places = st.integers(0, len(text))
    spans = draw(st.lists(st.tuples(places, places), min_size=1, max_size=6))
    marks = [Mark(number=n, start=min(span), end=max(span)) for n, span in enumerate(spans, start=1)]
    return text, marks


@given(marked_texts(), st.integers(0, 2000))
def test_windows_are_the_text_itself_and_hold_every_mark_once(
    marked: tuple[str, list[Mark]], context_chars: int
) -> None:
    text, marks = marked
    found = windows(text, marks, context_chars=context_chars)
    for window in found:
        shown = window.before + "".join(piece.text for piece in window.pieces) + window.after
        assert shown == text[window.start : window.end]
    assert all(one.end <= other.start for one, other in pairwise(found))
    for mark in marks:
        pieces = [piece for window in found for piece in window.pieces if mark.number in piece.numbers]
        assert "".join(piece.text for piece in pieces) == text[mark.start : mark.end]
        begins = [piece for window in found for piece in window.pieces if mark.number in piece.begins]
        assert len(begins) == 1 or mark.start == mark.end


def test_window_reaches_whole_words_and_keeps_what_is_far_apart() -> None:
    text = "word " * 1000 + "THE EVIDENCE" + " tail" * 1000
    (window,) = windows(text, [Mark(number=1, start=5000, end=5012)], context_chars=2000)
    assert (window.start, window.num_chars) == (3000, len(text))
    assert window.before.startswith("word ")
    assert window.after.endswith(" tail")
    assert [piece.numbers for piece in window.pieces] == [(), (1,), ()]


def test_window_of_a_mark_outside_the_text_is_refused() -> None:
    with pytest.raises(ValueError, match="not in a text of 3"):
        windows("abc", [Mark(number=1, start=1, end=4)], context_chars=10)
