"""Documents of a length in tokens with sentences hidden in them.

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

from memagent_batch.errors import SettingsError
from memagent_batch.loop.tokens.tokenizer import Tokenizer

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


@cache
def prose() -> tuple[tuple[str, ...], ...]:
    """The paragraphs of the project's own prose, each as its sentences."""
    text = (files("memagent_batch.apps.evaluation") / "prose.txt").read_text(encoding="utf-8")
    return tuple(tuple(paragraph.splitlines()) for paragraph in text.strip().split("\n\n"))


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
    gold: tuple[tuple[int, int], ...]
    """Spans (code points) of the sentences that support the answer together; none if the document does not state it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Facts:
    """What a document states and is asked, before there is a document."""

    hidden: Sequence[tuple[str, float]]
    """Sentences to hide, each with the depth at which it is to begin, from 0 to 1."""
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


def hide(facts: Facts, request: SampleRequest, meter: TokenMeter) -> SuiteSample:
    """Makes a document of the length with every hidden sentence in it.

    Raises:
        SettingsError: the length has no room for the sentences, or can't be met.
    """
    form = " {}" if facts.haystack is None else "{}\n"
    haystack = _Haystack(map(form.format, facts.haystack or _running_text(request.rng)), meter)
    needles = [(form.format(sentence), depth) for sentence, depth in facts.hidden]
    needed = sum(meter.count(needle) for needle, _ in needles)
    if needed > MAX_HIDDEN * request.length:
        raise SettingsError(
            f"--lengths: {request.length} tokens are too few for {request.task}, which hides {needed} tokens; "
            f"ask for {ceil(needed / MAX_HIDDEN)} or more, or leave out the task"
        )
    room, drafts = request.length - needed, list[_Draft]()
    for _ in range(_ROUNDS):
        drafts.append(haystack.hide(needles, num_tokens=max(room, 1)))
        excess = drafts[-1].num_tokens - request.length
        if abs(excess) <= TOLERANCE / 2 * request.length:
            break
        room -= excess
    draft = min(drafts, key=lambda draft: abs(draft.num_tokens - request.length))
    if abs(draft.num_tokens - request.length) > TOLERANCE * request.length:
        raise SettingsError(
            f"--lengths: {request.task} at {request.length} tokens comes no nearer than {draft.num_tokens} tokens; "
            "ask for a greater length"
        )
    gold = sorted((draft.starts[index], draft.starts[index] + len(facts.hidden[index][0])) for index in facts.gold)
    return SuiteSample(
        document=draft.text,
        question=facts.question,
        references=tuple(facts.references),
        num_tokens=draft.num_tokens,
        depth=gold[0][0] / len(draft.text) if len(gold) == 1 else None,
        gold=tuple(gold),
    )


def _running_text(rng: random.Random) -> Iterator[str]:
    """Yields sentences of whole paragraphs in a random order, and in another one when all were used."""
    order = list(prose())
    while True:
        rng.shuffle(order)
        for paragraph in order:
            yield from paragraph


class _Haystack:
    """Units of text, drawn from a source as far as needed and kept for another round."""

    def __init__(self, source: Iterator[str], meter: TokenMeter) -> None:
        self._source = source
        self._meter = meter
        self._units: list[str] = []
        self._sums = [0]
        """Tokens of the first units together, by their number."""

    def hide(self, needles: Sequence[tuple[str, float]], *, num_tokens: int) -> _Draft:
        """Puts needles among so many tokens, each at the border of units nearest to its depth."""
        while self._sums[-1] < num_tokens:
            self._units.append(next(self._source))
            self._sums.append(self._sums[-1] + self._meter.count_unit(self._units[-1]))
        num_units = bisect_left(self._sums, num_tokens)
        *units, last = self._units[:num_units]
        last = self._meter.cut(last, self._meter.count(last) - (self._sums[num_units] - num_tokens))
        borders = [0, *accumulate(map(len, units))]
        starts, parts, used, length = [0] * len(needles), list[str](), 0, 0
        for index in sorted(range(len(needles)), key=lambda index: needles[index][1]):
            needle, depth = needles[index]
            place = _nearest_border(borders, depth * (borders[-1] + len(last)))
            parts += [*units[used:place], needle]
            starts[index] = length + borders[place] - borders[used] + len(needle) - len(needle.lstrip())
            length += borders[place] - borders[used] + len(needle)
            used = place
        text = "".join([*parts, *units[used:], last])
        lead = len(text) - len(text.lstrip())
        text = text.strip()
        return _Draft(text=text, starts=[start - lead for start in starts], num_tokens=self._meter.count(text))


def _nearest_border(borders: Sequence[int], place: float) -> int:
    after = min(bisect_left(borders, place), len(borders) - 1)
    before = max(after - 1, 0)
    return before if place - borders[before] < borders[after] - place else after
