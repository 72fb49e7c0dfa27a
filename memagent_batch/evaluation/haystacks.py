"""Documents of a length in tokens with sentences hidden in them, and what every family of tasks takes and gives.

Units of text are counted once each and put together by sums; a final measure corrects the budget. Each hidden sentence
stands at the border of units that is nearest to its depth.
"""

import random
import re
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, repeat
from math import ceil

from memagent_batch.documents.listing import list_files
from memagent_batch.errors import InputError, SettingsError
from memagent_batch.evaluation.corpora import Corpus
from memagent_batch.evaluation.needles import NOISE
from memagent_batch.store.errors import input_errors
from memagent_batch.store.location import Location
from memagent_batch.tokens.tokenizer import Tokenizer

MIN_TOKENS = 512
"""Shortest document of a suite, tokens: below it the needles themselves are most of the text."""
TOLERANCE = 0.02
"""Largest distance of a document's length from the one asked for, as a part of it."""
MAX_HIDDEN = 0.8
"""Largest part of a document that may be what is hidden in it, and not haystack."""
MAX_HAYSTACK_SENTENCE_CHARS = 600
"""Longer sentences of a user's texts are cut, so that every depth has a border near it."""
ESSAY_ENDINGS = (".txt", ".md")
"""Files of an essays folder that are read."""
_ROUNDS = 8
"""Corrections of one document; a tokeniser that is not at odds with sums needs one or two."""
_SENTENCE_END = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")
EssayTexts = tuple[tuple[str, ...], ...]
"""Running texts, each as its sentences."""
GoldSpan = tuple[int, int]
"""First code point of a place in a document, and the one after its last."""


class TokenMeter:
    """Counts tokens as the main job's reader does."""

    def __init__(self, tokenizer: Tokenizer) -> None:
        self._tokenizer = tokenizer
        self._counts: dict[str, int] = {}

    def count(self, text: str) -> int:
        """Tokens of a text of any length."""
        return len(self._tokenizer.encode_document(text).token_ids)

    def count_once(self, text: str) -> int:
        """Tokens of a text that comes again: a sentence of an essay, a paragraph of a corpus. Keeps the count."""
        count = self._counts.get(text)
        if count is None:
            count = self._counts[text] = self.count(text)
        return count

    def cut(self, text: str, num_tokens: int) -> str:
        """The first tokens of a text."""
        starts = self._tokenizer.encode_document(text).token_chars
        return text if num_tokens >= len(starts) else text[: int(starts[num_tokens])]


@dataclass(frozen=True, slots=True, kw_only=True)
class Materials:
    """What documents are made of; the same for all samples of a suite."""

    meter: TokenMeter
    texts: EssayTexts
    """Haystack of the tasks that hide needles in running text."""
    hotpotqa: Corpus | None = None
    squad: Corpus | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleRequest:
    """What one sample of a suite should be."""

    task: str
    rng: random.Random
    """Source of every choice; its own for each sample."""
    length: int
    """Length of the document: tokens, or paragraphs if the task counts them."""
    depth: float
    """Where a needle that stands alone is to begin, from 0 to 1."""
    number: int
    """Which sample of its cell it is, counted from 0."""
    questions_seed: str
    """Seeds the order in which a task draws questions from a file; the same for all lengths."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteSample:
    """One document, a question about it, and the right answers."""

    document: str
    question: str
    references: tuple[str, ...]
    """Right answers; what they mean together is up to the task's metric."""
    num_tokens: int
    """Length of the document, measured, tokens."""
    depth: float | None = None
    """Where the only needle that matters begins, from 0 to 1; None if several matter, or none."""
    gold: tuple[GoldSpan, ...] | None = None
    """Sentences that support the answer together, in the order of the text; none if the document does not state it,
    None if they are not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Draft:
    """A document on its way to its length."""

    text: str
    starts: tuple[int, ...] = ()
    """First character of each thing hidden in it, in the order in which they were given."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Fitted:
    """A document of the length that was asked for."""

    draft: Draft
    num_tokens: int
    """Its length, measured, tokens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Hidden:
    """One sentence to hide."""

    sentence: str
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


class Stock:
    """Units with the sums of their tokens, drawn from a source as far as needed and kept for another round."""

    def __init__(self, units: Iterator[str], *, count: Callable[[str], int]) -> None:
        self._source = units
        self._count = count
        self._units: list[str] = []
        self._sums = [0]

    def take(self, num_tokens: int) -> tuple[list[str], int]:
        """The first units with at least so many tokens together, all where the source ends; and their tokens."""
        while self._sums[-1] < num_tokens:
            unit = next(self._source, None)
            if unit is None:
                break
            self._units.append(unit)
            self._sums.append(self._sums[-1] + self._count(unit))
        num_units = min(bisect_left(self._sums, num_tokens), len(self._units))
        return self._units[:num_units], self._sums[num_units]


def fit(build: Callable[[int], Draft], request: SampleRequest, *, meter: TokenMeter) -> Fitted:
    """The document that `build` makes for a budget of tokens, the budget corrected until the measure is right.

    Raises:
        SettingsError: no budget leads to within `TOLERANCE` of the length.
    """
    budget = request.length
    best: Fitted | None = None
    for _ in range(_ROUNDS):
        draft = build(budget)
        made = Fitted(draft=draft, num_tokens=meter.count(draft.text))
        excess = made.num_tokens - request.length
        if best is None or abs(excess) < abs(best.num_tokens - request.length):
            best = made
        if abs(excess) <= TOLERANCE / 2 * request.length:
            break
        budget -= excess
    if best is None or abs(best.num_tokens - request.length) > TOLERANCE * request.length:
        raise SettingsError(
            f"--lengths: {request.task} at {request.length} tokens comes no nearer than "
            f"{best.num_tokens if best else 0} tokens; ask for a greater length"
        )
    return best


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
            sentence[start : start + MAX_HAYSTACK_SENTENCE_CHARS]
            for start in range(0, len(sentence), MAX_HAYSTACK_SENTENCE_CHARS)
        ]
    return tuple(found)


def hide_in_text(hidden: Sequence[Hidden], request: SampleRequest, materials: Materials) -> Fitted:
    """A document of running text with every sentence in it; see `hide`."""
    return hide(hidden, running_text(request.rng, materials.texts), request, materials)


def hide(hidden: Sequence[Hidden], haystack: HaystackUnits, request: SampleRequest, materials: Materials) -> Fitted:
    """A document of the length with every sentence in it; its `starts` are in the order of `hidden`.

    Raises:
        SettingsError: the length has no room for the sentences.
    """
    meter = materials.meter
    units = [haystack.form.format(item.sentence) for item in hidden]
    needed = sum(meter.count(unit) for unit in units)
    if needed > MAX_HIDDEN * request.length:
        raise SettingsError(
            f"--lengths: {request.length} tokens are too few for {request.task}, which hides {needed} tokens; "
            f"ask for {ceil(needed / MAX_HIDDEN)} or more, or leave out the task"
        )
    stock = Stock(haystack.units, count=meter.count_once if haystack.recurs else meter.count)
    build = partial(_build, stock, units, [item.depth for item in hidden], taken=needed, meter=meter)
    return fit(build, request, meter=meter)


def hidden_sample(
    fitted: Fitted, hidden: Sequence[Hidden], *, question: str, references: Sequence[str], gold: Iterable[int]
) -> SuiteSample:
    """The sample of a document with hidden sentences; its depth is known if one of them supports the answer alone.

    `gold` are the indices of the hidden sentences that support the answer.
    """
    starts = fitted.draft.starts
    spans = tuple(sorted((starts[index], starts[index] + len(hidden[index].sentence)) for index in gold))
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


def read_essays(folder: Location) -> EssayTexts:
    """The text files of a folder and of all below it, in the order of their paths, as sentences.

    Raises:
        InputError: there is no such folder, no text in it, or a file that is not UTF-8; names it.
    """
    texts = []
    for file in list_files(folder):
        if not file.name.endswith(ESSAY_ENDINGS):
            continue
        place = folder.at(file.path)
        with input_errors(place.uri):
            data = place.read_bytes()
        try:
            sentences = sentences_of(data.decode("utf-8-sig"))
        except UnicodeDecodeError as error:
            raise InputError(f"{place.uri}: invalid UTF-8 at byte {error.start + 1}; save the file as UTF-8") from error
        if sentences:
            texts.append(sentences)
    if not texts:
        raise InputError(f"--essays: {folder.uri} holds no text in {' or '.join(ESSAY_ENDINGS)} files; add some")
    return tuple(texts)
