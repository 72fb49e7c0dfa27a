"""All tasks of a suite: what each hides, asks and takes as right.

Needle tasks and variable tracking are RULER's, with its published sentences and questions. The others are our own: what
a memory does with facts that change, that are mixed up easily, or that the document does not state.
"""

import random
import string
import uuid
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from functools import cache, partial
from itertools import pairwise

from memagent_batch.domain.follow_ups.answer_types import Label, Number, ValueType
from memagent_batch.domain.scores import Metric
from memagent_batch.evaluation.corpora import QuestionSource
from memagent_batch.evaluation.haystacks import (
    HaystackUnits,
    Hidden,
    Materials,
    SampleRequest,
    SuiteSample,
    hidden_sample,
    hide,
    hide_in_text,
    lines,
    noise,
    running_text,
)
from memagent_batch.evaluation.needles import (
    ADJECTIVES,
    MAGIC_ASKED,
    NOUNS,
    NUMBER_ATTRIBUTES,
    WORDINGS,
    Needle,
    make_needle,
    make_rival,
    make_word,
)
from memagent_batch.evaluation.questions import make_hqa, make_qa

STATED = "The {attribute} of {key} is {value}."
CHANGED = "The {attribute} of {key} was changed to {value}."
CORRECTED = "Correction: from now on, the special magic number for {key} is: {value}."
LINKED = "The {attribute} of {key} is the same as that of {origin}."
ASKED = "What is the {attribute} of {key}?"
ASKED_LATEST = "What is the latest {attribute} of {key}?"
MANY_ASKED = "What are all the special magic {attribute}s for {keys} mentioned in the provided text?"
CHAIN_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above."
)
NOT_STATED = "not stated"
"""The right answer if the document does not say."""
OR_NOT = " If the text does not state it, answer: " + NOT_STATED + "."
"""Follows a question that may have no answer."""
STATUSES = ("open", "closed", "pending", "frozen", "expired")
NUM_OTHERS = 3
"""Keys beside the asked one: four in all, as in niah_multikey_1."""
NUM_CORRECTED = 2
"""Keys of `conflict` with a corrected number, the one in the question among them."""
NUM_CHANGES = 3
"""Changes of each key in `latest`."""
NUM_FACTS, NUM_CHAINS = 3, 2
"""Sentences of a chain in `chain_...`, the last one with the value; and chains of a document, the asked one first."""
NUM_HOPS = 4
"""Assignments from a variable to the next one in `vt`; the chain has one variable more."""
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


class Order(StrEnum):
    """The order in which facts that lead to each other stand in the document."""

    FORWARD = "forward"
    """Each after the one that leads to it."""
    REVERSED = "reversed"
    """Each before the one that leads to it."""
    ANY = "any"
    """At random."""


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

    @property
    def has_one_number(self) -> bool:
        """Whether the right answer is one number."""
        return self.value is Wordform.NUMBER and self.num_values == self.num_asked == 1


FORMS = {
    "niah_single_1": NeedleForm(haystack=HaystackKind.NOISE),
    "niah_single_2": NeedleForm(),
    "niah_single_3": NeedleForm(value=Wordform.UUID),
    "niah_multikey_1": NeedleForm(num_keys=4),
    "niah_multikey_2": NeedleForm(haystack=HaystackKind.NEEDLES),
    "niah_multikey_3": NeedleForm(haystack=HaystackKind.NEEDLES, key=Wordform.UUID, value=Wordform.UUID),
    "niah_multivalue": NeedleForm(num_values=4),
    "niah_multiquery": NeedleForm(num_keys=4, num_asked=4),
}
"""RULER's eight needle tasks (scripts/synthetic.yaml)."""


def make_niah(request: SampleRequest, materials: Materials, *, form: NeedleForm) -> SuiteSample:
    """A sample of one of RULER's needle tasks; the asked keys come first among the hidden ones."""
    rng, keys = request.rng, _keys(request.rng, form)
    names = [next(keys) for _ in range(form.num_keys)]
    values = [make_value(rng, form.value) for _ in range(form.num_keys * form.num_values)]
    sentences = [
        state(name, values[index * form.num_values + each], form.value)
        for index, name in enumerate(names)
        for each in range(form.num_values)
    ]
    num_references = form.num_asked * form.num_values
    alone = num_references == 1
    depths = [request.depth if alone and not index else rng.random() for index in range(len(sentences))]
    hidden = [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)]
    fitted = hide(hidden, _haystack(request, materials, form=form, keys=keys), request, materials)
    question = ask(names[: form.num_asked], form.value, alone=alone)
    return hidden_sample(
        fitted, hidden, question=question, references=values[:num_references], gold=range(num_references)
    )


def make_near(request: SampleRequest, materials: Materials) -> SuiteSample:
    """As niah_multikey_1, but every other key shares a word with the asked one, or is it, with another attribute."""
    rng = request.rng
    needle, rivals = make_rivals(rng, num=NUM_OTHERS)
    hidden = [
        Hidden(sentence=needle.sentence, depth=request.depth),
        *(Hidden(sentence=rival.sentence, depth=rng.random()) for rival in rivals),
    ]
    question = ask([needle.key], Wordform.NUMBER, alone=True)
    return _hidden_sample(request, materials, hidden, question=question, answer=needle.answer, gold=[0])


def make_chain(request: SampleRequest, materials: Materials) -> SuiteSample:
    """RULER's variable tracking: a chain of assignments in noise, each after the one that it follows from."""
    rng = request.rng
    names: dict[str, None] = {}
    while len(names) < NUM_HOPS + 1:
        names["".join(rng.choices(string.ascii_uppercase, k=5))] = None
    value = str(rng.randrange(10_000, 99_999))
    origins = [value, *(f"VAR {name}" for name in names)]
    sentences = [f"VAR {name} = {origin}" for name, origin in zip(names, origins, strict=False)]
    depths = sorted(rng.random() for _ in sentences)
    hidden = [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)]
    fitted = hide(hidden, noise(), request, materials)
    question = CHAIN_ASKED.format(value=value)
    return hidden_sample(fitted, hidden, question=question, references=list(names), gold=range(len(hidden)))


def make_linked(request: SampleRequest, materials: Materials, *, order: Order) -> SuiteSample:
    """Two chains of facts that lead to each other, each fact in another part of the document.

    The question names the first key alone, and word search with it finds the first sentence alone. The value stands
    with the last key, among sentences of the same form.
    """
    rng = request.rng
    depths = [(part + rng.random()) / NUM_FACTS for _ in range(NUM_CHAINS) for part in _parts(order, rng)]
    attribute = rng.choice(NUMBER_ATTRIBUTES)
    keys = different_keys(rng, NUM_FACTS * NUM_CHAINS)
    values = [make_value(rng, Wordform.NUMBER) for _ in range(NUM_CHAINS)]
    sentences = []
    for number, value in enumerate(values):
        chain = keys[number * NUM_FACTS : (number + 1) * NUM_FACTS]
        sentences += [LINKED.format(attribute=attribute, key=key, origin=origin) for key, origin in pairwise(chain)]
        sentences.append(STATED.format(attribute=attribute, key=chain[-1], value=value))
    hidden = [Hidden(sentence=sentence, depth=depth) for sentence, depth in zip(sentences, depths, strict=True)]
    question = ASKED.format(attribute=attribute, key=keys[0])
    return _hidden_sample(request, materials, hidden, question=question, answer=values[0], gold=range(NUM_FACTS))


def _parts(order: Order, rng: random.Random) -> list[int]:
    """The parts of the document in which the facts of a chain stand."""
    parts = list(range(NUM_FACTS))
    match order:
        case Order.FORWARD:
            return parts
        case Order.REVERSED:
            return parts[::-1]
        case Order.ANY:
            return rng.sample(parts, NUM_FACTS)


def make_latest(request: SampleRequest, materials: Materials) -> SuiteSample:
    """A value is stated and changed several times, and so is that of another key; the last change is right."""
    rng = request.rng
    attribute = rng.choice(NUMBER_ATTRIBUTES)
    keys = different_keys(rng, 2)
    values = [[make_value(rng, Wordform.NUMBER) for _ in range(NUM_CHANGES + 1)] for _ in keys]
    hidden = [
        Hidden(sentence=(CHANGED if place else STATED).format(attribute=attribute, key=key, value=value), depth=depth)
        for key, of_key in zip(keys, values, strict=True)
        for place, (value, depth) in enumerate(zip(of_key, sorted(rng.random() for _ in of_key), strict=True))
    ]
    question = ASKED_LATEST.format(attribute=attribute, key=keys[0])
    return _hidden_sample(request, materials, hidden, question=question, answer=values[0][-1], gold=[NUM_CHANGES])


def make_conflict(request: SampleRequest, materials: Materials) -> SuiteSample:
    """Two keys are stated and later corrected, two are stated once; the question is about a corrected one."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    old, new = ([make_value(rng, Wordform.NUMBER) for _ in keys] for _ in range(2))
    depths = [sorted((rng.random(), rng.random())) for _ in keys]
    hidden = [
        Hidden(sentence=WORDINGS[1].sentence.format(attribute="number", key=key, value=value), depth=depth[0])
        for key, value, depth in zip(keys, old, depths, strict=True)
    ]
    hidden += [
        Hidden(sentence=CORRECTED.format(key=key, value=value), depth=depth[1])
        for key, value, depth in list(zip(keys, new, depths, strict=True))[:NUM_CORRECTED]
    ]
    question = ask(keys[:1], Wordform.NUMBER, alone=True)
    return _hidden_sample(request, materials, hidden, question=question, answer=new[0], gold=[len(keys)])


def make_stated(request: SampleRequest, materials: Materials, *, is_stated: bool) -> SuiteSample:
    """The document states some keys, the one in the question among them or not; the question allows for both."""
    rng = request.rng
    asked, *others = different_keys(rng, NUM_OTHERS + 1)
    value = make_value(rng, Wordform.NUMBER)
    hidden = [
        Hidden(sentence=state(key, make_value(rng, Wordform.NUMBER), Wordform.NUMBER), depth=rng.random())
        for key in others
    ]
    if is_stated:
        hidden.append(Hidden(sentence=state(asked, value, Wordform.NUMBER), depth=request.depth))
    return _hidden_sample(
        request,
        materials,
        hidden,
        question=ask([asked], Wordform.NUMBER, alone=True) + OR_NOT,
        answer=value if is_stated else NOT_STATED,
        gold=[NUM_OTHERS] if is_stated else (),
    )


def make_status(request: SampleRequest, materials: Materials) -> SuiteSample:
    """Several keys have a status out of a few; the question is about one of them."""
    rng = request.rng
    keys = different_keys(rng, NUM_OTHERS + 1)
    values = [rng.choice(STATUSES) for _ in keys]
    depths = [request.depth, *(rng.random() for _ in range(NUM_OTHERS))]
    hidden = [
        Hidden(sentence=STATED.format(attribute="status", key=key, value=value), depth=depth)
        for key, value, depth in zip(keys, values, depths, strict=True)
    ]
    question = ASKED.format(attribute="status", key=keys[0])
    return _hidden_sample(request, materials, hidden, question=question, answer=values[0], gold=[0])


def make_absent_near(request: SampleRequest, materials: Materials) -> SuiteSample:
    """As `absent`, but every key that is there shares a word with the asked one, or is it, with another attribute."""
    needle, rivals = make_rivals(request.rng, num=NUM_OTHERS)
    hidden = [Hidden(sentence=rival.sentence, depth=request.rng.random()) for rival in rivals]
    question = ask([needle.key], Wordform.NUMBER, alone=True) + OR_NOT
    return _hidden_sample(request, materials, hidden, question=question, answer=NOT_STATED, gold=())


def _hidden_sample(
    request: SampleRequest,
    materials: Materials,
    hidden: list[Hidden],
    *,
    question: str,
    answer: str,
    gold: Iterable[int],
) -> SuiteSample:
    fitted = hide_in_text(hidden, request, materials)
    return hidden_sample(fitted, hidden, question=question, references=[answer], gold=gold)


def make_rivals(rng: random.Random, *, num: int) -> tuple[Needle, list[Needle]]:
    """A needle, and others whose key shares a word with its key, or is it, with another attribute."""
    needle = _magic_needle(rng)
    rivals: dict[tuple[str, str], Needle] = {}
    while len(rivals) < num:
        rival = make_rival(rng, needle)
        if set(rival.key.split("-")) & set(needle.key.split("-")):
            rivals.setdefault((rival.key, rival.attribute), rival)
    return needle, list(rivals.values())


def _magic_needle(rng: random.Random) -> Needle:
    while True:
        needle = make_needle(rng, key=make_value(rng, Wordform.WORD), wording=0)
        if needle.answer.isdigit() and len(needle.answer) == 7:
            return needle


def different_keys(rng: random.Random, num: int) -> list[str]:
    """Keys that are all different."""
    keys: dict[str, None] = {}
    while len(keys) < num:
        keys[make_value(rng, Wordform.WORD)] = None
    return list(keys)


def make_crowded_key(rng: random.Random) -> str:
    """A key as it is among thousands of others: an adjective and a noun out of so many, listed or made up."""
    adjectives, nouns = _key_words()
    return f"{rng.choice(adjectives)}-{rng.choice(nouns)}"


def make_value(rng: random.Random, form: Wordform) -> str:
    """A value or key of the form."""
    match form:
        case Wordform.NUMBER:
            return str(rng.randrange(10**6, 10**7))
        case Wordform.UUID:
            return str(uuid.UUID(int=rng.getrandbits(128), version=4))
        case Wordform.WORD:
            return f"{rng.choice(ADJECTIVES)}-{rng.choice(NOUNS)}"


def state(key: str, value: str, form: Wordform) -> str:
    """The sentence that states a value."""
    return WORDINGS[0].sentence.format(attribute=form.value, key=key, value=value)


def ask(keys: list[str], form: Wordform, *, alone: bool) -> str:
    """The question for all values of these keys."""
    if alone:
        return MAGIC_ASKED[0].format(attribute=form.value, key=keys[0])
    listed = f"{', '.join(keys[:-1])}, and {keys[-1]}" if len(keys) > 1 else keys[0]
    return MANY_ASKED.format(attribute=form.value, keys=listed)


def _keys(rng: random.Random, form: NeedleForm) -> Iterator[str]:
    """Keys that are all different. Asked ones and others are drawn alike, so that none stands out by its words."""
    taken: set[str] = set()
    crowded = form.haystack is HaystackKind.NEEDLES and form.key is Wordform.WORD
    while True:
        key = make_crowded_key(rng) if crowded else make_value(rng, form.key)
        if key not in taken:
            taken.add(key)
            yield key


@cache
def _key_words() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Adjectives and nouns of keys among other needles, the same in every suite."""
    rng = random.Random("words of keys")
    return _with_made_up(rng, ADJECTIVES, num=NUM_KEY_ADJECTIVES), _with_made_up(rng, NOUNS, num=NUM_KEY_NOUNS)


def _with_made_up(rng: random.Random, listed: tuple[str, ...], *, num: int) -> tuple[str, ...]:
    words = dict.fromkeys(listed)
    while len(words) < num:
        words[make_word(rng)] = None
    return tuple(words)


def _haystack(request: SampleRequest, materials: Materials, *, form: NeedleForm, keys: Iterator[str]) -> HaystackUnits:
    match form.haystack:
        case HaystackKind.NOISE:
            return noise()
        case HaystackKind.ESSAY:
            return running_text(request.rng, materials.texts)
        case HaystackKind.NEEDLES:
            return lines(state(key, make_value(request.rng, form.value), form.value) for key in keys)


TaskMaker = Callable[[SampleRequest, Materials], SuiteSample]
"""Makes one sample."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SuiteTask:
    """One kind of test."""

    make: TaskMaker
    metric: Metric
    source: QuestionSource | None = None
    value_type: ValueType | None = None
    """Type of its answers, which the questions of a typed suite ask for; None if they have none."""
    by_documents: bool = False
    """Whether its length is a number of paragraphs, and not of tokens."""


_one_number = partial(SuiteTask, metric=Metric.EM, value_type=Number())

TASKS: dict[str, SuiteTask] = {
    **{
        name: SuiteTask(
            make=partial(make_niah, form=form),
            metric=Metric.RULER_ALL,
            value_type=Number() if form.has_one_number else None,
        )
        for name, form in FORMS.items()
    },
    "niah_near": SuiteTask(make=make_near, metric=Metric.RULER_ALL, value_type=Number()),
    "vt": SuiteTask(make=make_chain, metric=Metric.RULER_ALL),
    **{f"chain_{order}": _one_number(make=partial(make_linked, order=order)) for order in Order},
    "latest": _one_number(make=make_latest),
    "conflict": _one_number(make=make_conflict),
    "status": SuiteTask(make=make_status, metric=Metric.EM, value_type=Label(*STATUSES)),
    "stated": _one_number(make=partial(make_stated, is_stated=True)),
    "absent": _one_number(make=partial(make_stated, is_stated=False)),
    "absent_near": _one_number(make=make_absent_near),
    "qa_squad": SuiteTask(
        make=partial(make_qa, source=QuestionSource.SQUAD), metric=Metric.RULER_ANY, source=QuestionSource.SQUAD
    ),
    "qa_hotpot": SuiteTask(
        make=partial(make_qa, source=QuestionSource.HOTPOTQA), metric=Metric.RULER_ANY, source=QuestionSource.HOTPOTQA
    ),
    "ruler_hqa": SuiteTask(make=make_hqa, metric=Metric.SUB_EM, source=QuestionSource.HOTPOTQA, by_documents=True),
}
"""Every task, in the order in which a suite holds them."""
