"""Whole documents about one contract, report or meeting, made by program: clauses with values of the same sorts."""

import re
import zlib
from collections import ChainMap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType
from pipelines.recipes.reader.facts import NAMES, Fact, FactMaker, Kind, Mention, Value
from pipelines.recipes.reader.texts import Story, cut

PAPERS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text())
APART_OF = 9
"""One clause in so many is measured alone, beside the types that are apart."""
CLAUSE_CHARS, MIN_CLAUSES = 150, 12
AMENDED, NUM_AMENDED = 0.35, (1, 3)
"""Share of documents whose end changes some clauses, and how many."""
SHEET, MARGIN, UNNAMED, FILLER, NOUN, NAMED = 0.05, 0.3, 0.15, 0.6, 0.12, 0.12
"""Shares of documents that list values, have a margin, or name no party; of sentences that nobody asks about; of
questions that ask for the noun, or name the document."""
BESIDE_CHARS = 1_000
"""Room from which on real text or a document of another family stands beside a document."""
LEGAL = re.compile(r"licen[cs]e|agreement|copyright|warrant", re.IGNORECASE)
"""Real text that may answer a question about a contract."""
SPEC = re.compile(r"(?P<sort>.+?)(?: (?P<low>[\d.]+)-(?P<high>[\d.]+))?")
TIMES = {"minutes", "hours", "days", "working days", "weeks", "months", "years"}
ROUND = (1, 2, 3, 4, 5, 6, 7, 8, 10, 12, 14, 15, 18, 20, 21, 24, 25, 28, 30, 35, 36, 40, 42, 45, 48, 50, 60, 72, 75, 90)


@dataclass(slots=True, kw_only=True)
class Clause:
    """A clause of a document, and what states it; nothing if it is left out."""

    kind: Kind
    paper: Mapping[str, Any]
    mentions: tuple[Mention, ...] = ()
    place: str = ""

    @property
    def is_apart(self) -> bool:
        """Whether it is measured, and never trained on."""
        return self.paper.get("apart", False) or zlib.crc32(self.kind.noun.encode()) % APART_OF == 0


class Papers:
    """Draws documents of one half of the types and clauses.

    Args:
        texts: real text of the same half, which stands beside some.
    """

    def __init__(self, maker: FactMaker, texts: Sequence[str]) -> None:
        self._maker, self._texts = maker, [text for text in texts if not LEGAL.search(text)]
        self._types = [paper for paper in PAPERS["types"] if maker.apart or not paper.get("apart")]

    def story(self, *, num_chars: int, num_asked: int, num_absent: int) -> Story:
        """A document of about so many characters, with something else beside it if there is room."""
        rng, paper = self._maker.rng, self._maker.rng.choice(self._types)
        parts, room = [paper], num_chars - CLAUSE_CHARS * sum(map(len, paper["sections"].values()))
        if room > BESIDE_CHARS:
            others = [each for each in self._types if each["family"] != paper["family"]]
            parts.append(rng.choice([None, rng.choice(others)]) if self._texts else rng.choice(others))
        draft = Draft(self._maker)
        for part in rng.sample(parts, len(parts)):
            if part is None:
                draft.add(cut(self._texts, room, rng=rng) + "\n\n")
            else:
                draft.write(part, num_clauses=num_chars // CLAUSE_CHARS, num_left_out=num_absent + 1)
        draft.wrap(rng.randint(64, 110) if rng.random() < MARGIN else len(draft.text))
        asked = [clause for clause in draft.clauses if clause.is_apart or not self._maker.apart]
        chosen = []
        for is_stated, number in ((True, num_asked), (False, num_absent)):
            there = [clause for clause in asked if bool(clause.mentions) is is_stated]
            chosen += rng.sample(there, min(number, len(there)))
        return Story(text=draft.text, facts=tuple(self._fact(each, draft, named=len(parts) > 1) for each in chosen))

    def _fact(self, clause: Clause, draft: "Draft", *, named: bool) -> Fact:
        rng, kind, called = self._maker.rng, clause.kind, clause.paper["called"]
        question = rng.choice(kind.asks)
        if kind.value != "bool" and rng.random() < NOUN:
            question = rng.choice(PAPERS["asks of names" if _family(kind) == "name" else "asks"]).format(noun=kind.noun)
        if named or rng.random() < NAMED:
            small = question[0].lower() + question[1:]
            named_asks = rng.choice(PAPERS["named asks"])
            question = named_asks.format(question=question.rstrip("?."), small=small, called=called)
        others = [other for other in draft.clauses if other.kind is not kind and _family(other.kind) == _family(kind)]
        return Fact(
            kind=kind,
            who=f"the {called}",
            mentions=clause.mentions,
            question=question.format_map(draft.slots),
            value_type=_value_type(kind, clause.mentions[-1].value if clause.mentions else draft.value(kind)),
            rivals=tuple(mention for other in others for mention in other.mentions),
        )


class Slots(dict[str, str]):
    """What stands in the braces of sentences: names, or a new value of a sort."""

    def __init__(self, draft: "Draft") -> None:
        self._draft = draft

    def __missing__(self, sort: str) -> str:
        return self._draft.value(make_kind({"noun": sort, "value": sort})).text


class Draft:
    """A document that is being written: its text, its clauses, and how it writes values."""

    def __init__(self, maker: FactMaker) -> None:
        rng = maker.rng
        self.text, self.clauses, self.slots = "", list[Clause](), Slots(self)
        self._maker, self._rng, self._seen, self._roles = maker, rng, set[str](), dict[str, str]()
        self._currency, self._year = rng.choice([*NAMES["currencies"]]), rng.randint(2012, 2032)
        self._forms = {sort: rng.choice(NAMES["values"][sort]) for sort in ("money", "date", "percent")}
        self._forms["count"], self._forms["time"] = (
            rng.choices(PAPERS["counts"], [6, 2, 1])[0],
            rng.choice(PAPERS["times"]),
        )

    def add(self, text: str) -> int:
        """Adds text; gives where it starts."""
        self.text += text
        return len(self.text) - len(text)

    def write(self, paper: Mapping[str, Any], *, num_clauses: int, num_left_out: int) -> None:
        """Adds a document of a type with about so many of its clauses; so many at least are left out."""
        rng = self._rng
        self.slots.update({name: self._maker.entity(sort) for name, sort in paper.get("names", {}).items()})
        self.add(rng.choice([str, str.upper])(rng.choice(paper["titles"])) + "\n\n")
        self._open(paper)
        entries = {
            heading: [each if isinstance(each, str) else Clause(kind=make_kind(each), paper=paper) for each in section]
            for heading, section in paper["sections"].items()
        }
        clauses = [each for section in entries.values() for each in section if isinstance(each, Clause)]
        clauses = [clause for clause in clauses if self._maker.apart or not clause.is_apart]
        kept = rng.sample(clauses, min(len(clauses) - num_left_out, max(MIN_CLAUSES, num_clauses)))
        self.clauses += clauses
        self._lay_out(
            {
                heading: [
                    each for each in section if (each in kept if isinstance(each, Clause) else rng.random() < FILLER)
                ]
                for heading, section in entries.items()
            }
        )
        if rng.random() < AMENDED:
            self.add(rng.choice(PAPERS["changes"]) + "\n")
            changed = [clause for clause in kept if clause.kind.value != "bool"]
            for clause in rng.sample(changed, rng.randint(*NUM_AMENDED)):
                self._state(clause, rng.choice(PAPERS["amendments"]))
                self.add("\n")
            self.add("\n")

    def _open(self, paper: Mapping[str, Any]) -> None:
        """Names the parties; now and then nobody does."""
        rng, opening = self._rng, self._rng.choice(PAPERS["openings"])
        has_capitals = rng.random() < 0.5
        self._roles, parties = {}, []
        for role, (sort, *others) in paper.get("parties", {}).items():
            name = rng.choice([role, role, *others])
            self._roles[role] = name.title() if has_capitals else name
            asks = [ask.format(role=role) for ask in PAPERS["party asks"]]
            said = opening["party"].format(role=f"the {role}", Role=role.capitalize(), value="{value}")
            kind = make_kind({"noun": role, "value": sort, "asks": asks, "says": [said]})
            parties.append(Clause(kind=kind, paper=paper))
        self.clauses += [clause for clause in parties if self._maker.apart or not clause.is_apart]
        if not parties or rng.random() < UNNAMED:
            return
        before, after = opening["all"].format(called=paper["called"], parties="|").split("|")
        self.add(before)
        for number, clause in enumerate(parties):
            self.add(opening["joint"] if number else "")
            self._state(clause)
        self.add(after + "\n\n")

    def _lay_out(self, sections: Mapping[str, Sequence[Clause | str]]) -> None:
        """Writes sections with the headings and numbers of one style."""
        layout, is_sheet = self._rng.choice(PAPERS["layouts"]), self._rng.random() < SHEET
        place: dict[str, Any] = {"s": 0, "n": 0}
        for heading, section in sections.items():
            if not any(isinstance(each, Clause) for each in section):
                continue
            place |= {"s": place["s"] + 1, "heading": heading, "HEADING": heading.upper()}
            self.add(layout["heading"].format_map(place))
            for number, each in enumerate(section):
                noun = (
                    "" if isinstance(each, str) else self._said(f"{_capital(each.kind.noun)}{layout.get('noun', '')}")
                )
                place |= {"c": number + 1, "letter": chr(97 + number), "n": place["n"] + 1, "noun": noun}
                self.add(layout["before"].format_map(place))
                if isinstance(each, Clause):
                    each.place = layout["place"].format_map(place)
                    is_listed = is_sheet and each.kind.value != "bool"
                    self._state(each, f"{_capital(each.kind.noun)}: {{value}}" if is_listed else "")
                else:
                    self.add(self._said(each).format_map(self.slots))
                self.add(layout["after"])
            self.add("\n" if layout["after"].endswith("\n") else "\n\n")

    def _state(self, clause: Clause, wording: str = "") -> None:
        """Adds a sentence that gives a value, the last of the clause."""
        kind, value, last = clause.kind, self.value(clause.kind), clause.mentions[-1:]
        if not wording:
            wording = self._rng.choice(kind.denies if (kind.value, value.typed) == ("bool", "no") else kind.says)
        old = last[0].value.text if last and last[0].value else ""
        slots = {"noun": kind.noun, "place": clause.place, "old": old, "value": value.text}
        text = _capital(self._said(wording).format_map(ChainMap(slots, self.slots))).replace("..", ".")
        before, after = text.rsplit(value.text, 1) if value.text in text else (text, "")
        near = before.split()[-3:] if len(before.split()) > 2 else after.split()[:3]
        name = " ".join(text.split()[:3] if kind.value == "bool" else near)
        clause.mentions += (Mention(text=text, name=name, value=value, char_start=self.add(text)),)

    def _said(self, text: str) -> str:
        """With the parties as this document calls them."""
        for role, name in self._roles.items():
            text = re.sub(rf"\b([Tt]he) {role}\b", rf"\1 {name}", text)
        return text

    def wrap(self, width: int) -> None:
        """Puts a line's end in place of the last space before each margin; values stay in one piece."""
        stated = [mention for clause in self.clauses for mention in clause.mentions if clause.kind.value != "bool"]
        kept = {at for mention in stated for at in range(*mention.value_span)}
        signs, start, space = list(self.text), 0, 0
        for at, sign in enumerate(signs):
            space = at if sign == " " and at not in kept else space
            if sign == "\n":
                start = at
            elif at - start > width and space > start:
                signs[space], start = "\n", space
        self.text = "".join(signs)
        for clause in self.clauses:
            clause.mentions = tuple(
                replace(each, text=self.text[each.char_start : each.char_end]) for each in clause.mentions
            )

    def value(self, kind: Kind) -> Value:
        """A value of the kind that the document doesn't have yet, if that can be."""
        for _ in range(50):
            value = self._drawn(kind)
            if value.text.lower() not in self._seen or kind.value == "bool":
                break
        self._seen.add(value.text.lower())
        return value

    def _drawn(self, kind: Kind) -> Value:
        rng, form = self._rng, self._forms
        sort, low, high = SPEC.fullmatch(kind.value).groups()  # type: ignore[union-attr]
        if sort == "date":
            day = date(self._year, 1, 1) + timedelta(days=rng.randrange(700))
            return Value(text=form[sort].format(day=day), typed=day.isoformat())
        if sort == "time":
            return Value(text=form[sort].format(hour=rng.randint(1, 11), minute=rng.choice([0, 15, 30, 45])))
        if low is None:
            return self._maker.value(kind)
        number = self._number(low, high)
        if sort == "money":
            sign, word = NAMES["currencies"][self._currency]
            text = form[sort].format(unit=self._currency, number=number, sign=sign, word=word)
            return Value(text=text, typed=str(number), unit=self._currency)
        if sort == "percent":
            return Value(text=form[sort].format(number=number), typed=str(number), unit="%")
        unit = re.sub("s$", "", re.sub("ies$", "y", sort)) if number == 1 else sort
        words = PAPERS["words"].get(number)
        text = (form["count"] if words else PAPERS["counts"][0]).format(number=number, words=words, unit=unit)
        return Value(text=text, typed=str(number), unit=sort)

    def _number(self, low: str, high: str) -> float:
        """Within these ends, mostly round."""
        if "." in low:
            return round(self._rng.uniform(float(low), float(high)), 1)
        least, most = int(low), int(high)
        round_ones = [number for number in ROUND if least <= number <= most]
        if round_ones and self._rng.random() < 0.7:
            return self._rng.choice(round_ones)
        number = self._rng.randint(least, most)
        return max(least, round(number, 1 - len(str(number // 10)))) if number > 999 else number


def make_kind(entry: Mapping[str, Any]) -> Kind:
    """The kind of an entry of `papers.yaml`; a list of values is a choice."""
    value = entry["value"]
    labels = value if isinstance(value, list) else ()
    slots = {"asks": (), "says": (), **entry}
    return Kind(**{**slots, "value": "label" if labels else value, "labels": labels, "of": ()})


def _family(kind: Kind) -> str:
    """Values that may be taken for each other."""
    sort = kind.value.rsplit(" ", 1)[0] if kind.value[-1].isdigit() else kind.value
    return "time" if sort in TIMES else "name" if sort in ("person", "company") else sort


def _value_type(kind: Kind, value: Value) -> ValueType:
    if kind.value in ("bool", "date", "label"):
        return ValueType(type=AnswerType(kind.value), labels=tuple(kind.labels))
    return ValueType(type=AnswerType.NUMBER, unit=value.unit) if value.unit else ValueType()


def _capital(text: str) -> str:
    return text[0].upper() + text[1:]
