"""Facts in plain English, made by program: what a document says of an entity, and what may be asked about it.

Two halves never meet: training and measuring have kinds, wordings and entities of their own.
"""

import random
import re
import zlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date
from pathlib import Path
from typing import Any

import yaml

from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType

NUM_APART_WORDINGS = 2
"""Wordings at the end of each list that are measured alone."""
APART_OF = 5
"""One entity name in so many is measured alone."""
FORMS, ABSENT = ("plain", "two sentences", "corrected", "aliased"), "absent"
"""How facts are stated, and one that is not."""
CORRECTED, TWO_SENTENCES, ALIASED = 0.12, 0.12, 0.1
"""Shares of facts that are stated twice with another value, in two sentences, or under another name."""
OTHERS, LIKE = (0.4, 0.3, 0.2, 0.1), 0.5
"""Shares of entities with no fact of another kind, one, two and three: a reader must tell kinds apart, too; and share
of those whose values look like the first one's."""
REAL_WORDS = 0.7
"""Share of the words of names that are not made up."""

NAMES: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "names.yaml").read_text())
LOWER_STARTS = {"the", *(word for sort in ("contract", "device", "project") for word in NAMES["endings"][sort])}
"""Words that a name may begin with in lower case."""
NUMBERS = {"money", "count", "percent"}
"""Values that are numbers with a unit."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fact."""

    noun: str
    value: str
    """How values are made: one of `NUMBERS`, code, an `AnswerType`, or a sort of entity."""
    of: Sequence[str]
    """Sorts of entities that have one."""
    says: Sequence[str]
    asks: Sequence[str]
    denies: Sequence[str] = ()
    """Wordings of `no`, for bool."""
    unit: Sequence[str] = ()
    labels: Sequence[str] = ()
    apart: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Value:
    """A value as documents write it, and as the follow-up question `value` does."""

    text: str
    typed: str = ""
    """A number, an ISO date, a label or several with `|` between them, yes or no; empty for text."""
    unit: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Mention:
    """A run of text that says a fact, or a part of it."""

    text: str
    name: str
    """How it names the entity."""
    value: Value | None
    """What it says; None if it only gives the entity another name."""
    aliased: bool = False
    """Whether it says nothing to a reader who does not know the other name."""
    char_start: int = -1
    """Where it stands in its document; -1 until it is put there."""

    @property
    def char_end(self) -> int:
        """The character after its last one."""
        return self.char_start + len(self.text)

    @property
    def value_span(self) -> tuple[int, int]:
        """The characters of its document that a reader must have seen to know the value."""
        if self.value is None:
            return self.char_end, self.char_end
        if self.value.typed in ("yes", "no") or self.value.text not in self.text:
            return self.char_start, self.char_end
        at = self.char_start + self.text.rindex(self.value.text)
        return at, at + len(self.value.text)

    def as_in(self, text: str) -> "Mention":
        """As its document writes it."""
        return replace(self, text=text[self.char_start : self.char_end])


@dataclass(frozen=True, slots=True, kw_only=True)
class Fact:
    """What a document says of one entity and one kind, with a question about it."""

    kind: Kind
    who: str
    mentions: tuple[Mention, ...]
    """In the order in which they stand in the document; none if it is not stated."""
    question: str
    value_type: ValueType
    rivals: tuple[Mention, ...] = field(default=(), repr=False)
    """What the document says of the same kind about others."""

    @property
    def form(self) -> str:
        """How it is stated; for a real task, what is asked."""
        if not self.mentions:
            return ABSENT
        if not self.kind.of:
            return self.kind.noun
        plain, in_two, corrected, aliased = FORMS
        if len(self.mentions) > 1:
            return aliased if self.mentions[-1].aliased else corrected
        return in_two if ". " in self.mentions[0].text else plain

    def asked_of(self, who: str) -> str:
        """The question about another entity."""
        return _capital(re.sub(re.escape(self.who), lambda _: who, self.question, count=1, flags=re.IGNORECASE))

    def rests_on(self, noted: Iterable[int]) -> list[int]:
        """Which of these mentions the answer rests on: the last value and its other name; of labels, all."""
        stated = sorted(number for number in noted if self.mentions[number].value is not None)
        if self.value_type.type is AnswerType.LABELS or not stated:
            return stated
        return [stated[-1] - 1, stated[-1]] if self.mentions[stated[-1]].aliased else stated[-1:]

    def value(self, noted: Iterable[int]) -> Value | None:
        """The value that follows from these mentions; None if it does not."""
        values = [value for number in self.rests_on(noted) if (value := self.mentions[number].value) is not None]
        if self.value_type.type is AnswerType.LABELS and values:
            names = list(dict.fromkeys(value.text for value in values))
            return Value(text=", ".join(names), typed="|".join(names))
        return values[-1] if values else None


class FactMaker:
    """Draws facts of one half.

    Args:
        apart: whether they are of the half that is measured.
        rivals: how many others of the same kind each has, at least and at most.
        words: most words of names are drawn from these; the others are made up.
    """

    def __init__(
        self, rng: random.Random, *, apart: bool, rivals: tuple[int, int] = (0, 4), words: Sequence[str] = ()
    ) -> None:
        folder = Path(__file__).parent
        kinds = [Kind(**each) for each in yaml.safe_load((folder / "kinds.yaml").read_text())]
        wordings: dict[str, list[str]] = yaml.safe_load((folder / "wordings.yaml").read_text())
        self.rng, self.apart, self._rivals, self._words = rng, apart, rivals, words
        self.kinds = [kind for kind in kinds if kind.apart == apart]
        self._wordings = {name: self.half(texts) for name, texts in wordings.items()}

    def half(self, wordings: Sequence[str]) -> Sequence[str]:
        """Those of a list that are of this half."""
        return wordings[-NUM_APART_WORDINGS:] if self.apart else wordings[:-NUM_APART_WORDINGS]

    def facts(self, num_facts: int) -> list[Fact]:
        """Facts of a few kinds, so that most have rivals; many entities have several."""
        facts: list[Fact] = []
        while len(facts) < num_facts:
            kind = self.rng.choice(self.kinds)
            sort = self.rng.choice(kind.of)
            entities = [self.entity(sort) for _ in range(1 + self.rng.randint(*self._rivals))]
            facts += [self.fact(kind, who) for who in entities]
            facts += [self.fact(other, who) for who in entities for other in self._others(kind, sort)]
        return facts[:num_facts]

    def _others(self, kind: Kind, sort: str) -> Sequence[Kind]:
        """Other kinds of facts about an entity of this sort."""
        kinds = [each for each in self.kinds if sort in each.of and each is not kind]
        alike = [each for each in kinds if each.value == kind.value]
        kinds = alike if self.rng.random() < LIKE else kinds
        return self.rng.sample(kinds, min(len(kinds), self.rng.choices(range(len(OTHERS)), OTHERS)[0]))

    def fact(self, kind: Kind, who: str) -> Fact:
        """One fact, stated in one of several ways."""
        value, draw = self.value(kind), self.rng.random()
        slots = {"noun": kind.noun, "who": who}
        if kind.value == "bool":
            mentions = [self._bool_mention(kind, who, value)]
        elif draw < TWO_SENTENCES:
            mentions = [self._mention(self._pick(self._wordings["two_sentences"]), value, **slots)]
        elif draw < TWO_SENTENCES + ALIASED:
            alias = self._alias(who)
            named = _capital(self._pick(self._wordings["aliases"]).format(alias=alias, **slots))
            said = self._mention(self._one_of(kind.says, self._wordings["says"]), value, **{**slots, "who": alias})
            mentions = [Mention(text=named, name=who, value=None), replace(said, aliased=True)]
        else:
            mentions = [self._mention(self._one_of(kind.says, self._wordings["says"]), value, **slots)]
            other = self.value(kind)
            if draw > 1 - CORRECTED and other.text != value.text and other.unit == value.unit:
                mentions.append(self._mention(self._pick(self._wordings["corrections"]), other, **slots))
        return self.asked(kind, who, value, mentions)

    def absent(self, facts: Sequence[Fact]) -> Fact:
        """A question of the same kinds that the facts don't answer: about a newcomer, or one of the entities."""
        kind = self.rng.choice(facts).kind
        asked = {(fact.kind.noun, fact.who) for fact in facts}
        names = [fact.who for fact in facts if set(fact.kind.of) & set(kind.of) and (kind.noun, fact.who) not in asked]
        who = self.rng.choice(names) if names and self.rng.random() < 0.6 else self.entity(self.rng.choice(kind.of))
        return self.asked(kind, who, self.value(kind))

    def asked(self, kind: Kind, who: str, value: Value, mentions: Sequence[Mention] = ()) -> Fact:
        """What these mentions say, with a question about it; `value` is one of its type."""
        asked = self._one_of(kind.asks, kind.asks if kind.value == "bool" else self._wordings["asks"])
        value_type = AnswerType.NUMBER if kind.value in NUMBERS else AnswerType.TEXT
        if kind.value in set(AnswerType):
            value_type = AnswerType(kind.value)
        return Fact(
            kind=kind,
            who=who,
            mentions=tuple(mentions),
            question=_capital(asked.format(noun=kind.noun, who=who)),
            value_type=ValueType(type=value_type, unit=value.unit, labels=tuple(kind.labels)),
        )

    def entity(self, sort: str) -> str:
        """A name that the other half never has."""
        while True:
            core = self._word().capitalize()
            if (zlib.crc32(core.encode()) % APART_OF == 0) == self.apart:
                return self._named(core, sort)

    def value(self, kind: Kind) -> Value:
        """A value of the kind."""
        rng = self.rng
        match kind.value:
            case "money":
                amounts = [rng.randint(2, 99), rng.randint(100, 9999), rng.randint(10, 999) * 1000]
                amount = rng.choice([*amounts, rng.randint(100, 99999) / 100])
                unit = rng.choice(list(NAMES["currencies"]))
                sign, word = NAMES["currencies"][unit]
                return self._value("money", typed=str(amount), unit=unit, number=amount, sign=sign, word=word)
            case "date":
                day = date(rng.randint(1950, 2035), rng.randint(1, 12), rng.randint(1, 28))
                return self._value("date", typed=day.isoformat(), day=day)
            case "count":
                number = rng.choice([rng.randint(2, 99), rng.randint(100, 9999), rng.randint(11, 99) / 10])
                return self._value("count", typed=str(number), unit=rng.choice(kind.unit), number=number)
            case "percent":
                number = rng.choice([rng.randint(1, 99), rng.randint(101, 999) / 10, rng.randint(11, 99) / 10])
                return self._value("percent", typed=str(number), unit="%", number=number)
            case "code":
                return Value(text=self._code())
            case "label" | "bool":
                label = rng.choice(kind.labels or ["yes", "no"])
                return Value(text=label, typed=label)
        return Value(text=self.entity(kind.value))

    def _value(self, forms: str, *, typed: str, unit: str = "", **slots: object) -> Value:
        text: str = self._pick(NAMES["values"][forms]).format(unit=unit, **slots)
        return Value(text=text, typed=typed, unit=unit)

    def _one_of(self, own: Sequence[str], generic: Sequence[str]) -> str:
        """A wording of the kind's own or a generic one, as often as each other: a question may have other words."""
        return self._pick(self.rng.choice([own, generic]))

    def _bool_mention(self, kind: Kind, who: str, value: Value) -> Mention:
        wording = self._pick(kind.says if value.typed == "yes" else kind.denies)
        return Mention(text=_capital(wording.format(who=who)), name=who, value=value)

    def _mention(self, wording: str, value: Value, **slots: str) -> Mention:
        text = _capital(wording.format(value=value.text, **slots)).replace("..", ".")
        return Mention(text=text, name=slots["who"], value=value)

    def _pick(self, texts: Sequence[str]) -> str:
        return self.rng.choice(texts)

    def _alias(self, who: str) -> str:
        initials = "".join(word[0] for word in who.replace("-", " ").split()).upper()
        return self._pick(
            [f"{initials}{self.rng.randint(1, 99)}", self._word().capitalize(), f"No. {self.rng.randint(2, 40)}"]
        )

    def _word(self) -> str:
        if self._words and self.rng.random() < REAL_WORDS:
            return self._pick(self._words)
        syllables = self.rng.choices([1, 2, 3], [2, 5, 2])[0]
        sounds = NAMES if self.rng.random() < 0.5 else NAMES["plain"]
        parts = ["".join(self._pick(sounds[part]) for part in ("onsets", "vowels", "codas")) for _ in range(syllables)]
        return "".join(parts)[:12]

    def _code(self) -> str:
        letters = "".join(self.rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=self.rng.randint(1, 3)))
        numbers = [self.rng.randint(10, most) for most in (99999, 99, 99)]
        code: str = self._pick(NAMES["values"]["code"]).format(
            *numbers, letters=letters, year=self.rng.randint(1990, 2029)
        )
        return code

    def _named(self, core: str, sort: str) -> str:
        slots = {"core": core, "lower": core.lower(), "word": self._word().capitalize(), "code": self._code()}
        ending, number = self._pick(NAMES["endings"].get(sort, [""])), self.rng.randint(1, 99)
        name: str = self._pick(NAMES["names"].get(sort, ["{core} {ending}"])).format(
            ending=ending, number=number, **slots
        )
        return name


def _capital(sentence: str) -> str:
    """The sentence with a capital, unless it begins with a name that has none."""
    return sentence[0].upper() + sentence[1:] if sentence.split(" ", 1)[0] in LOWER_STARTS else sentence
