"""All tasks of a suite: what each hides, asks and takes as right.

Needle tasks and variable tracking are RULER's, with its published sentences and questions. The others are our own: what
a memory does with facts that change, or that the document does not state.
"""

import random
import string
import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from importlib.resources import files
from itertools import islice, repeat

import yaml

from memagent_batch.apps.evaluation.haystacks import Facts, SampleRequest, SuiteSample, TokenMeter, hide
from memagent_batch.loop.follow_ups.answer_types import NOT_STATED_ENTRY, Number, ValueType
from memagent_batch.loop.scores import Metric

NOISE = "The grass is green. The sky is blue. The sun is yellow. Here we go. There and back again."
"""RULER's noise paragraph."""
MAGIC_STATED = "One of the special magic {attribute}s for {key} is: {value}."
MAGIC_STATED_ONCE = "The special magic number for {key} is: {value}."
CORRECTED = "Correction: from now on, the special magic number for {key} is: {value}."
MAGIC_ASKED = "What is the special magic {attribute} for {key} mentioned in the provided text?"
MANY_ASKED = "What are all the special magic {attribute}s for {keys} mentioned in the provided text?"
CHAIN_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above."
)
OR_NOT = f" If the text does not state it, answer: {NOT_STATED_ENTRY}."
"""Follows a question that may have no answer."""
NUM_KEYS = 4
"""Keys of a document, the asked one among them, as in niah_multikey_1."""
NUM_CORRECTED = 2
"""Keys of `conflict` with a corrected number, the one in the question among them."""
NUM_HOPS = 4
"""Assignments from a variable to the next one in `vt`; the chain has one variable more."""
_WORD_LISTS: dict[str, list[str]] = yaml.safe_load(
    (files("memagent_batch.apps.evaluation") / "words.yaml").read_text(encoding="utf-8")
)
ADJECTIVES, NOUNS, SYLLABLES = (tuple(_WORD_LISTS[name]) for name in ("adjectives", "nouns", "syllables"))
LAST_SYLLABLES = SYLLABLES[::5]
"""Syllables before the end of a made-up word; the training had the others there, so that no word is in both."""
WORD_ENDS = ("b", "k", "nd", "rd", "t", "z")
NUM_KEY_ADJECTIVES, NUM_KEY_NOUNS = 912, 6782
"""Words that keys among other needles are made of: as many as RULER has. The lists give 42 and 40 of them, the others
are made up."""


class HaystackKind(StrEnum):
    """What the needles of a task are hidden in."""

    NOISE = "noise"
    ESSAY = "essay"
    """Running text."""
    NEEDLES = "needles"
    """Other needles."""


class Wordform(StrEnum):
    """What a key or a value looks like."""

    WORD = "word"
    """An adjective and a noun."""
    NUMBER = "number"
    """A number of 7 digits."""
    UUID = "uuid"


@dataclass(frozen=True, slots=True, kw_only=True)
class NeedleForm:
    """One of RULER's needle tasks."""

    haystack: HaystackKind = HaystackKind.ESSAY
    key: Wordform = Wordform.WORD
    value: Wordform = Wordform.NUMBER
    num_keys: int = 1
    """Keys that are hidden on purpose."""
    num_values: int = 1
    """Values of each key, each in its own sentence."""
    num_asked: int = 1


FORMS = {
    "niah_single_1": NeedleForm(haystack=HaystackKind.NOISE),
    "niah_single_2": NeedleForm(),
    "niah_single_3": NeedleForm(value=Wordform.UUID),
    "niah_multikey_1": NeedleForm(num_keys=NUM_KEYS),
    "niah_multikey_2": NeedleForm(haystack=HaystackKind.NEEDLES),
    "niah_multikey_3": NeedleForm(haystack=HaystackKind.NEEDLES, key=Wordform.UUID, value=Wordform.UUID),
    "niah_multivalue": NeedleForm(num_values=4),
    "niah_multiquery": NeedleForm(num_keys=NUM_KEYS, num_asked=NUM_KEYS),
}
"""RULER's eight needle tasks (scripts/synthetic.yaml)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTask:
    """One kind of test."""

    facts: Callable[[random.Random, float], Facts]
    """What a sample hides and asks, by a source of choices and the depth of a needle that stands alone."""
    metric: Metric
    value_type: ValueType | None = None
    """Type of its answers, which the questions of a typed suite ask for; None if they have none."""

    def make(self, request: SampleRequest, meter: TokenMeter) -> SuiteSample:
        """Makes one sample.

        Raises:
            SettingsError: the length has no room for what is hidden, or can't be met.
        """
        return hide(self.facts(request.rng, request.depth), request, meter)


def needle_facts(rng: random.Random, depth: float, *, form: NeedleForm) -> Facts:
    """One of RULER's needle tasks; the asked keys come first among the hidden ones."""
    keys = different_keys(rng, form)
    names = list(islice(keys, form.num_keys))
    values = [make_value(rng, form.value) for _ in range(form.num_keys * form.num_values)]
    num_references = form.num_asked * form.num_values
    is_alone = num_references == 1
    hidden = [
        (state(names[place // form.num_values], value, form.value), depth if is_alone and not place else rng.random())
        for place, value in enumerate(values)
    ]
    haystacks = {
        HaystackKind.NOISE: repeat(NOISE),
        HaystackKind.NEEDLES: (state(key, make_value(rng, form.value), form.value) for key in keys),
    }
    return Facts(
        hidden=hidden,
        question=question_on(names[: form.num_asked], form.value, alone=is_alone),
        references=values[:num_references],
        gold=range(num_references),
        haystack=haystacks.get(form.haystack),
    )


def stated_facts(rng: random.Random, depth: float, *, is_stated: bool) -> Facts:
    """The document states some keys, the asked one among them or not; the question allows for both."""
    asked, *others = islice(different_keys(rng, NeedleForm()), NUM_KEYS)
    keys = [*others, asked] if is_stated else others
    depths = [*(rng.random() for _ in others), depth]
    values = [make_value(rng, Wordform.NUMBER) for _ in keys]
    return Facts(
        hidden=[
            (state(key, value, Wordform.NUMBER), place) for key, value, place in zip(keys, values, depths, strict=False)
        ],
        question=question_on([asked], Wordform.NUMBER, alone=True) + OR_NOT,
        references=[values[-1] if is_stated else NOT_STATED_ENTRY],
        gold=[len(others)] if is_stated else [],
    )


def variable_facts(rng: random.Random, _: float) -> Facts:
    """RULER's variable tracking: a chain of assignments in noise, each after the one that it follows from."""
    names: dict[str, None] = {}
    while len(names) < NUM_HOPS + 1:
        names["".join(rng.choices(string.ascii_uppercase, k=5))] = None
    value = str(rng.randrange(10_000, 99_999))
    origins = [value, *(f"VAR {name}" for name in names)]
    sentences = [f"VAR {name} = {origin}" for name, origin in zip(names, origins, strict=False)]
    return Facts(
        hidden=[*zip(sentences, sorted(rng.random() for _ in sentences), strict=True)],
        question=CHAIN_ASKED.format(value=value),
        references=list(names),
        gold=range(len(sentences)),
        haystack=repeat(NOISE),
    )


def corrected_facts(rng: random.Random, _: float) -> Facts:
    """Two keys are stated and later corrected, two are stated once; the question is about a corrected one."""
    keys = list(islice(different_keys(rng, NeedleForm()), NUM_KEYS))
    hidden, answers = [], []
    for place, key in enumerate(keys):
        first, later = sorted((rng.random(), rng.random()))
        stated, corrected = make_value(rng, Wordform.NUMBER), make_value(rng, Wordform.NUMBER)
        hidden.append((MAGIC_STATED_ONCE.format(key=key, value=stated), first))
        if place < NUM_CORRECTED:
            hidden.append((CORRECTED.format(key=key, value=corrected), later))
            answers.append(corrected)
    question = question_on(keys[:1], Wordform.NUMBER, alone=True)
    return Facts(hidden=hidden, question=question, references=answers[:1], gold=[1])


KeyWords = tuple[Sequence[str], Sequence[str]]
"""Adjectives and nouns."""


def make_value(rng: random.Random, form: Wordform, *, words: KeyWords = (ADJECTIVES, NOUNS)) -> str:
    """A value or key of the form."""
    match form:
        case Wordform.NUMBER:
            return str(rng.randrange(10**6, 10**7))
        case Wordform.UUID:
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
        case Wordform.WORD:
            return "-".join(map(rng.choice, words))


def state(key: str, value: str, form: Wordform) -> str:
    """The sentence that states a value."""
    return MAGIC_STATED.format(attribute=form.value, key=key, value=value)


def question_on(keys: list[str], form: Wordform, *, alone: bool) -> str:
    """The question for all values of these keys."""
    if alone:
        return MAGIC_ASKED.format(attribute=form.value, key=keys[0])
    listed = f"{', '.join(keys[:-1])}, and {keys[-1]}" if len(keys) > 1 else keys[0]
    return MANY_ASKED.format(attribute=form.value, keys=listed)


def different_keys(rng: random.Random, form: NeedleForm) -> Iterator[str]:
    """Keys that are all different. Asked ones and others are drawn alike, so that none stands out by its words."""
    seen: set[str] = set()
    words = _key_words() if form.haystack is HaystackKind.NEEDLES else (ADJECTIVES, NOUNS)
    while True:
        key = make_value(rng, form.key, words=words)
        if key not in seen:
            seen.add(key)
            yield key


@cache
def _key_words() -> KeyWords:
    """Adjectives and nouns of keys among thousands of others, listed or made up; the same in every suite."""
    rng = random.Random("words of keys")

    def with_made_up(listed: tuple[str, ...], num: int) -> tuple[str, ...]:
        words = dict.fromkeys(listed)
        while len(words) < num:
            syllables = "".join(rng.choice(SYLLABLES) for _ in range(rng.randint(1, 3)))
            words[syllables + rng.choice(LAST_SYLLABLES) + rng.choice(WORD_ENDS)] = None
        return tuple(words)

    return with_made_up(ADJECTIVES, NUM_KEY_ADJECTIVES), with_made_up(NOUNS, NUM_KEY_NOUNS)


def _needle_task(form: NeedleForm) -> SuiteTask:
    is_one_number = form.value is Wordform.NUMBER and form.num_values == form.num_asked == 1
    value_type = Number() if is_one_number else None
    return SuiteTask(facts=partial(needle_facts, form=form), metric=Metric.RULER_ALL, value_type=value_type)


TASKS: dict[str, SuiteTask] = {
    **{name: _needle_task(form) for name, form in FORMS.items()},
    "vt": SuiteTask(facts=variable_facts, metric=Metric.RULER_ALL),
    "conflict": SuiteTask(facts=corrected_facts, metric=Metric.EM, value_type=Number()),
    "stated": SuiteTask(facts=partial(stated_facts, is_stated=True), metric=Metric.EM, value_type=Number()),
    "absent": SuiteTask(facts=partial(stated_facts, is_stated=False), metric=Metric.EM, value_type=Number()),
}
"""Every task, in the order in which a suite holds them."""
