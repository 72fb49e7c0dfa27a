"""Samples whose prompts begin alike, as one tree: the start that they share is computed once.

A token sees the tokens on its own way to the root alone, so the loss is that of the samples one by one. The tokens
stand in depth-first order, so all that are below a token follow it at once.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """A prompt and what was written after it, as token ids."""

    prompt: Sequence[int]
    response: Sequence[int]
    """At least one token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Tree:
    """Several samples in one sequence; shapes by num_tokens and num_targets."""

    token_ids: npt.NDArray[np.int64]
    """Shape [num_tokens]."""
    positions: npt.NDArray[np.int64]
    """Place of each token in its sample; shape [num_tokens]."""
    ends: npt.NDArray[np.int64]
    """The place after the last token below each: only the tokens before that place see it; shape [num_tokens]."""
    sources: npt.NDArray[np.int64]
    """The token from which each target is predicted; shape [num_targets]."""
    targets: npt.NDArray[np.int64]
    """The responses of the samples one after another; shape [num_targets]."""
    samples: Sequence[Sample]
    """In the order of their targets."""

    @property
    def sees(self) -> npt.NDArray[np.bool_]:
        """Whether the token of a row sees that of a column; shape [num_tokens, num_tokens]."""
        places = np.arange(len(self.ends))
        return (places <= places[:, None]) & (places[:, None] < self.ends)


def tree_of(samples: Iterable[Sample]) -> Tree:
    """The samples in one tree."""
    samples = sorted(samples, key=lambda sample: [*sample.prompt, *sample.response])
    token_ids: list[int] = []
    positions: list[int] = []
    ends: dict[int, int] = {}
    last: tuple[list[int], list[int]] = ([], [])
    """Tokens of the sample before, and their places in the sequence."""
    sources, targets = [], []
    for sample in samples:
        tokens = [*sample.prompt, *sample.response]
        shared, start = _num_shared(last[0], tokens), len(token_ids)
        ends |= dict.fromkeys(last[1][shared:], start)
        places = [*last[1][:shared], *range(start, start + len(tokens) - shared)]
        token_ids += tokens[shared:]
        positions += range(shared, len(tokens))
        for at in range(len(sample.prompt), len(tokens)):
            sources.append(places[at - 1])
            targets.append(tokens[at])
        last = tokens, places
    ends |= dict.fromkeys(last[1], len(token_ids))
    return Tree(
        token_ids=np.array(token_ids),
        positions=np.array(positions),
        ends=np.array([ends[place] for place in range(len(token_ids))]),
        sources=np.array(sources),
        targets=np.array(targets),
        samples=samples,
    )


def packed(samples: Iterable[Sample], *, max_tokens: int) -> list[list[Sample]]:
    """The samples in packs whose trees hold at most so many tokens; those that begin alike stay together."""
    packs: list[list[Sample]] = []
    size, last = 0, Sample(prompt=(), response=())
    for sample in sorted(samples, key=lambda each: list(each.prompt)):
        num_tokens = len(sample.prompt) + len(sample.response)
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
