"""A baseline: the passages that a ranking finds nearest to the question, in one prompt."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.metadata import version
from typing import Any, ClassVar

from memagent_batch.bm25 import Bm25
from memagent_batch.domain.document import Document
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.policies.direct import DirectPolicy

Rank = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[float]]
"""Scores passages (token ids, views of the document) against a question (token ids), the higher the nearer; shape
[num_passages]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievePolicy(DirectPolicy):
    """One `direct` turn with the best passages that it has room for, in the order of the document."""

    kind: ClassVar[str] = "retrieve"

    passage_tokens: int
    """Length of a passage, tokens."""
    rank: Rank | None = field(default=None, metadata={"is_knob": False})
    """Scores how near passages are to a question; BM25 where there is none. It runs beside the event loop."""

    def __post_init__(self) -> None:
        """Checks the length of a passage.

        Raises:
            ValueError: it has no room for the overlap, or a chunk has no room for it.
        """
        if not self.overlap_tokens < self.passage_tokens <= self.chunk_tokens:
            raise ValueError("policy.passage_tokens must be above policy.overlap_tokens, and not above chunk_tokens")

    def identity(self) -> Mapping[str, Any]:
        """Kind and knobs, and the package that ranks."""
        return {**DirectPolicy.identity(self), "rank": f"bm25s {version('bm25s')}" if self.rank is None else "own"}

    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """Among equal passages the earlier goes first; those that overlap become one. What fits is shown whole."""
        rank = self.rank or Bm25(decode=prompts.decode)
        return await asyncio.to_thread(self._nearest, document, question, rank=rank, gap_tokens=len(prompts.gap))

    def _nearest(
        self, document: Document, question: Sequence[int], *, rank: Rank, gap_tokens: int
    ) -> list[tuple[int, int]]:
        passages = document.chunks(self.passage_tokens, overlap_tokens=self.overlap_tokens)
        scores = rank([document.token_ids[start:end] for start, end in passages.windows], question)
        ranked = sorted(range(len(passages)), key=lambda index: (-scores[index], index))
        num_shown = max(self.chunk_tokens // (self.passage_tokens + gap_tokens), 1)
        return _join_windows([passages.windows[index] for index in ranked[:num_shown]])


def _join_windows(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
