"""A reader that writes what the training turns teach: it stands for the engine under the real policies."""

from dataclasses import dataclass, field

from memagent_batch.domain.turns import ANSWER, MERGE, UPDATE, Completion, FinishReason, Prompt
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.stories import Story


@dataclass(kw_only=True)
class PerfectReader:
    """Finds the statements of one story in its prompts, and writes the memory, note or answer that they call for."""

    story: Story
    tokenizer: Tokenizer
    keep_word: str
    first_memory: str
    met_by_text: dict[str, tuple[int, ...]] = field(default_factory=dict)
    """Statements that each memory and note stands for."""

    async def __call__(self, prompt: Prompt) -> Completion:
        text = self.tokenizer.decode(list(prompt.token_ids))
        met = self.met(_between(text, "memory"))
        if prompt.kind == ANSWER:
            return self.written(f"\\boxed{{{self.story.answer(met)}}}")
        if prompt.kind == MERGE:
            for noted in self.notes(text):
                met += tuple(place for place in noted if place not in met)
            return self.remembered(self.story.memory(met), met)
        section = tuple(number for number, each in enumerate(self.story.statements) if self.shows(text, each))
        joined = (*met, *(place for place in section if place not in met))
        if prompt.kind == UPDATE:
            is_kept = self.keep_word and self.story.kept(met) == self.story.kept(joined)
            return self.written(self.keep_word) if is_kept else self.remembered(self.story.memory(joined), joined)
        note = self.story.note(met, section)
        return self.written(self.keep_word) if note is None else self.remembered(note, section)

    def shows(self, text: str, statement: str) -> bool:
        """Whether the section of a prompt holds a statement whole; an assignment ends with its line."""
        section = _between(text, "section")
        return statement in section if statement.endswith(".") else f"{statement}\n" in f"{section}\n"

    def met(self, memory: str) -> tuple[int, ...]:
        return () if memory == self.first_memory else self.met_by_text[memory]

    def notes(self, text: str) -> list[tuple[int, ...]]:
        pieces = _between(text, "notes").split("[Section ")[1:]
        return [self.met_by_text[piece.split("]:\n")[1].removesuffix("\n")] for piece in pieces]

    def remembered(self, text: str, met: tuple[int, ...]) -> Completion:
        self.met_by_text[text] = met
        return self.written(text)

    def written(self, text: str) -> Completion:
        return Completion(text=text, token_ids=self.tokenizer.encode(text), finish_reason=FinishReason.STOP)


def _between(text: str, tag: str) -> str:
    return text.partition(f"<{tag}>\n")[2].partition(f"\n</{tag}>")[0]
