"""Documents of a length in tokens with sentences hidden in them: their words, and what every task takes and gives.

Units of text are counted once each and put together by sums; a final measure corrects the budget. Each hidden sentence
stands at the border of units that is nearest to its depth.
"""

import random
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files
from itertools import accumulate
from math import ceil

import yaml

from memagent_batch.errors import SettingsError
from memagent_batch.loop.tokens.tokenizer import Tokenizer

_WORD_FILES = files("memagent_batch.apps.evaluation")
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


MIN_TOKENS = 512
"""Shortest document of a suite, tokens: below it the needles themselves are most of the text."""
TOLERANCE = 0.02
"""Largest distance of a document's length from the one asked for, as a part of it."""
MAX_HIDDEN = 0.8
"""Largest part of a document that may be what is hidden in it, and not haystack."""
COUNTS_KEPT = 100_000
"""Units whose tokens are remembered; those of essays and noise come again."""
_ROUNDS = 8
"""Corrections of one document; a tokeniser that is not at odds with sums needs one or two."""
GoldSpan = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""


class TokenMeter:
    """Counts tokens as the main job's reader does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self.count_unit: Callable[[str], int] = lru_cache(COUNTS_KEPT)(self.count)
        """Tokens of a text that may come again."""

    def count(self, text: str) -> int:
        """Tokens of a text of any length."""
        return len(self._tokenizer.encode_document(text).token_ids)

    def cut(self, text: str, num_tokens: int) -> str:
        """The first tokens of a text."""
        starts = self._tokenizer.encode_document(text).token_chars
        return text if num_tokens >= len(starts) else text[: int(starts[num_tokens])]


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """What one sample of a suite should be."""

    task: str
    rng: random.Random
    """Source of every choice; its own for each sample."""
    length: int
    depth: float
    """Where a needle that stands alone is to begin, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSample:
    """One document, a question about it, and the right answers."""

    document: str
    question: str
    references: tuple[str, ...]
    """Right answers; what they mean together is up to the task's metric."""
    num_tokens: int
    depth: float | None = None
    """Where the only needle that matters begins, from 0 to 1; None if several matter, or none."""
    gold: tuple[GoldSpan, ...]
    """Sentences that support the answer together, in the order of the text; none if the document does not state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One sentence to hide."""

    sentence: str
    depth: float
    """Where it is to begin, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a document states and is asked, before there is a document."""

    hidden: Sequence[Hidden]
    question: str
    references: Sequence[str]
    gold: Sequence[int]
    """Indices of the hidden sentences that support the answer; none if nothing states it."""
    haystack: Iterator[str] | None = None
    """Endless texts that they are hidden in, one to a line; running text without it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Draft:
    text: str
    starts: Sequence[int]
    """First character of each hidden sentence."""
    num_tokens: int


class _Stock:
    """Units with the sums of their tokens, drawn from a source as far as needed and kept for another round."""

    def __init__(self, units: Iterator[str], *, count: Callable[[str], int]) -> None:
        self._source = units
        self._count = count
        self._units: list[str] = []
        self._sums = [0]

    def take(self, num_tokens: int) -> tuple[list[str], int]:
        """The first units with at least so many tokens together, and their tokens."""
        while self._sums[-1] < num_tokens:
            self._units.append(next(self._source))
            self._sums.append(self._sums[-1] + self._count(self._units[-1]))
        num_units = bisect_left(self._sums, num_tokens)
        return self._units[:num_units], self._sums[num_units]


def hide(facts: Facts, request: SampleRequest, meter: TokenMeter) -> SuiteSample:
    """A document of the length with every hidden sentence in it.

    Raises:
        SettingsError: the length has no room for the sentences, or can't be met.
    """
    form = " {}" if facts.haystack is None else "{}\n"
    haystack = map(form.format, _running(request.rng) if facts.haystack is None else facts.haystack)
    needles = [form.format(item.sentence) for item in facts.hidden]
    draft = _fitted(needles, [item.depth for item in facts.hidden], haystack, request, meter)
    spans = sorted(
        (draft.starts[index], draft.starts[index] + len(facts.hidden[index].sentence)) for index in facts.gold
    )
    return SuiteSample(
        document=draft.text,
        question=facts.question,
        references=tuple(facts.references),
        num_tokens=draft.num_tokens,
        depth=spans[0][0] / len(draft.text) if len(spans) == 1 else None,
        gold=tuple(spans),
    )


def _running(rng: random.Random) -> Iterator[str]:
    """Sentences of whole texts in a random order, and in another one when all were used."""
    order = list(prose())
    while True:
        rng.shuffle(order)
        for text in order:
            yield from text


def _fitted(
    needles: Sequence[str], depths: Sequence[float], haystack: Iterator[str], request: SampleRequest, meter: TokenMeter
) -> _Draft:
    """The needles in haystack, its budget corrected until the measure is right."""
    needed = sum(map(meter.count, needles))
    if needed > MAX_HIDDEN * request.length:
        raise SettingsError(
            f"--lengths: {request.length} tokens are too few for {request.task}, which hides {needed} tokens; "
            f"ask for {ceil(needed / MAX_HIDDEN)} or more, or leave out the task"
        )
    stock = _Stock(haystack, count=meter.count_unit)
    room, drafts = request.length - needed, []
    for _ in range(_ROUNDS):
        drafts.append(_build(stock, needles, depths, room=max(room, 1), meter=meter))
        excess = drafts[-1].num_tokens - request.length
        if abs(excess) <= TOLERANCE / 2 * request.length:
            break
        room -= excess
    best = min(drafts, key=lambda draft: abs(draft.num_tokens - request.length))
    if abs(best.num_tokens - request.length) > TOLERANCE * request.length:
        raise SettingsError(
            f"--lengths: {request.task} at {request.length} tokens comes no nearer than {best.num_tokens} tokens; "
            "ask for a greater length"
        )
    return best


def _build(stock: _Stock, needles: Sequence[str], depths: Sequence[float], *, room: int, meter: TokenMeter) -> _Draft:
    """The needles, each at the border of units nearest to its depth, among so many tokens; none after the cut unit."""
    (*units, last), num_tokens = stock.take(room)
    last = meter.cut(last, meter.count(last) - (num_tokens - room))
    borders = [0, *accumulate(len(unit) for unit in units)]
    starts = [0] * len(needles)
    parts: list[str] = []
    used = length = 0
    for index in sorted(range(len(needles)), key=depths.__getitem__):
        place = _nearest_border(borders, depths[index] * (borders[-1] + len(last)))
        parts += [*units[used:place], needles[index]]
        length += borders[place] - borders[used]
        starts[index] = length + len(needles[index]) - len(needles[index].lstrip())
        length += len(needles[index])
        used = place
    text = "".join([*parts, *units[used:], last])
    lead = len(text) - len(text.lstrip())
    text = text.strip()
    return _Draft(text=text, starts=[start - lead for start in starts], num_tokens=meter.count(text))


def _nearest_border(borders: Sequence[int], place: float) -> int:
    after = min(bisect_left(borders, place), len(borders) - 1)
    before = max(after - 1, 0)
    return before if place - borders[before] < borders[after] - place else after
