"""Values that change in the course of a document: the latest one counts, or all changes together do."""

import random
from itertools import pairwise

from memagent_batch.evaluation.needles.words import NUMBER_ATTRIBUTES
from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide_in_text
from memagent_batch.evaluation.tasks.niah import Wordform, different_keys, make_value
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED_LATEST, CHANGED, COUNT, LOWERED, RAISED, STATED

NUM_KEYS = 2
"""Keys of a document, the asked one first; all of them change."""

NUM_CHANGES = 3
"""Changes of each key in `latest`."""

MOST_STEPS = 12
"""Steps up or down of each key in `count_corrected`, in documents that have room for so many."""

_TOKENS_FOR_STEP = 160
"""Part of the document for each step of a key, tokens."""

_FIRST_COUNT = (20, 60)
_LARGEST_STEP = 9
_LARGEST_COUNT = 99


def make_latest(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """A value is stated and changed several times, and so is that of another key; the last change is right."""
    rng = request.rng
    attribute = rng.choice(NUMBER_ATTRIBUTES)
    keys = different_keys(rng, NUM_KEYS)
    values = [[make_value(rng, Wordform.NUMBER) for _ in range(NUM_CHANGES + 1)] for _ in keys]
    hidden = [
        Hidden(sentence=(CHANGED if place else STATED).format(attribute=attribute, key=key, value=value), depth=depth)
        for key, of_key in zip(keys, values, strict=True)
        for place, (value, depth) in enumerate(zip(of_key, _sorted_depths(rng, len(of_key)), strict=True))
    ]
    fitted = hide_in_text(hidden, request, materials, task=task)
    question = ASKED_LATEST.format(attribute=attribute, key=keys[0])
    return hidden_sample(fitted, hidden, question=question, references=values[0][-1:], gold=[NUM_CHANGES])


def make_count(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """A count is stated, then goes up and down in small steps, and so does that of another key."""
    rng = request.rng
    num_steps = max(1, min(MOST_STEPS, request.length // _TOKENS_FOR_STEP))
    keys = different_keys(rng, NUM_KEYS)
    counts = [_running_counts(rng, num_steps) for _ in keys]
    hidden = [
        Hidden(sentence=sentence, depth=depth)
        for key, of_key in zip(keys, counts, strict=True)
        for sentence, depth in zip(_step_sentences(key, of_key), _sorted_depths(rng, len(of_key)), strict=True)
    ]
    fitted = hide_in_text(hidden, request, materials, task=task)
    question = ASKED_LATEST.format(attribute=COUNT, key=keys[0])
    return hidden_sample(fitted, hidden, question=question, references=[str(counts[0][-1])], gold=range(num_steps + 1))


def _running_counts(rng: random.Random, num_steps: int) -> list[int]:
    """A count before the first step, and after each."""
    counts = [rng.randint(*_FIRST_COUNT)]
    while len(counts) <= num_steps:
        after = counts[-1] + rng.choice((-1, 1)) * rng.randint(1, _LARGEST_STEP)
        if 0 < after <= _LARGEST_COUNT:
            counts.append(after)
    return counts


def _step_sentences(key: str, counts: list[int]) -> list[str]:
    sentences = [STATED.format(attribute=COUNT, key=key, value=counts[0])]
    for before, after in pairwise(counts):
        form = RAISED if after > before else LOWERED
        sentences.append(form.format(attribute=COUNT, key=key, value=abs(after - before)))
    return sentences


def _sorted_depths(rng: random.Random, num: int) -> list[float]:
    return sorted(rng.random() for _ in range(num))
