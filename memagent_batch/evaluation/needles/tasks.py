"""Needle documents: a fact hidden in a long text, the question for it, and the answer. Made from a seed alone.

Used by the demo, the tests and the training of the tiny policy. Needles have RULER's form and others; haystacks are
RULER's noise paragraph, running text, or both. Words, keys and running text of the held-out part never occur in the
training part.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.evaluation.needles.facts import (
    Needle,
    Split,
    make_needle,
    make_other,
    make_rival,
    make_word,
    words_of,
)
from memagent_batch.evaluation.needles.prose import PARAGRAPHS
from memagent_batch.evaluation.needles.words import ADJECTIVES, FIRST_NAMES, NOISE, NOUNS, PLACES, SENTENCES, VERBS

BLOCK_UNITS = 16
"""Haystack units measured in one call of `length_of`."""

LengthOf = Callable[[str], int]
"""Measures a text, for example in tokens."""


class Haystack(StrEnum):
    """What the needles are hidden in."""

    NOISE = "noise"
    """RULER's noise paragraph, repeated."""
    RUNNING = "running"
    """Running text: by a grammar in training, written prose where held out."""
    MIXED = "mixed"
    """Stretches of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleTask:
    """A document, a question about it, and the answer."""

    document: str
    """The whole text."""
    question: str
    """The question, answered by one sentence of the document."""
    answer: str
    """The reference answer: a number or a word."""
    needle: str
    """The sentence that answers, verbatim in the document."""
    position: float
    """Where the needle begins, from 0 (first character) to 1 (end of the document)."""
    distractors: tuple[str, ...]
    """Needles with another key or attribute, verbatim in the document."""


def haystack_units(rng: random.Random, *, haystack: Haystack, split: Split) -> Iterator[str]:
    """Endless pieces of text, each a sentence or a noise paragraph with the space or line break before it."""
    if haystack is Haystack.NOISE:
        while True:
            yield "\n" + NOISE
    if haystack is Haystack.RUNNING:
        yield from _running_units(rng, split=split)
    running = _running_units(rng, split=split)
    while True:
        if rng.random() < 0.5:
            yield from ["\n" + NOISE] * rng.randint(1, 8)
        else:
            yield from (next(running) for _ in range(rng.randint(2, 24)))


def make_task(
    rng: random.Random,
    *,
    length: int,
    length_of: LengthOf | None = None,
    haystack: Haystack = Haystack.MIXED,
    num_distractors: int = 0,
    split: Split = Split.HELD_OUT,
    position: float | None = None,
    needle: Needle | None = None,
    near: bool = False,
) -> NeedleTask:
    """A document of at least this length, with a needle in it and distractors spread over the whole of it.

    Takes time and memory in proportion to the length. The document is longer than asked by a block of `BLOCK_UNITS`
    sentences at most.

    Args:
        rng: source of every choice.
        length: length of the document, in the unit of `length_of`.
        length_of: measures a piece of text, for example in tokens; without it, haystack sentences are counted.
        haystack: what the needles are hidden in.
        num_distractors: needles with another key or attribute.
        split: the words and texts that are used.
        position: place of the needle from 0 to 1; without it, anywhere.
        needle: the fact to hide; without it, a random one.
        near: distractors are made to be mixed up: keys that share a word, or the same key with another attribute;
            else they have random keys, as in RULER.
    """
    fact = needle or make_needle(rng, split=split)
    make = make_rival if near else make_other
    rivals = tuple(make(rng, fact, split=split).sentence for _ in range(num_distractors))
    sentences = (fact.sentence, *rivals)
    units = _units_of_length(rng, length - _length(sentences, length_of), length_of, haystack=haystack, split=split)
    place = rng.random() if position is None else position
    places = [round(place * len(units)), *(rng.randint(0, len(units)) for _ in rivals)]
    text, start = _join_sentences(units, places, sentences)
    return NeedleTask(
        document=text,
        question=fact.question,
        answer=fact.answer,
        needle=fact.sentence,
        position=start / len(text),
        distractors=rivals,
    )


def _length(sentences: tuple[str, ...], length_of: LengthOf | None) -> int:
    return 0 if length_of is None else length_of(" " + " ".join(sentences))


def _units_of_length(
    rng: random.Random, length: int, length_of: LengthOf | None, *, haystack: Haystack, split: Split
) -> list[str]:
    source = haystack_units(rng, haystack=haystack, split=split)
    units: list[str] = []
    measured = 0
    while measured < length:
        block = [next(source) for _ in range(min(BLOCK_UNITS, length - measured))]
        measured += len(block) if length_of is None else length_of("".join(block))
        units += block
    return units


def _join_sentences(units: list[str], places: list[int], sentences: tuple[str, ...]) -> tuple[str, int]:
    """The text with each sentence before the unit of its place, and the character where the first one begins."""
    at: dict[int, list[int]] = {}
    for index, place in enumerate(places):
        at.setdefault(place, []).append(index)
    parts: list[str] = []
    length = start = 0
    for place in range(len(units) + 1):
        pieces = [(" " if place % 2 else "\n") + sentences[index] for index in at.get(place, [])]
        if 0 in at.get(place, []):
            start = length + sum(len(piece) for piece in pieces[: at[place].index(0)])
        pieces += units[place : place + 1]
        parts += pieces
        length += sum(len(piece) for piece in pieces)
    return "".join(parts)[1:], start


def _running_units(rng: random.Random, *, split: Split) -> Iterator[str]:
    while True:
        sentences = rng.choice(PARAGRAPHS) if split is Split.HELD_OUT else _grammar_paragraph(rng)
        for index, sentence in enumerate(sentences):
            yield (" " if index else rng.choice(("\n", "\n\n"))) + sentence


def _grammar_paragraph(rng: random.Random) -> list[str]:
    return [_grammar_sentence(rng) for _ in range(rng.randint(2, 9))]


def _grammar_sentence(rng: random.Random) -> str:
    pieces = rng.choice(SENTENCES).split("{")
    return pieces[0] + "".join(_fill(rng, *piece.split("}", 1)) for piece in pieces[1:])


def _fill(rng: random.Random, slot: str, rest: str) -> str:
    if slot == "made":
        return make_word(rng, split=Split.TRAINING) + rest
    if slot == "made_name":
        return make_word(rng, split=Split.TRAINING).capitalize() + rest
    if slot == "small":
        return str(rng.randint(2, 99)) + rest
    if slot == "year":
        return str(rng.randint(1400, 2030)) + rest
    return rng.choice(words_of(_LISTS[slot], split=Split.TRAINING)) + rest


_LISTS = {"adjective": ADJECTIVES, "noun": NOUNS, "verb": VERBS, "name": FIRST_NAMES, "place": PLACES}
