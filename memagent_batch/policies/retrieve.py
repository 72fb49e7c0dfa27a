"""A baseline: the passages that a ranking finds nearest to the question, in one prompt."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.domain.document import Document
from memagent_batch.policies.direct import DirectPolicy

Rank = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[float]]
"""Scores passages (token ids) against a question (token ids), the higher the nearer; shape [num_passages]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievePolicy(DirectPolicy):
    """One `direct` turn with the best passages that it has room for, in the order of the document."""

    kind: ClassVar[str] = "retrieve"

    passage_tokens: int
    """Length of a passage, tokens."""
    rank: Rank
    """Scores how near passages are to a question; may take seconds, so it runs beside the event loop."""

    async def parts(self, document: Document, question: Sequence[int], *, gap_tokens: int) -> list[tuple[int, int]]:
        """Among equal passages the earlier goes first; those that overlap become one. What fits is shown whole."""
        return await asyncio.to_thread(self._nearest, document, question, gap_tokens=gap_tokens)

    def _nearest(self, document: Document, question: Sequence[int], *, gap_tokens: int) -> list[tuple[int, int]]:
        passages = document.chunks(self.passage_tokens, overlap_tokens=self.overlap_tokens)
        scores = self.rank([passage.token_ids for passage in passages], question)
        ranked = sorted(range(len(passages)), key=lambda index: (-scores[index], index))
        num_shown = max(self.chunk_tokens // (self.passage_tokens + gap_tokens), 1)
        return _joined([passages.windows[index] for index in ranked[:num_shown]])


def _joined(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
