"""Examples for training: completions that share the beginning of their prompts, in batches of a fixed number of tokens.

Where a prompt shows the section first, one section serves many questions: their prompts differ from there on, and the
section is computed once for all of them. That makes three to four times as many examples of the same work.
"""

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

ROW_STEP = 16
"""Row lengths are multiples of this, so that memory is reused between steps."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Aside:
    """A token that is to be told within a prompt; no engine ever writes it. It teaches what the completion needs."""

    place: int
    """Index of the token of the branch's prompt behind which it is to be told."""
    target: int
    """The token id."""
    weight: float
    """How much it counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Branch:
    """One completion to be learnt, and what its prompt has alone."""

    kind: str
    """Kind of turn, for the log."""
    prompt: Sequence[int]
    """Token ids between what is shared and the completion; at least one."""
    target: Sequence[int]
    """Token ids that are to follow."""
    weights: Sequence[float] = ()
    """How much each of these counts, from the first on; those that have none here count 1."""
    asides: tuple[Aside, ...] = ()
    """What is to be told within the prompt."""

    @property
    def num_places(self) -> int:
        """Tokens whose next one is learnt."""
        return len(self.asides) + len(self.target)

    @property
    def num_tokens(self) -> int:
        """Tokens that the network sees: the last one of the target is only predicted."""
        return len(self.prompt) + len(self.target) - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Example:
    """The shared beginning of some prompts, and what follows in each."""

    prefix: Sequence[int]
    """Token ids that all of the prompts begin with."""
    branches: tuple[Branch, ...]
    """The rest of each, with its completion."""

    @property
    def num_tokens(self) -> int:
        """Tokens that the network sees."""
        return len(self.prefix) + sum(branch.num_tokens for branch in self.branches)


@dataclass(frozen=True, slots=True, kw_only=True)
class PaddedExamples:
    """Examples as arrays: what is shared in some rows, branches in others, as many in a row as have room."""

    prefix: Tensor
    """Token ids of what is shared, padded on the right; shape [num_examples, prefix_length]."""
    prefix_lengths: Tensor
    """Its length in each example; shape [num_examples]."""
    examples: Tensor
    """The example of each row of branches; shape [batch]."""
    tokens: Tensor
    """Token ids of the branches, one behind the other; shape [batch, length]."""
    positions: Tensor
    """Position of each in its prompt; shape [batch, length]."""
    owners: Tensor
    """The branch of each token, `NOBODY` behind the last; shape [batch, length]."""
    places: Tensor
    """Indices of the tokens whose next one is learnt; shape [batch, num_places]."""
    targets: Tensor
    """The next tokens there, -100 behind the last; shape [batch, num_places]."""
    weights: Tensor
    """How much each target counts; shape [batch, num_places]."""
    written: Tensor
    """Whether a target belongs to the completion; booleans of shape [batch, num_places]."""
    kinds: tuple[str, ...]
    """Kind of each branch."""

    @property
    def num_tokens(self) -> int:
        """Tokens that are computed, padding included."""
        return int(self.prefix.numel() + self.tokens.numel())


NOBODY = -1
"""Owner of a padded place."""


def make_batches(
    examples: Iterator[Example], rng: random.Random, *, batch_tokens: int, pool: int
) -> Iterator[PaddedExamples]:
    """Endless batches of about `batch_tokens` tokens each, of examples of like length, in random order.

    Args:
        examples: endless examples.
        rng: decides the order.
        batch_tokens: tokens of a batch, the padding of what is shared included.
        pool: examples that are sorted together.
    """
    while True:
        ordered = sorted(islice(examples, pool), key=lambda example: (len(example.prefix), example.num_tokens))
        rows: list[list[Example]] = [[]]
        branch_tokens = 0
        for example in ordered:
            added = sum(branch.num_tokens for branch in example.branches)
            padded = (len(rows[-1]) + 1) * _rounded(len(example.prefix)) + branch_tokens + added
            if rows[-1] and padded > batch_tokens:
                rows.append([])
                branch_tokens = 0
            rows[-1].append(example)
            branch_tokens += added
        rng.shuffle(rows)
        yield from map(pad_examples, rows)


def pad_examples(examples: Sequence[Example]) -> PaddedExamples:
    """Pads examples into arrays."""
    prefix = torch.full((len(examples), _rounded(max(len(example.prefix) for example in examples))), PAD)
    for number, example in enumerate(examples):
        prefix[number, : len(example.prefix)] = torch.tensor(example.prefix)
    length = _rounded(max(branch.num_tokens for example in examples for branch in example.branches))
    bins = [(number, some) for number, example in enumerate(examples) for some in _bins(example.branches, length)]
    num_places = max(sum(branch.num_places for branch in some) for _, some in bins)
    tokens, owners = torch.full((len(bins), length), PAD), torch.full((len(bins), length), NOBODY)
    positions = torch.zeros((len(bins), length), dtype=torch.int64)
    places = torch.zeros((len(bins), num_places), dtype=torch.int64)
    targets, weights = torch.full((len(bins), num_places), IGNORED), torch.zeros((len(bins), num_places))
    written = torch.zeros((len(bins), num_places), dtype=torch.bool)
    kinds: list[str] = []
    for row, (number, some) in enumerate(bins):
        start = place = 0
        for branch in some:
            end = start + branch.num_tokens
            tokens[row, start:end] = torch.tensor([*branch.prompt, *branch.target[:-1]])
            positions[row, start:end] = len(examples[number].prefix) + torch.arange(end - start)
            owners[row, start:end] = len(kinds)
            for aside in branch.asides:
                places[row, place] = start + aside.place
                targets[row, place], weights[row, place] = aside.target, aside.weight
                place += 1
            last = place + len(branch.target)
            places[row, place:last] = torch.arange(start + len(branch.prompt) - 1, end)
            targets[row, place:last] = torch.tensor(branch.target)
            weights[row, place:last] = 1.0
            weights[row, place : place + len(branch.weights)] = torch.tensor(branch.weights)
            written[row, place:last] = True
            kinds.append(branch.kind)
            start, place = end, last
    return PaddedExamples(
        prefix=prefix,
        prefix_lengths=torch.tensor([len(example.prefix) for example in examples]),
        examples=torch.tensor([number for number, _ in bins]),
        tokens=tokens,
        positions=positions,
        owners=owners,
        places=places,
        targets=targets,
        weights=weights,
        written=written,
        kinds=tuple(kinds),
    )


def _bins(branches: Sequence[Branch], length: int) -> list[list[Branch]]:
    """The branches in rows of this length, the longest first, each in the first row that has room."""
    bins: list[list[Branch]] = []
    for branch in sorted(branches, key=lambda branch: -branch.num_tokens):
        room = (some for some in bins if sum(each.num_tokens for each in some) + branch.num_tokens <= length)
        some = next(room, None)
        if some is None:
            bins.append([branch])
        else:
            some.append(branch)
    return bins


def _rounded(length: int) -> int:
    return -(-max(length, 1) // ROW_STEP) * ROW_STEP
