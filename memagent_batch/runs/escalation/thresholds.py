"""Thresholds that labels taught: `memagent review calibrate` writes one for each question, and runs read them."""

from typing import Any, TypedDict, cast

from memagent_batch.errors import SettingsError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.json_files import read_json, write_json
from memagent_batch.files.location import Location

THRESHOLDS_FOLDER = "review/thresholds"
"""Where thresholds lie below an output."""
THRESHOLD_FORMAT = "memagent-threshold/1"
"""Changes with every change of layout that an older version can't read."""


class LearntThreshold(TypedDict):
    """What a threshold's file says."""

    format: str
    question_id: str
    question_hash: str
    reader_fingerprint: str
    """The first reader, whose confidence it is of."""
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


def write_threshold(output: Location, threshold: LearntThreshold) -> None:
    """Writes it, in the place of the one before."""
    write_json(threshold_place(output, threshold["question_hash"]), threshold)


def read_threshold(output: Location, question_hash: str) -> LearntThreshold | None:
    """The threshold of a question; None where none was learnt.

    Raises:
        OutputError: its file can't be read.
    """
    return cast("LearntThreshold | None", read_json(threshold_place(output, question_hash)))


def read_thresholds(output: Location, *, recall: float, delta: float, reader_fingerprint: str) -> dict[str, float]:
    """The thresholds of all questions, by question hash.

    Raises:
        SettingsError: none was learnt, or one for another target or reader; says what to do.
        OutputError: a file can't be read.
    """
    with output_errors(output.uri):
        files = sorted((output / THRESHOLDS_FOLDER).files())
        found = [cast("LearntThreshold", read_json(output.at(path))) for path in files]
    if not found:
        raise SettingsError(
            f"escalate.target: no threshold was learnt at {output}; run without it, label with `memagent review make "
            "--purpose develop` and `import`, and say `memagent review calibrate`"
        )
    for each in found:
        asked, learnt = (recall, delta, reader_fingerprint), (each["recall"], each["delta"], each["reader_fingerprint"])
        if each["format"] != THRESHOLD_FORMAT or asked != learnt:
            what = "another reader" if asked[:2] == learnt[:2] else f"recall {each['recall']}, delta {each['delta']}"
            raise SettingsError(
                f"escalate.target: the threshold of question {each['question_id']!r} was learnt for {what}; say "
                "`memagent review calibrate` with this target after a run of this reader"
            )
    return {each["question_hash"]: each["up_to"] for each in found}
