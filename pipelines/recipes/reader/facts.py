"""Facts in plain English, made by program: what a document says of an entity, and what may be asked about it.

Two halves never meet: training and measuring have kinds, wordings and entities of their own.
"""

import random
import zlib
from calendar import month_name
from collections.abc import Mapping, Sequence
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
CORRECTED, TWO_SENTENCES, ALIASED = 0.12, 0.12, 0.1
"""Shares of facts that are stated twice with another value, in two sentences, or under another name."""

MONTHS = tuple(month_name)[1:]
CURRENCIES = {"EUR": "€", "USD": "$", "GBP": "£", "CHF": "CHF ", "NOK": "NOK "}
CURRENCY_WORDS = {"EUR": "euros", "USD": "dollars", "GBP": "pounds", "CHF": "francs", "NOK": "kroner"}
NAMES: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "names.yaml").read_text())
ENDINGS: Mapping[str, Sequence[str]] = NAMES["endings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of fact."""

    noun: str
    value: str
    """How values are made: money, date, person, place, company, count, percent, code, label or bool."""
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
    """A number, an ISO date, a label, yes or no; empty for text."""
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


class FactMaker:
    """Draws facts of one half.

    Args:
        apart: whether they are of the half that is measured.
        rivals: how many others of the same kind each has, at least and at most.
    """

    def __init__(self, rng: random.Random, *, apart: bool, rivals: tuple[int, int] = (0, 4)) -> None:
        folder = Path(__file__).parent
        kinds = [Kind(**each) for each in yaml.safe_load((folder / "kinds.yaml").read_text())]
        wordings: dict[str, list[str]] = yaml.safe_load((folder / "wordings.yaml").read_text())
        self.rng, self.apart, self._rivals = rng, apart, rivals
        self.kinds = [kind for kind in kinds if kind.apart == apart]
        self._wordings = {name: self.half(texts) for name, texts in wordings.items()}

    def half(self, wordings: Sequence[str]) -> Sequence[str]:
        """Those of a list that are of this half."""
        return wordings[-NUM_APART_WORDINGS:] if self.apart else wordings[:-NUM_APART_WORDINGS]

    def facts(self, num_facts: int) -> list[Fact]:
        """Facts of a few kinds, so that most have rivals; about one in five entities has several."""
        facts: list[Fact] = []
        while len(facts) < num_facts:
            kind = self.rng.choice(self.kinds)
            sort = self.rng.choice(kind.of)
            entities = [self.entity(sort) for _ in range(1 + self.rng.randint(*self._rivals))]
            also = [each for each in self.kinds if sort in each.of and each is not kind]
            for who in entities:
                facts.append(self.fact(kind, who))
                if also and self.rng.random() < 0.3:
                    facts.append(self.fact(self.rng.choice(also), who))
        return facts[:num_facts]

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
            said = self._mention(self._pick(self._says(kind)), value, **{**slots, "who": alias})
            mentions = [Mention(text=named, name=who, value=None), replace(said, aliased=True)]
        else:
            mentions = [self._mention(self._pick(self._says(kind)), value, **slots)]
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
        question = self.question(kind, who)
        return Fact(
            kind=kind, who=who, mentions=tuple(mentions), question=question, value_type=_value_type(kind, value)
        )

    def question(self, kind: Kind, who: str) -> str:
        """A question about the kind."""
        forms = [*kind.asks, *kind.asks, *([] if kind.value == "bool" else self._wordings["asks"])]
        return _capital(self._pick(forms).format(noun=kind.noun, who=who))

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
                return self._money()
            case "date":
                return self._date()
            case "count":
                number = rng.choice([rng.randint(2, 99), rng.randint(100, 9999), rng.randint(11, 99) / 10])
                unit = rng.choice(kind.unit)
                return Value(text=f"{self._figure(number)} {unit}", typed=str(number), unit=unit)
            case "percent":
                number = rng.choice([rng.randint(1, 99), rng.randint(101, 999) / 10, rng.randint(11, 99) / 10])
                return Value(
                    text=f"{number}{rng.choice(['%', ' %', ' per cent', ' percent'])}", typed=str(number), unit="%"
                )
            case "code":
                return Value(text=self._code())
            case "label":
                label = rng.choice(kind.labels)
                return Value(text=label, typed=label)
            case "bool":
                answer = rng.choice(["yes", "no"])
                return Value(text=answer, typed=answer)
        return Value(text=self.entity(kind.value))

    def _says(self, kind: Kind) -> Sequence[str]:
        return [*kind.says, *kind.says, *self._wordings["says"]]

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
        syllables = self.rng.choices([1, 2, 3], [2, 5, 2])[0]
        parts = ["".join(self._pick(NAMES[part]) for part in ("onsets", "vowels", "codas")) for _ in range(syllables)]
        return "".join(parts)[:12]

    def _code(self) -> str:
        rng = self.rng
        letters = "".join(rng.choices("ABCDEFGHJKLMNPQRSTUVWXYZ", k=rng.randint(1, 3)))
        number = rng.randint(10, 99999)
        return rng.choice(
            [
                f"{letters}-{number}",
                f"{letters}{number}",
                f"{number}-{letters}",
                f"{number // 100}.{number % 97}.{number % 13}",
                f"{letters}/{number}/{rng.randint(1990, 2029)}",
            ]
        )

    def _named(self, core: str, sort: str) -> str:
        ending = self._pick(ENDINGS.get(sort, [""]))
        match sort:
            case "person":
                return f"{self._word().capitalize()} {core}"
            case "place":
                return core + ending
            case "contract":
                return self._pick([f"{ending} {self._code()} with {core}", f"the {core} {ending}"])
            case "ship":
                return f"{ending} {core}"
            case "device":
                return self._pick(
                    [f"{ending} {core}", f"the {core} {ending}", f"{ending} {core} {self.rng.randint(1, 99)}"]
                )
            case "project" | "event":
                return (
                    self._pick([f"the {core} {ending}", f"{ending} {core}"])
                    if sort == "project"
                    else f"the {core} {ending}"
                )
            case "software":
                return ending.format(core.lower())
        return f"{core} {ending}"

    def _figure(self, number: float) -> str:
        return self._pick([f"{number:,}", str(number)])

    def _money(self) -> Value:
        rng = self.rng
        amount = rng.choice(
            [rng.randint(2, 99), rng.randint(100, 9999), rng.randint(10, 999) * 1000, rng.randint(100, 99999) / 100]
        )
        currency = rng.choice(list(CURRENCIES))
        figure = self._figure(amount)
        text = rng.choice(
            [
                f"{figure} {CURRENCY_WORDS[currency]}",
                f"{currency} {figure}",
                f"{CURRENCIES[currency]}{figure}",
                f"{figure} {currency}",
            ]
        )
        return Value(text=text, typed=str(amount), unit=currency)

    def _date(self) -> Value:
        rng = self.rng
        day = date(rng.randint(1950, 2035), rng.randint(1, 12), rng.randint(1, 28))
        month = MONTHS[day.month - 1]
        forms = [
            f"{day.day} {month} {day.year}",
            f"{month} {day.day}, {day.year}",
            day.isoformat(),
            f"{day.day} {month[:3]} {day.year}",
        ]
        return Value(text=rng.choice(forms), typed=day.isoformat())


def _capital(sentence: str) -> str:
    """The sentence with a capital, unless it begins with a name that has none."""
    first = sentence.split(" ", 1)[0]
    starts_plainly = first in ("the", *ENDINGS["contract"], *ENDINGS["device"], *ENDINGS["project"])
    return sentence[0].upper() + sentence[1:] if starts_plainly else sentence


def _value_type(kind: Kind, value: Value) -> ValueType:
    match kind.value:
        case "money" | "count" | "percent":
            return ValueType(type=AnswerType.NUMBER, unit=value.unit)
        case "date":
            return ValueType(type=AnswerType.DATE)
        case "label":
            return ValueType(type=AnswerType.LABEL, labels=tuple(kind.labels))
        case "bool":
            return ValueType(type=AnswerType.BOOL)
    return ValueType()
