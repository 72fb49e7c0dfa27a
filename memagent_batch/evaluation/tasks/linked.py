"""Facts that lead to each other: the question names the first key, and the value stands with another one.

Word search with the question finds the first sentence alone. What it leads to is told from other sentences of the same
form only by having read the one before it.
"""

import random
from collections.abc import Sequence
from enum import StrEnum
from itertools import pairwise

from memagent_batch.evaluation.needles.words import NUMBER_ATTRIBUTES
from memagent_batch.evaluation.tasks.haystacks import Hidden, hidden_sample, hide_in_text
from memagent_batch.evaluation.tasks.niah import Wordform, different_keys, make_value
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample
from memagent_batch.evaluation.tasks.wordings import ASKED, LINKED, STATED

NUM_LINKS = 2
"""Links of a chain; its last sentence states the value."""

NUM_CHAINS = 2
"""Chains of a document; the question is about the first one."""

DISTANCES = (0.1, 0.3, 0.5, 0.7, 0.9)
"""Distances between the two facts of `pair`, as parts of the document; the samples take them in turn."""


class Order(StrEnum):
    """The order in which facts that lead to each other stand in the document."""

    FORWARD = "forward"
    """Each after the one that leads to it."""
    REVERSED = "reversed"
    """Each before the one that leads to it."""
    ANY = "any"
    """At random."""


def make_linked(request: SampleRequest, materials: Materials, *, task: str, order: Order) -> SuiteSample:
    """Two chains; each sentence of a chain stands in another part of the document."""
    rng = request.rng
    num_facts = NUM_LINKS + 1
    chains = [
        [(part + rng.random()) / num_facts for part in ordered(range(num_facts), order=order, rng=rng)]
        for _ in range(NUM_CHAINS)
    ]
    return _linked_sample(request, materials, chains, task=task)


def make_pair(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Two chains of two facts; those of the asked one are at a set distance from each other."""
    rng = request.rng
    distance = DISTANCES[request.number % len(DISTANCES)]
    first = rng.random() * (1 - distance)
    return _linked_sample(
        request, materials, [[first, first + distance], sorted((rng.random(), rng.random()))], task=task
    )


def ordered(places: Sequence[float], *, order: Order, rng: random.Random) -> list[float]:
    """Rising places of facts that lead to each other, in the order asked for."""
    match order:
        case Order.FORWARD:
            return list(places)
        case Order.REVERSED:
            return list(reversed(places))
        case Order.ANY:
            return rng.sample(places, len(places))


def _linked_sample(
    request: SampleRequest, materials: Materials, depths: list[list[float]], *, task: str
) -> SuiteSample:
    """Chains with their facts at these depths, the asked one first."""
    rng = request.rng
    attribute = rng.choice(NUMBER_ATTRIBUTES)
    num_facts = len(depths[0])
    keys = different_keys(rng, num_facts * len(depths))
    values = [make_value(rng, Wordform.NUMBER) for _ in depths]
    hidden = [
        Hidden(sentence=sentence, depth=depth)
        for number, (chain, value) in enumerate(zip(depths, values, strict=True))
        for sentence, depth in zip(
            _chain_sentences(keys[number * num_facts : (number + 1) * num_facts], attribute=attribute, value=value),
            chain,
            strict=True,
        )
    ]
    fitted = hide_in_text(hidden, request, materials, task=task)
    question = ASKED.format(attribute=attribute, key=keys[0])
    return hidden_sample(fitted, hidden, question=question, references=values[:1], gold=range(num_facts))


def _chain_sentences(keys: Sequence[str], *, attribute: str, value: str) -> list[str]:
    links = [LINKED.format(attribute=attribute, key=key, origin=origin) for key, origin in pairwise(keys)]
    return [*links, STATED.format(attribute=attribute, key=keys[-1], value=value)]
