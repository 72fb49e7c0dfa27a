"""Labels: what people say of a (document, question). Never of an answer."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum

YES, NO, NONE_OF_THESE = "yes", "no", "none of these"
"""Labels of a review by a condition, and of one by values where none of them is right."""
UNCLEAR = "unclear"
"""Label of a document that does not let a person say."""


class Purpose(StrEnum):
    """What a label is made for."""

    DEVELOP = "develop"
    """To find better prompts, models or knobs. It says nothing of how good the result is: it was made to fit."""
    VALIDATE = "validate"
    """To measure the scan."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelKey:
    """What a label is of."""

    document_hash: str
    """SHA-256 of the document's text."""
    question_hash: str
    """SHA-256 of the question's text."""
    char_start: int | None = None
    """First character of the sentence, where the label says whether it bears the answer; else None."""
    char_end: int | None = None
    """Character after its last one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """What a review has people decide: "no" to one condition says little of another one."""

    about: str
    """The condition that the right answer fulfils where a person says `yes`, or the column of the value to choose."""
    choices: tuple[str, ...]
    """Labels that may be given, but for unclear."""

    def answers(self, other: "Decision", value: str) -> bool:
        """Whether a label that was given by this decision says what another one asks."""
        is_of_choices = value == NONE_OF_THESE
        return self.about == other.about and (not is_of_choices or set(other.choices) <= set(self.choices))


@dataclass(frozen=True, slots=True, kw_only=True)
class Label:
    """One person's word on one document and question, or on one sentence."""

    key: LabelKey
    """What it is of."""
    value: str
    """What the person says: yes, no, unclear, or a value of the question."""
    reviewer: str
    """Who says it."""
    labelled_at: datetime
    """When, UTC."""
    blind: bool
    """Whether the person had not seen the scan's answer."""
    purpose: Purpose
    """What it was made for."""
    decision: Decision | None
    """What was decided; None where that is not known any more."""


def standing(labels: Iterable[Label]) -> list[Label]:
    """The last label of each person of each key, the person who labelled first in front."""
    ordered = sorted(labels, key=lambda label: (label.labelled_at, label.reviewer, label.value))
    last = {(label.key, person(label.reviewer)): label for label in ordered}
    firsts = dict.fromkeys((label.key, person(label.reviewer)) for label in ordered)
    return [last[pair] for pair in firsts]


def person(reviewer: str) -> str:
    """The name of a reviewer, the same in capitals and with other spaces: Ann and ann are one person."""
    return " ".join(reviewer.casefold().split())


def verdict(labels: Sequence[Label]) -> str:
    """What counts where several people labelled the same: what most say; of equal sides, the one who labelled first."""
    values = [label.value for label in labels]
    return max(dict.fromkeys(values), key=values.count)
