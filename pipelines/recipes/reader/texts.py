"""Real text of this machine, as it comes: documentation, changelogs, licences. Facts are put into it."""

import gzip
import random
import re
import sys
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from pipelines.recipes.reader.facts import Fact, FactMaker, Mention

FOLDERS = (Path("/usr/share/doc"), *(Path(folder) for folder in sys.path if folder.endswith("site-packages")))
"""Where text is looked for."""
NAMES = re.compile(
    r"(copyright|changelog.*|readme.*|news.*|licen[cs]e.*|notice.*|.+\.(txt|md|rst))(\.gz)?$", re.IGNORECASE
)
MAX_FILES = 3_000
MAX_FILE_CHARS = 60_000
MIN_FILE_CHARS = 1_500
LINE_CHARS = 25
"""Shorter lines say nothing of whether two files are the same."""
APART_OF = 5
"""One file in so many is measured alone."""
WORD = re.compile(r"\b[A-Za-z][a-z]{2,10}\b")
PLACE = re.compile(r"(?<=[.!?:;])\s+|\n+")
"""Where a sentence may be put in."""
MARGINS, MARGIN_CHARS = 0.3, (64, 110)
"""Share of documents whose lines end at a margin, and where it is, characters."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """A document with facts in it."""

    text: str
    facts: tuple[Fact, ...]
    """What is asked: what is stated, with places, and what is not."""


def source_texts(*, apart: bool) -> list[str]:
    """Texts of one half of the files; a file that mostly repeats others is left out."""
    seen: set[int] = set()
    texts: list[str] = []
    for path in _files():
        if (zlib.crc32(str(path.relative_to(path.anchor)).encode()) % APART_OF == 0) != apart:
            continue
        text = _read(path)
        lines = {hash(line.strip()) for line in text.splitlines() if len(line) >= LINE_CHARS}
        if len(text) < MIN_FILE_CHARS or len(lines & seen) > len(lines) / 2:
            continue
        seen |= lines
        texts.append(text)
        if len(texts) == MAX_FILES:
            break
    return texts


def name_words(texts: Sequence[str]) -> list[str]:
    """The words of the texts that are names: none of them is written small anywhere."""
    words = {word for text in texts for word in WORD.findall(text)}
    return sorted(word for word in words if word[0].isupper() and word.lower() not in words)


def story(
    maker: FactMaker, texts: Sequence[str], *, num_chars: int, num_facts: int, num_asked: int, num_absent: int
) -> Story:
    """A document of about so many characters with facts in it; some are asked for, and some that it does not have."""
    rng, facts = maker.rng, maker.facts(num_facts)
    absent = [maker.absent(facts) for _ in range(num_absent)]
    text, facts = _put_in(cut(texts, num_chars, rng=rng), facts, rng=rng)
    if rng.random() < MARGINS:
        text = at_margin(text, [each for fact in facts for each in fact.mentions], width=rng.randint(*MARGIN_CHARS))
        facts = [replace(fact, mentions=tuple(each.as_in(text) for each in fact.mentions)) for fact in facts]
    asked = [*rng.sample(facts, min(num_asked, len(facts))), *absent]
    return Story(text=text, facts=tuple(with_rivals(fact, facts) for fact in asked))


def with_rivals(fact: Fact, facts: Sequence[Fact]) -> Fact:
    """The fact with those of the others that are of its kind, about something else."""
    rivals = [
        mention
        for other in facts
        if other.kind is fact.kind and other.who != fact.who
        for mention in other.mentions
        if mention.value is not None and not mention.aliased
    ]
    return replace(fact, rivals=tuple(rivals))


def _files() -> Iterator[Path]:
    for folder in FOLDERS:
        yield from sorted(path for path in folder.rglob("*") if NAMES.match(path.name) and path.is_file())


def _read(path: Path) -> str:
    with gzip.open(path) if path.suffix == ".gz" else path.open("rb") as file:
        data = file.read(MAX_FILE_CHARS)
    return data.decode("utf-8", errors="ignore").replace("\r\n", "\n").replace("\0", "")


def cut(texts: Sequence[str], num_chars: int, *, rng: random.Random) -> str:
    """Runs of one to three texts, cut wherever they are cut."""
    parts, left = [], num_chars
    while left > 0:
        text = rng.choice(texts)
        size = min(left, rng.randint(num_chars // 3, num_chars))
        start = rng.randint(0, max(0, len(text) - size))
        parts.append(text[start : start + size])
        left -= max(len(parts[-1]), 1)
    return "\n".join(parts)


def at_margin(text: str, mentions: Iterable[Mention], *, width: int) -> str:
    """The text with a line's end in place of the last space before each margin; values stay in one piece."""
    for mention in mentions:
        start, end = mention.value_span
        text = text[:start] + text[start:end].replace(" ", "\0") + text[end:]
    return re.sub(rf"(?=[^\n]{{{width + 1}}})([^\n]{{1,{width}}}) ", r"\1\n", text).replace("\0", " ")


def _put_in(text: str, facts: Sequence[Fact], *, rng: random.Random) -> tuple[str, list[Fact]]:
    """The text with all mentions in it, and the facts with their places. Mentions of a fact keep their order."""
    places = [found.end() for found in PLACE.finditer(text)] or [len(text)]
    slots: list[tuple[int, int, int]] = []
    for number, fact in enumerate(facts):
        at = sorted(rng.choice(places) for _ in fact.mentions)
        slots += [(place, number, order) for order, place in enumerate(at)]
    pieces: list[str] = []
    placed: dict[tuple[int, int], Mention] = {}
    last = length = 0
    for place, number, order in sorted(slots, key=lambda slot: (slot[0], slot[2], slot[1])):
        mention = facts[number].mentions[order]
        before, after = rng.choices(
            [("", " "), ("", "\n"), ("\n\n", "\n\n"), ("\n- ", "\n"), ("\n  * ", "\n")], [5, 3, 2, 1, 1]
        )[0]
        pieces += [text[last:place], before]
        length += place - last + len(before)
        placed[number, order] = replace(mention, char_start=length)
        pieces += [mention.text, after]
        length, last = length + len(mention.text) + len(after), place
    pieces.append(text[last:])
    mentions = [
        tuple(placed[number, order] for order in range(len(fact.mentions))) for number, fact in enumerate(facts)
    ]
    return "".join(pieces), [replace(fact, mentions=each) for fact, each in zip(facts, mentions, strict=True)]
