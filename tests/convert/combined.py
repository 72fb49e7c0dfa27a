"""Files that combine features in pairs and triples, one inside another where that can be; each plants its own words.

A feature is a function, or a template: in a template every `WORD` is a new planted word, `SAME` is the last one again,
`HEAD` and `TAIL` are the halves of a new one, `NUMBER` is unique in the file, and `INNER` is another feature, if any.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from memagent_batch.data.ingest.losses import FileDocument

INLINE, BLOCK = "inline", "block"
"""What a feature gives or takes: a piece of a line, or lines of their own."""
NESTED, MAX_DEPTH = 0.6, 2
"""Share of features that take the one before inside them; files inside files."""
LETTERS = "bcdfghjklmnpqrstvwxz"
MORE_LETTERS = f"{LETTERS}äéñжщבع契ｱ"
"""For kinds of files that have all letters."""


@dataclass(frozen=True, slots=True)
class Planted:
    """A word of a file."""

    word: str
    feature: str
    """Its kind of file and feature, below those of the files around it."""
    shown: str
    """How the text shows it."""
    said: str = ""
    """What a loss says of it, if the text does not have it."""


@dataclass(slots=True)
class Draft:
    """A file while it is made."""

    random: Random
    seed: int = 0
    planted: list[Planted] = field(default_factory=list)
    place: str = ""
    depth: int = 0
    beside: dict[str, list[Any]] = field(default_factory=dict)
    """What stands beside the body, by the name of the part of the file."""
    feature: str = ""
    letters: str = LETTERS
    numbers: int = 0

    def word(self, *, said: str = "") -> str:
        """A new word; `said` if it is not read."""
        word = f"qz{''.join(self.random.choices(self.letters, k=7))}"
        return self.plant(word, shown=word, said=said)

    def plant(self, word: str, *, shown: str, said: str = "") -> str:
        """Plants a word or number that the text shows in some form."""
        self.planted.append(Planted(word, f"{self.seed} {self.place}{self.feature}", shown, said))
        return word

    def unread(self, said: str) -> None:
        """Plants something without words, which a loss must name."""
        self.plant("no words", shown="\0", said=said)

    def number(self) -> int:
        self.numbers += 1
        return self.numbers

    def add(self, part: str, content: Any) -> None:
        self.beside.setdefault(part, []).append(content)

    def joined(self, part: str) -> str:
        return "".join(self.beside.get(part, ()))

    def file_inside(self, *endings: str) -> tuple[str, bytes]:
        """A file of one of some kinds, by default of any, with features of its own: its name and content."""
        ending = self.random.choice(endings or sorted(KINDS))
        if self.depth >= MAX_DEPTH:
            return "inside.txt", self.word().encode()
        draft = Draft(self.random, self.seed, self.planted, f"{self.place}{self.feature} > ", self.depth + 1)
        return f"inside{self.number()}.{ending}", KINDS[ending].made(draft)


KINDS: dict[str, "Kind"] = {}
"""All kinds, by their endings."""
Make = Callable[[Draft, str], str]
"""Makes a feature, of a draft and what stands inside the feature."""


@dataclass(slots=True)
class Kind:
    """A kind of file, and what can stand in it."""

    ending: str
    whole: Callable[[Draft, str], bytes]
    """Makes the file of what stands in it."""
    letters: str = LETTERS
    """Letters of its words."""
    wrap: Callable[[str], str] = str
    """Makes lines of pieces of a line."""
    features: dict[str, tuple[str, str, Make]] = field(default_factory=dict)
    """What each feature gives, what it takes, and how it is made."""

    def __post_init__(self) -> None:
        KINDS[self.ending] = self

    def add(
        self, gives: str = BLOCK, takes: str = BLOCK, said: str = "", **templates: str | tuple[str, str, str]
    ) -> None:
        """Adds features of templates; a tuple has another one for a part beside the body, and its name between them."""
        for name, each in templates.items():
            here, part, there = each if isinstance(each, tuple) else (each, "", "")
            self.features[name] = (gives, takes, template(here, part, there, said=said))

    def feature(self, make: Make) -> Make:
        """Adds a feature that is made by a function of its name."""
        self.features[make.__name__] = (BLOCK, BLOCK, make)
        return make

    def made(self, draft: Draft, *, first: str = "") -> bytes:
        """A file with two or three of the features, `first` among them."""
        place, body = f"{draft.place}{self.ending}: ", list[tuple[str, str]]()
        others = [name for name in sorted(self.features) if name != first]
        names = draft.random.sample(others, min(draft.random.choice((1, 2)) + (not first), len(others)))
        for name in [*([first] if first else []), *names]:
            gives, takes, make = self.features[name]
            inner = ""
            if body and draft.random.random() < NESTED and takes in (BLOCK, body[-1][0]):
                given, inner = body.pop()
                inner = self.wrap(inner) if takes == BLOCK and given == INLINE else inner
            draft.place, draft.feature, draft.letters = place, name, self.letters
            body.append((gives, make(draft, inner)))
        return self.whole(draft, "".join(self.wrap(text) if gives == INLINE else text for gives, text in body))


def template(here: str, part: str = "", there: str = "", *, said: str = "") -> Make:
    """A feature of a template, and of another one beside the body."""

    def make(draft: Draft, inner: str) -> str:
        number, word = draft.number(), ""

        def filled(match: re.Match[str]) -> str:
            nonlocal word
            if match[0] in ("WORD", "HEAD"):
                word = draft.word(said=said)
            values = {
                "WORD": word,
                "SAME": word,
                "HEAD": word[:4],
                "TAIL": word[4:],
                "NUMBER": str(number),
                "INNER": inner,
            }
            return values[match[0]]

        text = re.sub("WORD|SAME|HEAD|TAIL|NUMBER|INNER", filled, here)
        if part:
            draft.add(part, re.sub("WORD|SAME|HEAD|TAIL|NUMBER|INNER", filled, there))
        return text

    return make


@dataclass(slots=True)
class Sums:
    """What became of planted words."""

    contained: int = 0
    read: int = 0
    accounted: int = 0
    missing: list[str] = field(default_factory=list)
    """Those that are neither read nor named by a loss."""
    only_named: list[str] = field(default_factory=list)
    """Those that should be read, and are named by a loss."""
    crashes: list[str] = field(default_factory=list)

    def add(self, planted: list[Planted], documents: list[FileDocument]) -> None:
        """Counts the words of a file."""
        parts = [part for document in documents for part in document.parts]
        text = "\n".join(f"{part.locator}\n{part.text or ''}" for part in parts)
        reasons = "\n".join(f"{part.locator} {part.reason}" for part in parts if part.reason)
        crashes = [
            part.reason for part in parts if part.reason and re.search(r"crashed|Error:|can't be counted", part.reason)
        ]
        self.crashes += [f"{planted[0].feature}: {crash}" for crash in crashes]
        self.contained += len(planted)
        for each in planted:
            where = f"{each.feature}: {each.word}"
            if each.shown in text:
                self.read += 1
            elif each.word in reasons or (each.said and each.said in reasons):
                self.accounted += 1
                self.only_named += [] if each.said else [where]
            else:
                self.missing.append(where)

    def __str__(self) -> str:
        return (
            f"words contained {self.contained:,}, read {self.read:,}, accounted for {self.accounted:,} (of which "
            f"{len(self.only_named):,} should be read), silently missing {len(self.missing):,}; "
            f"crashes {len(self.crashes)}"
        )
