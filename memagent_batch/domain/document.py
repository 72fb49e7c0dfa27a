"""A tokenised document, and the chunks that a policy cuts from it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import overload

from memagent_batch.errors import MemagentError


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Document:
    """The tokens of a document and where each begins in its text.

    Both sequences may be views of an Arrow buffer: a slice is copied when it is asked for, the document never.
    """

    token_ids: Sequence[int]
    """Shape [num_tokens]."""
    token_chars: Sequence[int]
    """First character (code point) of each token in the text, not decreasing; shape [num_tokens]."""
    num_chars: int
    """Length of the text, code points."""
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

        Raises:
            ValueError: `size_tokens` is not above `overlap_tokens`, or one of them is negative.
        """
        windows = token_windows(self.num_tokens, chunk_tokens=size_tokens, overlap_tokens=overlap_tokens)
        return Chunks(document=self, windows=windows)


@dataclass(frozen=True, slots=True, kw_only=True)
class Windows(Sequence[tuple[int, int]]):
    """Token ranges `[start, end)` of equal length over a document, computed when they are asked for."""

    num_tokens: int
    """Length of the document."""
    chunk_tokens: int
    """Length of a range; the last one may be shorter."""
    overlap_tokens: int
    """Tokens that a range shares with the one before."""

    @property
    def num_shown_tokens(self) -> int:
        """Tokens of all ranges, overlaps counted as often as they are in one."""
        return self.num_tokens + self.overlap_tokens * max(len(self) - 1, 0)

    def __len__(self) -> int:
        """Number of ranges."""
        return len(self._starts())

    @overload
    def __getitem__(self, index: int) -> tuple[int, int]: ...
    @overload
    def __getitem__(self, index: slice) -> "list[tuple[int, int]]": ...
    def __getitem__(self, index: int | slice) -> "tuple[int, int] | list[tuple[int, int]]":
        """The range at a position, or a list of them."""
        if isinstance(index, slice):
            return [self[position] for position in range(len(self))[index]]
        start = self._starts()[index]
        return start, min(start + self.chunk_tokens, self.num_tokens)

    def _starts(self) -> range:
        end = max(self.num_tokens - self.overlap_tokens, min(self.num_tokens, 1))
        return range(0, end, self.chunk_tokens - self.overlap_tokens)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chunks(Sequence[Chunk]):
    """The chunks of a document in order; the tokens of one are copied when it is asked for.

    A chunk reaches to the first character of the token after it, so that without overlap the spans tile the text:
    nothing is lost or doubled, also where a character is spread over several tokens, or a tokeniser drops spaces.
    """

    document: Document
    """What is cut."""
    windows: Windows
    """Token ranges of the chunks."""

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self.windows)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> list[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | list[Chunk]:
        """The chunk at a position, or a list of them."""
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


def token_windows(num_tokens: int, *, chunk_tokens: int, overlap_tokens: int = 0) -> Windows:
    """Token ranges `[start, end)` of the chunks of a document.

    Without overlap there are ceil(num_tokens / chunk_tokens) of them, none for an empty document. With overlap each
    range begins `overlap_tokens` before the end of the one before, and none lies wholly inside its neighbour.

    Raises:
        ValueError: `chunk_tokens` is not above `overlap_tokens`, or one of them is negative.
    """
    if overlap_tokens < 0 or chunk_tokens <= overlap_tokens:
        raise ValueError(f"chunk_tokens ({chunk_tokens}) must be above overlap_tokens ({overlap_tokens} >= 0)")
    return Windows(num_tokens=num_tokens, chunk_tokens=chunk_tokens, overlap_tokens=overlap_tokens)
