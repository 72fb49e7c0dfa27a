"""The words of needle documents: keys, sentences that state a value, questions for it, and the haystack's prose.

The tiny policy saw none of these words and texts in its training.
"""

import random
from functools import cache
from importlib.resources import files


def _word_list(text: str) -> tuple[str, ...]:
    return tuple(text.split())


NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise paragraph."""

ADJECTIVES = _word_list(
    """
    amber blazing brief busy cheerful coastal coral dapper eastern endless fearless fleet fragile gilded grand happy
    hidden idle jolly lavish lone marble misty nimble open placid proud rare rough rusty sharp silver small soft
    steady stout sunny thin tranquil violet white witty
    """
)
NOUNS = _word_list(
    """
    acorn badger basket bicycle bridge cabin carpet circle comet cricket diamond ember fence flame fox goose harbor
    hill island key lake lizard meadow moon oak oyster parrot pickle plum pumpkin ribbon saddle shadow sparrow
    summit ticket trail village waterfall winter
    """
)
SYLLABLES = _word_list(
    """
    ba be bi bo bra bri cal can cor cu da del di do dra dru e el en fa fen fi flo ga gar ge gli go gra ha hel hin i
    in jo ju ka kel ki kor kra la lem li lo lu ma mar mel mi mo mun na nel ni no nu o or pa pel pi plo pra qui ra
    rel ri ro ru sa sel shi sko sol sta su ta tel thi to tra tri tu u ul va vel vi vo wa wen wi xa ya yel zan ze zi
    zu
    """
)
LAST_SYLLABLES = SYLLABLES[::5]
"""Syllables before the end of a made-up word; the training had the others there, so that no word is in both."""
WORD_ENDS = ("b", "k", "nd", "rd", "t", "z")

NUMBER_ATTRIBUTES = (
    "access code",
    "account number",
    "badge number",
    "batch number",
    "contract number",
    "customer number",
    "gate code",
    "invoice number",
    "locker number",
    "order number",
    "permit number",
    "phone number",
    "room code",
    "serial number",
    "shelf number",
    "ticket number",
)
"""What a number can be; the words of the needle and of the question."""
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
    text = (files("memagent_batch.evaluation") / "prose.txt").read_text(encoding="utf-8")
    return tuple(tuple(paragraph.splitlines()) for paragraph in text.strip().split("\n\n"))
