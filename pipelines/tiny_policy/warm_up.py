"""The warm-up: random tokens whose parts recur, until the network copies. Without it the reading is not learnt."""

import random
from collections.abc import Iterator

from pipelines.tiny_policy.examples import Example
from pipelines.tiny_policy.vocabulary import VOCABULARY_SIZE

NUM_CONTROL_TOKENS = 3
"""Token ids below are control tokens, and never drawn."""

SMALL_ALPHABET = 10
"""Tokens of a part that is made like a number: many repeats, so that more than one token back must be matched."""


def copying_examples(rng: random.Random, *, length: int) -> Iterator[Example]:
    """Endless sequences of this many tokens: filler, a part, filler, a cue and the part again, which is to be told."""
    while True:
        part = _part(rng, rng.randint(12, 40))
        rival = part[: rng.randint(2, 5)] + _part(rng, rng.randint(4, 20))
        middle = [_filler(rng, rng.randint(0, length // 4)), part, _filler(rng, rng.randint(1, length // 4))]
        if rng.random() < 0.5:
            middle += [rival, _filler(rng, rng.randint(1, 20))]
        cue = rng.randint(2, 3) if middle[-2] is part else 7
        known = [token for piece in middle for token in piece]
        known = _filler(rng, max(length - len(known) - len(part), 0)) + known + part[:cue]
        yield Example(kind="copy", prompt=known, target=part[cue:])


def _filler(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(NUM_CONTROL_TOKENS, VOCABULARY_SIZE) for _ in range(num_tokens)]


def _part(rng: random.Random, num_tokens: int) -> list[int]:
    """Random tokens, in half of the cases with a run of few different ones in it."""
    part = _filler(rng, num_tokens)
    if rng.random() < 0.5:
        alphabet = _filler(rng, SMALL_ALPHABET)
        start = rng.randint(0, num_tokens // 2)
        part[start:] = [rng.choice(alphabet) for _ in part[start:]]
    return part
