"""Which labels count for a review: those that validate, and that were given before the answer was seen."""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memagent_batch.review.labels.label import UNCLEAR, Decision, Label, LabelKey, Purpose, standing, verdict
from memagent_batch.review.sample.draw import DrawnUnit


@dataclass(frozen=True, slots=True, kw_only=True)
class LabelledUnit:
    """A reading of the sample with the labels that count for it."""

    drawn: DrawnUnit
    """The reading."""
    labels: Sequence[Label]
    """The last label of each person, unclear ones left out; the person who labelled first in front."""
    is_unclear: bool
    """Whether people labelled it, and nobody could say."""

    @property
    def value(self) -> str | None:
        """What counts; None where nobody has said."""
        return verdict(self.labels) if self.labels else None


@dataclass(frozen=True, slots=True, kw_only=True)
class CountedLabels:
    """The labels that count for a sample, and those that don't."""

    units: Sequence[LabelledUnit]
    """Every reading of the sample, in its order."""
    num_develop: int
    """Readings of the sample with labels made to develop by."""
    num_seen: int
    """Readings whose labels were given with the answer in view, and don't count for that."""
    num_other: int
    """Readings whose labels are of another decision, or of one that is not known, and don't count for that."""

    @property
    def num_left(self) -> int:
        """Readings that nobody has labelled."""
        return sum(not unit.labels and not unit.is_unclear for unit in self.units)

    @property
    def num_unclear(self) -> int:
        """Readings that nobody could judge."""
        return sum(unit.is_unclear for unit in self.units)

    @property
    def num_judged_seen(self) -> int:
        """Readings for which a label counts that was given with the answer in view."""
        return sum(not all(label.blind for label in unit.labels) for unit in self.units)

    @property
    def pairs(self) -> list[tuple[str, str]]:
        """First and second label of the readings that a second person reads by lot; not of those that contradict."""
        both = [unit.labels for unit in self.units if unit.drawn.is_second and len(unit.labels) > 1]
        return [(labels[0].value, labels[1].value) for labels in both]


def count_labels(
    sample: Sequence[DrawnUnit], labels: Iterable[Label], *, purpose: Purpose, decision: Decision, with_seen: bool
) -> CountedLabels:
    """The labels of each reading of a sample, whatever review they were made in.

    Args:
        sample: The sample.
        labels: All labels of the output.
        purpose: What the labels must have been made for.
        decision: What they must have decided.
        with_seen: Whether labels count that were given with the answer in view.
    """
    of_key: dict[LabelKey, list[Label]] = defaultdict(list)
    for label in labels:
        of_key[label.key].append(label)
    found = {each: of_key.get(label_key(each), []) for each in sample}
    made_for = {each: [label for label in of_unit if label.purpose is purpose] for each, of_unit in found.items()}
    fitting = {each: [label for label in of_unit if _fits(label, decision)] for each, of_unit in made_for.items()}
    return CountedLabels(
        units=[_labelled_unit(each, of_unit, with_seen=with_seen) for each, of_unit in fitting.items()],
        num_develop=sum(any(label.purpose is Purpose.DEVELOP for label in of_unit) for of_unit in found.values()),
        num_seen=0
        if with_seen
        else sum(bool(of_unit) and not any(label.blind for label in of_unit) for of_unit in fitting.values()),
        num_other=sum(bool(made_for[each]) and not of_unit for each, of_unit in fitting.items()),
    )


def label_key(drawn: DrawnUnit) -> LabelKey:
    """What a label of this reading's document and question is of."""
    return LabelKey(document_hash=drawn.unit.document_hash, question_hash=drawn.unit.question_hash)


def sentence_labels(labels: Iterable[Label], *, purpose: Purpose) -> Mapping[LabelKey, str]:
    """What counts of each sentence: whether it bears the answer, by labels made for a purpose."""
    of_key: dict[LabelKey, list[Label]] = defaultdict(list)
    of_sentences = (label for label in labels if label.key.char_start is not None and label.purpose is purpose)
    for label in standing(of_sentences):
        of_key[label.key].append(label)
    return {key: verdict(of_sentence) for key, of_sentence in of_key.items()}


def _fits(label: Label, decision: Decision) -> bool:
    return label.decision is not None and label.decision.answers(decision, label.value)


def _labelled_unit(drawn: DrawnUnit, labels: Sequence[Label], *, with_seen: bool) -> LabelledUnit:
    counted = standing(label for label in labels if label.blind or with_seen)
    clear = [label for label in counted if label.value != UNCLEAR]
    return LabelledUnit(drawn=drawn, labels=clear, is_unclear=bool(counted) and not clear)
