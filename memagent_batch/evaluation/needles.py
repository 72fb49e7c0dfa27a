"""The words of needle documents: keys, sentences that state a value, questions for it, and the haystack's prose.

The tiny policy saw none of these words and texts in its training.
"""

import random
from functools import cache
from importlib.resources import files

import yaml

_WORD_FILES = files("memagent_batch.evaluation")
_WORD_LISTS: dict[str, list[str]] = yaml.safe_load((_WORD_FILES / "words.yaml").read_text(encoding="utf-8"))
NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise paragraph."""

ADJECTIVES, NOUNS, SYLLABLES = (tuple(_WORD_LISTS[name]) for name in ("adjectives", "nouns", "syllables"))
LAST_SYLLABLES = SYLLABLES[::5]
"""Syllables before the end of a made-up word; the training had the others there, so that no word is in both."""
WORD_ENDS = ("b", "k", "nd", "rd", "t", "z")

MAGIC_STATED = "One of the special magic {attribute}s for {key} is: {value}."
MAGIC_STATED_ONCE = "The special magic {attribute} for {key} is: {value}."
MAGIC_ASKED = "What is the special magic {attribute} for {key} mentioned in the provided text?"
"""RULER's."""


def make_word(rng: random.Random) -> str:
    """A made-up word."""
    syllables = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
    return syllables + rng.choice(LAST_SYLLABLES) + rng.choice(WORD_ENDS)


@cache
def prose() -> tuple[tuple[str, ...], ...]:
    """The paragraphs of the project's own prose, each as its sentences."""
    text = (_WORD_FILES / "prose.txt").read_text(encoding="utf-8")
    return tuple(tuple(paragraph.splitlines()) for paragraph in text.strip().split("\n\n"))
