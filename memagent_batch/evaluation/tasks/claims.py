"""Our own tasks, on what a memory does with facts: a later one replaces it, they are counted, there is none."""

import random

from memagent_batch.evaluation.needles.facts import WORDINGS, Split, words_of
from memagent_batch.evaluation.needles.words import FIRST_NAMES, NOUNS, PLACES, VERBS
from memagent_batch.evaluation.tasks.haystacks import Hidden, hide, running_text
from memagent_batch.evaluation.tasks.niah import Wordform, ask, make_held_out_key, make_value, tell
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample

NOT_STATED = "not stated"
"""The right answer of `absent`."""

NUM_OTHERS = 3
"""Keys beside the asked one in `conflict` and `absent`."""

NUM_CORRECTED = 2
"""Keys of `conflict` with a corrected number, the one in the question among them."""

MOST_ENTRIES = 48
"""Entries of the register in `aggregate`, in documents that have room for so many."""

_TOKENS_FOR_ENTRY = 80
"""Part of the document for each entry, tokens: an entry takes less than half of it."""

_CORRECTED = "Correction: from now on, the special magic number for {key} is: {value}."
_ENTRY = "Register entry {number}: {name} {verb} the {noun} at the {place}."
_COUNTED = "How many register entries name {name}? Answer with the number alone."
_OR_NOT = " If the text does not state it, answer: " + NOT_STATED + "."


def make_conflict(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Two keys are stated and later corrected, two are stated once; the question is about a corrected one."""
    rng = request.rng
    keys = _different_keys(rng, NUM_OTHERS + 1)
    old, new = ([_number(rng) for _ in keys] for _ in range(2))
    depths = [sorted((rng.random(), rng.random())) for _ in keys]
    hidden = [
        Hidden(sentence=WORDINGS[1].sentence.format(attribute="number", key=key, value=value), depth=depth[0])
        for key, value, depth in zip(keys, old, depths, strict=True)
    ]
    hidden += [
        Hidden(sentence=_CORRECTED.format(key=key, value=value), depth=depth[1])
        for key, value, depth in list(zip(keys, new, depths, strict=True))[:NUM_CORRECTED]
    ]
    return _hidden_sample(
        request, materials, hidden, task=task, question=ask(keys[:1], Wordform.NUMBER, alone=True), answer=new[0]
    )


def make_aggregate(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Entries of a register all over the document; up to half of them name the person in the question."""
    rng = request.rng
    num_entries = min(MOST_ENTRIES, request.length // _TOKENS_FOR_ENTRY)
    asked, *others = rng.sample(
        words_of(FIRST_NAMES, split=Split.HELD_OUT), len(words_of(FIRST_NAMES, split=Split.HELD_OUT))
    )
    count = rng.randint(1, num_entries // 2)
    names = [asked] * count + [rng.choice(others) for _ in range(num_entries - count)]
    numbers = rng.sample(range(1000, 10_000), num_entries)
    hidden = [
        Hidden(sentence=_entry(rng, number=number, name=name), depth=rng.random())
        for number, name in zip(numbers, names, strict=True)
    ]
    return _hidden_sample(
        request, materials, hidden, task=task, question=_COUNTED.format(name=asked), answer=str(count)
    )


def make_absent(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """The document states other keys, not the one in the question."""
    rng = request.rng
    asked, *others = _different_keys(rng, NUM_OTHERS + 1)
    hidden = [Hidden(sentence=tell(key, _number(rng), Wordform.NUMBER), depth=rng.random()) for key in others]
    question = ask([asked], Wordform.NUMBER, alone=True) + _OR_NOT
    return _hidden_sample(request, materials, hidden, task=task, question=question, answer=NOT_STATED)


def _hidden_sample(
    request: SampleRequest, materials: Materials, hidden: list[Hidden], *, task: str, question: str, answer: str
) -> SuiteSample:
    fitted = hide(
        hidden,
        running_text(request.rng, materials.texts),
        length_tokens=request.length,
        meter=materials.meter,
        task=task,
    )
    return SuiteSample(
        document=fitted.draft.text, question=question, references=(answer,), num_tokens=fitted.num_tokens
    )


def _different_keys(rng: random.Random, num: int) -> list[str]:
    keys: dict[str, None] = {}
    while len(keys) < num:
        keys[make_held_out_key(rng)] = None
    return list(keys)


def _number(rng: random.Random) -> str:
    return make_value(rng, Wordform.NUMBER)


def _entry(rng: random.Random, *, number: int, name: str) -> str:
    verb, noun, place = (rng.choice(words_of(words, split=Split.HELD_OUT)) for words in (VERBS, NOUNS, PLACES))
    return _ENTRY.format(number=number, name=name, verb=verb, noun=noun, place=place)
