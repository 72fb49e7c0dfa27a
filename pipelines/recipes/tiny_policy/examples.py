"""Examples for training: prompt and target as tokens, sorted by length into batches of a fixed number of tokens."""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import torch
from torch import Tensor

PAD = 0
"""Token id behind the end of a row."""

IGNORED = -100
"""Target of a place that is not learnt."""

ROW_STEP = 32
"""Row lengths are multiples of this, so that memory is reused between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """One completion to be learnt."""

    kind: str
    """Kind of turn, for the log."""
    prompt: Sequence[int]
    """Token ids before the completion."""
    target: Sequence[int]
    """Token ids that are to follow."""
    first_weight: float = 1.0
    """How much the first of these counts, where the others count 1."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the network sees: the last one of the target is only predicted."""
        return len(self.prompt) + len(self.target) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedExamples:
    """Examples as arrays."""

    tokens: Tensor
    """Token ids, padded on the right; shape [batch, length]."""
    places: Tensor
    """Positions whose next token is learnt; rows with fewer repeat their last; shape [batch, num_places]."""
    targets: Tensor
    """The next tokens there, -100 where a place is a repeat; shape [batch, num_places]."""
    weights: Tensor
    """How much each target counts, 0 where a place is a repeat; shape [batch, num_places]."""
    kinds: tuple[str, ...]
    """Kind of each row."""


def make_batches(
    examples: Iterator[Example], rng: random.Random, *, batch_tokens: int, pool: int
) -> Iterator[PaddedExamples]:
    """Endless batches of about `batch_tokens` tokens each, of examples of like length, in random order.

    Args:
        examples: endless examples.
        rng: decides the order.
        batch_tokens: tokens of a batch, padding included.
        pool: examples that are sorted together.
    """
    while True:
        ordered = sorted(islice(examples, pool), key=lambda example: example.num_tokens)
        rows: list[list[Example]] = [[]]
        for example in ordered:
            if rows[-1] and (len(rows[-1]) + 1) * example.num_tokens > batch_tokens:
                rows.append([])
            rows[-1].append(example)
        rng.shuffle(rows)
        yield from map(pad_examples, rows)


def pad_examples(examples: Sequence[Example]) -> PaddedExamples:
    """Pads examples into arrays."""
    length = -(-max(example.num_tokens for example in examples) // ROW_STEP) * ROW_STEP
    num_places = max(len(example.target) for example in examples)
    tokens = torch.full((len(examples), length), PAD)
    places = torch.zeros((len(examples), num_places), dtype=torch.int64)
    targets = torch.full((len(examples), num_places), IGNORED)
    weights = torch.zeros((len(examples), num_places))
    for row, example in enumerate(examples):
        sequence = [*example.prompt, *example.target[:-1]]
        tokens[row, : len(sequence)] = torch.tensor(sequence)
        first, num_targets = len(example.prompt) - 1, len(example.target)
        places[row] = (first + torch.arange(num_places)).clamp(max=first + num_targets - 1)
        targets[row, :num_targets] = torch.tensor(example.target)
        weights[row, :num_targets] = 1.0
        weights[row, 0] = example.first_weight
    kinds = tuple(example.kind for example in examples)
    return PaddedExamples(tokens=tokens, places=places, targets=targets, weights=weights, kinds=kinds)
