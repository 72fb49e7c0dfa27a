"""Which answers are doubtful enough to be looked at again, by a second reader or a person. Pure."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
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
    TARGET = "target"
    """It is no sure "no": by labels, `escalate.target` needs a look at it."""


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
    value_bool: bool | None = None
    """The value of a question that is answered by yes or no."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Doubts:
    """What makes an answer doubtful."""

    when: Collection[Doubt]
    """The reasons that count."""
    confidence_below: float = 0.0
    """Confidence below this is low."""
    answers: Collection[str] = ()
    """Answers that count as doubtful, but for case and surrounding space."""
    thresholds: Mapping[str, float] = field(default_factory=dict)
    """How sure a "no" must be to stand, by question hash; one as sure as this does not."""

    def of(
        self, status: str, *, verdicts: Verdicts, answer: str | None = None, question_hash: str | None = None
    ) -> Doubt | None:
        """The first reason that holds; None where the answer stands. A reading that was not read has none.

        Args:
            status: How the reading ended.
            verdicts: What closing turns say of it.
            answer: The answer; None where there is none, or where another call looks at it.
            question_hash: The question, where it is answered by yes or no: thresholds hold for no other type of the
                same words.
        """
        is_ok = status == Status.OK
        confidence = verdicts.confidence
        holds = {
            Doubt.FAILED: status == Status.FAILED,
            Doubt.INVALID: is_ok and verdicts.value_status == ValueStatus.INVALID,
            Doubt.NOT_STATED: is_ok and verdicts.value_status == ValueStatus.NOT_STATED,
            Doubt.ANSWER: is_ok and self.names(answer),
            Doubt.WEAK_SUPPORT: is_ok and _is_weak(verdicts),
            Doubt.LOW_CONFIDENCE: is_ok and confidence is not None and confidence < self.confidence_below,
            Doubt.TARGET: self._is_no_sure_no(status, verdicts, up_to=self.thresholds.get(question_hash or "")),
        }
        return next((doubt for doubt in Doubt if doubt in self.when and holds[doubt]), None)

    def _is_no_sure_no(self, status: str, verdicts: Verdicts, *, up_to: float | None) -> bool:
        if up_to is None or status == Status.NOT_READ or verdicts.value_bool:
            return False
        if status != Status.OK or verdicts.value_status == ValueStatus.INVALID or verdicts.confidence is None:
            return True
        return verdicts.confidence <= up_to

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
