"""A policy whose memory has several parts (heads): each turn sees all of them and rewrites the oldest one."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from memagent_batch.domain.document import Chunk, Document, token_windows
from memagent_batch.domain.prompts import Memory, PromptTokens, Slot
from memagent_batch.domain.readings import Cost, Outcome, QuestionTokens
from memagent_batch.domain.turns import ANSWER, Completion, Prompt, Turns, Writes


@dataclass(frozen=True, slots=True, kw_only=True)
class Heads:
    """One `head` turn for each chunk, then one `answer` turn."""

    kind: ClassVar[str] = "heads"
    prompt_set: ClassVar[str] = str(Path(__file__).with_name("heads.json"))

    chunk_tokens: int
    memory_tokens: int
    """Budget of all heads together, tokens."""
    answer_tokens: int
    heads: int = 4

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """The oldest head stands first; one that is rewritten goes to the end."""
        heads = (prompts.first_memory,) * self.heads
        for chunk in document.chunks(self.chunk_tokens):
            completion = await turns(self._update(prompts, question, heads, chunk))
            heads = rewritten(prompts, heads, completion)
        memory = joined(prompts, heads)
        slots = {Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids}
        completion = await turns(
            Prompt(path=ANSWER, kind=ANSWER, token_ids=prompts.answer.fill(slots), max_tokens=self.answer_tokens)
        )
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def _update(
        self, prompts: PromptTokens, question: QuestionTokens, heads: tuple[Memory, ...], chunk: Chunk
    ) -> Prompt:
        memory = joined(prompts, heads)
        slots = {Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids, Slot.CHUNK: chunk.token_ids}
        return Prompt(
            path=f"head/{chunk.span.index}",
            kind="head",
            token_ids=prompts.update.fill(slots),
            max_tokens=self.memory_tokens // self.heads,
            span=chunk.span,
            writes=Writes.MEMORY,
            memory_after=lambda completion: joined(prompts, rewritten(prompts, heads, completion)).text,
        )

    def identity(self) -> Mapping[str, Any]:
        """Kind and settings."""
        return {"kind": self.kind, **asdict(self)}

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """Each turn shows all heads, with line breaks between them."""
        memory = self.memory_tokens + (self.heads - 1) * len(prompts.encode("\n"))
        head, update, answer = self.memory_tokens // self.heads, prompts.update, prompts.answer
        return {
            "head": {
                "memory": memory,
                "chunk": self.chunk_tokens,
                "head": head,
                "template": update.num_fixed_tokens,
            },
            ANSWER: {"memory": memory, "answer": self.answer_tokens, "template": answer.num_fixed_tokens},
        }

    def cost(self, prompts: PromptTokens, *, num_tokens: int) -> Cost:
        """A turn a chunk, and the answer."""
        windows = token_windows(num_tokens, chunk_tokens=self.chunk_tokens)
        fixed = len(windows) * prompts.update.num_fixed_tokens + prompts.answer.num_fixed_tokens
        return Cost(
            num_chunks=len(windows),
            num_turns=len(windows) + 1,
            num_prompt_tokens=fixed + windows.num_shown_tokens,
            num_completion_tokens=len(windows) * (self.memory_tokens // self.heads) + self.answer_tokens,
        )


def rewritten(prompts: PromptTokens, heads: tuple[Memory, ...], completion: Completion) -> tuple[Memory, ...]:
    """The heads after a turn; as they were if the model wrote nothing."""
    head = prompts.remember(heads[0], completion)
    return heads if head is heads[0] else (*heads[1:], head)


def joined(prompts: PromptTokens, heads: tuple[Memory, ...]) -> Memory:
    """The heads that were written, a line each; the first memory if none was."""
    written = [head for head in heads if head is not prompts.first_memory]
    if not written:
        return prompts.first_memory
    token_ids = list(written[0].token_ids)
    for head in written[1:]:
        token_ids += [*prompts.encode("\n"), *head.token_ids]
    return Memory(token_ids=token_ids, text="\n".join(head.text for head in written))


class HeadsUnsaid(Heads):
    """The broken twin: does not say what its memory is after a turn."""

    def _update(
        self, prompts: PromptTokens, question: QuestionTokens, heads: tuple[Memory, ...], chunk: Chunk
    ) -> Prompt:
        return replace(Heads._update(self, prompts, question, heads, chunk), memory_after=None)
