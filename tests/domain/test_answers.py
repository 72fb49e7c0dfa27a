import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.config.agent import Extraction
from memagent_batch.loop.answers import extract_answer

PLAIN_TEXT = st.text(alphabet=st.characters(blacklist_characters="{}\\"), max_size=40)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"So \boxed{42}.", "42"),
        (r"\boxed{\frac{1}{2}} is it", r"\frac{1}{2}"),
        (r"first \boxed{a}, then \boxed{b}", "b"),
        (r"\boxed{whole} and \boxed{cut", "whole"),
        (r"\boxed{北京 🗼}", "北京 🗼"),
        ("\\boxed{two\nlines}", "two\nlines"),
        (r"\boxed{outer \boxed{inner}}", "inner"),
        (r"\boxed{", None),
        (r"\boxed{cut {deeper}", None),
        (r"\boxed{  }", None),
        ("no box", None),
        ("", None),
    ],
)
def test_extract_answer_boxed_takes_the_last_box_that_closes(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.BOXED) == answer


@given(before=PLAIN_TEXT, answer=PLAIN_TEXT, after=PLAIN_TEXT)
def test_extract_answer_boxed_in_any_text_returns_what_was_boxed(before: str, answer: str, after: str) -> None:
    response = f"{before}\\boxed{{{answer}}}{after}"
    assert extract_answer(response, extraction=Extraction.BOXED) == (answer.strip() or None)


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("The answer is Paris.", "Paris"),
        ("the ANSWER is: Paris", "Paris"),
        ("The answer is 1. No, wait: the answer is 2.", "2"),
        ("The answer is 3.5.", "3.5"),
        ("**The answer is:** Paris", "Paris"),
        ("The answer is **Paris**.", "Paris"),
        ("The answer is Paris. So the answer is", "Paris. So"),
        ("The answer is\nParis", None),
        ("Therefore, the answer is:\n\nParis.", "Paris"),
        ("**The answer is:**\r\n\r\n**Paris**\r\nI am sure.", "Paris"),
        ("The answer is: 1.\n2", "1"),
        ("The answer is 1. The answer is:\n", "1"),
        ("The answer is:\nthe answer is 2", "2"),
        ("The answer is .", None),
        ("Paris", None),
        ("", None),
    ],
)
def test_extract_answer_sentence_takes_the_last_one_to_the_end_of_its_line(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.SENTENCE) == answer


@pytest.mark.parametrize(
    ("response", "answer"),
    [
        (r"The answer is 1. \boxed{2}", "2"),
        (r"\boxed{2} The answer is 1.", "2"),
        (r"\boxed{ The answer is 1.", "1"),
        ("The answer is 1.", "1"),
        ("1", None),
    ],
)
def test_extract_answer_auto_prefers_the_box(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.AUTO) == answer


@pytest.mark.parametrize(("response", "answer"), [("  Paris \n", "Paris"), (" \n", None), ("", None)])
def test_extract_answer_raw_keeps_the_whole_response(response: str, answer: str | None) -> None:
    assert extract_answer(response, extraction=Extraction.RAW) == answer


@pytest.mark.parametrize("extraction", Extraction)
@pytest.mark.parametrize(
    ("response", "answer"),
    [
        ("<think>\\boxed{Lyon}, or the answer is Lyon</think> I do not know", None),
        ("<think>\\boxed{Lyon}, or the answer is Lyon", None),
        ("<think>\\boxed{Lyon}</think>\n\nThe answer is \\boxed{Paris}", "Paris"),
    ],
)
def test_extract_answer_takes_nothing_out_of_a_thought(
    response: str, answer: str | None, extraction: Extraction
) -> None:
    extracted = extract_answer(response, extraction=extraction)
    assert "Lyon" not in (extracted or "")
    assert answer is None or answer in (extracted or "")


@given(response=st.text(max_size=80), extraction=st.sampled_from(Extraction))
def test_extract_answer_of_any_text_is_none_or_not_empty(response: str, extraction: Extraction) -> None:
    answer = extract_answer(response, extraction=extraction)
    assert answer is None or answer.strip() == answer != ""
