"""The second warm-up: a table of keys and values, then questions to it. It teaches to tell long keys apart.

A turn of reading asks one such question in hundreds of tokens; here each sequence asks a dozen.
"""

import random
from collections.abc import Iterator
from itertools import product

import torch

from pipelines.tiny_policy.examples import IGNORED, PAD, Batch
from pipelines.tiny_policy.vocabulary import VOCABULARY_SIZE
from pipelines.tiny_policy.warm_up import NUM_CONTROL_TOKENS

UNKNOWN = (10, 11, 12)
"""What is told of a key that the table does not have; any tokens would do."""

ALPHABETS = (8, 16, 40, 200)
"""Different tokens that the keys of a table are made of: the fewer, the more of them are shared."""

SEQUENCE_TOKENS = (160, 240, 320, 480)
"""Lengths of the sequences."""


def recall_batches(rng: random.Random, *, batch_tokens: int) -> Iterator[Batch]:
    """Endless batches of tables with questions."""
    while True:
        length = rng.choice(SEQUENCE_TOKENS)
        rows = [_sequence(rng, length) for _ in range(batch_tokens // length)]
        num_places = max(len(places) for _, places in rows)
        tokens = torch.full((len(rows), length), PAD)
        places = torch.zeros((len(rows), num_places), dtype=torch.int64)
        targets = torch.full((len(rows), num_places), IGNORED)
        for row, (sequence, asked) in enumerate(rows):
            tokens[row, : len(sequence)] = torch.tensor(sequence)
            places[row] = asked[-1]
            places[row, : len(asked)] = torch.tensor(asked)
            targets[row, : len(asked)] = torch.tensor([sequence[place + 1] for place in asked])
        yield Batch(tokens=tokens, places=places, targets=targets, kinds=("recall",) * len(rows))


def _sequence(rng: random.Random, length: int) -> tuple[list[int], list[int]]:
    """Token ids, and the places whose next token is asked for."""
    keys = _keys(rng)
    table = {
        key: _tokens(rng, rng.randint(1, 3)) + _tokens(rng, rng.randint(1, 5)) for key in keys[: len(keys) * 2 // 3]
    }
    sequence: list[int] = []
    for key, value in table.items():
        entry = [*_tokens(rng, rng.randint(0, 8)), *key, *value]
        if len(sequence) + len(entry) > 0.6 * length:
            break
        sequence += entry
    told = {key for key in table if _holds(sequence, [*key, *table[key]])}
    asked: list[int] = []
    rng.shuffle(keys)
    for key in keys:
        answer = list(table[key]) if key in told else list(UNKNOWN)
        question = [*_tokens(rng, rng.randint(1, 3)), *key]
        if len(sequence) + len(question) + len(answer) > length:
            break
        sequence += question
        asked += range(len(sequence) - 1, len(sequence) + len(answer) - 1)
        sequence += answer
    return sequence, asked


def _keys(rng: random.Random) -> list[tuple[int, ...]]:
    """Keys of two parts each, so that every part is shared by several keys."""
    alphabet = _tokens(rng, rng.choice(ALPHABETS))
    firsts, lasts = (
        [tuple(rng.choice(alphabet) for _ in range(rng.randint(1, 3))) for _ in range(rng.randint(3, 6))]
        for _ in range(2)
    )
    keys = list({first + last for first, last in product(firsts, lasts)})
    rng.shuffle(keys)
    return keys[: rng.randint(4, 18)]


def _tokens(rng: random.Random, num_tokens: int) -> list[int]:
    return [rng.randrange(NUM_CONTROL_TOKENS, VOCABULARY_SIZE) for _ in range(num_tokens)]


def _holds(sequence: list[int], part: list[int]) -> bool:
    return any(sequence[start : start + len(part)] == part for start in range(len(sequence) - len(part) + 1))
