"""Sentences in any script, and their tokens."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.document import Document
from memagent_batch.domain.texts.sentences import MAX_SENTENCE_CHARS, Sentences, split_sentences
from memagent_batch.tokens.tokenizer import Tokenizer

SIGNS = st.sampled_from(
    ' \t\n\r\u2028\u3000.!?…。？！；؟।,|)"””aZéß1०他说ا\u0301\u200d\U0001f600\U0001f468\ufe0f\u1160-'
)
TEXTS = st.text(SIGNS, max_size=300) | st.text(max_size=300)


def sentences_of(text: str, *, max_chars: int = MAX_SENTENCE_CHARS) -> list[str]:
    found = split_sentences(text, max_chars=max_chars)
    return [text[slice(*found.span(index))] for index in range(len(found))]


@given(TEXTS, st.integers(4, 50))
def test_sentences_cover_all_but_white_space_in_order_and_keep_to_their_length(text: str, max_chars: int) -> None:
    found = split_sentences(text, max_chars=max_chars)
    end = 0
    for index in range(len(found)):
        start, next_end = found.span(index)
        assert end <= start < next_end <= start + max_chars
        assert not text[end:start].strip()
        assert text[start:next_end] == text[start:next_end].strip()
        end = next_end
    assert not text[end:].strip()


@given(TEXTS, st.integers(0, 300), st.integers(1, 60))
def test_sentences_within_a_span_are_those_with_a_character_in_it(text: str, start: int, length: int) -> None:
    found = split_sentences(text, max_chars=20)
    expected = [i for i in range(len(found)) if found.starts[i] < start + length and found.ends[i] > start]
    assert list(found.within(start, start + length)) == expected


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Mr. Smith paid 3.14 dollars. He left.", ["Mr. Smith paid 3.14 dollars.", "He left."]),
        (
            "J. R. Hartley, e.g. of the U.S. Army, wrote it. Yes!",
            ["J. R. Hartley, e.g. of the U.S. Army, wrote it.", "Yes!"],
        ),
        ('"Why?" she asked. (No.) Then: "Go!" He went.', ['"Why?" she asked.', "(No.)", 'Then: "Go!"', "He went."]),
        ("See Art. 5 and www.example.org. Wait... then go", ["See Art. 5 and www.example.org.", "Wait... then go"]),
        ("He said no. Then see No. 5 of modern art. End", ["He said no.", "Then see No. 5 of modern art.", "End"]),
        ("2. Scope\n2.1. Parties sign. Here", ["2. Scope", "2.1. Parties sign.", "Here"]),
        ("他说：“你好！”我走了？是的；好", ["他说：“你好！”", "我走了？", "是的；", "好"]),
        ("هل وقعت؟ نعم. ثم غادر", ["هل وقعت؟", "نعم.", "ثم غادر"]),
        ("यह एक है। वह दो॥ अंत", ["यह एक है।", "वह दो॥", "अंत"]),
        ("Name: X\r\nDate: Y\r\n\r\nEnd", ["Name: X", "Date: Y", "End"]),
        ("a\tb\nc\td\n| e | f |", ["a\tb", "c\td", "| e | f |"]),
        ("", []),
    ],
)
def test_sentences_of_many_scripts_and_forms(text: str, expected: list[str]) -> None:
    assert sentences_of(text) == expected


def test_line_that_was_broken_at_a_margin_goes_on_and_a_row_of_a_table_does_not() -> None:
    prose = "This line of prose was broken at the margin of\r\nthe page. Another one."
    assert sentences_of(prose) == ["This line of prose was broken at the margin of\r\nthe page.", "Another one."]
    rows = "2021-03-04,amber,falcon,12,paid in full by bank\n2021-03-05,copper,falcon,13,open"
    assert sentences_of(rows) == rows.split("\n")


def test_long_run_is_cut_at_white_space_and_never_inside_a_sign() -> None:
    assert sentences_of("aaaa bbbb cccc", max_chars=10) == ["aaaa bbbb", "cccc"]
    family = "\U0001f468\u200d\U0001f469\u200d\U0001f467"
    assert sentences_of(family * 4, max_chars=9) == [family] * 4
    assert sentences_of("e\u0301" * 8, max_chars=5) == ["e\u0301" * 2] * 4


@given(st.text(st.sampled_from("aé他\U0001f600 .。\n\u0301ا1"), max_size=80))
def test_tokens_of_a_sentence_hold_all_of_it_and_little_more(tiny_tokenizer: Tokenizer, text: str) -> None:
    document = tiny_tokenizer.document(text)
    found = split_sentences(text, max_chars=20)
    for index in range(len(found)):
        start, end = found.tokens(index, document)
        sentence = text[slice(*found.span(index))]
        assert sentence in tiny_tokenizer.decode(document.tokens(start, end))
        assert document.token_chars[start] <= found.starts[index]
        assert end == document.num_tokens or document.token_chars[end] >= found.ends[index]


def test_tokens_of_a_sentence_whose_first_character_is_spread_over_tokens() -> None:
    document = Document(token_ids=[1, 2, 3, 4, 5], token_chars=[0, 1, 1, 1, 2], num_chars=3)
    assert Sentences(starts=[1], ends=[2]).tokens(0, document) == (1, 4)


@pytest.mark.parametrize(
    "text",
    [
        *("." * 500_000 + "a", ". " * 250_000 + ".a", " " * 500_000 + "a", "\n" * 500_000, "A. " * 170_000),
        *(",a" * 250_000, "a" * 250_000 + "\n" + " " * 250_000 + "A"),
    ],
)
def test_time_grows_with_the_length_alone(text: str) -> None:
    began = time.process_time()
    split_sentences(text)
    assert time.process_time() - began < 5  # a tenth of that where nothing is looked at twice; hours where it is
