"""As `parallel`, with further rounds over few chunks: those that had a note, and those that BM25 ranks nearest."""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from typing import Any, ClassVar

from memagent_batch.domain.document import Chunks, Document
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.readings import Outcome, QuestionTokens
from memagent_batch.domain.turns import Turns
from memagent_batch.policies.direct import bm25
from memagent_batch.policies.parallel import Note, ParallelPolicy, side_by_side

NEAREST_CHUNKS = 8
"""Chunks without a note that a further round reads again: those nearest to question and memory."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Nominated(ParallelPolicy):
    """The first round reads every chunk, the others those that are nominated."""

    kind: ClassVar[str] = "nominated"

    rank: Callable[[Sequence[Sequence[int]], Sequence[int]], Sequence[float]] | None = None
    """Scores how near chunks are to a text; BM25 by default. It runs beside the event loop."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Stops if no chunk has news, or the memory stays as it was."""
        memory, noted = prompts.first_memory, set[int]()
        chunks = document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens)
        for number in range(1, self.rounds + 1):
            every = range(len(chunks))
            nominated = every if number == 1 else await self._nominated(chunks, question, memory, noted, prompts)
            reads = (self._read(prompts, question, memory, chunks[index], number=number) for index in nominated)
            completions = await side_by_side(reads, turns=turns)
            notes = []
            for index, completion in zip(nominated, completions, strict=True):
                note = prompts.remember(memory, completion)
                if note is not memory:
                    notes.append(Note(first=index, last=index, token_ids=note.token_ids))
            noted.update(note.first for note in notes)
            merged = await self._merged(notes, question, memory, number=number, prompts=prompts, turns=turns)
            if merged.text == memory.text:
                break
            memory = merged
        completion = await turns(self._answer(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def identity(self) -> Mapping[str, Any]:
        """Kind, settings and ranking."""
        identity = {name: value for name, value in ParallelPolicy.identity(self).items() if name != "rank"}
        return {**identity, "rank": f"bm25s {version('bm25s')}" if self.rank is None else "own"}

    async def _nominated(
        self, chunks: Chunks, question: QuestionTokens, memory: Memory, noted: set[int], prompts: PromptTokens
    ) -> Sequence[int]:
        """The chunks that a further round reads, in document order."""
        others = [index for index in range(len(chunks)) if index not in noted]
        rank = self.rank or partial(bm25, decode=prompts.decode)
        ranges = [chunks.windows[index] for index in others]
        views = [chunks.document.token_ids[start:end] for start, end in ranges]
        scores = await asyncio.to_thread(rank, views, [*question.token_ids, *memory.token_ids])
        ranked = sorted(zip(scores, others, strict=True), key=lambda pair: (-pair[0], pair[1]))
        return sorted(noted | {index for _, index in ranked[:NEAREST_CHUNKS]})
