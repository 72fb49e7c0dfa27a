"""Frequent words as RULER defines them: what stands in the whole document most often."""

import random
import string
from bisect import bisect_left
from collections.abc import Iterator, Sequence
from functools import partial
from math import pi

import numpy as np
import numpy.typing as npt

from memagent_batch.evaluation.tasks.lengths import Draft, fit
from memagent_batch.evaluation.tasks.sample import Materials, SampleRequest, SuiteSample

NUM_FREQUENT = 3
"""Words that are asked for in `fwe`."""
FREQUENCY_EXPONENT = 2.0
"""Exponent of the word frequencies in `fwe`."""
ZETA = pi**2 / 6
"""Sum of k ** -ALPHA over all ranks k."""
CODED_LETTERS = 6
"""Letters of a coded word."""
TOKENS_FOR_CODED_WORD = 50
"""Length of a document of `fwe` for each word of its vocabulary, tokens."""
DOTS = "..."
"""Stands at the first rank, as noise."""

_FREQUENT_ASKED = (
    "Track the frequency of each coded word. Do not provide any explanation. Please ignore the dots '....'. "
    "What are the three most frequently appeared words in the above coded text?"
)


def make_frequent(request: SampleRequest, materials: Materials, *, task: str) -> SuiteSample:
    """Coded words; their frequencies fall with the square of their rank, and dots have the first rank."""
    rng, meter = request.rng, materials.meter
    vocabulary = [DOTS, *_coded(rng, request.length // TOKENS_FOR_CODED_WORD - 1)]
    tokens = np.array([meter.count(f" {word}") for word in vocabulary])
    build = partial(_coded_text, vocabulary, tokens, shuffle_seed=rng.random())
    fitted = fit(build, length_tokens=request.length, meter=meter, task=task)
    return SuiteSample(
        document=fitted.draft.text,
        question=_FREQUENT_ASKED,
        references=tuple(vocabulary[1 : NUM_FREQUENT + 1]),
        num_tokens=fitted.num_tokens,
    )


def _coded(rng: random.Random, num: int) -> Iterator[str]:
    words: dict[str, None] = {}
    while len(words) < num:
        words["".join(rng.choices(string.ascii_lowercase, k=CODED_LETTERS))] = None
    return iter(words)


def _coded_text(vocabulary: Sequence[str], tokens: npt.NDArray[np.int64], budget: int, *, shuffle_seed: float) -> Draft:
    num_words = bisect_left(range(2 * budget), budget, key=lambda num: int(_times(num, len(vocabulary)) @ tokens))
    times = _times(num_words, len(vocabulary))
    words = [word for word, num in zip(vocabulary, times.tolist(), strict=True) for _ in range(num)]
    random.Random(shuffle_seed).shuffle(words)
    return Draft(text=" ".join(words))


def _times(num_words: int, num_ranks: int) -> npt.NDArray[np.int64]:
    """How often the word of each rank stands in a text of so many words; shape [num_ranks]."""
    ranks = np.arange(1, num_ranks + 1)
    return (num_words * ranks**-FREQUENCY_EXPONENT / ZETA).astype(np.int64)
