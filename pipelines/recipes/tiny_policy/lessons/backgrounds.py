"""What stories are told among in training: prose, noise, code, tables, other facts, a word again and again."""

import random
import sysconfig
from collections.abc import Callable, Iterator
from enum import StrEnum
from functools import partial
from itertools import islice
from pathlib import Path

from memagent_batch.evaluation.needles.facts import Split, make_key, make_needle, make_number, make_word, words_of
from memagent_batch.evaluation.needles.tasks import Haystack, haystack_units
from memagent_batch.evaluation.needles.words import FIRST_NAMES, NOUNS, PLACES
from pipelines.recipes.tiny_policy.lessons.manual import manual_sentences

CODE_MODULES = (
    *("argparse", "ast", "bisect", "calendar", "codecs", "configparser", "copy", "csv", "datetime", "difflib"),
    *("fractions", "functools", "gzip", "heapq", "inspect", "ipaddress", "locale", "mailbox", "optparse", "pathlib"),
    *("pprint", "queue", "random", "shutil", "socket", "statistics", "string", "tarfile", "textwrap", "threading"),
)
"""Modules of the standard library whose source is read as code."""

MOST_UNITS = 12_000
"""Pieces of each background: some 300,000 tokens of the grammar's."""

REPEATED_TOKENS = 1_500
"""Length of a stretch that repeats one word, roughly in tokens."""


class Background(StrEnum):
    """Kinds of text."""

    NOISE = "noise"
    """RULER's noise paragraph."""
    GRAMMAR = "grammar"
    """Sentences by a grammar."""
    MIXED = "mixed"
    """Stretches of both."""
    MANUAL = "manual"
    """Python's own manual: written English."""
    CODE = "code"
    """Python's own library."""
    TABLES = "tables"
    """Rows of words and numbers."""
    FACTS = "facts"
    """Other facts, one to a line, as in RULER's second multi-key task."""
    REPEATED = "repeated"
    """One word or number a thousand times."""


SHARES = {
    Background.NOISE: 0.17,
    Background.GRAMMAR: 0.16,
    Background.MIXED: 0.12,
    Background.MANUAL: 0.2,
    Background.CODE: 0.1,
    Background.TABLES: 0.07,
    Background.FACTS: 0.06,
    Background.REPEATED: 0.06,
}
"""Share of each kind in the sections."""


HAYSTACKS = {
    Background.NOISE: Haystack.NOISE,
    Background.GRAMMAR: Haystack.RUNNING,
    Background.MIXED: Haystack.MIXED,
}
"""Backgrounds that needle documents have too."""


def background_units(rng: random.Random, kind: Background) -> Iterator[str]:
    """Pieces of text of the training split, each with the space or line break before it; endless, or as many as the
    text has.
    """
    if kind in HAYSTACKS:
        return haystack_units(rng, haystack=HAYSTACKS[kind], split=Split.TRAINING)
    makers: dict[Background, Callable[[], Iterator[str]]] = {
        Background.MANUAL: manual_sentences,
        Background.CODE: _code_lines,
        Background.TABLES: partial(_rows, rng),
        Background.FACTS: partial(_facts, rng),
        Background.REPEATED: partial(_repeated, rng),
    }
    return makers[kind]()


def _code_lines() -> Iterator[str]:
    library = Path(sysconfig.get_path("stdlib"))
    for name in CODE_MODULES:
        text = (library / f"{name}.py").read_text(encoding="utf-8")
        yield from ("\n" + line for line in text.splitlines() if line.strip())


def _rows(rng: random.Random) -> Iterator[str]:
    """Tables of different shapes, forty rows or so each."""
    while True:
        mark = rng.choice((" | ", "\t", ",", ";", "  "))
        columns = [rng.choice(_CELLS) for _ in range(rng.randint(2, 7))]
        for _ in range(rng.randint(8, 60)):
            yield "\n" + mark.join(column(rng) for column in columns)


def _facts(rng: random.Random) -> Iterator[str]:
    while True:
        yield "\n" + make_needle(rng, split=Split.TRAINING).sentence


def _word_cell(rng: random.Random) -> str:
    return rng.choice(words_of(rng.choice((NOUNS, PLACES, FIRST_NAMES)), split=Split.TRAINING))


def _key_cell(rng: random.Random) -> str:
    return make_key(rng, split=Split.TRAINING)


def _price_cell(rng: random.Random) -> str:
    return f"{rng.randrange(1, 9000)}.{rng.randrange(100):02d}"


def _date_cell(rng: random.Random) -> str:
    return f"{rng.randint(1900, 2040)}-{rng.randint(1, 12):02d}-{rng.randint(1, 28):02d}"


_CELLS = (_word_cell, _key_cell, make_number, _price_cell, _date_cell)


def _made_up(rng: random.Random) -> str:
    return make_word(rng, split=Split.TRAINING)


def _sign(rng: random.Random) -> str:
    return rng.choice("-=*.#x0")


def _repeated(rng: random.Random) -> Iterator[str]:
    """Stretches of one word each, mostly with a space between, now and then on lines of their own."""
    while True:
        word = rng.choice((_word_cell, _key_cell, make_number, _made_up, _sign))(rng)
        mark = rng.choice((" ", " ", " ", "\n", ", ", ""))
        for _ in range(max(1, REPEATED_TOKENS // max(1, len(word) // 3 + len(mark)) // 8)):
            yield (mark or " ") + mark.join([word] * 8)


def training_units(*, seed: int) -> tuple[tuple[float, list[str]], ...]:
    """Pieces of each background, with its share of the sections; the rest of them has random tokens."""
    rng = random.Random(seed)
    return tuple((share, list(islice(background_units(rng, kind), MOST_UNITS))) for kind, share in SHARES.items())
