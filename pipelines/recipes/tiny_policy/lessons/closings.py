"""Closing turns to be learnt. The product's own code asks them; the answers come from the story that was told."""

import asyncio
import random
import re
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

from memagent_batch.domain.closing.answer_types import NOT_STATED_ENTRY, AnswerType, ValueType
from memagent_batch.domain.closing.evidence import MAX_CHOSEN, NO_SENTENCE, MemoryTrace
from memagent_batch.domain.closing.plan import EVIDENCE, SUPPORT, SUPPORT_MENU, VALUE, ClosingPlan, Support
from memagent_batch.domain.closing.values import menu
from memagent_batch.domain.texts.sentences import split_sentences
from memagent_batch.domain.turns import Completion, FinishReason, Prompt, Writes
from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split, make_key, make_number
from memagent_batch.evaluation.needles.stories import NOT_STATED, STATUSES, Story, StoryKind, make_story
from memagent_batch.prompts.closing import CLOSING_PROMPTS
from memagent_batch.reading.closing import ClosingTurns, FinishedReading, ask_closing_turns
from pipelines.recipes.tiny_policy.lessons.spelling import spelled

LINE = re.compile(r"^\[(\d+)\] (.*)$", re.MULTILINE)
"""A numbered sentence in a prompt."""

CHOICE = re.compile(r"^(\d+) = (.*)$", re.MULTILINE)
"""A choice of a menu in a prompt."""

EVIDENCE_TOKENS = 256
"""Sentences that are shown, tokens at most: what the chunks of `jobs/tiny.yaml` have by default."""

ABSENT_SHARE = 0.22
"""Part of the stories that the document does not tell."""

UNITS = ("", "", "", "EUR", "days", "pieces")
"""Units that numbers are asked in; the documents name none."""


class Truth(StrEnum):
    """How the sentences that are checked belong to the answer."""

    SUPPORTED = "supported"
    """They are those that tell it."""
    PARTLY = "partly"
    """Some of them are missing."""
    CONTRADICTED = "contradicted"
    """They tell another value than the answer has."""
    NOT_ENOUGH = "not enough"
    """They tell something else."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClosingTurn:
    """A closing turn and what should be written."""

    kind: str
    """Kind of turn, for the log."""
    prompt: Sequence[int]
    """Token ids of the prompt."""
    target: str
    """What should be written."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mark:
    """What is to be told at the end of a line, in a list that a closing turn chooses from."""

    place: int
    """Index of the prompt's token behind which it is told."""
    token_id: int
    """First token of the line's number, or of "none"."""
    found: bool
    """Whether it tells that the line is meant."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ToldStory:
    """A document that tells a story, or does not, and the reading of it."""

    story: Story
    """The story."""
    met: tuple[int, ...]
    """Statements that the document holds."""
    text: str
    """The document."""
    answer: str
    """The answer that the reader gave."""
    value_type: ValueType | None
    """The type that is asked for."""
    truth: Truth
    """What its sentences say of the answer."""


@dataclass(slots=True, kw_only=True)
class Teacher:
    """Stands for the engine: writes what is right, and keeps prompts and completions."""

    told: ToldStory
    """What is read."""
    tokenizer: Tokenizer
    """Reads the prompts."""
    rng: random.Random
    """Chooses sentences that do not tell the answer."""
    turns: list[ClosingTurn] = field(default_factory=list)
    """What was asked and written."""

    async def __call__(self, prompt: Prompt) -> Completion:
        """The right completion."""
        write = {VALUE: self._value, EVIDENCE: self._evidence, SUPPORT: self._support}[prompt.kind]
        target = write(self.tokenizer.decode(list(prompt.token_ids)))
        if prompt.guide is None or not prompt.guide.allows(target):
            raise ValueError(f"{prompt.kind}: {target!r} is not what the guide allows")
        name = self._name(prompt.kind, target)
        if prompt.kind != EVIDENCE or self.told.truth is Truth.SUPPORTED:
            self.turns.append(ClosingTurn(kind=name, prompt=prompt.token_ids, target=target))
        return Completion(text=target, token_ids=self.tokenizer.encode(target), finish_reason=FinishReason.STOP)

    def _name(self, kind: str, target: str) -> str:
        if kind == EVIDENCE:
            return f"evidence {'none' if target == NO_SENTENCE else self.told.story.kind}"
        if kind == SUPPORT:
            return f"support {self.told.truth}"
        value_type = self.told.value_type
        is_stated = self.told.answer != NOT_STATED
        return f"value {value_type.type if value_type else ''}{'' if is_stated else ' not stated'}"

    def _value(self, _prompt: str) -> str:
        value_type, answer = self.told.value_type, self.told.answer
        assert value_type is not None
        if value_type.type is AnswerType.NUMBER:
            return NOT_STATED_ENTRY if answer == NOT_STATED else answer
        wanted = None if answer == NOT_STATED else "stated" if value_type.type is AnswerType.TEXT else answer
        return next(number for number, choice in menu(value_type).items() if choice == wanted)

    def _evidence(self, prompt: str) -> str:
        lines = LINE.findall(prompt)
        told = self.told
        telling = [number for text in _telling(told) for number, line in lines if text in line]
        if told.truth is Truth.PARTLY:
            return ", ".join(telling[: max(1, len(telling) // 2)]) or NO_SENTENCE
        if told.truth is Truth.NOT_ENOUGH:
            others = [number for number, _ in lines if number not in telling]
            return ", ".join(self.rng.sample(others, min(len(others), self.rng.choice((1, 1, 2))))) or NO_SENTENCE
        return ", ".join(dict.fromkeys(telling[:MAX_CHOSEN])) or NO_SENTENCE

    def _support(self, _prompt: str) -> str:
        wanted = Support(self.told.truth.value)
        return next(number for number, support in SUPPORT_MENU.items() if support is wanted)


class ClosingMaker:
    """Makes closing turns of finished readings."""

    def __init__(
        self, tokenizer: Tokenizer, backgrounds: Sequence[tuple[float, Sequence[str]]], *, split: Split
    ) -> None:
        """Takes the tokeniser, units of text with their shares, and the words of the stories."""
        self._tokenizer = tokenizer
        self._shares = [share for share, _ in backgrounds]
        self._units = [units for _, units in backgrounds]
        self._split = split
        self._closing = ClosingTurns(
            plan=ClosingPlan(evidence=True, support=True, evidence_tokens=EVIDENCE_TOKENS),
            closings=CLOSING_PROMPTS,
            tokens=tokenizer.closing_tokens(CLOSING_PROMPTS),
            reader_fingerprint="0" * 64,
        )
        self._loop = asyncio.new_event_loop()

    def turns(self, rng: random.Random) -> Iterator[ClosingTurn]:
        """Endless closing turns."""
        while True:
            yield from self.closed(rng, self.told(rng))

    def closed(self, rng: random.Random, told: ToldStory) -> list[ClosingTurn]:
        """The closing turns of one reading."""
        teacher = Teacher(told=told, tokenizer=self._tokenizer, rng=rng)
        reading = self._reading(rng, told)
        self._loop.run_until_complete(ask_closing_turns(reading, closing=self._closing, turns=teacher))
        return teacher.turns

    def completion(self, turn: ClosingTurn) -> list[int]:
        """Token ids of what a turn should write, its end token included."""
        return [*self._tokenizer.encode(turn.target), self._tokenizer.end_token_id or 0]

    def marks(self, turn: ClosingTurn) -> Iterator[Mark]:
        """What is to be told behind each line that a turn chooses from: before its line break its number, and behind it
        its number where it is meant, else "none". Nothing for a turn that writes no number of a line.
        """
        pattern = LINE if turn.kind.startswith("evidence") else CHOICE
        if turn.kind.startswith("support"):
            return
        text, ends = spelled(turn.prompt, self._tokenizer)
        meant = set(turn.target.split(", "))
        (none, *_) = self._tokenizer.encode(NO_SENTENCE)
        for line in pattern.finditer(text):
            place = bisect_right(ends, line.end())
            if place < len(turn.prompt):
                number = self._tokenizer.encode(line[1])[0]
                found = line[1] in meant
                yield Mark(place=place - 1, token_id=number, found=False)
                yield Mark(place=place, token_id=number if found else none, found=found)

    def told(self, rng: random.Random) -> ToldStory:
        """A random document with a story, and the answer of its reader."""
        kind = rng.choices(
            [StoryKind.SINGLE, StoryKind.MANY, StoryKind.LATEST, StoryKind.LINKED, StoryKind.CHAIN, StoryKind.TRUE],
            [0.42, 0.12, 0.1, 0.2, 0.07, 0.09],
        )[0]
        story = make_story(rng, kind, split=self._split)
        truth = rng.choices(list(Truth), [0.55, 0.1, 0.17, 0.18])[0]
        if truth is Truth.PARTLY and kind not in (StoryKind.MANY, StoryKind.LINKED):
            truth = Truth.SUPPORTED
        if truth is Truth.CONTRADICTED and kind not in (StoryKind.SINGLE, StoryKind.LATEST, StoryKind.TRUE):
            truth = Truth.SUPPORTED
        is_told = truth is not Truth.SUPPORTED or rng.random() > ABSENT_SHARE
        met = tuple(range(len(story.statements))) if is_told else ()
        answer = story.answer(met)
        if truth is Truth.CONTRADICTED:
            answer = self._other_answer(rng, story, answer)
        return ToldStory(
            story=story,
            met=met,
            text=self._text(rng, story, met),
            answer=answer,
            value_type=self._value_type(rng, story, answer),
            truth=truth,
        )

    def _other_answer(self, rng: random.Random, story: Story, answer: str) -> str:
        if story.kind is StoryKind.TRUE:
            return "no" if answer == "yes" else "yes"
        if answer.isdigit():
            return make_number(rng)
        return (
            rng.choice([status for status in STATUSES if status != answer])
            if answer in STATUSES
            else make_key(rng, split=self._split)
        )

    def _value_type(self, rng: random.Random, story: Story, answer: str) -> ValueType | None:
        if rng.random() < 0.35:
            return None
        not_stated = answer == NOT_STATED or rng.random() < 0.85
        if rng.random() < 0.1 or story.kind in (StoryKind.MANY, StoryKind.CHAIN):
            return ValueType(type=AnswerType.TEXT)
        if story.kind is StoryKind.TRUE:
            return ValueType(type=AnswerType.BOOL, not_stated=not_stated)
        value = next(value for value in reversed(story.values) if value)
        if value.isdigit():
            return ValueType(type=AnswerType.NUMBER, unit=rng.choice(UNITS), not_stated=not_stated)
        labels = (
            list(STATUSES)
            if value in STATUSES
            else [value, *(make_key(rng, split=self._split) for _ in range(rng.randint(1, 5)))]
        )
        labels += [answer] if answer not in (*labels, NOT_STATED) else []
        return ValueType(type=AnswerType.LABEL, labels=tuple(rng.sample(labels, len(labels))), not_stated=not_stated)

    def _text(self, rng: random.Random, story: Story, met: Sequence[int]) -> str:
        units = rng.choices(self._units, self._shares)[0]
        num = round(3 * 30 ** rng.random())
        start = rng.randrange(max(1, len(units) - num))
        sentences = [(True, story.statements[place]) for place in met]
        if story.kind is StoryKind.LINKED and rng.random() < 0.5:
            rng.shuffle(sentences)
        others = rng.sample(story.rivals, rng.randint(0, len(story.rivals)))
        shown = units[start : start + num]
        places = sorted(rng.randint(0, len(shown)) for _ in sentences)
        at: list[list[str]] = [[] for _ in range(len(shown) + 1)]
        for place, (_, sentence) in zip(places, sentences, strict=True):
            at[place].append(sentence)
        for other in others:
            at[rng.randint(0, len(shown))].append(other)
        gap = "\n" if story.kind is StoryKind.CHAIN or rng.random() < 0.4 else " "
        pieces = [
            "".join(f"{gap}{sentence}{gap if gap == chr(10) else ''}" for sentence in here) + unit
            for here, unit in zip(at, [*shown, ""], strict=True)
        ]
        return "".join(pieces).strip()

    def _reading(self, rng: random.Random, told: ToldStory) -> FinishedReading:
        """As the policies leave it: a memory with its trace, or the parts that were shown."""
        document = self._tokenizer.document(told.text)
        memory, response = told.story.memory(told.met), f"\\boxed{{{told.answer}}}"
        trace = MemoryTrace()
        is_direct = rng.random() < 0.12
        if is_direct:
            response, memory = f"{memory} {response}", ""
        trace.take(
            Prompt(
                path="",
                kind="",
                token_ids=(),
                max_tokens=1,
                writes=None if is_direct else Writes.MEMORY,
                span=None if is_direct else next(iter(document.chunks(max(1, document.num_tokens)))).span,
                shown=((0, document.num_tokens),) if is_direct else (),
            ),
            written=None if is_direct else memory,
        )
        return FinishedReading(
            document=document,
            sentences=split_sentences(told.text),
            question=told.story.question,
            value_type=told.value_type,
            response=response,
            answer=told.answer,
            memory=memory,
            trace=trace,
        )


def _telling(told: ToldStory) -> list[str]:
    """The sentences that tell the answer, in the order in which they should be named."""
    kept = told.story.kept(told.met)
    return [
        told.story.statements[place]
        for place in kept
        if told.story.values[place] or told.story.kind is StoryKind.LINKED
    ]
