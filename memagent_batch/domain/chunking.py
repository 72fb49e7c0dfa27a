"""Cuts a tokenised document into chunks. Second step of a row's way, after tokenising."""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpan:
    """Where a chunk lies in its document; ends are exclusive."""

    index: int
    """Position among the chunks of the document, from 0."""
    token_start: int
    """First token of the document in the chunk."""
    token_end: int
    """Token after the last one."""
    char_start: int
    """First character (code point) of the text in the chunk."""
    char_end: int
    """Character after the last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice of a document's tokens, with its place in the document."""

    span: ChunkSpan
    """Place of the slice."""
    token_ids: Sequence[int]
    """The tokens, `span.token_end - span.token_start` of them."""


def token_windows(num_tokens: int, *, chunk_tokens: int, overlap_tokens: int = 0) -> list[tuple[int, int]]:
    """Token ranges `[start, end)` of the chunks of a document.

    Without overlap there are ceil(num_tokens / chunk_tokens) of them, none for an empty document. With overlap each
    range begins `overlap_tokens` before the end of the one before, and none lies wholly inside its neighbour.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    if overlap_tokens < 0 or chunk_tokens <= overlap_tokens:
        raise ValueError(f"chunk_tokens ({chunk_tokens}) must be above overlap_tokens ({overlap_tokens} >= 0)")
    stride = chunk_tokens - overlap_tokens
    starts = range(0, max(num_tokens - overlap_tokens, min(num_tokens, 1)), stride)
    return [(start, min(start + chunk_tokens, num_tokens)) for start in starts]


def chunk_spans(
    token_chars: Sequence[int], *, num_chars: int, chunk_tokens: int, overlap_tokens: int = 0
) -> list[ChunkSpan]:
    """Spans of the chunks of a document whose i-th token begins at character `token_chars[i]`.

    A chunk reaches to the first character of the token after it, so that without overlap the spans tile the text:
    nothing is lost or doubled, also where a character is spread over several tokens, or a tokeniser drops spaces.

    Args:
        token_chars: first character of each token, not decreasing; shape [num_tokens].
        num_chars: length of the text in characters (code points).
        chunk_tokens: tokens in a chunk.
        overlap_tokens: tokens shared with the chunk before.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    windows = token_windows(len(token_chars), chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
    return [
        ChunkSpan(
            index=index,
            token_start=start,
            token_end=end,
            char_start=_char_at(start, token_chars, num_chars=num_chars),
            char_end=_char_at(end, token_chars, num_chars=num_chars),
        )
        for index, (start, end) in enumerate(windows)
    ]


def num_document_tokens(chunks: Sequence[Chunk]) -> int:
    """Length of a document, from its chunks."""
    return chunks[-1].span.token_end if chunks else 0


def tokens_between(chunks: Sequence[Chunk], start: int, end: int) -> list[int]:
    """The tokens `[start, end)` of a document, from its chunks; overlaps are taken once."""
    token_ids: list[int] = []
    first = bisect_right(chunks, start, key=lambda chunk: chunk.span.token_end)
    for index in range(first, len(chunks)):
        chunk = chunks[index]
        if chunk.span.token_start >= end:
            break
        offset = chunk.span.token_start
        token_ids.extend(chunk.token_ids[start + len(token_ids) - offset : end - offset])
    return token_ids


def _char_at(token: int, token_chars: Sequence[int], *, num_chars: int) -> int:
    """Where a chunk that begins with this token begins in the text; the text's own ends at the document's ends."""
    if token == 0:
        return 0
    return num_chars if token >= len(token_chars) else int(token_chars[token])
