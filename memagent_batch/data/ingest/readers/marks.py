"""Marks in plain text for what a document shows by its format: raised, lowered and struck-out text, and check boxes."""

import re
import unicodedata
from collections.abc import Iterable, Iterator
from enum import StrEnum
from itertools import groupby
from typing import NamedTuple

CHECKED, UNCHECKED = "\N{BALLOT BOX WITH CHECK}", "\N{BALLOT BOX}"
"""Of check boxes and of radio buttons."""

OPTIONAL_HYPHEN = "\N{SOFT HYPHEN}"
"""Shows only where a line ends at it."""
SHORT_SCRIPT = re.compile(r"[+\-\N{MINUS SIGN}]?\d+|[^\W\d_]{1,3}|\S")
"""A raised or lowered text that needs no parentheses."""
SUFFIXES = frozenset({"st", "nd", "rd", "th", "er", "ère", "ème", "tm", "sm"})
"""Raised endings that belong to the word or number before them, as in `1st`."""
WORD = re.compile(r"\w+")
RAISED_FRACTION = re.compile(r"(?<=(\d))?\^(?:(\d+)[/\u2044\u2215]|\((\d+)[/\u2044\u2215]\))_(\d+)")


class Script(StrEnum):
    """Where a run of text stands, as the sign that is written before it."""

    NORMAL = ""
    SUPER = "^"
    SUB = "_"


class Run(NamedTuple):
    """A stretch of text in one format."""

    text: str
    script: Script = Script.NORMAL
    is_struck: bool = False
    is_equation: bool = False
    written: str | None = None
    """What the document has in the place of the text, if that is something else."""


def superscript(text: str) -> str:
    """Writes a raised text so that it does not run into what stands before it: `^2`, `^(n+1)`."""
    return _scripted(text, Script.SUPER)


def subscript(text: str) -> str:
    """Writes a lowered text so that it does not run into what stands before it: `_2`, `_(i,j)`."""
    return _scripted(text, Script.SUB)


def struck_out(text: str) -> str:
    """Marks a text that is shown with a line through it."""
    return _bracketed("struck out", text)


def deleted(text: str) -> str:
    """Marks a text that is deleted but still shown."""
    return _bracketed("deleted", text)


def join_runs(runs: Iterable[Run]) -> str:
    """Joins runs into one text without optional hyphens.

    Neighbours of one format share a mark, and raised digits and equations do not run into what stands beside them.
    """
    texts = list[str]()
    for is_struck, stretch in groupby((run for run in runs if run.text), key=lambda run: run.is_struck):
        text = _join_scripts(stretch)
        texts.append(struck_out(text) if is_struck else text)
    return "".join(texts).replace(OPTIONAL_HYPHEN, "")


def words_shown_otherwise(runs: Iterable[Run]) -> Iterator[str]:
    """Yields the words of the document that the joined text shows with other letters, or parts by a mark."""
    text, borders = "", set[int]()
    for run in runs:
        start, text = len(text), text + (run.text if run.written is None else run.written)
        if run.written is not None:
            borders.update(range(start, len(text) + 1))
        elif run.is_struck:
            borders |= {start, len(text)}
    if borders:
        for word in WORD.finditer(text):
            if not borders.isdisjoint(range(word.start() + 1, word.end())) or {word.start(), word.end()} <= borders:
                yield word[0]


def _join_scripts(runs: Iterable[Run]) -> str:
    text, is_apart = "", False
    for (script, is_equation), stretch in groupby(runs, key=lambda run: (run.script, run.is_equation)):
        added = _scripted((" " if is_equation else "").join(run.text for run in stretch), script)
        if (is_apart or is_equation) and text and run_together(text[-1], added[0]):
            text += " "
        text, is_apart = text + added, is_equation or script is not Script.NORMAL
    return RAISED_FRACTION.sub(lambda parts: f"{' ' if parts[1] else ''}{parts[2] or parts[3]}/{parts[4]}", text)


def run_together(left: str, right: str) -> bool:
    """Tells whether two characters would read as one number or word."""
    return (left.isdigit() and right.isdigit()) or (left.isalpha() and right.isalpha())


def _scripted(text: str, script: Script) -> str:
    core = text.strip()
    is_suffix = script is Script.SUPER and core.lower() in SUFFIXES
    is_sign = all(unicodedata.category(character) in ("Po", "So") for character in core)
    if script is Script.NORMAL or is_suffix or is_sign:
        return text
    mark = f"{script}{core}" if SHORT_SCRIPT.fullmatch(core) else f"{script}({core})"
    return text.replace(core, mark, 1)


def _bracketed(label: str, text: str) -> str:
    """Marks what is between the white space at both ends of a text."""
    core = text.strip()
    return text.replace(core, f"[{label}: {core}]", 1) if core else text
