import tracemalloc
from array import array
from collections.abc import Sequence
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from memagent_batch.document import ChunkSpan, num_shown_tokens, token_windows
from memagent_batch.types import Document

NUM_TOKENS = st.integers(0, 400)
CHUNK_TOKENS = st.integers(1, 60)


@st.composite
def tokenised_texts(draw: st.DrawFn) -> tuple[str, list[int]]:
    """A text and the first character of each of its tokens; a character may be spread over several tokens."""
    text = draw(st.text(min_size=1, max_size=120))
    later = draw(st.lists(st.integers(0, len(text) - 1), max_size=150))
    return text, sorted([0, *later])


@pytest.mark.parametrize(("chunk_tokens", "overlap_tokens"), [(0, 0), (-1, 0), (5, 5), (5, 6), (5, -1)])
def test_token_windows_that_do_not_move_on_are_refused(chunk_tokens: int, overlap_tokens: int) -> None:
    with pytest.raises(ValueError, match="chunk_tokens"):
        token_windows(10, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)


@st.composite
def broken_lengths(draw: st.DrawFn) -> tuple[int, list[int]]:
    """A length, and tokens with which rows begin."""
    num_tokens = draw(NUM_TOKENS)
    return num_tokens, sorted(draw(st.sets(st.integers(1, max(num_tokens - 1, 1)), max_size=40)))


@given(broken=broken_lengths(), chunk_tokens=CHUNK_TOKENS)
def test_token_windows_with_breaks_lose_nothing_and_close_at_the_last_break_that_they_reach(
    broken: tuple[int, list[int]], chunk_tokens: int
) -> None:
    num_tokens, breaks = broken
    windows = token_windows(num_tokens, chunk_tokens=chunk_tokens, breaks=breaks)
    assert [token for start, end in windows for token in range(start, end)] == list(range(num_tokens))
    for start, end in windows[:-1]:
        reached = [place for place in breaks if start < place <= start + chunk_tokens]
        assert end == max(reached, default=start + chunk_tokens)
    assert all(0 < end - start <= chunk_tokens for start, end in windows)


@given(broken=broken_lengths(), chunk_tokens=CHUNK_TOKENS, data=st.data())
def test_token_windows_lose_nothing_share_their_overlap_and_move_on(
    broken: tuple[int, list[int]], chunk_tokens: int, data: st.DataObject
) -> None:
    num_tokens, breaks = broken
    overlap_tokens = data.draw(st.integers(0, chunk_tokens - 1))
    windows = token_windows(num_tokens, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, breaks=breaks)
    assert {token for start, end in windows for token in range(start, end)} == set(range(num_tokens))
    for (_, end), (next_start, next_end) in pairwise(windows):
        inside = [place for place in breaks if end - overlap_tokens <= place < end]
        assert next_start == min(inside, default=end - overlap_tokens)
        assert next_end > end
    assert all(end - start <= chunk_tokens for start, end in windows)


def spans_of(
    token_chars: Sequence[int], *, num_chars: int, chunk_tokens: int, overlap_tokens: int = 0
) -> list[ChunkSpan]:
    document = Document(token_ids=range(len(token_chars)), token_chars=token_chars, num_chars=num_chars)
    return [chunk.span for chunk in document.chunks(chunk_tokens, overlap_tokens=overlap_tokens)]


@given(tokenised=tokenised_texts(), chunk_tokens=st.integers(1, 12), data=st.data())
def test_chunk_spans_cover_the_text_and_hold_their_tokens(
    tokenised: tuple[str, list[int]], chunk_tokens: int, data: st.DataObject
) -> None:
    text, token_chars = tokenised
    overlap_tokens = data.draw(st.integers(0, chunk_tokens - 1))
    spans = spans_of(token_chars, num_chars=len(text), chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
    assert [span.index for span in spans] == list(range(len(spans)))
    assert (spans[0].char_start, spans[-1].char_end) == (0, len(text))
    assert all(after.char_start <= before.char_end for before, after in pairwise(spans))
    assert all(span.char_start <= token_chars[span.token_start] for span in spans)
    if not overlap_tokens:
        assert "".join(text[span.char_start : span.char_end] for span in spans) == text


def test_chunk_spans_keep_spaces_that_the_tokeniser_drops() -> None:
    spans = spans_of([2, 6], num_chars=10, chunk_tokens=1)
    assert [(span.char_start, span.char_end) for span in spans] == [(0, 6), (6, 10)]


def test_document_of_many_tokens_is_cut_without_a_list_of_them() -> None:
    num_tokens = 2_000_000
    ids, chars = (array(code, bytes(array(code).itemsize * num_tokens)) for code in "iq")
    document = Document(token_ids=memoryview(ids), token_chars=memoryview(chars), num_chars=num_tokens)
    tracemalloc.start()
    shown = sum(len(chunk.token_ids) for chunk in document.chunks(1000, overlap_tokens=10))
    assert shown == num_shown_tokens(token_windows(num_tokens, chunk_tokens=1000, overlap_tokens=10))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 500_000
