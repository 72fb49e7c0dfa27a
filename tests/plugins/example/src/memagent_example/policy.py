"""A policy that asks every chunk for itself, side by side, and takes the first answer that is not one of `unknown`."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memagent_batch.document import Chunk, num_shown_tokens, token_windows
from memagent_batch.loop.prompts import Memory, PromptTokens, Slot
from memagent_batch.types import DIRECT, Completion, Cost, Document, Outcome, Prompt, QuestionTokens, Turns


@dataclass(frozen=True, slots=True, kw_only=True)
class FirstMatch:
    """One `direct` turn for each chunk."""

    kind: ClassVar[str] = "first-match"
    prompt_set: ClassVar[str] = "default"

    chunk_tokens: int
    """Length of a chunk, tokens."""
    answer_tokens: int
    """Budget of an answer, tokens."""
    unknown: str = "unknown"
    """What an answer says that found nothing."""

    async def read(
        self,
        document: Document,
        question: QuestionTokens,
        *,
        prompts: PromptTokens,
        turns: Turns,
    ) -> Outcome:
        """Asks all chunks at once; an empty document is asked about once too."""
        chunks: list[Chunk | None] = [*document.chunks(self.chunk_tokens)] or [None]
        requests = [self._prompt(number, chunk, question, prompts) for number, chunk in enumerate(chunks)]
        completions = await asyncio.gather(*[turns(prompt) for prompt in requests])
        answers = [completion for completion in completions if self._answers(completion)]
        best = (answers or completions)[0]
        return Outcome(
            response=prompts.response(best), finish_reason=best.finish_reason, memory=Memory(token_ids=(), text="")
        )

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings."""
        return {"kind": self.kind, **asdict(self)}

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """A whole chunk with its answer."""
        template = prompts.direct.num_fixed_tokens
        return {DIRECT: {"chunk": self.chunk_tokens, "answer": self.answer_tokens, "template": template}}

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """A turn a chunk."""
        windows = token_windows(num_tokens, chunk_tokens=self.chunk_tokens, breaks=breaks)
        num_turns = max(1, len(windows))
        return Cost(
            num_chunks=len(windows),
            num_turns=num_turns,
            num_prompt_tokens=num_turns * prompts.direct.num_fixed_tokens + num_shown_tokens(windows),
            num_completion_tokens=num_turns * self.answer_tokens,
        )

    def _prompt(self, number: int, chunk: Chunk | None, question: QuestionTokens, prompts: PromptTokens) -> Prompt:
        slots = {Slot.QUESTION: question.token_ids, Slot.CHUNK: chunk.token_ids if chunk else []}
        return Prompt(
            path=f"{DIRECT}/{number}",
            kind=DIRECT,  # answers from the document, without a memory
            token_ids=prompts.direct.fill(slots),
            max_tokens=self.answer_tokens,
            span=chunk.span if chunk else None,  # what no turn shows was not read
        )

    def _answers(self, completion: Completion) -> bool:
        return bool(completion.text.strip()) and self.unknown not in completion.text.lower()
