"""Turns of reading to be learnt: prompts as the policies show them, and the memory, note or answer to be written."""

import random
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memagent_batch.domain.prompts import AnswerForm, PromptSet, PromptTokens, Slot, TokenTemplate
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.stories import NOT_STATED, Story, StoryKind
from memagent_batch.policies.parallel import Note, labelled
from memagent_batch.prompts.built_in import DEFAULT_PROMPTS, GATED_PROMPTS, PARALLEL_PROMPTS, SECTION_FIRST_PROMPTS
from pipelines.recipes.tiny_policy.examples import Aside, Branch, Example
from pipelines.recipes.tiny_policy.lessons.scenes import Asked, Scene, SceneMaker, draw_part
from pipelines.recipes.tiny_policy.lessons.spelling import spelled

FIRST_SHARE = 0.35
"""Part of the turns without anything noted that are the first ones of their document."""

GATE_WEIGHT = 8.0
"""Weight of the token that keeps or begins a memory, where a word keeps it: the only one that needs the chunk looked
through before anything is written. At the weight of the others, three minutes of training did not teach it."""

MOST_SECTIONS = 200
"""Sections of a document whose notes are merged; their numbers stand above the notes."""

TOLD_WEIGHT = 6.0
"""Weight of what is told behind each sentence that was put into a section: whether the question asks for it. No engine
writes it; it teaches to compare whole keys."""

OVERLAP_SHARE = 0.12
"""Part of the notes that repeat the end of the one before: chunks overlap, and a statement may stand in two."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Lengths:
    """Lengths of chunks."""

    shortest_tokens: int
    """Shortest chunk."""
    longest_tokens: int
    """Longest chunk."""
    long_share: float
    """Part of the chunks that have the longest length; the others spread evenly in the logarithm."""

    def draw(self, rng: random.Random) -> int:
        """Tokens of a chunk."""
        if rng.random() < self.long_share:
            return self.longest_tokens
        growth: float = (self.longest_tokens / self.shortest_tokens) ** rng.random()
        return round(self.shortest_tokens * growth)


class TurnMaker:
    """Makes turns of the policies `overwrite`, `gated` and `parallel`, and of those without a memory."""

    def __init__(self, tokenizer: Tokenizer, scenes: SceneMaker) -> None:
        """Takes the tokeniser of the model folder, and what makes the sections."""
        self._tokenizer, self._encode = tokenizer, tokenizer.encode
        self._scenes = scenes
        self._default, self._gated, self._section_first, self._parallel = (
            self._tokens_of(tokenizer, prompts)
            for prompts in (DEFAULT_PROMPTS, GATED_PROMPTS, SECTION_FIRST_PROMPTS, PARALLEL_PROMPTS)
        )
        self._first = list(self._default.first_memory.token_ids)
        self._end = [tokenizer.end_token_id or 0]
        self._asked_for, self._other = self._encode("yes")[0], self._encode("none")[0]

    def shared_sections(self, rng: random.Random, lengths: Lengths, *, num_questions: int) -> Iterator[Example]:
        """Endless sections, each with several questions behind it: prompts of `gated`, `parallel`, `section-first`."""
        names = {"gated": 0.42, "parallel": 0.42, "section-first": 0.16}
        while True:
            name = rng.choices(list(names), list(names.values()))[0]
            scene = self._scenes.scene(rng, num_tokens=lengths.draw(rng), num_questions=num_questions)
            branches = tuple(self._section_turn(rng, name, asked) for asked in scene.asked)
            head, _ = _split_at(self._prompts(name).update, Slot.CHUNK)
            yield Example(prefix=[*_fill(head, {}), *scene.chunk], branches=branches)

    def single_sections(self, rng: random.Random, lengths: Lengths) -> Iterator[Example]:
        """Endless prompts that show the question before the section: `overwrite`, and those without a memory."""
        while True:
            scene = self._scenes.scene(rng, num_tokens=lengths.draw(rng), num_questions=rng.choice((1, 2, 3)))
            asked = rng.choice(scene.asked)
            values = {Slot.QUESTION: self._encode(asked.story.question), Slot.CHUNK: scene.chunk}
            if rng.random() < 0.17:
                told = tuple(sorted(asked.section))
                target = f"{asked.story.memory(told)} {_boxed(asked.story.answer(told))}"
                yield self._whole(f"direct {asked.story.kind}", self._default.direct.fill(values), target)
                continue
            values[Slot.MEMORY] = self._memory(rng, asked)
            head, tail = (_fill(part, values) for part in _split_at(self._default.update, Slot.CHUNK))
            asides = self._told(scene, asked.story, place=len(head) - 1)
            prompt = [*head[1:], *scene.chunk, *tail]
            branch = self._branch(_kind("update", asked), prompt, _new_memory(asked), asides=asides)
            yield Example(prefix=head[:1], branches=(branch,))

    def answers(self, rng: random.Random, *, num: int) -> Iterator[Example]:
        """Endless groups of answer turns."""
        head, tail = _split_at(self._default.answer, Slot.QUESTION, keep=True)
        while True:
            branches = []
            for asked in self._scenes.scene(rng, num_tokens=40, num_questions=num).asked:
                story = asked.story
                met = asked.met or tuple(draw_part(rng, story)[0])
                if rng.random() < 0.5:
                    met = tuple(range(len(story.statements)))
                values = {Slot.QUESTION: self._encode(story.question), Slot.MEMORY: self._noted(rng, story, met)}
                kind = f"answer {story.kind}" if story.answer(met) != NOT_STATED else "answer not stated"
                branches.append(self._branch(kind, _fill(tail, values), _boxed(story.answer(met))))
            yield Example(prefix=_fill(head, {}), branches=tuple(branches))

    def merges(self, rng: random.Random, *, num: int) -> Iterator[Example]:
        """Endless groups of merge turns."""
        head, tail = _split_at(self._parallel.merge, Slot.QUESTION, keep=True)
        while True:
            asked = self._scenes.scene(rng, num_tokens=40, num_questions=num).asked
            yield Example(prefix=_fill(head, {}), branches=tuple(self._merge(rng, each.story, tail) for each in asked))

    def _section_turn(self, rng: random.Random, name: str, asked: Asked) -> Branch:
        prompts = self._prompts(name)
        _, tail = _split_at(prompts.update, Slot.CHUNK)
        story = asked.story
        if name == "parallel":
            if asked.met and rng.random() < 0.5:
                asked = Asked(story=story, met=(), section=asked.section)
            memory = self._encode(story.memory(asked.met)) if story.kept(asked.met) else self._first
            note = story.note(asked.met, asked.section)
            target = note or prompts.keep_word
        else:
            memory, target = self._memory(rng, asked), _new_memory(asked)
            if name == "gated":
                is_kept = not asked.cut and story.kept(asked.met) == story.kept(_joined(asked))
                target = prompts.keep_word if is_kept and memory != self._first else target
        values = {Slot.QUESTION: self._encode(story.question), Slot.MEMORY: memory}
        weights = () if name == "section-first" else (GATE_WEIGHT,)
        return self._branch(_kind(name, asked), _fill(tail, values), target, weights=weights)

    def _merge(self, rng: random.Random, story: Story, tail: Sequence[tuple[int, ...] | Slot]) -> Branch:
        order = list(range(len(story.statements)))
        num_held = rng.choice((0, 0, rng.randint(0, len(order))))
        held, fresh = tuple(order[:num_held]), order[num_held:] or order[-1:]
        memory, place = held, rng.randrange(MOST_SECTIONS // 5)
        notes: list[int] = []
        while fresh:
            size = rng.choice((1, 1, 1, 2, len(fresh)))
            again = memory[-1:] if notes and rng.random() < OVERLAP_SHARE else ()
            part, fresh = (*again, *fresh[:size]), fresh[size:]
            text = story.note(held, part)
            if text is None and (fresh or notes):
                continue
            note = Note(first=place, last=place, token_ids=self._encode(text or story.memory([*held, *part])))
            notes += labelled(note, prompts=self._parallel)
            memory = (*memory, *(each for each in part if each not in memory))
            place += rng.randint(1, MOST_SECTIONS // 5)
        shown = self._encode(story.memory(held)) if story.kept(held) else self._first
        values = {Slot.QUESTION: self._encode(story.question), Slot.MEMORY: shown, Slot.NOTES: notes}
        return self._branch(f"merge {story.kind}", _fill(tail, values), story.memory(memory))

    def _memory(self, rng: random.Random, asked: Asked) -> list[int]:
        """What is noted before the turn; now and then a value that was cut where the chunk before ended."""
        if asked.cut:
            return self._encode(asked.story.memory(asked.section).removesuffix(".")[: -asked.cut] + ".")
        return self._noted(rng, asked.story, asked.met)

    def _noted(self, rng: random.Random, story: Story, met: Sequence[int]) -> list[int]:
        if story.kept(met) or rng.random() > FIRST_SHARE:
            return self._encode(story.memory(met))
        return self._first

    def _prompts(self, name: str) -> PromptTokens:
        return {"gated": self._gated, "parallel": self._parallel, "section-first": self._section_first}[name]

    def _whole(self, kind: str, prompt: Sequence[int], target: str) -> Example:
        return Example(prefix=prompt[:-1], branches=(self._branch(kind, prompt[-1:], target),))

    def _told(self, scene: Scene, story: Story, *, place: int) -> tuple[Aside, ...]:
        """What is to be told behind each sentence that was put into a section: whether the question asks for it.

        Nothing where a sentence alone does not show that. `place` is that of the section in its prompt.
        """
        if story.kind in (StoryKind.LINKED, StoryKind.CHAIN):
            return ()
        text, ends = spelled(scene.chunk, self._tokenizer)
        asides, end = [], 0
        for sentence in scene.sentences:
            end = text.index(sentence, end) + len(sentence)
            word = self._asked_for if sentence in story.statements else self._other
            asides.append(Aside(place=place + bisect_left(ends, end), target=word, weight=TOLD_WEIGHT))
        return tuple(asides)

    def _branch(
        self,
        kind: str,
        prompt: Sequence[int],
        target: str,
        *,
        weights: Sequence[float] = (),
        asides: tuple[Aside, ...] = (),
    ) -> Branch:
        target_ids = self._encode(target) + self._end
        return Branch(kind=kind, prompt=prompt, target=target_ids, weights=weights, asides=asides)

    @staticmethod
    def _tokens_of(tokenizer: Tokenizer, prompts: PromptSet) -> PromptTokens:
        return tokenizer.prompt_tokens(prompts, answer_form=AnswerForm.BOXED)


def _joined(asked: Asked) -> tuple[int, ...]:
    """The statements that were met once the section was read."""
    return (*asked.met, *(place for place in asked.section if place not in asked.met))


def _new_memory(asked: Asked) -> str:
    return asked.story.memory(_joined(asked))


def _kind(name: str, asked: Asked) -> str:
    """Name of a turn in the log: its prompt, its story, and whether the memory changes."""
    kept = asked.story.kept(asked.met)
    change = "same" if kept == asked.story.kept(_joined(asked)) and not asked.cut else "new"
    return f"{name} {asked.story.kind} {'blank ' if not kept else ''}{change}"


def _boxed(answer: str) -> str:
    return f"\\boxed{{{answer}}}"


Pieces = Sequence[tuple[int, ...] | Slot]


def _split_at(template: TokenTemplate, slot: Slot, *, keep: bool = False) -> tuple[Pieces, Pieces]:
    """The pieces before a slot and those after it; the slot itself goes with the latter where it is kept."""
    place = template.pieces.index(slot)
    return template.pieces[:place], template.pieces[place + (not keep) :]


def _fill(pieces: Pieces, values: dict[Slot, list[int]]) -> list[int]:
    return TokenTemplate(pieces=tuple(pieces)).fill(values)
