import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.scores import TEXT_METRICS, Metric, normalise, score, squad_normalise

ALL, EM, F1, SUB_EM = Metric.RULER_ALL, Metric.EM, Metric.F1, Metric.SUB_EM
HOTPOTQA_F1, EITHER = Metric.HOTPOTQA_F1, Metric.MEMAGENT_SUB_EM
BEST_OF = [EM, F1, HOTPOTQA_F1, SUB_EM, EITHER]
"""Metrics by which one right reference is enough."""

WORDS = st.lists(st.sampled_from(["the", "a", "red", "Red", "fox", "12", "1,2", "!", "...", "１２", ""]), max_size=5)
TEXTS = st.one_of(st.text(max_size=12), WORDS.map(" ".join))
REFERENCES = st.lists(TEXTS, min_size=1, max_size=4)


@pytest.mark.parametrize(
    ("text", "normalised"),
    [
        ("The  quick, brown\tfox!", "quick brown fox"),
        ("an apple a day", "apple day"),
        ("...", ""),
        ("", ""),
        ("１２３", "123"),
        ("1,234,567.89", "1234567.89"),
        ("It was 3.5.", "it was 3.5"),
        (".5", "0.5"),
        ("3-5", "3 5"),
        ("30-day", "30 day"),
        ("-5", "-5"),
        ("(\u22125)", "-5"),
        ("-$1.50", "-1.50"),
        ("x!-5", "x -5"),
        ("- 5", "5"),
        ("state-of-the-art", "stateoftheart"),
        ("„Zürich“ — «Genève»", "zürich genève"),
        ("don\u2019t", "dont"),
        ("soft\u00adhyphen", "softhyphen"),
        ("ﬁsh", "fish"),
    ],
)
def test_normalise_text_is_folded_in_all_of_unicode_and_numbers_stay(text: str, normalised: str) -> None:
    assert normalise(text) == normalised


@pytest.mark.parametrize(
    ("text", "normalised"),
    [("-$1.50", "150"), ("3-5", "35"), ("The „Zürich“!", "zürich"), ("30-day", "30day"), ("...", "")],
)
def test_squad_normalise_deletes_all_punctuation_without_a_gap(text: str, normalised: str) -> None:
    assert squad_normalise(text) == normalised


@pytest.mark.parametrize(
    ("metric", "answer", "references", "expected"),
    [
        (ALL, "It is ABC.", ["abc"], 1.0),
        (ALL, "one, two", ["one", "two", "three", "four"], 0.5),
        (ALL, "12345", ["123", "1234"], 1.0),
        (ALL, "anything", [" "], 0.0),
        (ALL, "one", ["one", ""], 0.5),
        (ALL, "１２３", ["123"], 0.0),
        (EM, "The Eiffel Tower.", ["eiffel tower"], 1.0),
        (EM, "１２３", ["123"], 1.0),
        (EM, "1,234", ["1234"], 1.0),
        (EM, "-5", ["5"], 0.0),
        (EM, "$5", ["5"], 1.0),
        (EM, "", [""], 0.0),
        (EM, "A", ["a"], 1.0),
        (EM, "the", ["A"], 0.0),
        (F1, "the red fox", ["a red fox"], 1.0),
        (F1, "red", ["red fox"], 2 / 3),
        (F1, "red red", ["red fox"], 0.5),
        (F1, "fox dog", ["red cat", "dog"], 2 / 3),
        (F1, "yes, it is", ["yes"], 0.5),
        (F1, "$1.50", ["150"], 0.0),
        (HOTPOTQA_F1, "$1.50", ["150"], 1.0),
        (HOTPOTQA_F1, "3.5", ["35"], 1.0),
        (HOTPOTQA_F1, "yes, it is", ["yes"], 0.0),
        (HOTPOTQA_F1, "Yes.", ["yes"], 1.0),
        (HOTPOTQA_F1, "no one", ["no"], 0.0),
        (HOTPOTQA_F1, "noanswer", ["noanswer"], 1.0),
        (HOTPOTQA_F1, "yes sir", ["no", "yes sir"], 1.0),
        (SUB_EM, "It was in 1,984, I think", ["1984"], 1.0),
        (SUB_EM, "the state of New York, NY", ["NY"], 1.0),
        (SUB_EM, "New hotels in York", ["New York"], 0.0),
        (SUB_EM, "130", ["30"], 0.0),
        (SUB_EM, "-30", ["30"], 0.0),
        (SUB_EM, "a 30-day notice", ["30"], 1.0),
        (SUB_EM, "unlimited", ["limited"], 0.0),
        (SUB_EM, "I do not know", ["no"], 0.0),
        (SUB_EM, "No.", ["no"], 1.0),
        (SUB_EM, "fox", ["the"], 0.0),
        (EITHER, "fox", ["red fox"], 1.0),
        (EITHER, "a red fox indeed", ["red fox"], 1.0),
        (EITHER, "", ["fox"], 1.0),
    ],
)
def test_score_worked_case_is_as_computed_by_hand(
    metric: Metric, answer: str, references: list[str], expected: float
) -> None:
    assert score(metric, answer, references) == pytest.approx(expected)


@pytest.mark.parametrize("metric", Metric)
def test_score_without_an_answer_or_a_reference_is_zero(metric: Metric) -> None:
    assert score(metric, None, ["fox"]) == score(metric, "fox", []) == 0.0


@given(st.sampled_from(TEXT_METRICS), TEXTS, REFERENCES)
def test_score_anything_is_from_zero_to_one(metric: Metric, answer: str, references: list[str]) -> None:
    assert 0.0 <= score(metric, answer, references) <= 1.0


@given(st.sampled_from(BEST_OF), TEXTS, REFERENCES, TEXTS)
def test_score_one_more_reference_never_lowers_the_best(
    metric: Metric, answer: str, references: list[str], more: str
) -> None:
    assert score(metric, answer, [*references, more]) >= score(metric, answer, references)
