"""A document as tokens, and how it is cut into chunks that tile it."""

from bisect import bisect_left, bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memagent_batch.errors import DocumentError


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpan:
    """Where a chunk lies in its document; ends are exclusive."""

    index: int
    token_start: int
    token_end: int
    char_start: int
    """First character (code point) of the text in the chunk."""
    char_end: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunk:
    """A slice of a document's tokens, with its place in the document."""

    span: ChunkSpan
    token_ids: Sequence[int]
    """The tokens, `span.token_end - span.token_start` of them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The tokens of a document and where each begins in its text.

    The sequences may be views of an Arrow buffer: a slice is copied when it is asked for, the document never.
    """

    token_ids: Sequence[int]
    """Shape [num_tokens]."""
    token_chars: Sequence[int]
    """First character (code point) of each token in the text, not decreasing; shape [num_tokens]."""
    num_chars: int
    """Length of the text, code points."""
    breaks: Sequence[int] = ()
    """Tokens at which a chunk may close, ascending; none where chunks close by their length alone."""
    error: DocumentError | None = None
    """Why there is no text to read; a reading of this document ends with it."""

    @property
    def num_tokens(self) -> int:
        """Length of the document."""
        return len(self.token_ids)

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens `[start, end)`."""
        return list(self.token_ids[start:end])

    def chunks(self, size_tokens: int, *, overlap_tokens: int = 0) -> Iterator[Chunk]:
        """The document cut into chunks of this size, in order; each shares up to `overlap_tokens` with the one before.

        Where the document has breaks, a chunk closes at the last one that it reaches. A chunk reaches to the first
        character of the token after it, so that without overlap the spans tile the text: nothing is lost or doubled,
        also where a character is spread over several tokens, or a tokeniser drops spaces.

        Raises:
            ValueError: `size_tokens` is not above `overlap_tokens`, or one of them is negative.
        """
        windows = token_windows(
            self.num_tokens, chunk_tokens=size_tokens, overlap_tokens=overlap_tokens, breaks=self.breaks
        )
        for index, (start, end) in enumerate(windows):
            span = ChunkSpan(
                index=index,
                token_start=start,
                token_end=end,
                char_start=self._char_at(start),
                char_end=self._char_at(end),
            )
            yield Chunk(span=span, token_ids=self.tokens(start, end))

    def _char_at(self, token: int) -> int:
        """Where a chunk that begins with this token begins in the text; the text's own ends at the document's ends."""
        if token == 0:
            return 0
        return self.num_chars if token >= self.num_tokens else int(self.token_chars[token])


def token_windows(
    num_tokens: int, *, chunk_tokens: int, overlap_tokens: int = 0, breaks: Sequence[int] = ()
) -> list[tuple[int, int]]:
    """Token ranges `[start, end)` of the chunks of a document.

    Without overlap and breaks there are ceil(num_tokens / chunk_tokens) of them, none for an empty document. With
    overlap each range begins `overlap_tokens` before the end of the one before, or at the first break behind that
    place, and none lies wholly inside its neighbour. With breaks a range that is not the last ends at the last break
    that it reaches, if that takes it further than the one before; else it has all of its `chunk_tokens`.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    if overlap_tokens < 0 or chunk_tokens <= overlap_tokens:
        raise ValueError(f"chunk_tokens ({chunk_tokens}) must be above overlap_tokens ({overlap_tokens} >= 0)")
    windows, start = [], 0
    while start + chunk_tokens < num_tokens:
        end = start + chunk_tokens
        place = bisect_right(breaks, end)
        if place and breaks[place - 1] > start + overlap_tokens:
            end = breaks[place - 1]
        windows.append((start, end))
        start = end - overlap_tokens
        place = bisect_left(breaks, start)
        if place < len(breaks) and breaks[place] < end:
            start = breaks[place]
    return [*windows, (start, num_tokens)] if num_tokens else []


def num_shown_tokens(windows: Sequence[tuple[int, int]]) -> int:
    """Tokens of all ranges, overlaps counted as often as they are in one."""
    return sum(end - start for start, end in windows)
