"""Needle tasks as RULER defines them, and one with keys that are made to be mixed up.

Sentences and questions are RULER's published formats; words are of the held-out split, which the tiny policy never saw.
"""

import random
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache

from memagent_batch.evaluation.needles.facts import (
    MAGIC_ASKED,
    WORDINGS,
    Needle,
    Split,
    make_needle,
    make_rival,
    make_word,
    words_of,
)
from memagent_batch.evaluation.needles.words import ADJECTIVES, NOUNS, NUMBER_ATTRIBUTES
from memagent_batch.evaluation.tasks.haystacks import (
    HaystackUnits,
    Hidden,
    hidden_sample,
    hide,
    hide_in_text,
    lines,
    noise,
    running_text,
)
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED, STATED

NUM_RIVALS = 3
"""Keys beside the asked one in `niah_near` and `niah_bands`: four keys in all, as in niah_multikey_1."""

NUM_NEEDLE_BANDS = 10
"""Parts of a document that the asked needle of `niah_bands` stands in, one after another from sample to sample."""

_BAND_EDGE = 0.1
"""Part of a band at both of its ends that no needle is aimed at: it may be moved by half a sentence."""

NUM_KEY_ADJECTIVES, NUM_KEY_NOUNS = 912, 6782
"""Words that keys among other needles are made of: as many as RULER has. The lists give 42 and 40 of them, the others
are made up."""

_SEVEN_DIGITS = (10**6, 10**7)
_MANY_ASKED = "What are all the special magic {attribute}s for {keys} mentioned in the provided text?"


class HaystackKind(StrEnum):
    """What the needles of a task are hidden in."""

    NOISE = "noise"
    """The noise paragraph."""
    ESSAY = "essay"
    """Running text."""
    NEEDLES = "needles"
    """Other needles."""


class Wordform(StrEnum):
    """What a key or a value looks like."""

    WORD = "word"
    """An adjective and a noun."""
    NUMBER = "number"
    """A number of 7 digits."""
    UUID = "uuid"
    """A random UUID."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleForm:
    """One needle task."""

    haystack: HaystackKind = HaystackKind.ESSAY
    """Haystack."""
    key: Wordform = Wordform.WORD
    """Form of keys."""
    value: Wordform = Wordform.NUMBER
    """Form of values."""
    num_keys: int = 1
    """Keys that are hidden on purpose."""
    num_values: int = 1
    """Values of each key, each in a sentence of its own."""
    num_asked: int = 1
    """Keys that the question asks for."""

    @property
    def has_one_number(self) -> bool:
        """Whether the right answer is one number."""
        return self.value is Wordform.NUMBER and self.num_values == self.num_asked == 1


FORMS = {
    "niah_single_1": NeedleForm(haystack=HaystackKind.NOISE),
    "niah_single_2": NeedleForm(),
    "niah_single_3": NeedleForm(value=Wordform.UUID),
    "niah_multikey_1": NeedleForm(num_keys=4),
    "niah_multikey_2": NeedleForm(haystack=HaystackKind.NEEDLES),
    "niah_multikey_3": NeedleForm(haystack=HaystackKind.NEEDLES, key=Wordform.UUID, value=Wordform.UUID),
    "niah_multivalue": NeedleForm(num_values=4),
    "niah_multiquery": NeedleForm(num_keys=4, num_asked=4),
}
"""RULER's eight needle tasks (scripts/synthetic.yaml)."""


def make_niah(request: SampleRequest, materials: Materials, *, task: str, form: NeedleForm) -> SuiteSample:
    """A sample of one of RULER's needle tasks; the asked keys come first among the hidden ones."""
    rng, keys = request.rng, _keys(request.rng, form)
    names = [next(keys) for _ in range(form.num_keys)]
    values = [make_value(rng, form.value) for _ in range(form.num_keys * form.num_values)]
    sentences = [
        tell(name, values[index * form.num_values + each], form.value)
        for index, name in enumerate(names)
        for each in range(form.num_values)
    ]
    num_references = form.num_asked * form.num_values
    alone = num_references == 1
    depths = [request.depth if alone and not index else rng.random() for index in range(len(sentences))]
    hidden = [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)]
    fitted = hide(
        hidden,
        _haystack(request, materials, form=form, keys=keys),
        length_tokens=request.length,
        meter=materials.meter,
        task=task,
    )
    question = ask(names[: form.num_asked], form.value, alone=alone)
    return hidden_sample(
        fitted, hidden, question=question, references=values[:num_references], gold=range(num_references)
    )


def make_near(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """As niah_multikey_1, but every other key shares a word with the asked one, or is it, with another attribute."""
    rng = request.rng
    needle, rivals = make_rivals(rng, num=NUM_RIVALS)
    hidden = [
        Hidden(sentence=needle.sentence, depth=request.depth),
        *(Hidden(sentence=rival.sentence, depth=rng.random()) for rival in rivals),
    ]
    fitted = hide_in_text(hidden, request, materials, task=task)
    question = ask([needle.key], Wordform.NUMBER, alone=True)
    return hidden_sample(fitted, hidden, question=question, references=[needle.answer], gold=[0])


def make_banded(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """One needle in each of several tenths of the document; the asked one's tenth is the next for each sample."""
    rng = request.rng
    asked = request.number % NUM_NEEDLE_BANDS
    bands = [asked, *rng.sample([band for band in range(NUM_NEEDLE_BANDS) if band != asked], NUM_RIVALS)]
    attribute = rng.choice(NUMBER_ATTRIBUTES)
    keys = different_keys(rng, len(bands))
    values = [make_value(rng, Wordform.NUMBER) for _ in bands]
    hidden = [
        Hidden(sentence=STATED.format(attribute=attribute, key=key, value=value), depth=_depth_in(band, rng))
        for band, key, value in zip(bands, keys, values, strict=True)
    ]
    fitted = hide_in_text(hidden, request, materials, task=task)
    question = ASKED.format(attribute=attribute, key=keys[0])
    return hidden_sample(fitted, hidden, question=question, references=values[:1], gold=[0])


def make_rivals(rng: random.Random, *, num: int) -> tuple[Needle, list[Needle]]:
    """A needle, and others whose key shares a word with its key, or is it, with another attribute."""
    needle = _magic_needle(rng)
    rivals: dict[tuple[str, str], Needle] = {}
    while len(rivals) < num:
        rival = make_rival(rng, needle, split=Split.HELD_OUT)
        if set(rival.key.split("-")) & set(needle.key.split("-")):
            rivals.setdefault((rival.key, rival.attribute), rival)
    return needle, list(rivals.values())


def different_keys(rng: random.Random, num: int) -> list[str]:
    """Keys of held-out words, each another one."""
    keys: dict[str, None] = {}
    while len(keys) < num:
        keys[make_held_out_key(rng)] = None
    return list(keys)


def make_held_out_key(rng: random.Random) -> str:
    """An adjective and a noun of the held-out words."""
    adjectives, nouns = (words_of(words, split=Split.HELD_OUT) for words in (ADJECTIVES, NOUNS))
    return f"{rng.choice(adjectives)}-{rng.choice(nouns)}"


def make_crowded_key(rng: random.Random) -> str:
    """A key as it stands among thousands of others: an adjective and a noun out of so many, listed or made up."""
    adjectives, nouns = _key_words()
    return f"{rng.choice(adjectives)}-{rng.choice(nouns)}"


def make_value(rng: random.Random, form: Wordform) -> str:
    """A value of the form."""
    match form:
        case Wordform.NUMBER:
            return str(rng.randrange(*_SEVEN_DIGITS))
        case Wordform.UUID:
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
        case Wordform.WORD:
            return make_held_out_key(rng)


def tell(key: str, value: str, form: Wordform) -> str:
    """The sentence that tells a value."""
    return WORDINGS[0].sentence.format(attribute=form.value, key=key, value=value)


def ask(keys: list[str], form: Wordform, *, alone: bool) -> str:
    """The question for all values of these keys."""
    if alone:
        return MAGIC_ASKED[0].format(attribute=form.value, key=keys[0])
    listed = f"{', '.join(keys[:-1])}, and {keys[-1]}" if len(keys) > 1 else keys[0]
    return _MANY_ASKED.format(attribute=form.value, keys=listed)


def _keys(rng: random.Random, form: NeedleForm) -> Iterator[str]:
    """Keys that are all different. Asked ones and others are drawn alike, so that none stands out by its words."""
    taken: set[str] = set()
    crowded = form.haystack is HaystackKind.NEEDLES and form.key is Wordform.WORD
    while True:
        key = make_crowded_key(rng) if crowded else make_value(rng, form.key)
        if key not in taken:
            taken.add(key)
            yield key


@cache
def _key_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Adjectives and nouns of keys among other needles, the same in every suite."""
    rng = random.Random("words of keys")
    return _with_made_up(rng, ADJECTIVES, num=NUM_KEY_ADJECTIVES), _with_made_up(rng, NOUNS, num=NUM_KEY_NOUNS)


def _with_made_up(rng: random.Random, listed: tuple[str, ...], *, num: int) -> tuple[str, ...]:
    words = dict.fromkeys(words_of(listed, split=Split.HELD_OUT))
    while len(words) < num:
        words[make_word(rng, split=Split.HELD_OUT)] = None
    return tuple(words)


def _haystack(request: SampleRequest, materials: Materials, *, form: NeedleForm, keys: Iterator[str]) -> HaystackUnits:
    match form.haystack:
        case HaystackKind.NOISE:
            return noise()
        case HaystackKind.ESSAY:
            return running_text(request.rng, materials.texts)
        case HaystackKind.NEEDLES:
            return lines(tell(key, make_value(request.rng, form.value), form.value) for key in keys)


def _depth_in(band: int, rng: random.Random) -> float:
    return (band + _BAND_EDGE + (1 - 2 * _BAND_EDGE) * rng.random()) / NUM_NEEDLE_BANDS


def _magic_needle(rng: random.Random) -> Needle:
    while True:
        needle = make_needle(rng, split=Split.HELD_OUT, key=make_held_out_key(rng), wording=0)
        if needle.answer.isdigit() and len(needle.answer) == 7:
            return needle
