"""A baseline: head and tail of the document in one prompt, and nothing of its middle."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.domain.document import Document
from memagent_batch.policies.direct import DirectPolicy


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePolicy(DirectPolicy):
    """One `direct` turn with the first and the last half of what it may show; all of a document that fits."""

    kind: ClassVar[str] = "truncate"

    async def parts(self, document: Document, question: Sequence[int], *, gap_tokens: int) -> list[tuple[int, int]]:
        """The head and the tail of the document."""
        room = self.chunk_tokens - gap_tokens
        tail = room // 2
        return [(0, room - tail), (document.num_tokens - tail, document.num_tokens)]
