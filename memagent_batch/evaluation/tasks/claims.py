"""Our own tasks, on what a memory does with facts: a later one replaces it, they are counted, there is none."""

import random
from collections.abc import Iterable
from dataclasses import replace

from memagent_batch.evaluation.needles.facts import WORDINGS, Split, words_of
from memagent_batch.evaluation.needles.words import FIRST_NAMES, NOUNS, PLACES, VERBS
from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide_in_text
from memagent_batch.evaluation.tasks.niah import Wordform, ask, different_keys, make_rivals, make_value, tell
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED, NOT_STATED, OR_NOT, STATED, STATUS_ATTRIBUTE, STATUSES

NUM_OTHERS = 3
"""Keys beside the asked one in `conflict`, `status`, `stated`, `absent` and `absent_near`."""

NUM_CORRECTED = 2
"""Keys of `conflict` with a corrected number, the one in the question among them."""

MOST_ENTRIES = 48
"""Entries of the register in `aggregate`, in documents that have room for so many."""

_TOKENS_FOR_ENTRY = 80
"""Part of the document for each entry, tokens: an entry takes less than half of it."""

_CORRECTED = "Correction: from now on, the special magic number for {key} is: {value}."
_ENTRY = "Register entry {number}: {name} {verb} the {noun} at the {place}."
_COUNTED = "How many register entries name {name}? Answer with the number alone."


def make_conflict(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Two keys are stated and later corrected, two are stated once; the question is about a corrected one."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    old, new = ([_random_number(rng) for _ in keys] for _ in range(2))
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
        request,
        materials,
        hidden,
        task=task,
        question=ask(keys[:1], Wordform.NUMBER, alone=True),
        answer=new[0],
        gold=[len(keys)],
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
    question = _COUNTED.format(name=asked)
    sample = _hidden_sample(
        request, materials, hidden, task=task, question=question, answer=str(count), gold=range(count)
    )
    return replace(sample, depth=None)  # that one entry alone names the person is learnt from all of them


def make_stated(request: SampleRequest, materials: Materials, *, task: str, is_stated: bool) -> SuiteSample:
    """The document states some keys, the one in the question among them or not; the question allows for both."""
    rng = request.rng
    asked, *others = different_keys(rng, NUM_OTHERS + 1)
    value = _random_number(rng)
    hidden = [Hidden(sentence=tell(key, _random_number(rng), Wordform.NUMBER), depth=rng.random()) for key in others]
    if is_stated:
        hidden.append(Hidden(sentence=tell(asked, value, Wordform.NUMBER), depth=request.depth))
    return _hidden_sample(
        request,
        materials,
        hidden,
        task=task,
        question=ask([asked], Wordform.NUMBER, alone=True) + OR_NOT,
        answer=value if is_stated else NOT_STATED,
        gold=[NUM_OTHERS] if is_stated else (),
    )


def make_status(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Several keys have a status out of a few; the question is about one of them."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    values = [rng.choice(STATUSES) for _ in keys]
    depths = [request.depth, *(rng.random() for _ in range(NUM_OTHERS))]
    hidden = [
        Hidden(sentence=STATED.format(attribute=STATUS_ATTRIBUTE, key=key, value=value), depth=depth)
        for key, value, depth in zip(keys, values, depths, strict=True)
    ]
    question = ASKED.format(attribute=STATUS_ATTRIBUTE, key=keys[0])
    return _hidden_sample(request, materials, hidden, task=task, question=question, answer=values[0], gold=[0])


def make_absent_near(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """As `absent`, but every key that is there shares a word with the asked one, or is it, with another attribute."""
    needle, rivals = make_rivals(request.rng, num=NUM_OTHERS)
    hidden = [Hidden(sentence=rival.sentence, depth=request.rng.random()) for rival in rivals]
    question = ask([needle.key], Wordform.NUMBER, alone=True) + OR_NOT
    return _hidden_sample(request, materials, hidden, task=task, question=question, answer=NOT_STATED, gold=())


def _hidden_sample(
    request: SampleRequest,
    materials: Materials,
    hidden: list[Hidden],
    *,
    task: str,
    question: str,
    answer: str,
    gold: Iterable[int],
) -> SuiteSample:
    fitted = hide_in_text(hidden, request, materials, task=task)
    return hidden_sample(fitted, hidden, question=question, references=[answer], gold=gold)


def _random_number(rng: random.Random) -> str:
    return make_value(rng, Wordform.NUMBER)


def _entry(rng: random.Random, *, number: int, name: str) -> str:
    verb, noun, place = (rng.choice(words_of(words, split=Split.HELD_OUT)) for words in (VERBS, NOUNS, PLACES))
    return _ENTRY.format(number=number, name=name, verb=verb, noun=noun, place=place)
