"""Which answers are doubtful enough to be read again by a second reader. Pure."""

from collections.abc import Collection
from dataclasses import dataclass
from enum import StrEnum

from memagent_batch.domain.closing.plan import Support
from memagent_batch.domain.closing.values import ValueStatus
from memagent_batch.domain.readings import Status


class Doubt(StrEnum):
    """Why a reading is read again, in the order in which reasons are looked for."""

    FAILED = "failed"
    """It failed."""
    INVALID = "invalid"
    """Its value does not fit the type."""
    NOT_STATED = "not_stated"
    """Its value is `not_stated`."""
    ANSWER = "answer"
    """Its answer is one of `escalate.answers`."""
    WEAK_SUPPORT = "weak_support"
    """Its sentences do not bear the answer, or there are none."""
    LOW_CONFIDENCE = "low_confidence"
    """Its confidence is below `escalate.confidence_below`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdicts:
    """What the first reader's closing turns say of a reading; None where that was not asked, or is not known."""

    value_status: str | None = None
    """Whether the value is valid."""
    support: str | None = None
    """Whether its sentences bear the answer."""
    confidence: float | None = None
    """Probability of the value, 0 to 1."""
    has_evidence: bool | None = None
    """Whether any sentence was chosen."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What makes an answer doubtful."""

    when: Collection[Doubt]
    """The reasons that count."""
    confidence_below: float = 0.0
    """Confidence below this is low."""
    answers: Collection[str] = ()
    """Answers that count as doubtful, but for case and surrounding space."""

    def of(self, status: str, *, verdicts: Verdicts, answer: str | None = None) -> Doubt | None:
        """The first reason that holds; None where the answer stands. A reading that was not read has none."""
        is_ok = status == Status.OK
        confidence = verdicts.confidence
        holds = {
            Doubt.FAILED: status == Status.FAILED,
            Doubt.INVALID: is_ok and verdicts.value_status == ValueStatus.INVALID,
            Doubt.NOT_STATED: is_ok and verdicts.value_status == ValueStatus.NOT_STATED,
            Doubt.ANSWER: is_ok and self.names(answer),
            Doubt.WEAK_SUPPORT: is_ok and _is_weak(verdicts),
            Doubt.LOW_CONFIDENCE: is_ok and confidence is not None and confidence < self.confidence_below,
        }
        return next((doubt for doubt in Doubt if doubt in self.when and holds[doubt]), None)

    def names(self, answer: str | None) -> bool:
        """Whether an answer is one of `answers`."""
        return answer is not None and _plain(answer) in {_plain(each) for each in self.answers}


def _is_weak(verdicts: Verdicts) -> bool:
    """Whether support was asked for and is not full; without a sentence there is nothing that could bear an answer."""
    if verdicts.support is None:
        return verdicts.has_evidence is False
    return verdicts.support != Support.SUPPORTED


def _plain(text: str) -> str:
    return " ".join(text.split()).casefold()
