"""A baseline: head and tail of the document in one prompt, and nothing of its middle."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.domain.chunking import Chunk, num_document_tokens, tokens_between
from memagent_batch.domain.prompts import PromptTokens
from memagent_batch.domain.readings import Cost, Outcome
from memagent_batch.domain.turns import Generate, TurnKind
from memagent_batch.policies.direct import DirectTurn


@dataclass(frozen=True, slots=True, kw_only=True)
class TruncatePolicy:
    """One `direct` turn with the first and the last half of what it may show; all of a document that fits."""

    kind: ClassVar[str] = "truncate"

    turn: DirectTurn
    """The turn."""

    async def read(
        self, chunks: Sequence[Chunk], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Cuts the middle out, with a mark where it was."""
        end, room = num_document_tokens(chunks), self.turn.chunk_tokens
        if end <= room:
            parts = [tokens_between(chunks, 0, end)]
        else:
            tail = (room - len(prompts.gap)) // 2
            head = room - len(prompts.gap) - tail
            parts = [tokens_between(chunks, 0, head), tokens_between(chunks, end - tail, end)]
        return await self.turn.ask(parts, question, prompts=prompts, generate=generate)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[TurnKind, int]:
        """As the turn says."""
        return self.turn.largest_turns(prompts)

    def cost(self, prompts: PromptTokens, *, num_chunks: int, num_chunk_tokens: int) -> Cost:
        """As the turn says."""
        return self.turn.cost(prompts, num_chunk_tokens=num_chunk_tokens)
