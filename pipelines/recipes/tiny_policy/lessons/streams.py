"""Running tokens of the training split, tokenised once. Chunks are cut from them at any place, needles inside."""

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from memagent_batch.engines.tokenizer import Tokenizer
from pipelines.recipes.tiny_policy.vocabulary import VOCABULARY_SIZE

NUM_CONTROL_TOKENS = 3
"""Token ids below are control tokens, and never drawn."""

RANDOM_STREAM_TOKENS = 60_000
"""Length of the stream of random tokens, which stands for any text that is like none of the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Stream:
    """Tokens without end for practical purposes, with the places where a sentence may be put in."""

    tokens: npt.NDArray[np.int32]
    """Shape [num_tokens]."""
    borders: npt.NDArray[np.int64]
    """Rising token indices at which a sentence begins; shape [num_units]."""


def training_streams(
    tokenizer: Tokenizer, units: Sequence[tuple[float, Sequence[str]]], *, seed: int
) -> tuple[tuple[float, Stream], ...]:
    """Streams of these texts, each with its share of the chunks; the rest of them has random tokens."""
    streams = [(share, to_stream(tokenizer, texts)) for share, texts in units]
    return (*streams, (1.0 - sum(share for share, _ in streams), _random_stream(random.Random(seed))))


def to_stream(tokenizer: Tokenizer, units: Iterable[str]) -> Stream:
    """Tokenises units as one text; each begins with a space or line break, so that its first token begins there."""
    texts = list(units)
    lengths = np.array([len(text) for text in texts], dtype=np.int64)
    whole = tokenizer.encode_document("".join(texts))
    return Stream(tokens=whole.token_ids, borders=np.searchsorted(whole.token_chars, np.cumsum(lengths) - lengths))


def slice_chunk(rng: random.Random, stream: Stream, inserts: Sequence[Sequence[int]], *, num_tokens: int) -> list[int]:
    """A chunk of this many tokens: a blind slice of the stream, with sentences put in whole and in order at borders.

    Where no border lies in the slice, sentences are put in anywhere; where the inserts are longer than the chunk, it
    becomes longer.
    """
    room = max(num_tokens - sum(len(insert) for insert in inserts), 2)
    start = rng.randrange(len(stream.tokens) - room)
    tokens: list[int] = stream.tokens[start : start + room].tolist()
    low, high = np.searchsorted(stream.borders, [start, start + room])
    borders = [int(border) - start for border in stream.borders[low:high]] + [0, room]
    places = sorted(rng.choice(borders) if rng.random() < 0.8 else rng.randint(0, room) for _ in inserts)
    for place, insert in reversed(list(zip(places, inserts, strict=True))):
        tokens[place:place] = insert
    return tokens


def _random_stream(rng: random.Random) -> Stream:
    tokens = [rng.randrange(NUM_CONTROL_TOKENS, VOCABULARY_SIZE) for _ in range(RANDOM_STREAM_TOKENS)]
    borders = list(range(0, RANDOM_STREAM_TOKENS, 15))
    return Stream(tokens=np.array(tokens, dtype=np.int32), borders=np.array(borders, dtype=np.int64))
