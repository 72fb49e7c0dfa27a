from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.texts.escapes import escaped, unescaped


@given(st.text())
def test_terminal_shows_an_escaped_text_as_it_was_on_one_line(text: str) -> None:
    assert unescaped(escaped(text)) == " ".join(text.split())
