"""A baseline: the passages that a ranking finds nearest to the question, in one prompt."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.domain.chunking import Chunk, num_document_tokens, token_windows, tokens_between
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.domain.readings import Cost, Outcome
from memagent_batch.domain.turns import Generate, TurnKind
from memagent_batch.policies.direct import DirectTurn

Rank = Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[float]]
"""Scores passages (token ids) against a question (token ids), the higher the nearer; shape [num_passages]."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetrievePolicy:
    """One `direct` turn with the best passages that it has room for, in the order of the document."""

    kind: ClassVar[str] = "retrieve"

    turn: DirectTurn
    """The turn."""
    passage_tokens: int
    """Length of a passage, tokens."""
    overlap_tokens: int
    """Tokens that a passage shares with the one before it."""
    rank: Rank
    """Tells how near passages are to a question; may take seconds, so it runs beside the event loop."""

    async def read(
        self, chunks: Sequence[Chunk], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Among equal passages the earlier goes first; those that overlap become one. What fits is shown whole."""
        end = num_document_tokens(chunks)
        spans = [(0, end)]
        if end > self.turn.chunk_tokens:
            spans = await asyncio.to_thread(self._nearest, chunks, question, gap_tokens=len(prompts.gap))
        parts = [tokens_between(chunks, start, end) for start, end in spans]
        return await self.turn.ask(parts, question, prompts=prompts, generate=generate)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[TurnKind, int]:
        """As the turn says."""
        return self.turn.largest_turns(prompts)

    def cost(self, prompts: PromptTokens, *, num_chunks: int, num_chunk_tokens: int) -> Cost:
        """As the turn says."""
        return self.turn.cost(prompts, num_chunk_tokens=num_chunk_tokens)

    def _nearest(self, chunks: Sequence[Chunk], question: Sequence[int], *, gap_tokens: int) -> list[tuple[int, int]]:
        windows = token_windows(
            num_document_tokens(chunks), chunk_tokens=self.passage_tokens, overlap_tokens=self.overlap_tokens
        )
        scores = self.rank([tokens_between(chunks, start, end) for start, end in windows], question)
        ranked = sorted(range(len(windows)), key=lambda index: (-scores[index], index))
        num_shown = max(self.turn.chunk_tokens // (self.passage_tokens + gap_tokens), 1)
        return _joined([windows[index] for index in ranked[:num_shown]])


def _joined(windows: list[tuple[int, int]]) -> list[tuple[int, int]]:
    joined: list[tuple[int, int]] = []
    for start, end in sorted(windows):
        if joined and start <= joined[-1][1]:
            joined[-1] = (joined[-1][0], max(end, joined[-1][1]))
        else:
            joined.append((start, end))
    return joined
