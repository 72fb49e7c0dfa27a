"""Strings of a model's own, looked for in a text."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.run.evidence import Aligned, Alignment, align, answer_strings

TEXT = (
    "Der Vertrag endet am 31. März 2024.\r\nÄNDERUNGEN bedürfen der Schriftform. Ｔｏｋｙｏ Ltd. "
    "東京株式会社が署名した。"
)


def one(string: str, text: str = TEXT, **spans: object) -> tuple[Alignment, str | None]:
    (found,) = align([string], text, **spans)  # type: ignore[arg-type]
    return found.alignment, None if found.char_start is None else text[found.char_start : found.char_end]


@pytest.mark.parametrize(
    ("string", "alignment", "place"),
    [
        ("31. März 2024", Alignment.EXACT, "31. März 2024"),
        ("31.  ma\u0308rz\n2024", Alignment.FOLDED, "31. März 2024"),
        ("tokyo ltd", Alignment.FOLDED, "Ｔｏｋｙｏ Ltd"),
        ("2024. Änderungen", Alignment.FOLDED, "2024.\r\nÄNDERUNGEN"),
        ("der Vertrag endete am 31 März 2024", Alignment.NONE, None),
        ("Barcelona", Alignment.NONE, None),
        (" ", Alignment.EXACT, " "),
        ("\u3000\u3000", Alignment.NONE, None),
    ],
)
def test_string_is_found_as_near_as_it_is(string: str, alignment: Alignment, place: str | None) -> None:
    assert one(string) == (alignment, place)


def test_base_letter_at_the_end_of_a_string_is_not_an_accented_one() -> None:
    assert one("CAFE", "a café here") != (Alignment.FOLDED, "caf\u00e9")


def test_string_that_stands_in_several_places_is_taken_near_the_evidence() -> None:
    text = "Paid 5 EUR. Owed 5 EUR. owed 5 eur."
    assert align(["5 EUR"], text, near=[(12, 24)])[0].char_start == 17
    assert align(["OWED"], text, near=[(24, 40)])[0].char_start == 24
    assert align(["5 EUR"], text)[0].char_start == 5
    assert align(["5 EUR"], text, near=[(0, 3)])[0].char_start == 5


@given(st.text(max_size=60), st.text(min_size=1, max_size=20), st.text(max_size=60))
def test_string_of_the_text_is_found_exactly_and_in_capitals_at_least_folded(
    before: str, string: str, after: str
) -> None:
    text = f"{before} {string} {after}"
    assert one(string, text) == (Alignment.EXACT, string)
    (found,) = align([f" {string} "], text.replace("\U0001f600", " "))
    if found.char_start is not None:
        assert 0 <= found.char_start < (found.char_end or 0) <= len(text)


@given(st.lists(st.sampled_from("aÄßﬁé\U0001f600 x"), min_size=4, max_size=40))
def test_folded_places_are_those_of_the_text(signs: list[str]) -> None:
    text = "".join(signs) + " needle-in-it " + "".join(signs)
    assert one("NEEDLE-IN-IT", text) == (Alignment.FOLDED, "needle-in-it")


def test_none_is_kept_beside_what_was_found() -> None:
    assert align(["Tokyo", "Rio"], "Rio") == [
        Aligned(string="Tokyo", alignment=Alignment.NONE),
        Aligned(string="Rio", alignment=Alignment.EXACT, char_start=0, char_end=3),
    ]


def test_strings_of_an_answer_are_itself_its_quotes_and_its_numbers() -> None:
    assert answer_strings(' The fee is "five percent" of 1,200.50. ') == [
        'The fee is "five percent" of 1,200.50.',
        "five percent",
        "1,200.50",
    ]
    assert answer_strings("a" * 400 + " 12") == ["12"]
    assert answer_strings("  ") == []


@pytest.mark.parametrize(
    ("string", "text", "found"),
    [
        ("5", "15 boxes, 1.5 kg and 5,000 EUR; 5kg were left.", "5kg"),
        ("5", "There were 15 boxes, 1.5 kg, 5,000 EUR.", None),
        ("Ann", "Annabel signed; Ann agreed.", "Ann agreed"),
        ("ANN", "Annabel signed; Ann agreed.", "Ann agreed"),
        ("Ann", "Annabel and Joann signed.", None),
        ("cafe", "the cafe\u0301 is not the cafe.", "cafe."),
        ("签", "双方签署。", "签署"),
    ],
)
def test_string_inside_a_word_or_number_is_not_that_string(string: str, text: str, found: str | None) -> None:
    (aligned,) = align([string], text)
    if found is None:
        assert aligned.alignment is Alignment.NONE
    else:
        assert aligned.alignment in (Alignment.EXACT, Alignment.FOLDED)
        assert aligned.char_start == text.index(found)


def test_whole_word_elsewhere_goes_before_a_part_of_one_nearby() -> None:
    text = "Annabel signed. Ann agreed."
    (aligned,) = align(["Ann"], text, near=[(0, 15)])
    assert (aligned.alignment, aligned.char_start) == (Alignment.EXACT, text.index("Ann agreed"))
