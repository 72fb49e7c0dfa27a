"""Facts that are hidden as needles: their wordings, questions, keys and values, and rivals that are nearly the same."""

import random
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from memagent_batch.evaluation.needles.words import (
    ADJECTIVES,
    NOUNS,
    NUMBER_ATTRIBUTES,
    SYLLABLE_ENDS,
    SYLLABLES,
    WORD_ATTRIBUTES,
)

HELD_OUT_EVERY = 5
"""Each fifth word of a list is held out."""

SPLICED_SHARE = 0.7
"""Part of the training split's adjectives and nouns that are spliced of two. A policy that was trained on the listed
words alone wrote 0.95 of its turns exactly with those, and 0.83 with words that it had never seen."""


NUMBERS_SHARE = 0.97
"""Part of the facts whose value is a number; the others are words."""


class Split(StrEnum):
    """Which words, keys and running texts a document is made of."""

    TRAINING = "training"
    """What the tiny policy was trained on."""
    HELD_OUT = "held_out"
    """What it has never seen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Needle:
    """One fact, and how it is asked for."""

    sentence: str
    """The fact as it stands in the document."""
    question: str
    """The question that the fact answers."""
    answer: str
    """The value alone."""
    key: str
    """What the fact is about."""
    wording: int
    """Index into `WORDINGS`."""
    attribute: str
    """Which attribute of the key the fact states."""
    note: str
    """The fact as a memory keeps it: the asked-for thing first, then what the sentence says of it."""
    blank: str
    """The memory of a reader who looks for the fact and has not met it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Wording:
    """One way to tell a fact, and the ways to ask for it; slots `{attribute}`, `{key}`, `{value}`."""

    sentence: str
    """The fact."""
    questions: tuple[str, ...]
    """Questions for it."""


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
"""All ways to tell a fact. The first two are RULER's."""


NEAR_KEY_SHARES = {Split.TRAINING: 0.4, Split.HELD_OUT: 0.6}
"""Part of the distractors that tell the same of a key that is near to the needle's."""

SAME_KEY_SHARES = {Split.TRAINING: 0.85, Split.HELD_OUT: 0.15}
"""Part of the others that tell something else of the same key. Training has more of those that are hard to tell apart:
two thirds of the errors were of this kind."""

SAME_WORDING_SHARES = {Split.TRAINING: 0.5, Split.HELD_OUT: 0.0}
"""Part of the others that are worded as the needle."""

NEAR_PART_SHARES = {Split.TRAINING: 0.3, Split.HELD_OUT: 0.15}
"""Part of the distractors whose key has the first part of the needle's, and of those that have its last part."""


@cache
def words_of(words: tuple[str, ...], *, split: Split) -> tuple[str, ...]:
    """The words of a list that belong to the split."""
    held_out = split is Split.HELD_OUT
    return tuple(word for index, word in enumerate(words) if (index % HELD_OUT_EVERY == 0) is held_out)


def make_needle(
    rng: random.Random,
    *,
    split: Split,
    key: str | None = None,
    wording: int | None = None,
    numbers_share: float = NUMBERS_SHARE,
) -> Needle:
    """A random fact, about this key and in this wording where they are given.

    Args:
        rng: source of every choice.
        split: the words that are used.
        key: what it is about; without it, a random one.
        wording: index into `WORDINGS`; without it, a random one.
        numbers_share: part of the facts whose value is a number; the others are words.
    """
    number = rng.randrange(len(WORDINGS)) if wording is None else wording
    numeric = rng.random() < numbers_share
    if number < len(MAGIC_WORDINGS):
        attribute = "number" if numeric else "word"
    else:
        attribute = rng.choice(NUMBER_ATTRIBUTES if numeric else WORD_ATTRIBUTES)
    value = make_number(rng) if numeric else make_key(rng, split=split)
    return _needle(rng, wording=number, attribute=attribute, key=key or make_key(rng, split=split), value=value)


def make_other(rng: random.Random, needle: Needle, *, split: Split) -> Needle:
    """A distractor as in RULER: the same wording, another random key, another value."""
    while True:
        other = make_needle(rng, split=split, wording=needle.wording)
        if other.key != needle.key and other.answer != needle.answer and needle.key not in other.answer:
            return other


def make_rival(rng: random.Random, needle: Needle, *, split: Split) -> Needle:
    """A distractor: same wording or another, and a key or attribute that is near to the needle's but not the same."""
    same_form = rng.random() < NEAR_KEY_SHARES[split]
    key = _near_key(rng, needle.key, split=split)
    while True:
        if same_form:
            numeric = needle.answer.isdigit()
            value = make_number(rng) if numeric else make_key(rng, split=split)
            rival = _needle(rng, wording=needle.wording, attribute=needle.attribute, key=key, value=value)
        else:
            share = SAME_WORDING_SHARES[split]
            wording = needle.wording if share and rng.random() < share else None
            about = needle.key if rng.random() < SAME_KEY_SHARES[split] else key
            rival = make_needle(rng, split=split, key=about, wording=wording)
        differs = (rival.key, rival.attribute) != (needle.key, needle.attribute)
        if differs and rival.answer != needle.answer and needle.key not in rival.answer:
            return rival
        same_form, key = False, make_key(rng, split=split)


def make_number(rng: random.Random) -> str:
    """A number of 7 digits in most cases, else of 5 to 8."""
    digits = 7 if rng.random() < 0.7 else rng.choice((5, 6, 8))
    return str(rng.randrange(10 ** (digits - 1), 10**digits))


def make_key(rng: random.Random, *, split: Split) -> str:
    """An adjective and a noun, made-up words, or a short hexadecimal name."""
    kind = rng.random()
    if kind < 0.7:
        return f"{_word_of(rng, ADJECTIVES, split=split)}-{_word_of(rng, NOUNS, split=split)}"
    if kind < 0.8:
        return f"{rng.choice(words_of(ADJECTIVES, split=split))}-{make_word(rng, split=split)}"
    if kind < 0.85:
        return f"{make_word(rng, split=split)}-{make_word(rng, split=split)}"
    if kind < 0.95:
        return make_word(rng, split=split)
    return f"{rng.randrange(16**4):04x}-{rng.randrange(16**4):04x}"


def make_word(rng: random.Random, *, split: Split) -> str:
    """A made-up word; its last syllable tells the split, so that no word is in both."""
    syllables = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
    return syllables + rng.choice(words_of(SYLLABLES, split=split)) + rng.choice(words_of(SYLLABLE_ENDS, split=split))


def _word_of(rng: random.Random, words: tuple[str, ...], *, split: Split) -> str:
    """A word of the list; for training mostly two of them spliced, so that spelling is learnt and not the list."""
    known = words_of(words, split=split)
    if split is Split.HELD_OUT or rng.random() > SPLICED_SHARE:
        return rng.choice(known)
    while True:
        first, last = rng.choice(known), rng.choice(known)
        spliced = first[: rng.randint(1, len(first) - 1)] + last[rng.randint(1, len(last) - 1) :]
        if len(spliced) > 2 and spliced not in words_of(words, split=Split.HELD_OUT):
            return spliced


def _needle(rng: random.Random, *, wording: int, attribute: str, key: str, value: str) -> Needle:
    form = WORDINGS[wording]
    question = rng.choice(form.questions).format(attribute=attribute, key=key)
    sentence = form.sentence.format(attribute=attribute, key=key, value=value)
    magic = wording < len(MAGIC_WORDINGS)
    topic = f"The special magic {attribute} for {key}" if magic else f"The {attribute} of {key}"
    return Needle(
        sentence=sentence,
        question=question,
        answer=value,
        key=key,
        wording=wording,
        attribute=attribute,
        note=topic + form.sentence.partition("{key}")[2].format(attribute=attribute, value=value),
        blank=f"{topic}: nothing noted yet.",
    )


def _near_key(rng: random.Random, key: str, *, split: Split) -> str:
    """Another key, often with one part of this one."""
    first, dash, last = key.partition("-")
    kind, share = rng.random(), NEAR_PART_SHARES[split]
    if dash and kind < share:
        return f"{first}-{_word_of(rng, NOUNS, split=split)}"
    if dash and kind < 2 * share:
        return f"{_word_of(rng, ADJECTIVES, split=split)}-{last}"
    return make_key(rng, split=split)
