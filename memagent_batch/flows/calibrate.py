"""What labels teach of the first reader's confidence: how sure a "no" must be to stand, and how often it is right."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from typing import Any, TypedDict

from memagent_batch.errors import OutputError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.flows.review import counted_labels, open_review
from memagent_batch.log.question_list import CLOSING_FINGERPRINT, read_asked
from memagent_batch.review.calibration.betting import fewest_draws
from memagent_batch.review.calibration.isotonic import JudgedAnswer, calibrated, cross_fitted, error_of, fit
from memagent_batch.review.calibration.sample import (
    FirstAnswer,
    LabelledReading,
    first_answers,
    judged_answers,
    limiting_stratum,
    positives_of,
    uniform_readings,
)
from memagent_batch.review.calibration.threshold import Target, has_drifted, is_found, learn_threshold
from memagent_batch.review.labels.label import Purpose
from memagent_batch.review.sample.record import ANSWERED_BY_YES, Review
from memagent_batch.runs.escalation.thresholds import (
    THRESHOLD_FORMAT,
    LearntThreshold,
    read_threshold,
    write_threshold,
)
from memagent_batch.runs.manifest import Manifest, require_manifest

SHOWN_CONFIDENCES = (0.5, 0.75, 0.9, 0.99)
"""Confidences whose worth pages and cards name."""


class Drift(TypedDict):
    """Whether the threshold before still finds its share, by labels that were given since."""

    up_to: float
    num_positives: int
    has_drifted: bool


class Calibration(TypedDict):
    """What `memagent review calibrate` prints."""

    threshold: LearntThreshold
    fewest_positives: int
    """With fewer labelled positives, no threshold below 1 can be learnt."""
    limited_by: str | None
    """The stratum that needs more labels before more of all labels can count; None where all count."""
    readings: int
    looked_at: int
    """Readings of the run that the threshold has looked at again."""
    before: Drift | None
    """None where no threshold was learnt before, for this reader, its closing turns and this target."""


def calibrate(output: Location, name: str | None, *, target: Target) -> Calibration:
    """Learns the threshold of a question from a review's labels, and writes it for the next run.

    Args:
        output: The output.
        name: Id of the review; None where there is one only.
        target: What the threshold must do.

    Raises:
        OutputError: there is no such review, its labels are not to be learnt from, or nothing is labelled.
    """
    review = open_review(output, name)
    with output_errors(output.uri):
        manifest = require_manifest(output)
    _require_learnable(review, manifest)
    counted = counted_labels(output, review, with_seen=False)
    answers = first_answers(output, manifest, question_id=review.record["question_id"])
    readings = uniform_readings(review, counted, answers)
    limited_by = limiting_stratum(review, counted)
    if not readings:
        stratum = f"; draw some of the stratum {limited_by}" if limited_by else ""
        raise OutputError(f"review {review.record['review_id']}: no label is of a uniform sample of all{stratum}")
    before = read_threshold(output, _question_hash(review))
    judged = judged_answers(review, counted, answers)
    closing = _closing_fingerprint(output, review, manifest)
    threshold = _threshold(review, manifest, readings, judged, target=target, closing=closing)
    write_threshold(output, threshold)
    return {
        "threshold": threshold,
        "fewest_positives": fewest_draws(share=target.recall, delta=target.delta),
        "limited_by": limited_by,
        "readings": len(answers),
        "looked_at": _num_looked_at(answers, up_to=threshold["up_to"]),
        "before": _drift(before, threshold, readings, target=target),
    }


def _question_hash(review: Review) -> str:
    return review.sample[0].unit.question_hash


def _closing_fingerprint(output: Location, review: Review, manifest: Manifest) -> str | None:
    """What the run asked after the answers to the question, which its confidence is from."""
    with output_errors(output.uri):
        asked = read_asked(output, run_id=manifest["run_id"])
    question = (review.record["question_id"], _question_hash(review))
    rows = (row for row in asked.to_pylist() if (row["question_id"], row["question_hash"]) == question)
    return next((row.get(CLOSING_FINGERPRINT) for row in rows), None)


def _threshold(
    review: Review,
    manifest: Manifest,
    readings: Sequence[LabelledReading],
    judged: Sequence[JudgedAnswer],
    *,
    target: Target,
    closing: str | None,
) -> LearntThreshold:
    """The threshold that the labelled readings teach, as it is written, with what `judged` says of confidence."""
    return {
        "format": THRESHOLD_FORMAT,
        "question_id": review.record["question_id"],
        "question_hash": _question_hash(review),
        "reader_fingerprint": manifest["reader_fingerprint"],
        "closing_fingerprint": closing,
        "review_id": review.record["review_id"],
        "run_id": manifest["run_id"],
        "recall": target.recall,
        "delta": target.delta,
        "up_to": learn_threshold(positives_of(readings), target),
        "num_labels": len(readings),
        "num_positives": len(positives_of(readings)),
        "learnt_at": max(reading.labelled_at for reading in readings).isoformat(),
        "confidence": _confidence(judged),
    }


def _require_learnable(review: Review, manifest: Manifest) -> None:
    """Refuses reviews that a threshold can't be learnt from.

    Raises:
        OutputError: says what to make instead.
    """
    record = review.record
    if review.purpose is not Purpose.DEVELOP:
        raise OutputError(
            f"review {record['review_id']} was made to validate by: a scan that has learnt from its labels looks "
            "better there than it is. Make one with --purpose develop"
        )
    if review.decision.about != ANSWERED_BY_YES or record["unsure_below"] is not None:
        raise OutputError(
            f"review {record['review_id']}: a threshold is learnt from a review flagged by {ANSWERED_BY_YES}: "
            "a run can tell that of each answer by itself"
        )
    if record["run_id"] != manifest["run_id"]:
        raise OutputError(
            f"review {record['review_id']} is of run {record['run_id']}, the last one is {manifest['run_id']}; say "
            "`memagent review make` again: it asks only for labels that are missing"
        )


def _num_looked_at(answers: Mapping[str, FirstAnswer], *, up_to: float) -> int:
    return sum(not each.is_yes and is_found(each.sure_no, up_to=up_to) for each in answers.values())


def _drift(
    before: LearntThreshold | None, now: LearntThreshold, readings: Sequence[LabelledReading], *, target: Target
) -> Drift | None:
    """Whether labels that were given since the threshold before refute it."""
    if before is None or any(
        before[name] != now[name]
        for name in ("format", "reader_fingerprint", "closing_fingerprint", "recall", "delta")  # another format first
    ):
        return None
    fresh = positives_of([each for each in readings if each.labelled_at.isoformat() > before["learnt_at"]])
    return {
        "up_to": before["up_to"],
        "num_positives": len(fresh),
        "has_drifted": has_drifted(fresh, target, up_to=before["up_to"]),
    }


def _confidence(judged: Sequence[JudgedAnswer]) -> dict[str, Any] | None:
    """Calibrated confidence, with the error of what the scan says and of what was fitted, where labels are enough."""
    if not judged:
        return None
    fitted, steps = cross_fitted(judged), fit(judged)
    return {
        "num_labels": len(judged),
        "error": asdict(error_of(judged)),
        "error_calibrated": asdict(error_of(fitted)) if fitted else None,
        "worth": [
            {"confidence": each, "share_right": calibrated(each, steps)}
            for each in SHOWN_CONFIDENCES
            if each >= steps[0].from_confidence
        ],
        "steps": [asdict(step) for step in steps],
    }
