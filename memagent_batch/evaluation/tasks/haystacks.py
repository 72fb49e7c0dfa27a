"""What needles are hidden in, and the hiding: each needle at a unit's border nearest to its depth."""

import random
import re
from bisect import bisect_left
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat

from memagent_batch.evaluation.needles.words import NOISE
from memagent_batch.evaluation.tasks.lengths import MOST_HIDDEN, Draft, Fitted, Stock, TokenMeter, fit, too_short
from memagent_batch.evaluation.tasks.sample import EssayTexts, GoldSpan, Materials, SampleRequest, SuiteSample

LONGEST_SENTENCE_CHARS = 600
"""Longer sentences of a user's texts are cut, so that every depth has a border near it."""

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One sentence to hide."""

    sentence: str
    """The sentence."""
    depth: float
    """Where it is to begin, from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class HaystackUnits:
    """Endless units of text, and how a needle stands among them."""

    units: Iterator[str]
    """Units, each with the space or line break that parts it from its neighbours."""
    form: str
    """How a needle is written as a unit; slot `{}`."""
    recurs: bool
    """Whether units come again, so that each is counted once."""


def noise() -> HaystackUnits:
    """RULER's noise paragraph, again and again, one to a line."""
    return HaystackUnits(units=repeat(NOISE + "\n"), form="{}\n", recurs=True)


def running_text(rng: random.Random, texts: EssayTexts) -> HaystackUnits:
    """Whole texts in a random order, and in another one when all were used."""
    return HaystackUnits(units=_running(rng, texts), form=" {}", recurs=True)


def lines(units: Iterator[str]) -> HaystackUnits:
    """Sentences that are all different, one to a line."""
    return HaystackUnits(units=(f"{unit}\n" for unit in units), form="{}\n", recurs=False)


def sentences_of(text: str) -> tuple[str, ...]:
    """The sentences of a running text, white space made even."""
    found = []
    for piece in _SENTENCE_END.split(text):
        sentence = " ".join(piece.split())
        found += [
            sentence[start : start + LONGEST_SENTENCE_CHARS]
            for start in range(0, len(sentence), LONGEST_SENTENCE_CHARS)
        ]
    return tuple(found)


def hide_in_text(hidden: Sequence[Hidden], request: SampleRequest, materials: Materials, *, task: str) -> Fitted:
    """A document of running text with every sentence in it; see `hide`."""
    haystack = running_text(request.rng, materials.texts)
    return hide(hidden, haystack, length_tokens=request.length, meter=materials.meter, task=task)


def hide(
    hidden: Sequence[Hidden], haystack: HaystackUnits, *, length_tokens: int, meter: TokenMeter, task: str
) -> Fitted:
    """A document of the length with every sentence in it.

    Returns:
        The document; its `starts` are in the order of `hidden`.

    Raises:
        SettingsError: the length has no room for the sentences.
    """
    units = [haystack.form.format(item.sentence) for item in hidden]
    needed = sum(meter.count(unit) for unit in units)
    if needed > MOST_HIDDEN * length_tokens:
        raise too_short(task, length_tokens=length_tokens, needed_tokens=needed)
    stock = Stock(haystack.units, count=meter.count_once if haystack.recurs else meter.count)
    build = partial(_build, stock, units, [item.depth for item in hidden], taken=needed, meter=meter)
    return fit(build, length_tokens=length_tokens, meter=meter, task=task)


def gold_of(fitted: Fitted, hidden: Sequence[Hidden], *, gold: Iterable[int]) -> tuple[GoldSpan, ...]:
    """Where hidden sentences stand, in the order of the text.

    Args:
        fitted: the document.
        hidden: what was hidden in it.
        gold: which of them, as indices.
    """
    starts = fitted.draft.starts
    return tuple(sorted((starts[index], starts[index] + len(hidden[index].sentence)) for index in gold))


def hidden_sample(
    fitted: Fitted, hidden: Sequence[Hidden], *, question: str, references: Sequence[str], gold: Iterable[int]
) -> SuiteSample:
    """The sample of a document with hidden sentences; its depth is known where one of them bears the answer alone.

    Args:
        fitted: the document.
        hidden: what was hidden in it.
        question: the question.
        references: right answers.
        gold: which of the hidden sentences bear the answer, as indices.
    """
    spans = gold_of(fitted, hidden, gold=gold)
    return SuiteSample(
        document=fitted.draft.text,
        question=question,
        references=tuple(references),
        num_tokens=fitted.num_tokens,
        depth=spans[0][0] / len(fitted.draft.text) if len(spans) == 1 else None,
        gold=spans,
    )


def _running(rng: random.Random, texts: EssayTexts) -> Iterator[str]:
    order = list(texts)
    while True:
        rng.shuffle(order)
        for text in order:
            for sentence in text:
                yield f" {sentence}"


def _build(
    stock: Stock, needles: Sequence[str], depths: Sequence[float], budget: int, *, taken: int, meter: TokenMeter
) -> Draft:
    room = max(budget - taken, 1)
    (*units, last), tokens = stock.take(room)
    return _join(units, meter.cut(last, meter.count(last) - (tokens - room)), needles, depths)


def _join(units: Sequence[str], last: str, needles: Sequence[str], depths: Sequence[float]) -> Draft:
    """The units with each needle at the border nearest to its depth, in the order of depths; none after the cut one."""
    borders = [0, *accumulate(len(unit) for unit in units)]
    order = sorted(range(len(needles)), key=lambda index: depths[index])
    starts = [0] * len(needles)
    parts: list[str] = []
    used = length = 0
    for index in order:
        place = _nearest_border(borders, depths[index] * (borders[-1] + len(last)))
        parts += [*units[used:place], needles[index]]
        length += borders[place] - borders[used]
        starts[index] = length + len(needles[index]) - len(needles[index].lstrip())
        length += len(needles[index])
        used = place
    text = "".join([*parts, *units[used:], last])
    lead = len(text) - len(text.lstrip())
    return Draft(text=text.strip(), starts=tuple(start - lead for start in starts))


def _nearest_border(borders: Sequence[int], place: float) -> int:
    after = min(bisect_left(borders, place), len(borders) - 1)
    before = max(after - 1, 0)
    return before if place - borders[before] < borders[after] - place else after
