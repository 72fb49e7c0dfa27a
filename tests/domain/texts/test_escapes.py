import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.loop.texts.escapes import escaped, shorten, unescaped, visible


@given(st.text())
def test_terminal_shows_an_escaped_text_as_it_was_on_one_line(text: str) -> None:
    assert unescaped(escaped(text)) == " ".join(text.split())


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b", "a⟦U+0000⟧b"),
        ("\u202eabc\u2069", "⟦U+202E⟧abc⟦U+2069⟧"),
        ("\r\x1b[31m\x7f", "⟦U+000D⟧⟦U+001B⟧[31m⟦U+007F⟧"),
        ("a\r\n\r\nb\rc\n\r", "a\n\nb⟦U+000D⟧c\n⟦U+000D⟧"),
        ("\ufeff\u200b\u2028\U000e0041", "⟦U+FEFF⟧⟦U+200B⟧⟦U+2028⟧⟦U+E0041⟧"),
    ],
)
def test_visible_unseen_character_becomes_its_number(text: str, shown: str) -> None:
    assert visible(text) == shown


@pytest.mark.parametrize("text", ["a\tb\nc", "می\u200cخواهم", "👩\u200d🚒", "Grüße, 你好, שלום", "⟦"])
def test_visible_text_that_is_seen_stays(text: str) -> None:
    assert visible(text) == text


def test_shorten_long_text_says_what_it_leaves_out() -> None:
    assert shorten("a" * 1500 + "b" * 1500, characters=10) == "aaaaa … 2,990 characters not shown … bbbbb"
    assert shorten("0123456789", characters=10) == "0123456789"
