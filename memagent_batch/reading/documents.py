"""A tokenised document as the reader takes it out of an Arrow row, without copying its tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, overload

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from memagent_batch.domain.chunking import Chunk, ChunkSpan


class DocumentChunks(Sequence[Chunk]):
    """The chunks of a document over one array of tokens; a chunk's tokens are taken when it is asked for."""

    def __init__(self, token_ids: npt.NDArray[np.int32], spans: list[dict[str, int]]) -> None:
        """Takes the document's tokens, shape [num_tokens], and its spans in order."""
        self.num_tokens = len(token_ids)
        self._token_ids = token_ids
        self._spans = spans

    @property
    def num_shown_tokens(self) -> int:
        """Tokens of all chunks, overlaps counted as often as they are shown."""
        return sum(span["token_end"] - span["token_start"] for span in self._spans)

    def __len__(self) -> int:
        """Number of chunks."""
        return len(self._spans)

    @overload
    def __getitem__(self, index: int) -> Chunk: ...
    @overload
    def __getitem__(self, index: slice) -> Sequence[Chunk]: ...
    def __getitem__(self, index: int | slice) -> Chunk | Sequence[Chunk]:
        """The chunk at a position, or a list of them."""
        if isinstance(index, slice):
            return [self[position] for position in range(*index.indices(len(self)))]
        span = ChunkSpan(**self._spans[index])
        return Chunk(span=span, token_ids=self._token_ids[span.token_start : span.token_end].tolist())


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedDocument:
    """A document with the readings to do."""

    document_id: str
    """Unique id."""
    document_hash: str
    """SHA-256 of its text."""
    chunks: DocumentChunks
    """Its chunks."""
    readings: list[tuple[int, int]]
    """Row of the question list and sample of each reading."""
    turn_files: list[str]
    """Log files that hold turns of it."""
    error: str | None
    """Why it can't be read, if so."""
    is_unavailable: bool
    """Whether that passes: the text could not be fetched, or is another one by now."""


def planned_documents(call: pa.Table) -> list[PlannedDocument]:
    """The documents of a one-row table of the schema `CALL`."""
    documents = pa.Table.from_struct_array(call["documents"].chunk(0).flatten())
    return [_planned_document(documents.slice(row, 1)) for row in range(documents.num_rows)]


def _planned_document(row: pa.Table) -> PlannedDocument:
    token_ids = row["token_ids"].chunk(0).flatten().to_numpy()
    values: dict[str, Any] = row.drop_columns(["token_ids"]).to_pylist()[0]
    return PlannedDocument(
        document_id=values["document_id"],
        document_hash=values["document_hash"],
        chunks=DocumentChunks(token_ids, values["spans"]),
        readings=[(reading["question"], reading["sample"]) for reading in values["readings"]],
        turn_files=values["turn_files"],
        error=values["error"],
        is_unavailable=values["is_unavailable"],
    )
