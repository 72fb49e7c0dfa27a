"""A memory of several notes (heads): each turn sees all of them and writes one, in place of the least recently written.

As published (MHM-LRU, arXiv 2607.01523): a note that is not written is copied as it is, so that a turn can lose one
note at most, and writes a fraction of the memory. No training is needed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import ClassVar

from memagent_batch.domain.document import Document
from memagent_batch.domain.prompts import Memory, PromptTokens
from memagent_batch.domain.readings import Cost, Outcome, QuestionTokens
from memagent_batch.domain.turns import ANSWER, UPDATE, Completion, Turns
from memagent_batch.policies.overwrite import OverwritePolicy

BETWEEN = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsPolicy(OverwritePolicy):
    """One `update` turn for each chunk, then one `answer` turn, as `overwrite`; `memory_tokens` is for all notes."""

    kind: ClassVar[str] = "heads"
    prompt_set: ClassVar[str] = "heads"

    heads: int = 4

    def __post_init__(self) -> None:
        """Checks the number of heads."""
        if not 1 <= self.heads <= self.memory_tokens:
            raise ValueError("policy.heads must be 1 or more, and at most policy.memory_tokens")

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Reads the chunks in order; notes that were not written yet are not shown."""
        notes: tuple[Memory, ...] = ()
        for chunk in document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens):
            update = replace(
                self._update(prompts, question, joined(prompts, notes), chunk),
                max_tokens=self._note_tokens,
                memory_after=partial(self._memory_after, prompts, notes),
            )
            notes = self._written(prompts, notes, await turns(update))
        memory = joined(prompts, notes)
        completion = await turns(self._answer(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """Each turn shows all notes, with line breaks between them."""
        shown = self.heads * self._note_tokens + (self.heads - 1) * len(prompts.encode(BETWEEN))
        memory = max(shown, len(prompts.first_memory.token_ids))
        update, answer = prompts.update.num_fixed_tokens, prompts.answer.num_fixed_tokens
        return {
            UPDATE: {"memory": memory, "chunk": self.chunk_tokens, "new note": self._note_tokens, "template": update},
            ANSWER: {"memory": memory, "answer": self.answer_tokens, "template": answer},
        }

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """Each chunk is shown once, and one note is written for it at most."""
        cost = OverwritePolicy.cost(self, prompts, num_tokens=num_tokens, breaks=breaks)
        return replace(cost, num_completion_tokens=cost.num_chunks * self._note_tokens + self.answer_tokens)

    @property
    def _note_tokens(self) -> int:
        return self.memory_tokens // self.heads

    def _memory_after(self, prompts: PromptTokens, notes: tuple[Memory, ...], completion: Completion) -> str:
        return joined(prompts, self._written(prompts, notes, completion)).text

    def _written(self, prompts: PromptTokens, notes: tuple[Memory, ...], completion: Completion) -> tuple[Memory, ...]:
        """The notes after a turn, the least recently written first; as they were if the model keeps them."""
        note = prompts.remember(prompts.first_memory, completion)
        return notes if note is prompts.first_memory else (*notes, note)[-self.heads :]


def joined(prompts: PromptTokens, notes: Sequence[Memory]) -> Memory:
    """The notes as one memory, a line break between two; the first memory if there is none."""
    if not notes:
        return prompts.first_memory
    token_ids = list(notes[0].token_ids)
    for note in notes[1:]:
        token_ids += [*prompts.encode(BETWEEN), *note.token_ids]
    return Memory(token_ids=token_ids, text=BETWEEN.join(note.text for note in notes))
