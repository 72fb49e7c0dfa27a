"""Reads a document again for what its memory lacks, one sub-question at a time (MemReread, arXiv 2605.10268).

A fact whose importance shows only at the end of the document may be in no memory. So the model looks at question and
memory, and names the one point that is missing. The document is read again for that point alone, and what is found is
merged into the memory. Both turns fill the `merge` text of the prompt set: what to do stands in place of its notes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar

from memagent_batch.domain.document import Document, num_shown_tokens, token_windows
from memagent_batch.domain.prompts import QUOTES, Memory, PromptTokens, Slot
from memagent_batch.domain.readings import Cost, Outcome, QuestionTokens
from memagent_batch.domain.turns import MERGE, UPDATE, FinishReason, Prompt, Turns, Writes
from memagent_batch.policies.overwrite import OverwritePolicy
from memagent_batch.policies.parallel import merged_memory

DECOMPOSE = "decompose"
"""Kind of the turn that names what the memory lacks, as a question to read the document again for."""
ASK = (
    "If the memory holds all that the answer takes, write only the word keep. Else write one question about the "
    "document: the one thing that the memory lacks and that must be known before anything else. Whoever reads the "
    "document for it does not see the first question or the memory, so call everything by its name. Do not write one "
    "of these, which the document was read for already:"
)
MERGE_NOTES = (
    "The document was read again for one thing. If its notes say nothing about the question that the memory does not "
    "hold, write only the word keep. Else write one memory: everything in the old one and in the notes that helps to "
    "answer the question. Where they differ, trust the notes. What you leave out is forgotten."
)
LABEL_TOKENS = 32
"""Upper bound of the tokens that stand around a sub-question and its notes, line breaks included."""
NO_SUBQUESTION = Memory(token_ids=(), text="")


@dataclass(frozen=True, slots=True, kw_only=True)
class Reread(OverwritePolicy):
    """As `overwrite`; then up to `rounds` - 1 times a `decompose` turn, `update` turns for its sub-question, and a
    `merge` turn.
    """

    kind: ClassVar[str] = "reread"
    prompt_set: ClassVar[str] = str(Path(__file__).with_name("reread.json"))

    question_tokens: int
    """Budget of a sub-question, tokens: that of the question in whose place it stands."""
    rounds: int = 3
    """Most rounds over the chunks, the first one included."""

    def __post_init__(self) -> None:
        """Checks the rounds.

        Raises:
            ValueError: there is none.
        """
        if self.rounds < 1:
            raise ValueError("policy.rounds must be 1 or more")

    async def read(
        self, document: Document, question: QuestionTokens, *, prompts: PromptTokens, turns: Turns
    ) -> Outcome:
        """Stops where the memory lacks nothing, or the model asks again what the document was read for already."""
        memory = await self._notes(document, question, number=1, prompts=prompts, turns=turns)
        asked: list[Memory] = []
        for number in range(2, self.rounds + 1) if document.num_tokens else ():
            missing = await self._missing(question, memory, asked, number=number, prompts=prompts, turns=turns)
            if missing is None:
                break
            asked.append(missing)
            point = QuestionTokens(token_ids=missing.token_ids)
            notes = await self._notes(document, point, number=number, prompts=prompts, turns=turns)
            if notes is not prompts.first_memory:
                merge = self._merge(prompts, question, memory, missing, notes, number=number)
                memory = merged_memory(prompts, memory, await turns(merge), path=merge.path)
        completion = await turns(self._answer(prompts, question, memory))
        return Outcome(response=prompts.response(completion), finish_reason=completion.finish_reason, memory=memory)

    def largest_turns(self, prompts: PromptTokens) -> Mapping[str, Mapping[str, int]]:
        """The `merge` turn shows a memory and notes, and writes a memory; a sub-question is as long as a question."""
        memory, template = self.memory_tokens, prompts.merge.num_fixed_tokens
        earlier = max(0, self.rounds - 2) * (self.question_tokens + LABEL_TOKENS)
        notes = LABEL_TOKENS + self.question_tokens + memory
        asks, merges = len(prompts.encode(ASK)), len(prompts.encode(MERGE_NOTES))
        again = {
            DECOMPOSE: {
                "memory": memory,
                "sub-questions": earlier,
                "new sub-question": self.question_tokens,
                "template": template + asks,
            },
            MERGE: {"memory": memory, "notes": notes, "new memory": memory, "template": template + merges},
        }
        return {**OverwritePolicy.largest_turns(self, prompts), **(again if self.rounds > 1 else {})}

    def cost(self, prompts: PromptTokens, *, num_tokens: int, breaks: Sequence[int] = ()) -> Cost:
        """At most: all rounds. A reading whose memory lacks nothing takes one round and a `decompose` turn."""
        windows = token_windows(
            num_tokens, chunk_tokens=self.chunk_tokens, overlap_tokens=self.overlap_tokens, breaks=breaks
        )
        num_again = self.rounds - 1 if len(windows) else 0
        a_round = len(windows) * prompts.update.num_fixed_tokens + num_shown_tokens(windows)
        label = LABEL_TOKENS + self.question_tokens
        template, answer = prompts.merge.num_fixed_tokens, prompts.answer.num_fixed_tokens
        decompose = template + len(prompts.encode(ASK))
        merge = template + len(prompts.encode(MERGE_NOTES)) + label + self.memory_tokens
        shown_again = num_again * (a_round + decompose + merge) + label * (num_again * (num_again - 1) // 2)
        written_again = num_again * (self.question_tokens + (len(windows) + 1) * self.memory_tokens)
        return Cost(
            num_chunks=len(windows),
            num_turns=len(windows) + num_again * (len(windows) + 2) + 1,
            num_prompt_tokens=a_round + shown_again + answer,
            num_completion_tokens=len(windows) * self.memory_tokens + written_again + self.answer_tokens,
            min_prompt_tokens=a_round + (decompose if num_again else 0) + answer,
        )

    async def _notes(
        self, document: Document, question: QuestionTokens, *, number: int, prompts: PromptTokens, turns: Turns
    ) -> Memory:
        """The memory after a round over the chunks, which begins with the first memory; that one where it has none."""
        notes = prompts.first_memory
        for chunk in document.chunks(self.chunk_tokens, overlap_tokens=self.overlap_tokens):
            update = self._update(prompts, question, notes, chunk)
            path, writes = f"{UPDATE}/{number}/{chunk.span.index}", Writes.MEMORY if number == 1 else Writes.NOTE
            notes = prompts.remember(notes, await turns(replace(update, path=path, writes=writes)))
        return notes

    async def _missing(
        self,
        question: QuestionTokens,
        memory: Memory,
        asked: Sequence[Memory],
        *,
        number: int,
        prompts: PromptTokens,
        turns: Turns,
    ) -> Memory | None:
        """The sub-question of a round; None where nothing is missing, or what the model wrote is of no use.

        A sub-question that is cut at its budget is of none: it counts as a cut note, and the memory stands.
        """
        completion = await turns(self._decompose(prompts, question, memory, asked, number=number))
        written = prompts.remember(NO_SUBQUESTION, completion)
        known = {"", folded(prompts.decode(question.token_ids)), *(folded(each.text) for each in asked)}
        is_cut = completion.finish_reason is FinishReason.LENGTH
        return None if is_cut or folded(written.text) in known else written

    def _decompose(
        self,
        prompts: PromptTokens,
        question: QuestionTokens,
        memory: Memory,
        asked: Sequence[Memory],
        *,
        number: int,
    ) -> Prompt:
        listed = [*prompts.encode(ASK)]
        for each in asked:
            listed += [*prompts.encode("\n- "), *each.token_ids]
        values = {Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids, Slot.NOTES: listed}
        return Prompt(
            path=f"{DECOMPOSE}/{number}",
            kind=DECOMPOSE,
            token_ids=prompts.merge.fill(values),
            max_tokens=self.question_tokens,
            writes=Writes.NOTE,
        )

    def _merge(
        self,
        prompts: PromptTokens,
        question: QuestionTokens,
        memory: Memory,
        missing: Memory,
        notes: Memory,
        *,
        number: int,
    ) -> Prompt:
        labels = prompts.encode("\n[Read again for]:\n"), prompts.encode("\n[Found]:\n")
        shown = [*prompts.encode(MERGE_NOTES), *labels[0], *missing.token_ids, *labels[1], *notes.token_ids]
        values = {Slot.QUESTION: question.token_ids, Slot.MEMORY: memory.token_ids, Slot.NOTES: shown}
        return Prompt(
            path=f"{MERGE}/{number}",
            kind=MERGE,
            token_ids=prompts.merge.fill(values),
            max_tokens=self.memory_tokens,
            writes=Writes.MEMORY,
        )


class RereadUnsaid(Reread):
    """The broken twin: does not say that a `merge` turn writes the memory."""

    def _merge(self, *arguments: Any, **settings: Any) -> Prompt:
        return replace(Reread._merge(self, *arguments, **settings), writes=Writes.NOTE)


def folded(question: str) -> str:
    """A question without what makes no other one of it: case, white space, quotes, and marks at its ends."""
    return " ".join(question.split()).strip(f"{QUOTES}?-").casefold()
