"""How often an answer of some confidence is right: a step function fitted to labels, and the error that it has. Pure.

Isotonic regression: the share of right answers never falls where confidence grows, and nothing else is assumed. Its
error is shown on labels that it was not fitted to.
"""

from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import groupby

FOLDS = 5
"""Parts of the labels: what is fitted to the others is tried on each."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JudgedAnswer:
    """An answer that people have judged."""

    confidence: float
    """Of the scan, 0 to 1."""
    is_right: bool
    """What people say."""
    weight: float = 1.0
    """Readings that it stands for: a stratum's size over its labels."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """Answers of one calibrated confidence."""

    from_confidence: float
    """The lowest confidence that has it."""
    share_right: float
    """Calibrated confidence: share of right answers, 0 to 1."""
    num_labels: int
    """Labels that it rests on."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CalibrationError:
    """How far confidence is from the share of right answers, on labels that nothing was fitted to."""

    brier: float
    """Mean squared distance from right (1) or wrong (0); the lower the better."""
    gap: float
    """Mean distance between confidence and share of right answers, over tenths of the answers."""


def fit(answers: Sequence[JudgedAnswer]) -> list[Step]:
    """The steps that fit best, by pooling neighbours that fall; from the lowest confidence up."""
    pools: list[_Pool] = []
    for confidence, equal in groupby(sorted(answers, key=_confidence), key=_confidence):
        pool = _pooled(confidence, list(equal))
        while pools and pools[-1].share >= pool.share:
            pool = pools.pop().joined(pool)
        pools.append(pool)
    return [Step(from_confidence=each.low, share_right=each.share, num_labels=each.num_labels) for each in pools]


def calibrated(confidence: float, steps: Sequence[Step]) -> float:
    """The share of right answers among answers of this confidence; of one below all steps that of the first."""
    place = bisect_right([step.from_confidence for step in steps], confidence)
    return steps[max(place - 1, 0)].share_right


def cross_fitted(answers: Sequence[JudgedAnswer], *, folds: int = FOLDS) -> list[JudgedAnswer]:
    """The answers with confidences that were fitted to the other folds; none where there are fewer answers than folds.

    Folds are taken in turn, so that the order of the answers must say nothing of them.
    """
    if len(answers) < folds:
        return []
    found = []
    for fold in range(folds):
        steps = fit([each for number, each in enumerate(answers) if number % folds != fold])
        for answer in answers[fold::folds]:
            confidence = calibrated(answer.confidence, steps)
            found.append(JudgedAnswer(confidence=confidence, is_right=answer.is_right, weight=answer.weight))
    return found


def error_of(answers: Sequence[JudgedAnswer]) -> CalibrationError:
    """How far these confidences are from the truth."""
    total = sum(each.weight for each in answers)
    brier = sum(each.weight * (each.confidence - each.is_right) ** 2 for each in answers) / total
    tenths: list[list[JudgedAnswer]] = [[] for _ in range(10)]
    before = 0.0
    for answer in sorted(answers, key=lambda each: each.confidence):
        tenths[min(int(10 * before / total), 9)].append(answer)
        before += answer.weight
    gap = sum(abs(sum(each.weight * (each.confidence - each.is_right) for each in tenth)) for tenth in tenths) / total
    return CalibrationError(brier=brier, gap=gap)


@dataclass(frozen=True, slots=True, kw_only=True)
class _Pool:
    """Neighbours that have one share."""

    low: float
    right: float
    weight: float
    num_labels: int

    @property
    def share(self) -> float:
        """Share of right answers."""
        return self.right / self.weight

    def joined(self, other: "_Pool") -> "_Pool":
        """Both as one; the other one is above."""
        return _Pool(
            low=self.low,
            right=self.right + other.right,
            weight=self.weight + other.weight,
            num_labels=self.num_labels + other.num_labels,
        )


def _pooled(confidence: float, answers: Sequence[JudgedAnswer]) -> _Pool:
    """Answers of one confidence."""
    return _Pool(
        low=confidence,
        right=sum(each.weight * each.is_right for each in answers),
        weight=sum(each.weight for each in answers),
        num_labels=len(answers),
    )


def _confidence(answer: JudgedAnswer) -> float:
    return answer.confidence
