"""Sections of documents in which stories are told, and what a reader of each story held before."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.stories import Story, StoryKind, make_relatives, make_story
from pipelines.recipes.tiny_policy.lessons.streams import Stream, slice_chunk

KINDS = {
    StoryKind.SINGLE: 0.4,
    StoryKind.MANY: 0.16,
    StoryKind.LATEST: 0.13,
    StoryKind.LINKED: 0.14,
    StoryKind.CHAIN: 0.12,
    StoryKind.TRUE: 0.05,
}
"""Share of each kind of story."""

RELATIVES_SHARE = 0.5
"""Part of the draws of single facts that bring several, each one easily taken for the others."""

ABSENT_SHARE = 0.4
"""Part of the stories with one statement that are not told in the section."""

CUT_SHARE = 0.04
"""Part of the sections that begin or end within a sentence, as chunks do."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """A question to a section."""

    story: Story
    """The story."""
    met: tuple[int, ...]
    """Statements that the sections before held, in their order."""
    section: tuple[int, ...]
    """Statements that this section holds."""
    cut: int = 0
    """Characters of the value that the memory lacks, since a chunk ended within it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """A section with the questions to it."""

    chunk: list[int]
    """Tokens of the section."""
    sentences: tuple[str, ...]
    """What was put into it whole, in its order."""
    asked: tuple[Asked, ...]
    """The questions."""


class SceneMaker:
    """Makes sections from streams of running tokens."""

    def __init__(
        self, tokenizer: Tokenizer, streams: Sequence[tuple[float, Stream]], *, split: Split = Split.TRAINING
    ) -> None:
        """Takes the tokeniser of the model folder, the streams with their shares, and the words of the stories."""
        self._encode = tokenizer.encode
        self._shares = [share for share, _ in streams]
        self._streams = [stream for _, stream in streams]
        self._split = split

    def scene(
        self, rng: random.Random, *, num_tokens: int, num_questions: int, kinds: dict[StoryKind, float] = KINDS
    ) -> Scene:
        """A section of this many tokens or some more, and as many questions or a few more."""
        asked: list[Asked] = []
        has_chain = False
        while len(asked) < num_questions:
            kind = rng.choices(list(kinds), list(kinds.values()))[0]
            if kind is StoryKind.CHAIN and has_chain and len(kinds) > 1:
                continue
            has_chain = has_chain or kind is StoryKind.CHAIN
            for story in self._stories(rng, kind):
                met, section = draw_part(rng, story)
                asked.append(Asked(story=story, met=met, section=section, cut=_cut(rng, story, met, section)))
                others = [held for held in _other_memories(rng, story, section) if held != met]
                if others and rng.random() < 0.3 and len(asked) < num_questions:
                    asked.append(Asked(story=story, met=rng.choice(others), section=section))
        told = {id(each.story): each for each in asked}
        sentences = self._sentences(rng, list(told.values()), num_tokens=num_tokens)
        chunk = self._chunk(rng, sentences, num_tokens=num_tokens)
        rivals = [rival for each in told.values() for rival in each.story.rivals]
        if rivals and rng.random() < CUT_SHARE:
            chunk = _with_cut(rng, chunk, self._encode(" " + rng.choice(rivals)))
        return Scene(chunk=chunk, sentences=sentences, asked=tuple(asked))

    def _stories(self, rng: random.Random, kind: StoryKind) -> tuple[Story, ...]:
        """A story; or single facts that are easily taken for one another."""
        if kind is StoryKind.SINGLE and rng.random() < RELATIVES_SHARE:
            return make_relatives(rng, rng.randint(2, 5), split=self._split)
        return (make_story(rng, kind, split=self._split),)

    @staticmethod
    def _sentences(rng: random.Random, told: Sequence[Asked], *, num_tokens: int) -> tuple[str, ...]:
        rivals = [rival for each in told for rival in each.story.rivals]
        most = 1 if num_tokens < 120 else 3 if num_tokens < 240 else max(5, len(told) * num_tokens // 700)
        num_rivals = 0 if rng.random() < 0.3 else min(rng.randint(1, most), len(rivals))
        strands = [[each.story.statements[place] for place in each.section] for each in told]
        strands += [[rival] for rival in rng.sample(rivals, num_rivals)]
        return tuple(_woven(rng, strands))

    def _chunk(self, rng: random.Random, sentences: Sequence[str], *, num_tokens: int) -> list[int]:
        inserts = [self._encode(rng.choice((" ", "\n")) + sentence) for sentence in sentences]
        stream = rng.choices(self._streams, self._shares)[0]
        return slice_chunk(rng, stream, inserts, num_tokens=num_tokens)


def draw_part(rng: random.Random, story: Story) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Which statements the sections before held, and which ones this section holds."""
    num = len(story.statements)
    order = list(range(num))
    if story.kind is StoryKind.LINKED and rng.random() < 0.5:
        rng.shuffle(order)
    start = rng.randint(0, num)
    if rng.random() < ABSENT_SHARE:
        return tuple(order[:start]), ()
    start = min(start, num - 1)
    end = min(num, start + rng.choice((1, 1, 1, 1, 2, 2, 3, num)))
    if start and rng.random() < 0.1:
        return tuple(order[:start]), tuple(order[start - 1 : end])
    return tuple(order[:start]), tuple(order[start:end])


def _other_memories(rng: random.Random, story: Story, section: tuple[int, ...]) -> Iterator[tuple[int, ...]]:
    """Other memories that a reader of this section may have: none, and one that holds it all."""
    yield ()
    if story.kind is not StoryKind.LATEST or not section or section[-1] == len(story.statements) - 1:
        yield tuple(range(len(story.statements)))


def _cut(rng: random.Random, story: Story, met: tuple[int, ...], section: tuple[int, ...]) -> int:
    """Characters that the memory of a single fact lacks, where the section holds it whole."""
    if story.kind is not StoryKind.SINGLE or met or not section or rng.random() > 0.06:
        return 0
    return rng.randint(1, max(1, len(story.values[0]) - 1))


def _woven(rng: random.Random, strands: Sequence[Sequence[str]]) -> Iterator[str]:
    """The sentences of all strands, each strand in its order."""
    turns = [number for number, strand in enumerate(strands) for _ in strand]
    rng.shuffle(turns)
    left = [iter(strand) for strand in strands]
    for number in turns:
        yield next(left[number])


def _with_cut(rng: random.Random, chunk: list[int], sentence: list[int]) -> list[int]:
    """The chunk with the last part of a sentence at its beginning, or with a first part, value cut, at its end."""
    if rng.random() < 0.5:
        return sentence[rng.randint(len(sentence) // 2, len(sentence) - 1) :] + chunk
    return chunk + sentence[: rng.randint(1, max(1, len(sentence) - 3))]
