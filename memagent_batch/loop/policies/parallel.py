"""All chunks are read side by side against one memory, their notes are merged, and that is repeated (PI-Mem).

A round reads every chunk against the same memory. A chunk that says nothing new costs a word; the notes of the others
are merged into the memory, in document order. A document of any length takes as many dependent turns as its rounds and
the levels of their merges, where `overwrite` takes one for each chunk.
"""

import asyncio
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from itertools import chain
from typing import ClassVar, Protocol, TypeVar, runtime_checkable

from memagent_batch.document import num_shown_tokens, token_windows
from memagent_batch.loop.policies.overwrite import OverwritePolicy
from memagent_batch.loop.prompts import Encode, Memory, PromptTokens, Slot
from memagent_batch.types import (
    ANSWER,
    MERGE,
    READ,
    Completion,
    Cost,
    Document,
    Outcome,
    Prompt,
    QuestionTokens,
    Turns,
    Writes,
)

LABEL_TOKENS = 32
"""Upper bound of the tokens that name the sections of a note in a `merge` turn, its line breaks included."""

PREVIOUS_MEMORY = "\n[Previous Memory]:\n"
"""Stands before the memory in a `merge` turn whose text has no place for it, as the published one (PI-Mem)."""

MAX_LABELS = 4096
"""Labels whose tokens are remembered: every reading in flight needs the same ones."""

UseT = TypeVar("UseT")


@runtime_checkable
class PlacedTurns(Protocol):
    """Turns that share places in an engine. A policy that asks many side by side makes a prompt when there is room."""

    async def room(self) -> None:
        """Returns when no turn of the reading waits for a place."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """What one chunk, or the merge of several, said about the question."""

    first: int
    """Index of the first chunk that it comes from."""
    last: int
    shown: Sequence[int]
    """Its tokens as a `merge` turn shows them: under the numbers of its chunks."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelPolicy(OverwritePolicy):
    """`read` turns for all chunks, `merge` turns in a tree, at most `rounds` times; then one `answer` turn.

    `chunk_tokens` is also the room for notes in one `merge` turn, `memory_tokens` also the budget of each note.
    """

    kind: ClassVar[str] = "parallel"
    prompt_set: ClassVar[str] = "parallel"

    rounds: int = 3

    def __post_init__(self) -> None:
        """Checks the rounds."""
        if self.rounds < 1:
            raise ValueError("policy.rounds must be 1 or more")

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Stops where no chunk has news, or the memory stays as it was; an empty document has no round."""
        memory = prompts.first_memory
        for number in range(1, self.rounds + 1):
            reads = (
                replace(
                    self.update_prompt(prompts, question, memory, chunk),
                    path=f"{READ}/{number}/{chunk.span.index}",
                    kind=READ,
                    writes=Writes.NOTE,
                )
                for chunk in document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens)
            )
            written = await side_by_side(reads, turns=turns, use=partial(read_note, prompts, memory))
            notes = [note for note in written if note is not None]
            merged = await self._merged(notes, question, memory, number=number, prompts=prompts, turns=turns)
            if merged.text == memory.text:
                break
            memory = merged
        completion = await turns(self.answer_prompt(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """The `merge` turn shows a memory and its notes, and writes a memory."""
        memory, answer = self.memory_tokens, prompts.answer.num_fixed_tokens
        read, merge = prompts.update.num_fixed_tokens, prompts.merge.num_fixed_tokens + LABEL_TOKENS
        return {
            READ: {"memory": memory, "chunk": self.chunk_tokens, "note": memory, "template": read},
            MERGE: {"memory": memory, "notes": self._notes_tokens, "new memory": memory, "template": merge},
            ANSWER: {"memory": memory, "answer": self.answer_tokens, "template": answer},
        }

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """At most: all rounds, with a note of every chunk. Few chunks have one, and most readings take two rounds."""
        windows = token_windows(
            num_tokens, chunk_tokens=self.chunk_tokens, overlap_tokens=self.overlap_tokens, breaks=breaks
        )
        num_merges, num_levels = self._count_merges(len(windows))
        num_written = len(windows) + num_merges
        fixed = len(windows) * prompts.update.num_fixed_tokens + num_merges * prompts.merge.num_fixed_tokens
        notes = num_written * (self.memory_tokens + LABEL_TOKENS)
        in_chunks = num_shown_tokens(windows)
        shown = self.rounds * (fixed + in_chunks + notes)
        first_round = len(windows) * prompts.update.num_fixed_tokens + in_chunks
        return Cost(
            num_chunks=len(windows),
            num_turns=self.rounds * num_written + 1,
            num_prompt_tokens=shown + prompts.answer.num_fixed_tokens,
            num_completion_tokens=self.rounds * num_written * self.memory_tokens + self.answer_tokens,
            min_prompt_tokens=first_round + prompts.answer.num_fixed_tokens,
            num_steps=(4 if self.rounds > 1 else 3) if windows else 1,  # read, merge, read without news, answer
            max_steps=self.rounds * (1 + num_levels) + 1 if windows else 1,
        )

    @property
    def _notes_tokens(self) -> int:
        """Room for notes in one `merge` turn: at least two, so that each level of merges has fewer than the one
        before.
        """
        return max(self.chunk_tokens, 2 * (self.memory_tokens + LABEL_TOKENS))

    async def _merged(
        self,
        notes: Sequence[Note],
        question: QuestionTokens,
        memory: Memory,
        *,
        number: int,
        prompts: PromptTokens,
        turns: Turns,
    ) -> Memory:
        """The memory with the notes in it; a merge that keeps the memory by a word adds nothing.

        Raises:
            ExceptionGroup: what turns raised.
        """
        before: Sequence[int] = ()
        if Slot.MEMORY not in prompts.merge.pieces and memory != prompts.first_memory:
            before = [*prompts.encode(PREVIOUS_MEMORY), *memory.token_ids]
        level = 0
        while notes:
            groups = list(self._groups(notes))
            merges = (
                Prompt(
                    path=f"{MERGE}/{number}/{level}/{place}",
                    kind=MERGE,
                    token_ids=prompts.merge.fill(
                        {
                            Slot.QUESTION: question.token_ids,
                            Slot.MEMORY: memory.token_ids,
                            Slot.NOTES: [*before, *chain.from_iterable(note.shown for note in group)],
                        }
                    ),
                    max_tokens=self.memory_tokens,
                    writes=Writes.MEMORY if len(groups) == 1 else Writes.NOTE,
                )
                for place, group in enumerate(groups)
            )
            memories = await side_by_side(merges, turns=turns, use=lambda _, each: prompts.remember(memory, each))
            if len(groups) == 1:
                return memories[0]
            notes = [
                note_of(merged, first=group[0].first, last=group[-1].last, prompts=prompts)
                for group, merged in zip(groups, memories, strict=True)
                if merged is not memory
            ]
            level += 1
        return memory

    def _groups(self, notes: Sequence[Note]) -> Iterator[list[Note]]:
        """The notes in document order, as many together as one `merge` turn has room for."""
        group: list[Note] = []
        room = self._notes_tokens
        for note in notes:
            if group and len(note.shown) > room:
                yield group
                group, room = [], self._notes_tokens
            group.append(note)
            room -= len(note.shown)
        if group:
            yield group

    def _count_merges(self, num_notes: int) -> tuple[int, int]:
        """Merges of so many notes, and their levels."""
        in_one = self._notes_tokens // (self.memory_tokens + LABEL_TOKENS)
        merges = levels = 0
        while num_notes:
            groups = -(-num_notes // in_one)
            merges, levels = merges + groups, levels + 1
            num_notes = groups if groups > 1 else 0
        return merges, levels


def note_of(memory: Memory, *, first: int, last: int, prompts: PromptTokens) -> Note:
    """What was written as a note of these chunks, which are counted from 1 where it is shown."""
    shown = [*_label(prompts.encode, first, last), *memory.token_ids]
    return Note(first=first, last=last, shown=array("i", shown))


@lru_cache(maxsize=MAX_LABELS)
def _label(encode: Encode, first: int, last: int) -> Sequence[int]:
    sections = f"Section {first + 1}" if first == last else f"Sections {first + 1} to {last + 1}"
    return encode(f"\n[{sections}]:\n")


def read_note(prompts: PromptTokens, memory: Memory, index: int, completion: Completion) -> Note | None:
    """What the `read` turn of a chunk wrote; None where it keeps the memory as it is."""
    written = prompts.remember(memory, completion)
    return None if written is memory else note_of(written, first=index, last=index, prompts=prompts)


async def side_by_side(
    prompts: Iterable[Prompt], *, turns: Turns, use: Callable[[int, Completion], UseT]
) -> list[UseT]:
    """What `use` makes of the completions of the prompts, in their order. The first failure cancels the other turns.

    A prompt of 5,000 tokens takes 20 kB as an array and 200 kB as a list, so it is made when its turn can start, and
    its list is dropped at once. A reading then holds the prompts of its turns in the engine, and of one that waits.
    `use` gets the place of a prompt and its completion, as each comes: all of them at the end would block the event
    loop.

    Raises:
        ExceptionGroup: what the turns that failed, or `use`, raised.
    """
    asked: list[asyncio.Task[UseT]] = []
    placed = turns if isinstance(turns, PlacedTurns) else None  # looked at once: it takes as long as a prompt
    async with asyncio.TaskGroup() as group:
        for place, prompt in enumerate(prompts):
            prompt = replace(prompt, token_ids=array("i", prompt.token_ids))
            asked.append(group.create_task(_ask(prompt, turns=turns, use=partial(use, place))))
            if placed is not None:
                await placed.room()
    return [task.result() for task in asked]


async def _ask(prompt: Prompt, *, turns: Turns, use: Callable[[Completion], UseT]) -> UseT:
    return use(await turns(prompt))
