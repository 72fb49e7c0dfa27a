"""Thresholds that labels taught: `memagent review calibrate` writes one for each question, and runs read them."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, TypedDict, cast

import pyarrow as pa

from memagent_batch.domain.addresses import text_hash
from memagent_batch.domain.closing.answer_types import AnswerType, ValueType
from memagent_batch.errors import SettingsError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import read_json, write_json
from memagent_batch.files.location import Location
from memagent_batch.inputs.questions import value_types

THRESHOLDS_FOLDER = "review/thresholds"
"""Where thresholds lie below an output."""
THRESHOLD_FORMAT = "memagent-threshold/2"
"""Changes with every change of layout that an older version can't read."""


class LearntThreshold(TypedDict):
    """What a threshold's file says."""

    format: str
    question_id: str
    question_hash: str
    reader_fingerprint: str
    """The first reader, whose confidence it is of."""
    closing_fingerprint: str | None
    """What was asked after its answers, where the confidence is from; None where the run does not say."""
    review_id: str
    run_id: str
    recall: float
    delta: float
    up_to: float
    """A "no" that is as sure as this, or less, is looked at again; 1 for each of them, 0 for none."""
    num_labels: int
    """Labels that it rests on, drawn uniformly of all readings."""
    num_positives: int
    """Of these, those that people say are what is looked for."""
    learnt_at: str
    """When its last label was given, ISO 8601, UTC."""
    confidence: dict[str, Any] | None
    """Calibrated confidence, and its error before and after; None where answers have no confidence."""


def threshold_place(output: Location, question_hash: str) -> Location:
    """Where the threshold of a question lies."""
    return output / f"{THRESHOLDS_FOLDER}/{question_hash}.json"


def threshold_places(output: Location) -> list[Location]:
    """Where all thresholds of an output lie."""
    return [output.at(path) for path in sorted((output / THRESHOLDS_FOLDER).files())]


def write_threshold(output: Location, threshold: LearntThreshold) -> None:
    """Writes it, in the place of the one before."""
    write_json(threshold_place(output, threshold["question_hash"]), threshold)


def read_threshold(output: Location, question_hash: str) -> LearntThreshold | None:
    """The threshold of a question; None where none was learnt.

    Raises:
        OutputError: its file can't be read.
    """
    return cast("LearntThreshold | None", read_json(threshold_place(output, question_hash)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Thresholds:
    """What labels have taught at an output, and what a run needs of it."""

    place: str
    """The output, for messages."""
    recall: float
    """Share that the run wants, as `delta`."""
    delta: float
    """How often that may be missed."""
    reader_fingerprint: str
    """The first reader of the run."""
    closings: Mapping[ValueType, str | None]
    """Fingerprints of what is asked after its answers, by the type that a question asks for."""
    learnt: Mapping[str, LearntThreshold]
    """All that lie there, by question hash; some may be of other questions, readers and targets."""

    @property
    def up_to(self) -> dict[str, float]:
        """Those that hold for the run, by question hash."""
        closings = self.closings.values()
        return {name: each["up_to"] for name, each in self.learnt.items() if not self._problem(each, closings=closings)}

    def require(self, questions: pa.Table) -> None:
        """Checks that each question that is answered by yes or no has one: without it, no "no" would be looked at.

        Raises:
            SettingsError: one has none, or one for another target, reader or form of its value; names it, and says
                what to do.
        """
        rows = questions.select(["question_id", "question"]).to_pylist()
        for row, type_ in zip(rows, value_types(questions), strict=True):
            if type_ is not None and type_.type is AnswerType.BOOL:
                learnt = self.learnt.get(text_hash(row["question"]))
                problem = self._problem(learnt, closings=[self.closings.get(type_)])
                if problem:
                    raise SettingsError(f"escalate.target: question {row['question_id']!r}: {problem}")

    def _problem(self, threshold: LearntThreshold | None, *, closings: Collection[str | None]) -> str | None:
        """Why a threshold does not hold for the run; None where it does.

        Args:
            threshold: The threshold; None where none was learnt.
            closings: What the run asks after answers to its question: one of these.
        """
        if threshold is None:
            return (
                f"no threshold was learnt for its wording at {self.place}; run without the target, label with "
                "`memagent review make --purpose develop` and `import`, and say `memagent review calibrate`"
            )
        if threshold["format"] != THRESHOLD_FORMAT:
            return "its threshold was learnt by another version; say `memagent review calibrate` with this target again"
        learnt = (threshold["recall"], threshold["delta"])
        if learnt != (self.recall, self.delta):
            what = f"recall {learnt[0]}, delta {learnt[1]}"
        elif threshold["reader_fingerprint"] != self.reader_fingerprint:
            what = "another reader"
        elif threshold["closing_fingerprint"] not in closings:
            what = "another form of its value, or other closing turns, and so for another confidence"
        else:
            return None
        return (
            f"its threshold was learnt for {what}; say `memagent review calibrate` with this target after a run of "
            "this reader without the target"
        )


def read_thresholds(
    output: Location,
    *,
    recall: float,
    delta: float,
    reader_fingerprint: str,
    closings: Mapping[ValueType, str | None],
) -> Thresholds:
    """The thresholds of an output, for a run with this target, first reader, and what is asked after its answers.

    Raises:
        OutputError: a file can't be read.
    """
    learnt = read_learnt(output)
    return Thresholds(
        place=str(output),
        recall=recall,
        delta=delta,
        reader_fingerprint=reader_fingerprint,
        closings=closings,
        learnt=learnt,
    )


def read_learnt(output: Location) -> dict[str, LearntThreshold]:
    """All thresholds of an output, by question hash.

    Raises:
        OutputError: a file can't be read.
    """
    with output_errors(output.uri):
        found = [cast("LearntThreshold", read_json(place)) for place in threshold_places(output)]
    return {each["question_hash"]: each for each in found}
