"""Running tokens of the training split, tokenised once. Chunks are cut from them at any place, needles inside."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from memagent_batch.engines.tokenizer import Tokenizer
from memagent_batch.evaluation.needles.facts import Split
from memagent_batch.evaluation.needles.tasks import Haystack, haystack_units
from pipelines.recipes.tiny_policy.manual import manual_sentences
from pipelines.recipes.tiny_policy.vocabulary import VOCABULARY_SIZE

NUM_CONTROL_TOKENS = 3
"""Token ids below are control tokens, and never drawn."""

STREAM_UNITS = 12_000
"""Sentences in each of the grammar's streams: some 300,000 tokens."""

RANDOM_STREAM_TOKENS = 60_000
"""Length of the stream of random tokens, which stands for any text that is like none of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Tokens without end for practical purposes, with the places where a sentence may be put in."""

    tokens: npt.NDArray[np.int32]
    """Shape [num_tokens]."""
    borders: npt.NDArray[np.int64]
    """Rising token indices at which a sentence begins; shape [num_units]."""


def training_streams(tokenizer: Tokenizer, *, seed: int) -> tuple[tuple[float, Stream], ...]:
    """The streams of the training split, each with its share of the chunks."""
    rng = random.Random(seed)
    noise = haystack_units(rng, haystack=Haystack.NOISE, split=Split.TRAINING)
    running = haystack_units(rng, haystack=Haystack.RUNNING, split=Split.TRAINING)
    mixed = haystack_units(rng, haystack=Haystack.MIXED, split=Split.TRAINING)
    return (
        (0.2, to_stream(tokenizer, islice(noise, 400))),
        (0.25, to_stream(tokenizer, islice(running, STREAM_UNITS))),
        (0.2, to_stream(tokenizer, islice(mixed, STREAM_UNITS))),
        (0.28, to_stream(tokenizer, manual_sentences())),
        (0.07, _random_stream(rng)),
    )


def to_stream(tokenizer: Tokenizer, units: Iterable[str]) -> Stream:
    """Tokenises units as one text; each begins with a space or line break, so that its first token begins there."""
    texts = list(units)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    whole = tokenizer.encode_document("".join(texts))
    return Stream(tokens=whole.token_ids, borders=np.searchsorted(whole.token_chars, np.cumsum(lengths) - lengths))


def slice_chunk(rng: random.Random, stream: Stream, inserts: Sequence[Sequence[int]], *, num_tokens: int) -> list[int]:
    """A chunk of this many tokens: a blind slice of the stream, with sentences put in whole at borders.

    Where no border lies in the slice, sentences are put in anywhere; where the inserts are longer than the chunk, it
    becomes longer.
    """
    room = max(num_tokens - sum(len(insert) for insert in inserts), 2)
    start = rng.randrange(len(stream.tokens) - room)
    tokens: list[int] = stream.tokens[start : start + room].tolist()
    low, high = np.searchsorted(stream.borders, [start, start + room])
    borders = [int(border) - start for border in stream.borders[low:high]] + [0, room]
    places = sorted(
        ((rng.choice(borders) if rng.random() < 0.8 else rng.randint(0, room), index) for index in range(len(inserts))),
        reverse=True,
    )
    for place, index in places:
        tokens[place:place] = inserts[index]
    return tokens


def _random_stream(rng: random.Random) -> Stream:
    tokens = [rng.randrange(NUM_CONTROL_TOKENS, VOCABULARY_SIZE) for _ in range(RANDOM_STREAM_TOKENS)]
    borders = list(range(0, RANDOM_STREAM_TOKENS, 15))
    return Stream(tokens=np.array(tokens, dtype=np.int32), borders=np.array(borders, dtype=np.int64))
