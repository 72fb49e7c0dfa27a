"""The published memory agent (MemAgent, arXiv 2507.02259): each chunk overwrites the memory; the memory answers.

`gated` adds a gate: where a chunk says nothing new, a turn costs one word, and the memory stays.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memagent_batch.config.agent import BreakAt
from memagent_batch.document import Chunk, num_shown_tokens, token_windows
from memagent_batch.loop.prompts import Memory, PromptTokens, Slot
from memagent_batch.types import ANSWER, UPDATE, Cost, Document, Outcome, Prompt, QuestionTokens, Turns, Writes


@dataclass(frozen=True, slots=True, kw_only=True)
class OverwritePolicy:
    """One `update` turn for each chunk, then one `answer` turn: ceil(tokens / chunk_tokens) + 1 turns."""

    kind: ClassVar[str] = "overwrite"
    prompt_set: ClassVar[str] = "default"

    chunk_tokens: int
    overlap_tokens: int = 0
    """Tokens that a chunk shares with the one before it."""
    break_at: BreakAt | None = None
    """Where a chunk closes when what comes next would not fit; None where its length alone decides."""
    memory_tokens: int
    answer_tokens: int

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Reads the chunks in order; an empty document is answered from the first memory."""
        memory = prompts.first_memory
        for chunk in document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens):
            completion = await turns(self.update_prompt(prompts, question, memory, chunk))
            memory = prompts.remember(memory, completion)
        completion = await turns(self.answer_prompt(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings."""
        settings = asdict(self)
        if self.break_at in (None, BreakAt.LENGTH):
            del settings["break_at"]
        return {"kind": self.kind, **settings}

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """The `update` turn shows a memory, and writes one."""
        memory, update, answer = self.memory_tokens, prompts.update.num_fixed_tokens, prompts.answer.num_fixed_tokens
        return {
            UPDATE: {"memory": memory, "chunk": self.chunk_tokens, "new memory": memory, "template": update},
            ANSWER: {"memory": memory, "answer": self.answer_tokens, "template": answer},
        }

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """Each chunk is shown once."""
        windows = token_windows(
            num_tokens, chunk_tokens=self.chunk_tokens, overlap_tokens=self.overlap_tokens, breaks=breaks
        )
        fixed = len(windows) * prompts.update.num_fixed_tokens + prompts.answer.num_fixed_tokens
        return Cost(
            num_chunks=len(windows),
            num_turns=len(windows) + 1,
            num_prompt_tokens=fixed + num_shown_tokens(windows),
            num_completion_tokens=len(windows) * self.memory_tokens + self.answer_tokens,
        )

    def update_prompt(self, prompts: PromptTokens, question: QuestionTokens, memory: Memory, chunk: Chunk) -> Prompt:
        """Returns the prompt of the turn that reads a chunk; its completion is the next memory."""
        return Prompt(
            path=f"{UPDATE}/{chunk.span.index}",
            kind=UPDATE,
            token_ids=prompts.update.fill(
                {Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids, Slot.CHUNK: chunk.token_ids}
            ),
            max_tokens=self.memory_tokens,
            span=chunk.span,
            writes=Writes.MEMORY,
        )

    def answer_prompt(self, prompts: PromptTokens, question: QuestionTokens, memory: Memory) -> Prompt:
        """Returns the prompt of the turn that answers from the memory."""
        return Prompt(
            path=ANSWER,
            kind=ANSWER,
            token_ids=prompts.answer.fill({Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids}),
            max_tokens=self.answer_tokens,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class GatedPolicy(OverwritePolicy):
    """The same turns. The gate is in the prompt set, whose `keep_word` the model writes to keep its memory."""

    kind: ClassVar[str] = "gated"
    prompt_set: ClassVar[str] = "gated"
