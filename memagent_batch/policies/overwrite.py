"""The published memory agent (MemAgent, arXiv 2507.02259): each chunk overwrites the memory; the memory answers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar

from memagent_batch.domain.chunking import Chunk
from memagent_batch.domain.prompts import Memory, PromptTokens, Slot
from memagent_batch.domain.readings import Cost, Outcome
from memagent_batch.domain.turns import Generate, Prompt, TurnKind


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwritePolicy:
    """One `update` turn for each chunk, then one `answer` turn: ceil(tokens / chunk_tokens) + 1 turns."""

    kind: ClassVar[str] = "overwrite"

    chunk_tokens: int
    """Longest chunk, tokens."""
    memory_tokens: int
    """Budget of the memory, tokens."""
    answer_tokens: int
    """Budget of the answer, tokens."""

    async def read(
        self, chunks: Sequence[Chunk], question: Sequence[int], *, prompts: PromptTokens, generate: Generate
    ) -> Outcome:
        """Reads the chunks in order; an empty document is answered from the first memory."""
        memory = prompts.first_memory
        for chunk in chunks:
            completion = await generate(self._update(prompts, question, memory, chunk))
            memory = prompts.remember(memory, completion)
        completion = await generate(self._answer(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[TurnKind, int]:
        """The `update` turn shows a memory, and writes one."""
        update = self.memory_tokens + prompts.update.num_fixed_tokens + self.chunk_tokens + self.memory_tokens
        answer = self.memory_tokens + prompts.answer.num_fixed_tokens + self.answer_tokens
        return {TurnKind.UPDATE: update, TurnKind.ANSWER: answer}

    def cost(self, prompts: PromptTokens, *, num_chunks: int, num_chunk_tokens: int) -> Cost:
        """Each chunk is shown once."""
        fixed = num_chunks * prompts.update.num_fixed_tokens + prompts.answer.num_fixed_tokens
        return Cost(
            num_turns=num_chunks + 1,
            num_prompt_tokens=fixed + num_chunk_tokens,
            num_completion_tokens=num_chunks * self.memory_tokens + self.answer_tokens,
        )

    def _update(self, prompts: PromptTokens, question: Sequence[int], memory: Memory, chunk: Chunk) -> Prompt:
        return Prompt(
            path=f"update/{chunk.span.index}",
            kind=TurnKind.UPDATE,
            token_ids=prompts.update.fill(
                {Slot.QUESTION: question, Slot.MEMORY: memory.token_ids, Slot.CHUNK: chunk.token_ids}
            ),
            max_tokens=self.memory_tokens,
            span=chunk.span,
        )

    def _answer(self, prompts: PromptTokens, question: Sequence[int], memory: Memory) -> Prompt:
        return Prompt(
            path="answer",
            kind=TurnKind.ANSWER,
            token_ids=prompts.answer.fill({Slot.QUESTION: question, Slot.MEMORY: memory.token_ids}),
            max_tokens=self.answer_tokens,
        )
