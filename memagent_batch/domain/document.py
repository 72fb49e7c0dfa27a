"""A tokenised document, and the chunks that a policy cuts from it."""

from array import array
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import overload

from memagent_batch.errors import MemagentError


class BreakAt(StrEnum):
    """Where a chunk closes before it is full, when what comes next would not fit."""

    ROWS = "rows"
    """At the end of a row of a document of many rows."""
    LINES = "lines"
    """At the end of a line of the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChunkSpan:
    """Where a chunk lies in its document; ends are exclusive."""

    index: int
    """Position among the chunks of the document, from 0."""
    token_start: int
    """First token of the document in the chunk."""
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
    """Tokens with which a row or line begins, ascending; none where chunks close by their length alone."""
    error: MemagentError | None = None
    """Why there is no text to read; a reading of this document ends with it."""

    @property
    def num_tokens(self) -> int:
        """Length of the document."""
        return len(self.token_ids)

    def tokens(self, start: int, end: int) -> list[int]:
        """The tokens `[start, end)`."""
        return list(self.token_ids[start:end])

    def chunks(self, size_tokens: int, *, overlap_tokens: int = 0) -> "Chunks":
        """The document cut into chunks of this size. Each chunk shares `overlap_tokens` with the one before.

        Where the document has breaks, a chunk closes at the last one that it reaches.

        Raises:
            ValueError: `size_tokens` is not above `overlap_tokens`, or one of them is negative.
        """
        windows = token_windows(
            self.num_tokens, chunk_tokens=size_tokens, overlap_tokens=overlap_tokens, breaks=self.breaks
        )
        return Chunks(document=self, windows=windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenRanges(Sequence[tuple[int, int]]):
    """Token ranges `[start, end)` over a document, computed when they are asked for."""

    num_tokens: int
    starts: Sequence[int]
    """First token of each range; a range of numbers where all have the same length."""
    overlap_tokens: int
    """Tokens that a range shares with the one before."""

    @property
    def num_shown_tokens(self) -> int:
        """Tokens of all ranges, overlaps counted as often as they are in one."""
        return self.num_tokens + self.overlap_tokens * max(len(self) - 1, 0)

    def __len__(self) -> int:
        return len(self.starts)

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> "list[tuple[int, int]]": ...
    def __getitem__(self, index: int | slice) -> "tuple[int, int] | list[tuple[int, int]]":
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        position = range(len(self))[index]
        is_last = position + 1 == len(self)
        return self.starts[position], self.num_tokens if is_last else self.starts[position + 1] + self.overlap_tokens


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks(Sequence[Chunk]):
    """The chunks of a document in order; the tokens of one are copied when it is asked for.

    A chunk reaches to the first character of the token after it, so that without overlap the spans tile the text:
    nothing is lost or doubled, also where a character is spread over several tokens, or a tokeniser drops spaces.
    """

    document: Document
    windows: TokenRanges

    def __len__(self) -> int:
        return len(self.windows)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        start, end = self.windows[index]
        span = ChunkSpan(
            index=range(len(self))[index],
            token_start=start,
            token_end=end,
            char_start=self._char_at(start),
            char_end=self._char_at(end),
        )
        return Chunk(span=span, token_ids=self.document.tokens(start, end))

    def _char_at(self, token: int) -> int:
        """Where a chunk that begins with this token begins in the text; the text's own ends at the document's ends."""
        if token == 0:
            return 0
        return self.document.num_chars if token >= self.document.num_tokens else int(self.document.token_chars[token])


def token_windows(
    num_tokens: int, *, chunk_tokens: int, overlap_tokens: int = 0, breaks: Sequence[int] = ()
) -> TokenRanges:
    """Token ranges `[start, end)` of the chunks of a document.

    Without overlap and breaks there are ceil(num_tokens / chunk_tokens) of them, none for an empty document. With
    overlap each range begins `overlap_tokens` before the end of the one before, and none lies wholly inside its
    neighbour. With breaks a range that is not the last ends at the last break that it reaches, if that takes it further
    than the one before; else it has all of its `chunk_tokens`.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    if overlap_tokens < 0 or chunk_tokens <= overlap_tokens:
        raise ValueError(f"chunk_tokens ({chunk_tokens}) must be above overlap_tokens ({overlap_tokens} >= 0)")
    if breaks:
        starts = _starts_at_breaks(num_tokens, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens, breaks=breaks)
        return TokenRanges(num_tokens=num_tokens, starts=starts, overlap_tokens=overlap_tokens)
    end = max(num_tokens - overlap_tokens, min(num_tokens, 1))
    return TokenRanges(
        num_tokens=num_tokens, starts=range(0, end, chunk_tokens - overlap_tokens), overlap_tokens=overlap_tokens
    )


def _starts_at_breaks(
    num_tokens: int, *, chunk_tokens: int, overlap_tokens: int, breaks: Sequence[int]
) -> Sequence[int]:
    starts = array("q", [0] if num_tokens else [])
    while starts and starts[-1] + chunk_tokens < num_tokens:
        full = starts[-1] + chunk_tokens
        place = bisect_right(breaks, full) - 1
        reached = breaks[place] if place >= 0 else 0
        end = reached if reached > starts[-1] + overlap_tokens else full
        starts.append(end - overlap_tokens)
    return starts
