"""Values that change in the course of a document: the latest one counts."""

import random

from memagent_batch.evaluation.needles.words import NUMBER_ATTRIBUTES
from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide_in_text
from memagent_batch.evaluation.tasks.niah import Wordform, different_keys, make_value
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED_LATEST, CHANGED, STATED

NUM_KEYS = 2
"""Keys of a document, the asked one first; all of them change."""

NUM_CHANGES = 3
"""Changes of each key in `latest`."""


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


def _sorted_depths(rng: random.Random, num: int) -> list[float]:
    return sorted(rng.random() for _ in range(num))
