"""Needle documents: a fact hidden in a long text, the question for it, and the answer. Made from a seed alone.

Used by the demo, the suites and the tests. Needles have RULER's form and others; haystacks are RULER's noise paragraph,
running text, or both. The tiny policy saw none of the words, keys and running texts in its training.
"""

import random
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache
from importlib.resources import files


def _word_list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise paragraph."""

ADJECTIVES = _word_list(
    """
    amber blazing brief busy cheerful coastal coral dapper eastern endless fearless fleet fragile gilded grand happy
    hidden idle jolly lavish lone marble misty nimble open placid proud rare rough rusty sharp silver small soft
    steady stout sunny thin tranquil violet white witty
    """
)
NOUNS = _word_list(
    """
    acorn badger basket bicycle bridge cabin carpet circle comet cricket diamond ember fence flame fox goose harbor
    hill island key lake lizard meadow moon oak oyster parrot pickle plum pumpkin ribbon saddle shadow sparrow
    summit ticket trail village waterfall winter
    """
)
SYLLABLES = _word_list(
    """
    ba be bi bo bra bri cal can cor cu da del di do dra dru e el en fa fen fi flo ga gar ge gli go gra ha hel hin i
    in jo ju ka kel ki kor kra la lem li lo lu ma mar mel mi mo mun na nel ni no nu o or pa pel pi plo pra qui ra
    rel ri ro ru sa sel shi sko sol sta su ta tel thi to tra tri tu u ul va vel vi vo wa wen wi xa ya yel zan ze zi
    zu
    """
)
LAST_SYLLABLES = SYLLABLES[::5]
"""Syllables before the end of a made-up word; the training had the others there, so that no word is in both."""
WORD_ENDS = ("b", "k", "nd", "rd", "t", "z")

NUMBER_ATTRIBUTES = (
    "access code",
    "account number",
    "badge number",
    "batch number",
    "contract number",
    "customer number",
    "gate code",
    "invoice number",
    "locker number",
    "order number",
    "permit number",
    "phone number",
    "room code",
    "serial number",
    "shelf number",
    "ticket number",
)
"""What a number can be; the words of the needle and of the question."""
WORD_ATTRIBUTES = ("call sign", "cover name", "password", "secret word")
NUMBERS_SHARE = 0.97
"""Part of the facts whose value is a number; the others are words."""
BLOCK_UNITS = 16
"""Haystack units measured in one call of `length_of`."""
LengthOf = Callable[[str], int]
"""Measures a text, for example in tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One way to state a fact, and the ways to ask for it; slots `{attribute}`, `{key}`, `{value}`."""

    sentence: str
    questions: tuple[str, ...]


WAYS_TO_ASK = (
    "What is the {attribute} of {key}?",
    "What is the {attribute} of {key} in the provided text?",
    "Which {attribute} does {key} have?",
    "Find the {attribute} of {key}.",
)
MAGIC_ASKED = (
    "What is the special magic {attribute} for {key} mentioned in the provided text?",
    "What is the special magic {attribute} for {key}?",
)
MAGIC_WORDINGS = (
    Wording(sentence="One of the special magic {attribute}s for {key} is: {value}.", questions=MAGIC_ASKED),
    Wording(sentence="The special magic {attribute} for {key} is: {value}.", questions=MAGIC_ASKED),
)
"""RULER's."""
WORDINGS = (
    *MAGIC_WORDINGS,
    Wording(sentence="The {attribute} of {key} is {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="The {attribute} for {key} was set to {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="Note: the {attribute} of {key} is {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="Remember that the {attribute} of {key} is {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="According to the register, the {attribute} of {key} was {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="In the ledger, the {attribute} of {key} stands as {value}.", questions=WAYS_TO_ASK),
    Wording(sentence="It was agreed that the {attribute} of {key} will be {value}.", questions=WAYS_TO_ASK),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One fact, and how it is asked for."""

    sentence: str
    """The fact as it is in the document."""
    question: str
    answer: str
    key: str
    wording: int
    """Index into `WORDINGS`."""


class Haystack(StrEnum):
    """What the needles are hidden in."""

    NOISE = "noise"
    """RULER's noise paragraph, repeated."""
    RUNNING = "running"
    """Written prose."""
    MIXED = "mixed"
    """Stretches of both."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleTask:
    """A document, a question about it, and the answer."""

    document: str
    question: str
    """The question, answered by one sentence of the document."""
    answer: str
    """The right answer: a number or a word."""
    needle: str
    """The sentence that answers, verbatim in the document."""
    distractors: tuple[str, ...]
    """Needles with another key, verbatim in the document."""


def make_task(
    rng: random.Random,
    *,
    length: int,
    length_of: LengthOf | None = None,
    haystack: Haystack = Haystack.MIXED,
    num_distractors: int = 0,
) -> NeedleTask:
    """A document of at least this length, with a needle in it and distractors spread over the whole of it.

    Takes time and memory in proportion to the length. The document is longer than asked by a block of `BLOCK_UNITS`
    sentences at most.

    Args:
        rng: source of every choice.
        length: length of the document, in the unit of `length_of`.
        length_of: measures a piece of text, for example in tokens; without it, haystack sentences are counted.
        haystack: what the needles are hidden in.
        num_distractors: needles with another key, as in RULER.
    """
    fact = make_needle(rng)
    others = tuple(make_other(rng, fact).sentence for _ in range(num_distractors))
    sentences = (fact.sentence, *others)
    hidden = 0 if length_of is None else length_of(" " + " ".join(sentences))
    units = _units_of_length(rng, length - hidden, length_of, haystack=haystack)
    places = [round(rng.random() * len(units)), *(rng.randint(0, len(units)) for _ in others)]
    return NeedleTask(
        document=_join_sentences(units, places, sentences),
        question=fact.question,
        answer=fact.answer,
        needle=fact.sentence,
        distractors=others,
    )


def make_needle(rng: random.Random, *, wording: int | None = None) -> Needle:
    """A random fact; in this wording (an index into `WORDINGS`), if it is given."""
    number = rng.randrange(len(WORDINGS)) if wording is None else wording
    numeric = rng.random() < NUMBERS_SHARE
    if number < len(MAGIC_WORDINGS):
        attribute = "number" if numeric else "word"
    else:
        attribute = rng.choice(NUMBER_ATTRIBUTES if numeric else WORD_ATTRIBUTES)
    value = _make_number(rng) if numeric else make_key(rng)
    key, form = make_key(rng), WORDINGS[number]
    return Needle(
        sentence=form.sentence.format(attribute=attribute, key=key, value=value),
        question=rng.choice(form.questions).format(attribute=attribute, key=key),
        answer=value,
        key=key,
        wording=number,
    )


def make_other(rng: random.Random, needle: Needle) -> Needle:
    """A distractor as in RULER: the same wording, another random key, another value."""
    while True:
        other = make_needle(rng, wording=needle.wording)
        if other.key != needle.key and other.answer != needle.answer and needle.key not in other.answer:
            return other


def make_key(rng: random.Random) -> str:
    """An adjective and a noun, made-up words, or a short hexadecimal name."""
    kind = rng.random()
    if kind < 0.7:
        return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"
    if kind < 0.8:
        return f"{rng.choice(ADJECTIVES)}-{make_word(rng)}"
    if kind < 0.85:
        return f"{make_word(rng)}-{make_word(rng)}"
    if kind < 0.95:
        return make_word(rng)
    return f"{rng.randrange(16**4):04x}-{rng.randrange(16**4):04x}"


def make_word(rng: random.Random) -> str:
    """A made-up word."""
    syllables = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
    return syllables + rng.choice(LAST_SYLLABLES) + rng.choice(WORD_ENDS)


def haystack_units(rng: random.Random, *, haystack: Haystack) -> Iterator[str]:
    """Endless pieces of text, each a sentence or a noise paragraph with the space or line break before it."""
    if haystack is Haystack.NOISE:
        while True:
            yield "\n" + NOISE
    running = _running_units(rng)
    if haystack is Haystack.RUNNING:
        yield from running
    while True:
        if rng.random() < 0.5:
            yield from ["\n" + NOISE] * rng.randint(1, 8)
        else:
            yield from (next(running) for _ in range(rng.randint(2, 24)))


@cache
def prose() -> tuple[tuple[str, ...], ...]:
    """The paragraphs of the project's own prose, each as its sentences."""
    text = (files("memagent_batch.evaluation") / "prose.txt").read_text(encoding="utf-8")
    return tuple(tuple(paragraph.splitlines()) for paragraph in text.strip().split("\n\n"))


def _running_units(rng: random.Random) -> Iterator[str]:
    while True:
        for index, sentence in enumerate(rng.choice(prose())):
            yield (" " if index else rng.choice(("\n", "\n\n"))) + sentence


def _units_of_length(rng: random.Random, length: int, length_of: LengthOf | None, *, haystack: Haystack) -> list[str]:
    source = haystack_units(rng, haystack=haystack)
    units: list[str] = []
    measured = 0
    while measured < length:
        block = [next(source) for _ in range(min(BLOCK_UNITS, length - measured))]
        measured += len(block) if length_of is None else length_of("".join(block))
        units += block
    return units


def _join_sentences(units: list[str], places: list[int], sentences: tuple[str, ...]) -> str:
    """The text with each sentence before the unit of its place."""
    at: dict[int, list[str]] = {}
    for place, sentence in zip(places, sentences, strict=True):
        at.setdefault(place, []).append((" " if place % 2 else "\n") + sentence)
    parts = [piece for place in range(len(units) + 1) for piece in (*at.get(place, ()), *units[place : place + 1])]
    return "".join(parts)[1:]


def _make_number(rng: random.Random) -> str:
    """A number of 7 digits in most cases, else of 5 to 8."""
    digits = 7 if rng.random() < 0.7 else rng.choice((5, 6, 8))
    return str(rng.randrange(10 ** (digits - 1), 10**digits))
