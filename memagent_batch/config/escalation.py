"""Which readings are looked at again, and by whom."""

from typing import Annotated, Literal, Self

from pydantic import BeforeValidator, Field, JsonValue, model_validator

from memagent_batch.config.section import Section, TextOrTexts, as_tuple
from memagent_batch.domain.escalation import Doubt


class TargetConfig(Section):
    """How much of what is looked for must be found, or looked at again."""

    recall: float = Field(gt=0, lt=1)
    """Share of what is looked for that is answered by yes or looked at again, at least."""
    delta: float = Field(default=0.05, gt=0, lt=1)
    """How often a learnt threshold may miss that."""
    truth: Literal["labels"] = "labels"
    """What says what is right: the labels of `memagent review`."""


class EscalateConfig(Section):
    """Which readings are looked at again, and by whom."""

    when: Annotated[tuple[Doubt, ...], BeforeValidator(as_tuple)] = ()
    """What makes an answer doubtful, one or several: `failed`; `invalid` or `not_stated` (its value); `answer` (it is
    one of `escalate.answers`); `weak_support` (its sentences do not bear it); `low_confidence` (see
    `escalate.confidence_below`); `target`, which `escalate.target` adds. None by default."""
    confidence_below: Annotated[float, Field(gt=0, le=1)] | None = None
    """Confidence below this is low, for `low_confidence`."""
    answers: TextOrTexts = ()
    """Doubtful answers, for `answer`; case and white space do not count."""
    target: TargetConfig | None = None
    """Looks again at each "no" that is not sure enough, as `memagent review calibrate` has learnt from labels."""
    to: dict[str, JsonValue] = Field(default_factory=dict, repr=False)
    """Knobs of the second reader over those of the first: `policy`, `model`, `engine`, `prompt_set` and others of the
    agent, as in a job file. Without them a person looks: rows have `needs_review`."""

    @property
    def reasons(self) -> tuple[Doubt, ...]:
        """What makes an answer doubtful, with what the target adds."""
        return self.when if self.target is None else tuple(dict.fromkeys((*self.when, Doubt.TARGET)))

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.to and not self.reasons:
            raise ValueError(f"escalate.when: choose from {', '.join(Doubt)}")
        if Doubt.TARGET in self.when and self.target is None:
            raise ValueError("escalate.target: say what recall is wanted, such as {recall: 0.95}")
        for doubt, name in ((Doubt.LOW_CONFIDENCE, "confidence_below"), (Doubt.ANSWER, "answers")):
            if (doubt in self.when) != bool(getattr(self, name)):
                raise ValueError(f"escalate.{name} and the reason {doubt.value!r} in escalate.when need each other")
        return self
