"""Whole documents about one contract, report or meeting, made by program: clauses with values of the same sorts."""

import re
import zlib
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import yaml

from memagent_batch.domain.follow_ups.answer_types import AnswerType, ValueType
from pipelines.recipes.reader.facts import NAMES, Fact, FactMaker, Kind, Mention, Value
from pipelines.recipes.reader.texts import MARGIN_CHARS, MARGINS, Story, at_margin, cut

PAPERS: Mapping[str, Any] = yaml.safe_load((Path(__file__).parent / "papers.yaml").read_text())
APART_OF = 9
"""One clause in so many is measured alone, beside those of the types that are apart."""
APART_NOUNS = {
    clause["noun"]
    for paper in PAPERS["types"]
    if "apart" in paper
    for section in paper["sections"].values()
    for clause in section
    if isinstance(clause, dict)
}
"""What clauses of the types that are apart are about: in other types too, it is not trained on."""
CLAUSE_CHARS, MIN_CLAUSES = 120, 12
AMENDED, NUM_AMENDED = 0.4, (1, 4)
"""Share of documents whose end changes some clauses, and how many."""
UNNAMED, FILLERS = 0.15, 0.6
"""Shares of documents that name no party, and of sentences that nobody asks about."""
WORDY, LEADS, ENDS, JOINED = (0, 0.2, 0.4, 0.8), 0.1, 0.1, 0.12
"""Shares of clauses with a sentence that says nothing (one for each document), with words before or after them, and in
one sentence with the next."""
NOUNS, NAMED = 0.12, 0.12
"""Shares of questions that ask for the noun, and that name the document."""
BESIDE_CHARS = 1_000
"""Room from which on real text stands beside a document."""
LEGAL = re.compile(r"licen[cs]e|agreement|copyright|warrant", re.IGNORECASE)
"""Real text that may answer a question about a contract."""
SLOT, JOINT = re.compile(r"\{(.+?)\}"), "; "
"""What is filled in a sentence; and what stands in place of the full stop between two clauses."""


@dataclass(slots=True, kw_only=True)
class Clause:
    """A clause of a document, and what states it; nothing if it is left out."""

    kind: Kind
    is_apart: bool
    """Whether it is measured, and never trained on."""
    place: str = ""
    mentions: tuple[Mention, ...] = ()

    @property
    def family(self) -> str:
        """Values that may be taken for each other."""
        sort = _spec(self.kind)[0]
        return str(PAPERS["families"].get(sort, "count" if sort != self.kind.value else sort))


class Papers:
    """Draws documents of one half of the types and clauses.

    Args:
        texts: real text of the same half, which stands beside some.
    """

    def __init__(self, maker: FactMaker, texts: Sequence[str]) -> None:
        self._maker, self._texts = maker, [text for text in texts if not LEGAL.search(text)]
        self._types = [paper for paper in PAPERS["types"] if "apart" not in paper]
        self._apart_types = [paper for paper in PAPERS["types"] if "apart" in paper and maker.apart]

    def story(self, *, num_chars: int, num_asked: int, num_absent: int) -> Story:
        """A document of about so many characters, with real text beside it if there is room."""
        rng = self._maker.rng
        paper = rng.choice(self._apart_types if self._apart_types and rng.random() < 0.5 else self._types)
        room = num_chars - CLAUSE_CHARS * sum(map(len, paper["sections"].values()))
        beside = cut(self._texts, room, rng=rng) + "\n\n" if self._texts and room > BESIDE_CHARS else ""
        before, after = rng.sample([beside, ""], 2)
        draft = Draft(self._maker, paper)
        draft.add(before)
        draft.write(num_clauses=num_chars // CLAUSE_CHARS, num_left_out=num_absent + 1)
        draft.add(after)
        if rng.random() < MARGINS:
            draft.wrap(rng.randint(*MARGIN_CHARS))
        asked = [clause for clause in draft.clauses if clause.is_apart is self._maker.apart]
        stated, absent = ([each for each in asked if bool(each.mentions) is has] for has in (True, False))
        chosen = rng.sample(stated, min(num_asked, len(stated))) + rng.sample(absent, min(num_absent, len(absent)))
        is_clear = not beside or paper["family"] == "contract"
        return Story(text=draft.text, facts=tuple(self._fact(each, draft, is_clear=is_clear) for each in chosen))

    def _fact(self, clause: Clause, draft: "Draft", *, is_clear: bool) -> Fact:
        rng, kind = self._maker.rng, clause.kind
        question = rng.choice(kind.asks)
        if kind.value != "bool" and rng.random() < NOUNS:
            question = rng.choice(PAPERS["asks of names" if clause.family == "name" else "asks"]).format(noun=kind.noun)
        if not is_clear or rng.random() < NAMED:
            slots = {"question": question.rstrip("?"), "small": _small(question), "called": draft.called}
            question = rng.choice(PAPERS["named asks"]).format_map(slots)
        others = [other for other in draft.clauses if other is not clause and other.family == clause.family]
        return Fact(
            kind=kind,
            who=f"the {draft.called}",
            mentions=clause.mentions,
            question=question,
            value_type=_value_type(kind, (clause.mentions and clause.mentions[-1].value) or draft.value(kind)),
            rivals=tuple(mention for other in others for mention in other.mentions),
        )


class Draft:
    """A document that is being written: its text, its clauses, and how it writes values."""

    def __init__(self, maker: FactMaker, paper: Mapping[str, Any]) -> None:
        rng = maker.rng
        self.text, self.clauses, self.called = "", list[Clause](), str(paper["called"])
        self._maker, self._rng, self._paper, self._seen = maker, rng, paper, set[str]()
        self._names = {name: maker.entity(sort) for name, sort in paper.get("names", {}).items()}
        self._roles = {
            role: rng.choice([role, role, *others]) for role, (_, *others) in paper.get("parties", {}).items()
        }
        if rng.random() < 0.5:
            self._roles = {role: name.title() for role, name in self._roles.items()}
        self._wordy, self._currency = rng.choice(WORDY), rng.choice([*NAMES["currencies"]])
        self._year = rng.randint(2012, 2032)
        self._forms = {sort: rng.choice(NAMES["values"][sort]) for sort in ("money", "date", "percent")}
        self._forms |= {"count": rng.choices(PAPERS["counts"], [6, 2, 1])[0], "time": rng.choice(PAPERS["times"])}

    def add(self, text: str) -> int:
        """Adds text; gives where it starts."""
        self.text += text
        return len(self.text) - len(text)

    def write(self, *, num_clauses: int, num_left_out: int) -> None:
        """Adds the document with about so many of its clauses; so many at least are left out."""
        rng = self._rng
        title: str = rng.choice(self._paper["titles"])
        self.add(rng.choice([title, title.upper()]) + "\n\n")
        self._open()
        common = PAPERS["common"] if self._roles else {}
        entries = [
            (heading, each if isinstance(each, str) else self._clause(heading, **each))
            for heading, section in (self._paper["sections"] | common).items()
            for each in section
        ]
        clauses = [each for _, each in entries if isinstance(each, Clause) and (self._maker.apart or not each.is_apart)]
        kept = rng.sample(clauses, min(len(clauses) - num_left_out, max(MIN_CLAUSES, num_clauses)))
        self.clauses += clauses
        sections = defaultdict[str, list[Clause | str]](list)
        for heading, entry in entries:
            if entry in kept or (isinstance(entry, str) and rng.random() < FILLERS):
                sections[heading].append(entry)
        self._lay_out(sections)
        if rng.random() < AMENDED:
            self.add(rng.choice(PAPERS["changes"]) + "\n")
            stated = [clause for clause in kept if clause.kind.value != "bool"]
            for clause in rng.sample(stated, rng.randint(*NUM_AMENDED)):
                self._state(clause, PAPERS["amendments"])
                self.add("\n")

    def _open(self) -> None:
        """Names the parties; now and then nobody does."""
        opening, asks = self._rng.choice(PAPERS["openings"]), PAPERS["party asks"]
        for role, (sort, *_) in self._paper.get("parties", {}).items():
            said = opening["party"].format(role=f"the {role}", Role=role.capitalize(), value="{value}")
            asked = [ask.format(role=role) for ask in asks]
            self.clauses.append(self._clause("", noun=role, value=sort, asks=asked, says=[said]))
        if not self.clauses or self._rng.random() < UNNAMED:
            return
        before, after = opening["all"].split("{parties}")
        self.add(before.format(called=self.called))
        for number, clause in enumerate(self.clauses):
            self.add(opening["joint"] if number else "")
            self._state(clause, end="")
        self.add(after + "\n\n")

    def _lay_out(self, sections: Mapping[str, Sequence[Clause | str]]) -> None:
        """Writes sections with the headings and numbers of one style."""
        rng, layout = self._rng, self._rng.choice(PAPERS["layouts"])
        place: dict[str, Any] = {"s": 0, "n": 0}
        for heading, section in sections.items():
            place |= {"s": place["s"] + 1, "c": 0, "heading": heading, "HEADING": heading.upper()}
            self.add(layout["heading"].format_map(place))
            for each, after in zip(section, [*section[1:], ""], strict=True):
                noun = _capital(self._said(each.kind.noun)) if isinstance(each, Clause) else ""
                if not self.text.endswith(JOINT):
                    place |= {"c": place["c"] + 1, "letter": chr(97 + place["c"]), "n": place["n"] + 1}
                    self.add(layout["before"].format_map({**place, "noun": noun and noun + layout.get("noun", "")}))
                    self.add(rng.choice(PAPERS["leads"]) if rng.random() < LEADS else "")
                if isinstance(each, str):
                    self.add(self._sentence(each))
                else:
                    each.place = layout["place"].format_map(place)
                    is_joined = isinstance(after, Clause) and rng.random() < JOINED
                    self._state(each, end=JOINT if is_joined else ".")
                    if is_joined:
                        continue
                if rng.random() < self._wordy:
                    self.add(" " + self._sentence(rng.choice(PAPERS["tails"])))
                self.add(layout["after"])
            self.add("\n" if layout["after"].endswith("\n") else "\n\n")

    def _state(self, clause: Clause, wordings: Sequence[str] = (), *, end: str = ".") -> None:
        """Adds a sentence that gives a value, the last of the clause."""
        kind, value = clause.kind, self.value(clause.kind)
        wordings = wordings or (kind.denies if value.typed == "no" else kind.says)
        old = clause.mentions[-1].value.text if clause.mentions and clause.mentions[-1].value else ""
        slots = {"noun": self._said(f"the {kind.noun}")[4:], "place": clause.place, "old": old, "value": value.text}
        text = self._sentence(self._rng.choice(wordings).removesuffix("."), **slots)
        before, _, after = text.rpartition(value.text) if kind.value != "bool" else ("", "", text)
        near = before.split()[-3:] if len(before.split()) > 2 else after.split()[:3]
        clause.mentions += (Mention(text=text, name=" ".join(near), value=value, char_start=self.add(text)),)
        if end == "." and self._rng.random() < ENDS:
            end = self._sentence(self._rng.choice(PAPERS["ends"]))
        self.add("" if end == "." and text.endswith(".") else end)

    def _sentence(self, wording: str, **slots: str) -> str:
        """A wording with its slots filled; it begins small where it goes on."""
        goes_on = self.text.endswith((", ", JOINT))
        text = self._filled(self._said(_small(wording) if goes_on else wording), **slots)
        return text if goes_on else _capital(text)

    def _filled(self, text: str, **slots: str) -> str:
        """With names and values in place of what stands in braces; of another sort, a value that nobody asks about."""
        slots = self._names | slots
        for name in SLOT.findall(text):
            other = Kind(noun=name, value=name, of=(), says=(), asks=())
            text = text.replace(f"{{{name}}}", slots[name] if name in slots else self.value(other).text, 1)
        return text

    def _said(self, text: str) -> str:
        """With the parties as this document calls them."""
        for role, name in self._roles.items():
            text = re.sub(rf"\b([Tt]he) {role}\b", rf"\1 {name}", text)
        return text

    def wrap(self, width: int) -> None:
        """Ends lines at a margin; values stay in one piece."""
        stated = [mention for clause in self.clauses for mention in clause.mentions if clause.kind.value != "bool"]
        self.text = at_margin(self.text, stated, width=width)
        for clause in self.clauses:
            clause.mentions = tuple(each.as_in(self.text) for each in clause.mentions)

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
        sort, low, high = _spec(kind)
        if sort == "date":
            day = date(self._year, 1, 1) + timedelta(days=rng.randrange(700))
            return Value(text=form[sort].format(day=day), typed=day.isoformat())
        if sort == "time":
            return Value(text=form[sort].format(hour=rng.randint(1, 11), minute=rng.choice([0, 15, 30, 45])))
        if sort == "choice":
            return Value(text=rng.choice(kind.labels))
        if not low:
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
        """A number within these ends, mostly round."""
        if "." in low:
            return round(self._rng.uniform(float(low), float(high)), 1)
        ends = range(int(low), int(high) + 1)
        numbers = [each for each in PAPERS["round"] if each in ends] if self._rng.random() < 0.7 else []
        number: int = self._rng.choice(numbers or ends)
        return max(ends[0], round(number, 2 - len(str(number)))) if number > 999 else number

    def _clause(self, heading: str, *, noun: str, value: Any, **entry: Any) -> Clause:
        """A clause of a section of `papers.yaml`; a list of values is a choice, which questions list or not."""
        labels = [str(label) for label in value] if isinstance(value, list) else []
        value = self._rng.choice(["label", "choice"]) if labels else value
        entry["asks"] = [self._filled(ask) for ask in entry["asks"]]
        is_own = "apart" in self._paper and heading not in PAPERS["common"]
        is_apart = is_own or noun in APART_NOUNS or zlib.crc32(noun.encode()) % APART_OF == 0
        return Clause(kind=Kind(noun=noun, value=value, of=(), labels=labels, **entry), is_apart=is_apart)


def _spec(kind: Kind) -> tuple[str, str, str]:
    """The sort of the values, and their ends, which may be empty."""
    found = re.fullmatch(r"(.+?)(?: ([\d.]+)-([\d.]+))?", kind.value)
    assert found is not None
    return found[1], found[2] or "", found[3] or ""


def _value_type(kind: Kind, value: Value) -> ValueType:
    if kind.value in ("bool", "date", "label"):
        return ValueType(type=AnswerType(kind.value), labels=tuple(kind.labels))
    return ValueType(type=AnswerType.NUMBER, unit=value.unit) if value.unit else ValueType()


def _capital(text: str) -> str:
    return text[:1].upper() + text[1:]


def _small(text: str) -> str:
    return text if text.startswith(("{", "Dr ")) else text[:1].lower() + text[1:]
