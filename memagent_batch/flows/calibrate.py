"""Which answers need a second pass, by labels: how sure a "no" must be, so that the wanted share is found."""

from typing import TypedDict

from memagent_batch.errors import OutputError, SettingsError
from memagent_batch.files.errors import output_errors
from memagent_batch.files.location import Location
from memagent_batch.flows.review import counted_labels, open_review
from memagent_batch.review.calibration.sample import limiting_stratum, positives_of, scan_answers, uniform_readings
from memagent_batch.review.calibration.threshold import Target, fewest_draws, is_found, learn_threshold
from memagent_batch.review.labels.label import Purpose
from memagent_batch.review.sample.record import ANSWERED_BY_YES, Review, find_reviews, read_record
from memagent_batch.runs.estimates import REVIEWS_FOLDER
from memagent_batch.runs.manifest import Manifest, require_manifest


class Calibration(TypedDict):
    """What `memagent review calibrate` prints."""

    question_id: str
    review_id: str
    recall: float
    delta: float
    up_to: float
    """A "no" that is as sure as this, or less, is read again; 1 for each of them, 0 for none."""
    where: str
    """The condition for `--where` that a second pass needs."""
    readings: int
    """Readings of the question in the run."""
    read_again: int
    """Those that fulfil the condition."""
    num_labels: int
    """Labels that the threshold rests on, drawn uniformly of all readings."""
    num_positives: int
    """Those of what is looked for, by what people say."""
    fewest_positives: int
    """With fewer labelled positives, no threshold below 1 can be shown to hold the recall."""
    limited_by: str | None
    """The stratum that needs more labels before more of all labels can count; None if all count."""


def calibrate(output: Location, question_id: str, *, review_id: str | None, target: Target) -> Calibration:
    """The threshold of a question by the labels of a review, and the condition that it means.

    Args:
        output: The output.
        question_id: The question.
        review_id: The review; None for the only one of the last run that was made to develop by.
        target: What the threshold must do.

    Raises:
        OutputError: there is no such review, its labels are not to be learnt from, or nothing is labelled.
        SettingsError: there are several such reviews.
    """
    with output_errors(output.uri):
        manifest = require_manifest(output)
    review = open_review(output, review_id or _only_review(output, manifest, question_id=question_id))
    _require_learnable(review, manifest, question_id=question_id)
    counted = counted_labels(output, review, with_seen=False)
    answers = scan_answers(output, manifest, question_id=question_id)
    readings = uniform_readings(review, counted, answers)
    limited_by = limiting_stratum(review, counted)
    if not readings:
        stratum = f"; draw some of the stratum {limited_by}" if limited_by else ""
        raise OutputError(f"review {review.record['review_id']}: no label is of a uniform sample of all{stratum}")
    positives = positives_of(readings)
    up_to = learn_threshold(positives, target)
    return {
        "question_id": question_id,
        "review_id": review.record["review_id"],
        "recall": target.recall,
        "delta": target.delta,
        "up_to": up_to,
        "where": condition_of(question_id, up_to=up_to),
        "readings": len(answers),
        "read_again": sum(not each.is_yes and is_found(each.sure_no, up_to=up_to) for each in answers.values()),
        "num_labels": len(readings),
        "num_positives": len(positives),
        "fewest_positives": fewest_draws(share=target.recall, delta=target.delta),
        "limited_by": limited_by,
    }


def condition_of(question_id: str, *, up_to: float) -> str:
    """The condition of the readings that a threshold has read again: no yes, and not surer than it."""
    quoted = question_id.replace("'", "''")
    return (
        f"question_id = '{quoted}' and (value_bool = false or value_bool is null) "
        f"and (confidence <= {up_to!r} or confidence is null or value_status = 'invalid')"
    )


def _only_review(output: Location, manifest: Manifest, *, question_id: str) -> str:
    """The review of a question that can be learnt from."""
    with output_errors(output.uri):
        records = [read_record(output / f"{REVIEWS_FOLDER}/{name}") for name in find_reviews(output)]
    wanted = (question_id, Purpose.DEVELOP, manifest["run_id"])
    names = [
        record["review_id"]
        for record in records
        if (record["question_id"], record["purpose"], record["run_id"]) == wanted
    ]
    if not names:
        raise OutputError(
            f"the last run of {output} has no review of question {question_id!r} to learn from: say `memagent review "
            "make` with --purpose develop, label, and import the labels; labels that are there already count"
        )
    if len(names) > 1:
        raise SettingsError(f"--review: question {question_id!r} has several reviews; name one of {', '.join(names)}")
    return names[0]


def _require_learnable(review: Review, manifest: Manifest, *, question_id: str) -> None:
    """Refuses reviews that a threshold can't be learnt from.

    Raises:
        OutputError: says what to make instead.
    """
    record = review.record
    if record["question_id"] != question_id:
        raise OutputError(f"review {record['review_id']} is of question {record['question_id']!r}; name one of its own")
    if review.purpose is not Purpose.DEVELOP:
        raise OutputError(
            f"review {record['review_id']} was made to validate by: a scan that has learnt from its labels looks "
            "better there than it is. Make one with --purpose develop"
        )
    if review.decision.about != ANSWERED_BY_YES or record["unsure_below"] is not None:
        raise OutputError(
            f"review {record['review_id']}: a threshold is learnt from a review flagged by {ANSWERED_BY_YES}: "
            "the condition of a second pass can tell that of each answer"
        )
    if record["run_id"] != manifest["run_id"]:
        raise OutputError(
            f"review {record['review_id']} is of run {record['run_id']}, the last one is {manifest['run_id']}; say "
            "`memagent review make` again: it asks only for labels that are missing"
        )
