"""Samples whose prompts begin alike, as one tree: the start that they share is computed once.

A token sees the tokens on its own way to the root alone, so the loss is that of the samples one by one.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A prompt and what is to be written after it, as tokens."""

    prompt: Sequence[int]
    completion: Sequence[int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Several samples in one sequence; shapes by num_tokens and num_targets."""

    token_ids: npt.NDArray[np.int64]
    """Shape [num_tokens]."""
    positions: npt.NDArray[np.int64]
    """Place of each token in its sample; shape [num_tokens]."""
    sees: npt.NDArray[np.bool_]
    """Whether the token of a row sees that of a column; shape [num_tokens, num_tokens]."""
    sources: npt.NDArray[np.int64]
    """The token from which each target is predicted; shape [num_targets]."""
    targets: npt.NDArray[np.int64]
    """Shape [num_targets]."""


def tree_of(samples: Sequence[Sample]) -> Tree:
    """The samples in one tree."""
    samples = sorted(samples, key=lambda sample: [*sample.prompt, *sample.completion])
    token_ids: list[int] = []
    positions: list[int] = []
    paths: list[list[int]] = []
    last: tuple[list[int], list[int]] = ([], [])
    """Tokens of the sample before, and their places in the sequence."""
    sources, targets = [], []
    for sample in samples:
        tokens = [*sample.prompt, *sample.completion]
        shared = _num_shared(last[0], tokens)
        places = [*last[1][:shared], *range(len(token_ids), len(token_ids) + len(tokens) - shared)]
        for at in range(shared, len(tokens)):
            token_ids.append(tokens[at])
            positions.append(at)
        paths.append(places)
        for at in range(len(sample.prompt), len(tokens)):
            sources.append(places[at - 1])
            targets.append(tokens[at])
        last = tokens, places
    sees = np.zeros((len(token_ids), len(token_ids)), bool)
    for places in paths:
        sees[np.ix_(places, places)] |= np.tril(np.ones((len(places), len(places)), bool))
    return Tree(
        token_ids=np.array(token_ids),
        positions=np.array(positions),
        sees=sees,
        sources=np.array(sources),
        targets=np.array(targets),
    )


def packed(samples: Iterable[Sample], *, max_tokens: int) -> list[list[Sample]]:
    """The samples in packs whose trees hold at most so many tokens; those that begin alike stay together."""
    packs: list[list[Sample]] = []
    size, last = 0, Sample(prompt=(), completion=())
    for sample in sorted(samples, key=lambda each: list(each.prompt)):
        num_tokens = len(sample.prompt) + len(sample.completion)
        more = num_tokens - (_num_shared(last.prompt, sample.prompt) if packs else 0)
        if packs and size + more <= max_tokens:
            packs[-1].append(sample)
            size += more
        else:
            packs.append([sample])
            size = num_tokens
        last = sample
    return packs


def _num_shared(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens both begin with."""
    for at, (left, right) in enumerate(zip(one, other, strict=False)):
        if left != right:
            return at
    return min(len(one), len(other))
