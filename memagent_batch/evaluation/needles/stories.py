"""What is asked and told: a question, the statements that bear on it, and the memory that any of them leave.

A story is told in one or several statements of a document. The memory after some of them, the note of a section that
holds others, and the answer from the memory follow from which ones were met: no turn has to be written by hand.
"""

import random
import string
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.evaluation.needles.facts import (
    MAGIC_ASKED,
    MAGIC_WORDINGS,
    WAYS_TO_ASK,
    WORDINGS,
    Needle,
    Split,
    Wording,
    make_key,
    make_needle,
    make_number,
    make_rival,
    make_word,
)
from memagent_batch.evaluation.needles.words import NUMBER_ATTRIBUTES, WORD_ATTRIBUTES
from memagent_batch.evaluation.tasks.wordings import OR_NOT, STATUS_ATTRIBUTE

NOT_STATED = "not stated"
"""What the answer turn boxes when the memory does not hold the answer."""

STATUSES = ("open", "closed", "pending", "frozen", "expired")
"""What a status can be: the labels of questions for one."""

MANY_ASKED = (
    "What are all the special magic {attribute}s for {key} mentioned in the provided text?",
    "What are all the {attribute}s of {key}?",
    "List every {attribute} of {key}.",
)
"""Questions for all values of a key. The first is RULER's, for its own wordings."""

LATEST_ASKED = "What is the latest {attribute} of {key}?"
"""Asks for the value after all changes."""

CHANGES = (
    "The {attribute} of {key} was changed to {value}.",
    "Correction: the {attribute} of {key} is now {value}.",
    "Since then, the {attribute} of {key} has been {value}.",
)
"""Statements that replace a value."""

MAGIC_CHANGE = "Correction: from now on, the special magic {attribute} for {key} is: {value}."
"""The same for RULER's wordings."""

LINK = "The {attribute} of {key} is the same as that of {origin}."
"""A statement that leads to another key."""

TRUE_ASKED = "Is the {attribute} of {key} {value}?"
"""A question for yes or no."""

CHAIN_ASKED = (
    "Memorize and track the chain(s) of variable assignment hidden in the text. "
    "Find all variables that are assigned the value {value} in the text above.",
    "Which variables have the value {value}?",
)
"""Questions for a chain of assignments. The first is RULER's."""

STORY_NUMBERS_SHARE = 0.78
"""Part of the facts whose value is a number. Words are harder to copy, so there are more of them than in documents."""

RIVAL_CHAIN_SHARE = 0.2
"""Part of the chains that stand beside another one."""


class StoryKind(StrEnum):
    """How statements and answer belong together."""

    SINGLE = "single"
    """One statement, one value."""
    MANY = "many"
    """Several values of one key; all are asked for."""
    LATEST = "latest"
    """A value that is changed once or more; the last one is asked for."""
    LINKED = "linked"
    """The first key leads to a second one, and so on; the value of the last one is asked for."""
    CHAIN = "chain"
    """Assignments of variables; all that have a value are asked for."""
    TRUE = "true"
    """One statement; whether its value is the one in the question."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A question and its statements."""

    kind: StoryKind
    """How they belong together."""
    question: str
    """The question."""
    statements: tuple[str, ...]
    """The sentences, in the order of the document; of `LINKED`, in the order of the links."""
    topic: str
    """What a memory begins with; empty for `CHAIN`."""
    pieces: tuple[str, ...]
    """What the memory keeps of each statement: what follows the topic, or its key."""
    keys: tuple[str, ...]
    """Key of each statement."""
    values: tuple[str, ...]
    """What each statement adds to the answer; empty where it adds nothing."""
    rivals: tuple[str, ...] = ()
    """Sentences that are easily taken for the statements."""

    @property
    def blank(self) -> str:
        """The memory of a reader who met no statement."""
        return f"{self.topic or 'The variables'}: nothing noted yet."

    def kept(self, met: Sequence[int]) -> tuple[int, ...]:
        """The statements that a memory keeps of those that were met, in the order in which it writes them."""
        if self.kind is StoryKind.LINKED:
            reached = next((place for place in range(len(self.statements)) if place not in met), len(self.statements))
            return tuple(range(reached))
        return tuple(met) if self.kind in (StoryKind.MANY, StoryKind.CHAIN) else tuple(met[-1:])

    def memory(self, met: Sequence[int]) -> str:
        """The memory after these statements were met, in this order."""
        kept = self.kept(met)
        if not kept:
            return self.blank
        if self.kind is StoryKind.CHAIN:
            return "; ".join(self.pieces[place] for place in kept) + "."
        first, *others = kept
        return self.topic + self.pieces[first] + "".join(f", {self.keys[n]}{self.pieces[n]}" for n in others) + "."

    def note(self, met: Sequence[int], section: Sequence[int]) -> str | None:
        """What a reader of one section notes whose memory holds what was met before; None where it has no news."""
        if self.kind is StoryKind.LINKED:
            both = [*met, *section]
            return None if self.kept(both) == self.kept(met) else self.memory(both)
        is_old = set(section) <= set(met) if self.kind in (StoryKind.MANY, StoryKind.CHAIN) else bool(met)
        return None if not section or is_old else self.memory(section)

    def answer(self, met: Sequence[int]) -> str:
        """The answer from a memory of the statements that were met."""
        kept = self.kept(met)
        if self.kind is StoryKind.LINKED and len(kept) < len(self.statements):
            return NOT_STATED
        return ", ".join(self.values[place] for place in kept if self.values[place]) or NOT_STATED


def make_story(rng: random.Random, kind: StoryKind, *, split: Split) -> Story:
    """A random story of a kind."""
    if kind is StoryKind.CHAIN:
        return _chain_story(rng)
    if kind is StoryKind.LINKED:
        return _linked(rng, split=split)
    if kind is StoryKind.SINGLE:
        return _single(rng, split=split)
    return _told_often(rng, kind, split=split)


def _single(rng: random.Random, *, split: Split) -> Story:
    """A needle, or a status."""
    if rng.random() < 0.06:
        attribute, key = STATUS_ATTRIBUTE, make_key(rng, split=split)
        names = [key, *(make_key(rng, split=split) for _ in range(3))]
        form = rng.choice(WORDINGS[len(MAGIC_WORDINGS) :])
        told = [form.sentence.format(attribute=attribute, key=name, value=rng.choice(STATUSES)) for name in names]
        value = next(status for status in STATUSES if told[0].endswith(f" {status}."))
        return _facts(
            rng, StoryKind.SINGLE, [form], attribute=attribute, keys=[key], values=[value], rivals=tuple(told[1:])
        )
    needle = make_needle(rng, split=split, numbers_share=STORY_NUMBERS_SHARE)
    return _of_needle(rng, needle, rivals=tuple(make_rival(rng, needle, split=split).sentence for _ in range(4)))


def make_relatives(rng: random.Random, num: int, *, split: Split) -> tuple[Story, ...]:
    """Single facts that are easily taken for one another, each with a question of its own."""
    needles = [make_needle(rng, split=split, numbers_share=STORY_NUMBERS_SHARE)]
    while len(needles) < num:
        new = make_rival(rng, rng.choice(needles), split=split)
        if all((new.key, new.attribute) != (old.key, old.attribute) and new.answer != old.answer for old in needles):
            needles.append(new)
    return tuple(_of_needle(rng, needle) for needle in needles)


def _of_needle(rng: random.Random, needle: Needle, *, rivals: tuple[str, ...] = ()) -> Story:
    return _facts(
        rng,
        StoryKind.SINGLE,
        [WORDINGS[needle.wording]],
        attribute=needle.attribute,
        keys=[needle.key],
        values=[needle.answer],
        rivals=rivals,
        asked=needle.question,
    )


def _told_often(rng: random.Random, kind: StoryKind, *, split: Split) -> Story:
    """Several values of one key, a value with its changes, or one that is compared."""
    needle = make_needle(rng, split=split, numbers_share=STORY_NUMBERS_SHARE if kind is StoryKind.MANY else 1.0)
    is_magic = needle.wording < len(MAGIC_WORDINGS)
    first = WORDINGS[needle.wording]
    others = [make_rival(rng, needle, split=split) for _ in range(4)]
    rivals = [other.sentence for other in others]
    if kind is StoryKind.TRUE:
        forms = [first]
    elif kind is StoryKind.LATEST:
        changes = (MAGIC_CHANGE,) if is_magic else CHANGES
        change = Wording(sentence=rng.choice(changes), questions=())
        forms = [first, *[change] * rng.choice((1, 1, 2, 3))]
        keys = [other.key for other in others if other.key != needle.key]
        rivals[: len(keys)] = [
            _sentence(change, attribute=needle.attribute, key=key, value=make_number(rng), origin="") for key in keys
        ]
    else:
        forms = [first] * rng.choice((2, 3, 4, 4, 4))
    values = [needle.answer, *(_value_like(rng, needle.answer, split=split) for _ in forms[1:])]
    return _facts(
        rng,
        kind,
        forms,
        attribute=needle.attribute,
        keys=[needle.key] * len(forms),
        values=values,
        rivals=tuple(rng.sample(rivals, len(rivals))),
    )


def _linked(rng: random.Random, *, split: Split) -> Story:
    attribute = rng.choice(NUMBER_ATTRIBUTES if rng.random() < 0.9 else WORD_ATTRIBUTES)
    stated, link = WORDINGS[len(MAGIC_WORDINGS)], Wording(sentence=LINK, questions=())
    hops = rng.choice((1, 1, 2, 2, 3, 4))
    keys, others = ([make_key(rng, split=split) for _ in range(hops + 1)] for _ in range(2))
    value, other = (make_number(rng) for _ in range(2))
    tell = [*[link] * hops, stated]
    rivals = [
        _sentence(form, attribute=attribute, key=key, value=other, origin=origin)
        for form, key, origin in zip(tell, others, [*others[1:], ""], strict=True)
    ]
    return _facts(
        rng,
        StoryKind.LINKED,
        tell,
        attribute=attribute,
        keys=keys,
        values=[*[""] * hops, value],
        rivals=tuple(rivals),
    )


def _chain_story(rng: random.Random) -> Story:
    """Assignments in any order; those of another chain are kept too, since any of them may turn out to belong."""
    value, other = (str(rng.randrange(10_000, 99_999)) for _ in range(2))
    names = ["".join(rng.choices(string.ascii_uppercase, k=5)) for _ in range(rng.choice((2, 3, 4, 5, 5, 5)))]
    strangers = ["".join(rng.choices(string.ascii_uppercase, k=5))] * (rng.random() < RIVAL_CHAIN_SHARE)
    told = [(name, origin, name) for name, origin in zip(names, [value, *names], strict=False)]
    told += [(name, other, "") for name in strangers]
    if rng.random() < 0.6:
        rng.shuffle(told)
    pieces = tuple(f"VAR {name} = {origin if origin.isdigit() else f'VAR {origin}'}" for name, origin, _ in told)
    return Story(
        kind=StoryKind.CHAIN,
        question=CHAIN_ASKED[rng.random() < 0.3].format(value=value),
        statements=pieces,
        topic="",
        pieces=pieces,
        keys=tuple(name for name, _, _ in told),
        values=tuple(listed for _, _, listed in told),
    )


def _facts(
    rng: random.Random,
    kind: StoryKind,
    forms: Sequence[Wording],
    *,
    attribute: str,
    keys: Sequence[str],
    values: Sequence[str],
    rivals: tuple[str, ...],
    asked: str = "",
) -> Story:
    """A story of facts about keys, each in its wording."""
    is_magic = forms[0] in MAGIC_WORDINGS
    origins = [*keys[1:], ""]
    told = list(zip(forms, keys, values, origins, strict=True))
    listed = list(values)
    question = asked or _asked_wording(rng, kind, is_magic=is_magic).format(attribute=attribute, key=keys[0])
    if kind is StoryKind.TRUE:
        is_so = rng.random() < 0.5
        compared = values[0] if is_so else make_number(rng)
        question = TRUE_ASKED.format(
            attribute=("special magic " if is_magic else "") + attribute, key=keys[0], value=compared
        )
        listed = ["yes" if compared == values[0] else "no"]
    if kind in (StoryKind.SINGLE, StoryKind.LATEST) and rng.random() < 0.12:
        question += OR_NOT
    return Story(
        kind=kind,
        question=question,
        statements=tuple(
            _sentence(form, attribute=attribute, key=key, value=value, origin=origin)
            for form, key, value, origin in told
        ),
        topic=f"The special magic {attribute} for {keys[0]}" if is_magic else f"The {attribute} of {keys[0]}",
        pieces=tuple(_piece(form, attribute=attribute, value=value, origin=origin) for form, _, value, origin in told),
        keys=tuple(keys),
        values=tuple(listed),
        rivals=rivals,
    )


def _asked_wording(rng: random.Random, kind: StoryKind, *, is_magic: bool) -> str:
    if kind is StoryKind.MANY:
        return MANY_ASKED[0] if is_magic else rng.choice(MANY_ASKED[1:])
    if kind is StoryKind.LATEST and not is_magic and rng.random() < 0.6:
        return LATEST_ASKED
    return rng.choice(MAGIC_ASKED if is_magic else WAYS_TO_ASK)


def _sentence(form: Wording, *, attribute: str, key: str, value: str, origin: str) -> str:
    return form.sentence.format(attribute=attribute, key=key, value=value, origin=origin)


def _piece(form: Wording, *, attribute: str, value: str, origin: str) -> str:
    """What the sentence says behind its key, without the full stop."""
    return form.sentence.partition("{key}")[2].format(attribute=attribute, value=value, origin=origin).removesuffix(".")


def _value_like(rng: random.Random, value: str, *, split: Split) -> str:
    if value.isdigit():
        return make_number(rng)
    return make_word(rng, split=split) if "-" not in value else make_key(rng, split=split)
