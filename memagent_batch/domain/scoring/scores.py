"""Scores of an answer against its references. Pure; each is a number from 0 to 1.

Normalisation is SQuAD's, carried over to all of Unicode: compatibility forms folded (NFKC, so full-width digits are
digits), lower case, punctuation and invisible characters deleted, the articles a, an and the taken out, white space
folded. Deleted means without a gap, as in SQuAD: `1,234` equals `1234`, and `3.5` equals `35`.
"""

import re
import string
import unicodedata
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

ARTICLES = re.compile(r"\b(?:a|an|the)\b")

INVISIBLE = "Cf"
"""Unicode category of characters without width, such as soft hyphens and marks of direction."""


class Metric(StrEnum):
    """How an answer is scored."""

    ALL = "all"
    """Part of the references that the answer contains, without regard to case (RULER, string_match_all)."""
    ANY = "any"
    """Whether it contains any of them, without regard to case (RULER, string_match_part)."""
    EM = "em"
    """Whether it equals one of them, both normalised."""
    F1 = "f1"
    """Harmonic mean of token precision and recall, both normalised; the best over the references (SQuAD)."""
    HOTPOTQA_F1 = "hotpotqa_f1"
    """As `f1`, but 0 where either is `yes`, `no` or `noanswer` and they are not equal (HotpotQA, MemAgent)."""
    SUB_EM = "sub_em"
    """Whether it contains one of them, both normalised."""
    SUB_EM_EITHER = "sub_em_either"
    """As `sub_em`, or is contained in one: the official evaluator's metric, which accepts an empty answer."""
    VALUE = "value"
    """Whether the typed value equals one of them."""


class ScoreOn(StrEnum):
    """Which text of a reading is scored."""

    METRIC = "metric"
    """The one that the metric's authors score: the response by `all` and `any` (RULER), the answer by the others."""
    RESPONSE = "response"
    """The whole response of the answer turn."""
    ANSWER = "answer"
    """The answer that was taken out of it."""
    VALUE = "value"
    """The typed value, which the metric `value` scores whatever is asked for."""


TEXT_METRICS = tuple(metric for metric in Metric if metric is not Metric.VALUE)
"""Metrics of a text; `value` is of a typed value."""

RULER_METRICS = (Metric.ALL, Metric.ANY)
"""Metrics whose authors score the whole response."""

CLOSED_ANSWERS = ("yes", "no", "noanswer")
"""Answers that HotpotQA's F1 compares as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ScoredText:
    """The text of a reading that a metric scores."""

    basis: ScoreOn
    """`response` or `answer`."""
    text: str | None
    """The text; None where there is none."""


def score(metric: Metric, answer: str | None, references: Sequence[str]) -> float:
    """The score of an answer, from 0 to 1.

    Args:
        metric: How to score; one of `TEXT_METRICS`.
        answer: The answer; None where there is none, which scores 0 in every metric. An empty text is an answer: it
            scores 0 in every metric but `sub_em_either`, by which what normalises to nothing is right.
        references: Right answers. A blank one is never contained in an answer; without any the score is 0.
    """
    if answer is None or not references:
        return 0.0
    if metric is Metric.ALL:
        return sum(_contains(answer, reference) for reference in references) / len(references)
    return max(float(_AGAINST_ONE[metric](answer, reference)) for reference in references)


def scored_text(metric: Metric, *, response: str | None, answer: str | None, score_on: ScoreOn) -> ScoredText:
    """The text that a metric scores. By `ScoreOn.METRIC`, an answers table without responses is scored on its answers.

    Args:
        metric: How it is scored.
        response: The whole response; None where there is none.
        answer: The answer that was taken out of it; None where there is none.
        score_on: Which of them.
    """
    basis = score_on
    if basis is ScoreOn.METRIC:
        basis = ScoreOn.RESPONSE if metric in RULER_METRICS and (response or not answer) else ScoreOn.ANSWER
    return ScoredText(basis=basis, text=response if basis is ScoreOn.RESPONSE else answer)


def normalise(text: str) -> str:
    """The text as `em`, the two F1 and the two `sub_em` compare it; empty for `the` or `...`."""
    lowered = _fold(text)
    plain = "".join(character for character in lowered if not _is_deleted(character))
    return " ".join(ARTICLES.sub(" ", plain).split())


def _fold(text: str) -> str:
    return unicodedata.normalize("NFKC", unicodedata.normalize("NFKC", text).lower())


def _is_deleted(character: str) -> bool:
    """Whether it is invisible, or punctuation: all of Unicode's, and SQuAD's list, which has $ and + as well."""
    category = unicodedata.category(character)
    return character in string.punctuation or category.startswith("P") or category == INVISIBLE


def _contains(answer: str, reference: str) -> bool:
    return bool(reference.strip()) and reference.lower() in answer.lower()


def _equals(answer: str, reference: str) -> bool:
    """Equality when normalised; by its letters alone where nothing else is left, as of the choice `A`."""
    if not answer.strip() or normalise(answer) != normalise(reference):
        return False
    return bool(normalise(answer)) or _fold(answer).split() == _fold(reference).split()


def _f1(answer: str, reference: str) -> float:
    answered, wanted = normalise(answer).split(), normalise(reference).split()
    if not answered or not wanted:
        return float(_equals(answer, reference))
    common = sum((Counter(answered) & Counter(wanted)).values())
    return 2 * common / (len(answered) + len(wanted))


def _hotpotqa_f1(answer: str, reference: str) -> float:
    answered, wanted = normalise(answer), normalise(reference)
    if answered != wanted and (answered in CLOSED_ANSWERS or wanted in CLOSED_ANSWERS):
        return 0.0
    return _f1(answer, reference)


def _contains_normalised(answer: str, reference: str) -> bool:
    wanted = normalise(reference)
    return bool(wanted) and wanted in normalise(answer)


def _contains_either(answer: str, reference: str) -> bool:
    answered, wanted = normalise(answer), normalise(reference)
    return wanted in answered or answered in wanted


_AGAINST_ONE: dict[Metric, Callable[[str, str], float]] = {
    Metric.ANY: _contains,
    Metric.EM: _equals,
    Metric.F1: _f1,
    Metric.HOTPOTQA_F1: _hotpotqa_f1,
    Metric.SUB_EM: _contains_normalised,
    Metric.SUB_EM_EITHER: _contains_either,
}
"""Score of an answer against one reference, by each metric that counts the best of them."""
