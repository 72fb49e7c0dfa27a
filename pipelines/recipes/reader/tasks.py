"""Real tasks whose truth is known: changelogs and copyright files of Debian, and texts of licences.

What is measured comes from other source files than what is trained on.
"""

import re
import zipfile
import zlib
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path

import yaml

from pipelines.recipes.reader.facts import Fact, FactMaker, Kind, Mention, Value
from pipelines.recipes.reader.texts import APART_OF, Story, cut, with_rivals

TASKS = yaml.safe_load((Path(__file__).parent / "tasks.yaml").read_text())
GAP = r"[\s*#/;%]+"
"""What stands between two words of a licence: white space, and the signs of a comment."""
TELLING = [(name, re.compile(said.replace(" ", GAP), re.IGNORECASE)) for name, said in TASKS["telling"]]
LICENCES = sorted({name for name, _ in TELLING})
WHOLE = TASKS["whole"]
"""What questions call a text as a whole."""
ENTRY = re.compile(
    r"^(?P<header>(?P<who>\S+ \(\S+\)) (?P<suite>[\w-]+); .*)\n\s*\n(?P<changes>(?:(?!\S).*\n)+?)"
    r"(?P<signed> -- (?P<person>\S.*?) <.*>  \w{3}, +(?P<date>\d+ \w{3} \d{4}) .*)$",
    re.MULTILINE,
)
"""One version in a changelog of Debian."""
CHANGE = re.compile(r"\s*(?P<change>\* (?P<text>\S.*(?:\n {4}\S.*)*))\s*")
STANZA = re.compile(
    r"^(?P<notice>Files: *(?P<who>\S+)\n"
    r"Copyright:\s*(?:\(c\) *)?(?P<years>\d{4}[\d, -]*?),? +(?P<holder>[^\W\d][^<\n]*?),?"
    r"(?: *<.*>)?(?:[.,]? *all rights reserved\.?)?)\nLicense: *(?P<licence>\S.*)$",
    re.MULTILINE | re.IGNORECASE,
)
"""Files with one holder of their copyright, in a machine-readable copyright file of Debian."""
HEAD = re.compile(r"^---\s*$", re.MULTILINE)
FIELD = re.compile(
    r"^(key|spdx_license_key|license_expression|is_license_(?:notice|text|tag|reference)): (.+?)\s*$", re.MULTILINE
)
LINE_CHARS = 200
"""A longer line is not noted whole."""
NUM_LABELS = (3, 16)
NUM_LICENCES = (0.15, 0.6, 0.15, 0.1)
"""Shares of documents with no licence, one, two and three."""
MIN_LICENCE_CHARS, MAX_LICENCE_CHARS = 400, 6000
"""What is used of a licence at least, where little room is left, and at most."""
WITH_NOTICE = 0.8
"""Share of licences below a line that says who holds the copyright, and since when."""
UNNAMED, UNNAMED_CHARS = 0.5, 300
"""Share of licences that are told by their terms alone, as many files of packages, and how long such a text must be."""
COPYRIGHT = re.compile(r"copyright\s*(\(c\)|©|\d|<|\[)", re.IGNORECASE)
SAYS_LICENCE = re.compile(r"licen[cs]|copyright|permi|GPL|BSD|\bMIT\b|Mozilla|Apache", re.IGNORECASE)


class Tasks:
    """Draws documents of one half of the files, with questions about them.

    Args:
        texts: of this half.
        licences: the wheel of `licensedcode-data`; without it there is no question about the licence of a text.
    """

    def __init__(self, maker: FactMaker, texts: Sequence[str], *, licences: Path | None) -> None:
        self.maker, self.texts, self._rng = maker, texts, maker.rng
        self._kinds = {
            noun: Kind(noun=noun, value=each["value"], of=(), says=(), asks=maker.half(each["asks"]))
            for noun, each in TASKS["kinds"].items()
        }
        self._files = {"changelog": [text for text in texts if ENTRY.search(text)]}
        self._files["copyright"] = [text for text in texts if STANZA.search(text)]
        self._licences: dict[str, list[str]] = defaultdict(list)
        self._unnamed: dict[str, list[str]] = defaultdict(list)
        for name, text in licence_texts(licences, apart=maker.apart) if licences else ():
            self._licences[name].append(text)
            if len(text) > UNNAMED_CHARS and not re.search(rf"\b{name.split('-')[0]}\b", text, re.IGNORECASE):
                self._unnamed[name].append(text)

    @property
    def names(self) -> list[str]:
        """The tasks for which there are files."""
        return [*(name for name, texts in self._files.items() if texts), *(["licence"] if self._licences else [])]

    def story(self, task: str, *, num_chars: int, num_asked: int = 3) -> Story:
        """A document of at most so many characters; the last of the questions has no answer in it if that can be."""
        if task == "licence":
            return self._licence(num_chars)
        facts: list[Fact] = []
        while not facts:
            text = self._rng.choice(self._files[task])
            at = self._rng.randrange(max(1, len(text) - num_chars))
            text = text[at : at + 4 * num_chars]
            facts = [*(self._entries(text) if task == "changelog" else self._stanzas(text))]
        asked = self._rng.choice(facts).mentions
        start = max(0, asked[0].char_start - self._rng.randrange(num_chars // 2))
        end = max(start + num_chars, asked[-1].char_end)
        inside = [
            replace(fact, mentions=tuple(replace(each, char_start=each.char_start - start) for each in fact.mentions))
            for fact in facts
            if start <= fact.mentions[0].char_start and fact.mentions[-1].char_end <= end
        ]
        absent = [replace(fact, mentions=()) for fact in facts if fact.who not in text[start:end]]
        chosen = self._rng.sample(inside, min(num_asked, len(inside)))
        chosen += self._rng.sample(absent, min(1, len(absent)))
        return Story(text=text[start:end], facts=tuple(with_rivals(fact, inside) for fact in chosen))

    def _entries(self, text: str) -> Iterator[Fact]:
        for found in ENTRY.finditer(text):
            who, day = found["who"], datetime.strptime(found["date"], "%d %b %Y").date()
            named = Mention(text=found["header"], name=who, value=None, char_start=found.start("header"))
            signed = Mention(text=found["signed"], name="", value=None, aliased=True, char_start=found.start("signed"))
            yield self._fact("distribution", who, Value(text=found["suite"]), named)
            yield self._fact("uploader", who, Value(text=found["person"]), named, signed)
            yield self._fact("upload date", who, Value(text=found["date"], typed=day.isoformat()), named, signed)
            change = CHANGE.fullmatch(found["changes"])
            if change and len(change["change"]) < LINE_CHARS:
                start = found.start("changes") + change.start("change")
                said = replace(signed, text=change["change"], char_start=start)
                yield self._fact("change", who, Value(text=" ".join(change["text"].split())), named, said)

    def _stanzas(self, text: str) -> Iterator[Fact]:
        for found in STANZA.finditer(text):
            stanza = Mention(text=found[0], name=f"Files: {found['who']}", value=None, char_start=found.start())
            notice = replace(stanza, text=found["notice"])
            yield self._fact("stated licence", found["who"], Value(text=found["licence"].strip()), stanza)
            yield self._fact("copyright holder", found["who"], Value(text=found["holder"].strip()), notice)
            yield self._fact("copyright years", found["who"], Value(text=found["years"].strip()), notice)

    def _fact(self, noun: str, who: str, value: Value, *mentions: Mention) -> Fact:
        """A fact whose last mention says the value."""
        said = [*mentions[:-1], replace(mentions[-1], value=value)]
        return self.maker.asked(self._kinds[noun], who, value, said)

    def _licence(self, num_chars: int) -> Story:
        """A licence or several, alone or inside other text; or text that names none."""
        rng = self._rng
        while SAYS_LICENCE.search(other := cut(self.texts, num_chars // 2, rng=rng)):
            pass
        num_licences = rng.choices(range(len(NUM_LICENCES)), NUM_LICENCES)[0]
        text = other[: rng.choice([0, 0, len(other) // 2])]
        rest = other[len(text) :] if text or not num_licences else ""
        notices: list[Mention] = []
        if num_licences and rng.random() < WITH_NOTICE:
            text += "\n\n"
            notices.append(self._notice(start=len(text)))
            text += notices[0].text
        told: list[list[Mention]] = []
        for left in range(num_licences, 0, -1):
            text += "\n\n"
            room = max(MIN_LICENCE_CHARS, (num_chars - len(text)) // left)
            part, mentions = self._drawn_licence(room, start=len(text))
            text += part
            told.append(mentions)
        text = f"{text}\n\n{rest}"
        facts = [*self._licence_facts(told)]
        if len(COPYRIGHT.findall(text)) == len(notices):
            facts.append(self.maker.asked(self._kinds["copyright holder"], rng.choice(WHOLE), Value(text=""), notices))
        return Story(text=text, facts=tuple(facts))

    def _notice(self, *, start: int) -> Mention:
        """A line that says who holds the copyright."""
        rng, first = self._rng, self._rng.randint(1990, 2026)
        holder = rng.choice(TASKS["holders"]).format(self.maker.entity(rng.choice(["person", "company"])))
        years = rng.choice([f"{first}", f"{first}-{rng.randint(first, 2026)}", f"{first}, {first + 1}"])
        text = rng.choice(TASKS["notices"]).format(years=years, holder=holder)
        return Mention(text=text, name="", value=Value(text=holder), char_start=start)

    def _licence_facts(self, told: Sequence[Sequence[Mention]]) -> Iterator[Fact]:
        """What is asked of these licences, each with the lines that tell it."""
        rng, who = self._rng, self._rng.choice(WHOLE)
        names = {mention.value.text for mentions in told for mention in mentions if mention.value}
        labels = sorted(names | {*rng.sample(LICENCES, rng.randint(*NUM_LABELS))})
        kinds = {name: replace(kind, labels=rng.sample(labels, len(labels))) for name, kind in self._kinds.items()}
        nothing = Value(text="")
        yield self.maker.asked(kinds["list of licences"], who, nothing, [mentions[-1] for mentions in told])
        if len(told) < 2:
            mentions = [mention for mentions in told for mention in mentions]
            yield self.maker.asked(kinds["licence"], who, nothing, mentions)
            yield self.maker.asked(self._kinds["patents"], who, nothing, [*map(granting, mentions)])

    def _drawn_licence(self, num_chars: int, *, start: int) -> tuple[str, list[Mention]]:
        """So much of the text of a licence that it is recognised, with the lines that tell it."""
        while True:
            texts = self._unnamed if self._unnamed and self._rng.random() < UNNAMED else self._licences
            weights = [len(each) ** 0.5 * TASKS["often"].get(name, 1) for name, each in texts.items()]
            name = self._rng.choices([*texts], weights)[0]
            text = self._rng.choice(texts[name])[:num_chars]
            if (mentions := telling(text, start=start)) and mentions[-1].value == Value(text=name, typed=name):
                return text, mentions


def granting(mention: Mention) -> Mention:
    """A line that tells a licence, as one that tells whether patent rights are granted."""
    assert mention.value is not None
    grants = "yes" if mention.value.text in TASKS["grants patents"] else "no"
    return replace(mention, value=Value(text=grants, typed=grants))


def telling(text: str, *, start: int = 0) -> list[Mention]:
    """The lines of a text by which its licence is recognised, the first for each pattern; places count from `start`."""
    lines: dict[tuple[int, int], str] = {}
    for name, pattern in TELLING:
        if found := pattern.search(text):
            first, last = text.rfind("\n", 0, found.start()) + 1, text.find("\n", found.end())
            last = len(text) if last < 0 else last
            lines[(first, last) if last - first < LINE_CHARS else found.span()] = name
    return [
        Mention(text=text[first:last], name="", value=Value(text=name, typed=name), char_start=start + first)
        for (first, last), name in sorted(lines.items())
    ]


def licence_texts(wheel: Path, *, apart: bool) -> Iterator[tuple[str, str]]:
    """SPDX names with texts and notices of one half of the files; those that end with another licence are left out."""
    with zipfile.ZipFile(wheel) as files:
        names: dict[str, str] = {}
        for path in sorted(files.namelist(), key=lambda path: path.endswith(".RULE")):
            kind, ending = Path(path).parent.name, Path(path).suffix
            is_ours = (zlib.crc32(path.encode()) % APART_OF == 0) == apart
            if (kind, ending) != ("licenses", ".LICENSE") and ((kind, ending) != ("rules", ".RULE") or not is_ours):
                continue
            _, head, text = HEAD.split(files.read(path).decode(errors="ignore"), maxsplit=2)
            says: dict[str, str] = dict(FIELD.findall(head))
            if ending == ".LICENSE":
                names[says["key"]] = says.get("spdx_license_key", "")
            elif not any(name.startswith("is_license_") for name in says):
                continue
            name = names.get(says.get("license_expression", says.get("key", "")), "")
            name = TASKS["declared as"].get(name, name)
            text = text.replace("{{", "").replace("}}", "").strip()
            if is_ours and name in LICENCES:
                lines = telling(text[:MAX_LICENCE_CHARS])
                if lines and lines[-1].value == Value(text=name, typed=name):
                    yield name, text
