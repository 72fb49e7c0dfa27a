"""A policy of your own: a memory of several notes (heads). Each turn sees all of them and replaces the oldest one.

    memagent answer --policy.kind pipelines.heads:HeadsPolicy --allow-code ...

As published (MHM-LRU, arXiv 2607.01523): notes that a turn does not write stay as they are, so a turn can lose one note
at most. Set the number of notes by `policy.settings`, such as {heads: 8}; `policy.memory_tokens` is for all of them.
What a policy is made of: docs/how-to/plugins.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import ClassVar

from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import Memory, PromptTokens
from memagent_batch.types import ANSWER, UPDATE, Completion, Cost, Document, Outcome, QuestionTokens, Turns

SEPARATOR = "\n"


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadsPolicy(OverwritePolicy):
    """Reads each chunk in an `update` turn that may write one note, then answers from the notes in an `answer` turn."""

    kind: ClassVar[str] = "heads"
    prompt_set: ClassVar[str] = str(Path(__file__).with_name("heads.yaml"))

    heads: int = 4
    """Number of notes that share `memory_tokens`."""

    def __post_init__(self) -> None:
        """Checks the number of notes."""
        if not 1 <= self.heads <= self.memory_tokens:
            raise ValueError("policy.settings.heads must be 1 or more, and at most policy.memory_tokens")

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Reads the chunks in order, then answers."""
        notes: tuple[Memory, ...] = ()
        for chunk in document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens):
            update = replace(
                self.update_prompt(prompts, question, joined(prompts, notes), chunk),
                max_tokens=self.note_tokens,
                memory_after=partial(self.memory_text, prompts, notes),
            )
            notes = self.next_notes(prompts, notes, await turns(update))
        memory = joined(prompts, notes)
        completion = await turns(self.answer_prompt(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """Returns the parts of the largest turns: each shows all notes with line breaks between them."""
        shown = self.heads * self.note_tokens + (self.heads - 1) * len(prompts.encode(SEPARATOR))
        memory = max(shown, len(prompts.first_memory.token_ids))
        update, answer = prompts.update.num_fixed_tokens, prompts.answer.num_fixed_tokens
        return {
            UPDATE: {"memory": memory, "chunk": self.chunk_tokens, "new note": self.note_tokens, "template": update},
            ANSWER: {"memory": memory, "answer": self.answer_tokens, "template": answer},
        }

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """Returns the cost of `overwrite`, with one note a chunk in place of a whole memory."""
        cost = OverwritePolicy.cost(self, prompts, num_tokens=num_tokens, breaks=breaks)
        return replace(cost, num_completion_tokens=cost.num_chunks * self.note_tokens + self.answer_tokens)

    @property
    def note_tokens(self) -> int:
        """Budget of one note."""
        return self.memory_tokens // self.heads

    def next_notes(
        self, prompts: PromptTokens, notes: tuple[Memory, ...], completion: Completion
    ) -> tuple[Memory, ...]:
        """Returns the notes after a turn, the oldest first; the same ones if the model keeps them."""
        note = prompts.remember(prompts.first_memory, completion)
        return notes if note is prompts.first_memory else (*notes, note)[-self.heads :]

    def memory_text(self, prompts: PromptTokens, notes: tuple[Memory, ...], completion: Completion) -> str:
        """Returns the text of all notes after a turn, which the log and the tables keep."""
        return joined(prompts, self.next_notes(prompts, notes, completion)).text


def joined(prompts: PromptTokens, notes: Sequence[Memory]) -> Memory:
    """Joins the notes to one memory; without a note it is the first memory of the prompt set."""
    if not notes:
        return prompts.first_memory
    token_ids = list(notes[0].token_ids)
    for note in notes[1:]:
        token_ids += [*prompts.encode(SEPARATOR), *note.token_ids]
    return Memory(token_ids=token_ids, text=SEPARATOR.join(note.text for note in notes))
