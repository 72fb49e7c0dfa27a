"""The base of the policies without a memory: one turn that answers from parts of the document itself."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, ClassVar

from memagent_batch.domain.document import Document, token_windows
from memagent_batch.domain.prompts import Memory, PromptTokens, Slot
from memagent_batch.domain.readings import Cost, Outcome, QuestionTokens
from memagent_batch.domain.turns import DIRECT, Prompt, Turns

NO_MEMORY = Memory(token_ids=(), text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class DirectPolicy(ABC):
    """One `direct` turn with parts of the document that together have at most `chunk_tokens`."""

    kind: ClassVar[str]
    prompt_set: ClassVar[str] = "default"

    chunk_tokens: int
    """Tokens of the document that the prompt shows, at most."""
    overlap_tokens: int = 0
    """Tokens that a chunk, or a passage, shares with the one before it."""
    answer_tokens: int
    """Budget of the answer, tokens."""

    @abstractmethod
    async def parts(
        self, document: Document, question: Sequence[int], *, prompts: PromptTokens
    ) -> list[tuple[int, int]]:
        """Token ranges to show of a document that is longer than `chunk_tokens`, with a gap between each two."""

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Shows a document that fits whole, else parts of it, and asks."""
        ranges = [(0, document.num_tokens)]
        if document.num_tokens > self.chunk_tokens:
            ranges = await self.parts(document, question.token_ids, prompts=prompts)
        shown: list[int] = []
        for start, end in ranges:
            shown += [*(prompts.gap if shown else ()), *document.tokens(start, end)]
        prompt = Prompt(
            path=DIRECT,
            kind=DIRECT,
            token_ids=prompts.direct.fill({Slot.QUESTION: question.token_ids, Slot.CHUNK: shown}),
            max_tokens=self.answer_tokens,
            shown=ranges,
        )
        completion = await turns(prompt)
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=NO_MEMORY)

    def identity(self) -> Mapping[str, Any]:
        """Kind and knobs."""
        return {"kind": self.kind, **asdict(self)}

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """The one turn."""
        template = prompts.direct.num_fixed_tokens
        return {DIRECT: {"chunk": self.chunk_tokens, "answer": self.answer_tokens, "template": template}}

    def cost(self, prompts: PromptTokens, *, num_tokens: int) -> Cost:
        """The same for every document that is longer than the prompt shows."""
        windows = token_windows(num_tokens, chunk_tokens=self.chunk_tokens, overlap_tokens=self.overlap_tokens)
        return Cost(
            num_chunks=len(windows),
            num_turns=1,
            num_prompt_tokens=prompts.direct.num_fixed_tokens + min(windows.num_shown_tokens, self.chunk_tokens),
            num_completion_tokens=self.answer_tokens,
        )
