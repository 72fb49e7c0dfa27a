"""Scores of an answer against its references. Pure; each is a number from 0 to 1.

A metric with the name of a project is that project's. `hotpotqa_f1` and `memagent_sub_em` compare what
`squad_normalise` leaves; that of RULER compares letters; `em`, `f1` and `sub_em` compare what `normalise` leaves.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from enum import StrEnum

ARTICLES = re.compile(r"\b(?:a|an|the)\b")

INVISIBLE = "Cf"
"""Unicode category of characters without width, such as soft hyphens and marks of direction."""

Normaliser = Callable[[str], str]

_MINUS_SIGNS = str.maketrans("\N{MINUS SIGN}\N{EN DASH}", "--")
_LEADING_POINT = re.compile(r"(?<![\w.])\.(?=\d)")
_AFTER_DIGIT = re.compile(r"(?<=\d)[^\w\s]+(?=\d)|(?<=\d)-(?=\w)")
_THOUSAND = re.compile(r"\d{3}(?!\d)")
_SIGN = re.compile(r"(?<!\w)-(?=\$?\d)")
_KEPT_SIGNS = re.compile(r"(?<=\d)\.(?=\d)|(?<!\S)-(?=\$?\d)")
"""The punctuation that `normalise` keeps: the point inside a number and the minus before one."""


class Metric(StrEnum):
    """How an answer is scored."""

    EM = "em"
    """Whether it equals one of the references, both normalised."""
    F1 = "f1"
    """Harmonic mean of word precision and recall, both normalised; the best over the references."""
    SUB_EM = "sub_em"
    """Whether it contains one of them as whole words, both normalised."""
    RULER_ALL = "ruler_all"
    """Part of the references that it contains, in any place, without regard to case (RULER's string_match_all)."""
    HOTPOTQA_F1 = "hotpotqa_f1"
    """As `f1`, normalised as SQuAD does: 3.5 equals 35. But 0 where either is `yes`, `no` or `noanswer` and they differ
    (HotpotQA, MemAgent)."""
    MEMAGENT_SUB_EM = "memagent_sub_em"
    """Whether one contains the other, in any place, normalised as SQuAD does: an empty answer is right (MemAgent)."""
    VALUE = "value"
    """Whether the typed value equals one of them."""


class ScoredOn(StrEnum):
    """What of a reading a metric scores."""

    RESPONSE = "response"
    ANSWER = "answer"
    VALUE = "value"


TEXT_METRICS = tuple(metric for metric in Metric if metric is not Metric.VALUE)
"""Metrics of a text; `value` is of a typed value."""

CLOSED_ANSWERS = ("yes", "no", "noanswer")
"""Answers that HotpotQA's F1 compares as a whole."""


def score(metric: Metric, answer: str | None, references: Sequence[str]) -> float:
    """The score of an answer by one of `TEXT_METRICS`, from 0 to 1.

    No answer, and one without references, scores 0. An empty text is an answer: it scores 0 in every metric but
    `memagent_sub_em`, by which what normalises to nothing is right. A blank reference is never contained in an answer.
    """
    if answer is None or not references:
        return 0.0
    if metric is Metric.RULER_ALL:
        return sum(_contains(answer, reference) for reference in references) / len(references)
    return max(float(_AGAINST_ONE[metric](answer, reference)) for reference in references)


def scored_on(metric: Metric, *, response: str | None, answer: str | None) -> ScoredOn:
    """What a metric scores, as its authors do: RULER's the whole response, if there is one; others its answer."""
    return ScoredOn.RESPONSE if metric is Metric.RULER_ALL and (response or not answer) else ScoredOn.ANSWER


def normalise(text: str) -> str:
    """The text as `em`, `f1` and `sub_em` compare it: as SQuAD does, but numbers stay what they are.

    A minus before a number and the point inside one stay, and the comma before three digits goes. Other punctuation
    between digits, and a hyphen after one, become a space: `-5`, `$1.50`, `1,234`, `3-5` and `30-day` are `-5`,
    `1.50`, `1234`, `3 5` and `30 day`.
    """
    folded = _fold(text).translate(_MINUS_SIGNS)
    visible = "".join(character for character in folded if unicodedata.category(character) != INVISIBLE)
    between = _AFTER_DIGIT.sub(_number_separator, _LEADING_POINT.sub("0.", visible))
    signed = _SIGN.sub(" -", between)
    kept = {match.start() for match in _KEPT_SIGNS.finditer(signed)}
    return _without_articles(
        "".join(character for place, character in enumerate(signed) if place in kept or not _is_deleted(character))
    )


def squad_normalise(text: str) -> str:
    """The text as SQuAD compares it, carried over to all of Unicode; empty for `the` or `...`.

    Compatibility forms are folded (NFKC, so full-width digits are digits), lower case, punctuation and invisible
    characters deleted, the articles a, an and the taken out, white space folded. Deleting leaves no gap: `3.5` equals
    `35`.
    """
    return _without_articles("".join(character for character in _fold(text) if not _is_deleted(character)))


def _number_separator(match: re.Match[str]) -> str:
    """What stands for punctuation after a digit and before another one, or a letter."""
    if match[0] == ".":
        return "."
    return "" if match[0] == "," and _THOUSAND.match(match.string, match.end()) else " "


def _without_articles(text: str) -> str:
    return " ".join(ARTICLES.sub(" ", text).split())


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())


def _is_deleted(character: str) -> bool:
    """Whether it is invisible, or punctuation: all of Unicode's, and SQuAD's list, which has $ and + as well."""
    category = unicodedata.category(character)
    return character in string.punctuation or category.startswith("P") or category == INVISIBLE


def _contains(answer: str, reference: str) -> bool:
    return bool(reference.strip()) and reference.lower() in answer.lower()


def _equals(answer: str, reference: str, normalised: Normaliser = normalise) -> bool:
    """Equality when normalised; by its letters alone where nothing else is left, as of the choice `A`."""
    if not answer.strip() or normalised(answer) != normalised(reference):
        return False
    return bool(normalised(answer)) or _fold(answer).split() == _fold(reference).split()


def _f1(answer: str, reference: str, normalised: Normaliser = normalise) -> float:
    answered, wanted = normalised(answer).split(), normalised(reference).split()
    if not answered or not wanted:
        return float(_equals(answer, reference, normalised))
    common = sum((Counter(answered) & Counter(wanted)).values())
    return 2 * common / (len(answered) + len(wanted))


def _hotpotqa_f1(answer: str, reference: str) -> float:
    answered, wanted = squad_normalise(answer), squad_normalise(reference)
    if answered != wanted and (answered in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS):
        return 0.0
    return _f1(answer, reference, squad_normalise)


def _contains_words(answer: str, reference: str) -> bool:
    wanted = normalise(reference)
    return bool(wanted) and f" {wanted} " in f" {normalise(answer)} "


def _contains_either(answer: str, reference: str) -> bool:
    answered, wanted = squad_normalise(answer), squad_normalise(reference)
    return wanted in answered or answered in wanted


_AGAINST_ONE: dict[Metric, Callable[[str, str], float]] = {
    Metric.EM: _equals,
    Metric.F1: _f1,
    Metric.SUB_EM: _contains_words,
    Metric.HOTPOTQA_F1: _hotpotqa_f1,
    Metric.MEMAGENT_SUB_EM: _contains_either,
}
"""Score of an answer against one reference, by each metric that counts the best of them."""
