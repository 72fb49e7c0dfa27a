from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.domain.chunking import Chunk, chunk_spans, num_document_tokens, token_windows, tokens_between

NUM_TOKENS = st.integers(0, 400)
CHUNK_TOKENS = st.integers(1, 60)


@st.composite
def tokenised_texts(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text and the first character of each of its tokens; a character may be spread over several tokens."""
    text = draw(st.text(min_size=1, max_size=120))
    later = draw(st.lists(st.integers(0, len(text) - 1), max_size=150))
    return text, sorted([0, *later])


@given(num_tokens=NUM_TOKENS, chunk_tokens=CHUNK_TOKENS)
def test_token_windows_without_overlap_hold_each_token_once(num_tokens: int, chunk_tokens: int) -> None:
    windows = token_windows(num_tokens, chunk_tokens=chunk_tokens)
    assert [token for start, end in windows for token in range(start, end)] == list(range(num_tokens))
    assert len(windows) == -(-num_tokens // chunk_tokens)
    assert all(end - start == chunk_tokens for start, end in windows[:-1])


@given(num_tokens=NUM_TOKENS, chunk_tokens=CHUNK_TOKENS, data=st.data())
def test_token_windows_with_overlap_share_it_with_the_one_before(
    num_tokens: int, chunk_tokens: int, data: st.DataObject
) -> None:
    overlap_tokens = data.draw(st.integers(0, chunk_tokens - 1))
    windows = token_windows(num_tokens, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
    assert {token for start, end in windows for token in range(start, end)} == set(range(num_tokens))
    for (_, end), (next_start, next_end) in pairwise(windows):
        assert end - next_start == overlap_tokens
        assert next_end > end


def test_token_windows_of_no_tokens_are_none() -> None:
    assert token_windows(0, chunk_tokens=10, overlap_tokens=3) == []


def test_token_windows_of_a_document_inside_the_overlap_are_one() -> None:
    assert token_windows(2, chunk_tokens=10, overlap_tokens=5) == [(0, 2)]


@pytest.mark.parametrize(("chunk_tokens", "overlap_tokens"), [(0, 0), (-1, 0), (5, 5), (5, 6), (5, -1)])
def test_token_windows_that_do_not_move_on_are_refused(chunk_tokens: int, overlap_tokens: int) -> None:
    with pytest.raises(ValueError, match="chunk_tokens"):
        token_windows(10, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)


@given(tokenised=tokenised_texts(), chunk_tokens=st.integers(1, 12))
def test_chunk_spans_without_overlap_rejoin_to_the_text(tokenised: tuple[str, list[int]], chunk_tokens: int) -> None:
    text, token_chars = tokenised
    spans = chunk_spans(token_chars, num_chars=len(text), chunk_tokens=chunk_tokens)
    assert "".join(text[span.char_start : span.char_end] for span in spans) == text


@given(tokenised=tokenised_texts(), chunk_tokens=st.integers(1, 12), data=st.data())
def test_chunk_spans_with_overlap_cover_the_text_and_hold_their_tokens(
    tokenised: tuple[str, list[int]], chunk_tokens: int, data: st.DataObject
) -> None:
    text, token_chars = tokenised
    overlap_tokens = data.draw(st.integers(0, chunk_tokens - 1))
    spans = chunk_spans(token_chars, num_chars=len(text), chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
    assert [span.index for span in spans] == list(range(len(spans)))
    assert (spans[0].char_start, spans[-1].char_end) == (0, len(text))
    assert all(after.char_start <= before.char_end for before, after in pairwise(spans))
    assert all(span.char_start <= token_chars[span.token_start] for span in spans)


def test_chunk_spans_keep_spaces_that_the_tokeniser_drops() -> None:
    spans = chunk_spans([2, 6], num_chars=10, chunk_tokens=1)
    assert [(span.char_start, span.char_end) for span in spans] == [(0, 6), (6, 10)]


def test_chunk_spans_of_a_character_over_two_chunks_give_it_to_the_later_one() -> None:
    spans = chunk_spans([0, 1, 1, 2], num_chars=3, chunk_tokens=2)
    assert [(span.char_start, span.char_end) for span in spans] == [(0, 1), (1, 3)]


def test_chunk_spans_of_an_empty_document_are_none() -> None:
    assert chunk_spans([], num_chars=0, chunk_tokens=5) == []


@given(num_tokens=NUM_TOKENS, chunk_tokens=CHUNK_TOKENS, data=st.data())
def test_tokens_between_two_places_are_those_of_the_document(
    num_tokens: int, chunk_tokens: int, data: st.DataObject
) -> None:
    overlap_tokens = data.draw(st.integers(0, chunk_tokens - 1))
    spans = chunk_spans(
        range(num_tokens), num_chars=num_tokens, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens
    )
    chunks = [Chunk(span=span, token_ids=range(span.token_start, span.token_end)) for span in spans]
    start = data.draw(st.integers(0, num_tokens))
    end = data.draw(st.integers(start, num_tokens))
    assert num_document_tokens(chunks) == num_tokens
    assert tokens_between(chunks, start, end) == list(range(start, end))
