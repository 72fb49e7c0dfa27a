"""What was estimated before a sample was drawn: who looks at several samples, and keeps one, is misled.

A look belongs to the readings and to what is decided of them, not to a run or a seed: a scan that runs again without a
change has the same readings, and another seed is another chance to be pleased.
"""

from collections.abc import Iterator, Sequence, Set

from memagent_batch.files.location import Location
from memagent_batch.review.sample.draw import Unit
from memagent_batch.review.sample.record import (
    Growth,
    Review,
    ReviewRecord,
    decision_of,
    find_reviews,
    read_review,
)
from memagent_batch.runs.record.estimates import ESTIMATE_FILE, REVIEWS_FOLDER


def find_growth(output: Location, record: ReviewRecord, units: Sequence[Unit]) -> list[Growth]:
    """The sizes that a sample had before, and the samples of the same readings that were estimated.

    Args:
        output: The output.
        record: The review's record, whatever it says of its growth.
        units: Its population.

    Raises:
        OutputError: the record or the sample of a review is damaged.
    """
    reviews = {name: read_review(output / f"{REVIEWS_FOLDER}/{name}") for name in find_reviews(output)}
    found: list[Growth] = []
    if before := reviews.pop(record["review_id"], None):
        if before.record["drawn"] == record["drawn"]:
            return before.record["grown"]
        found = [*before.record["grown"], {"drawn": before.record["drawn"], "is_after_look": _is_estimated(before)}]
    population = {(unit.document_hash, unit.question_hash) for unit in units}
    for review in reviews.values():
        if _is_of_same(review, record, population):
            found += [each for each in _looks(review, record) if each not in found]
    return found


def _is_of_same(review: Review, record: ReviewRecord, population: Set[tuple[str, str]]) -> bool:
    """Whether another review has people decide the same of some of the same readings."""
    if review.record["purpose"] != record["purpose"] or review.decision.about != decision_of(record).about:
        return False
    return any((each.unit.document_hash, each.unit.question_hash) in population for each in review.sample)


def _looks(review: Review, record: ReviewRecord) -> Iterator[Growth]:
    """The looks at samples of another review that were drawn otherwise than this one."""
    name = review.record["review_id"]
    for growth in review.record["grown"]:
        if growth["is_after_look"]:
            yield {"review_id": name, **growth}
    if _is_estimated(review) and _design(review.record) != _design(record):
        yield {"drawn": review.record["drawn"], "is_after_look": True, "review_id": name}


def _design(record: ReviewRecord) -> tuple[int, float | None, str]:
    """How a sample is drawn: seed, strata, and labels as they were asked for, which is one size for every night."""
    asked = record.get("asked_labels", str(sum(record["drawn"].values())))
    return record["seed"], record["unsure_below"], asked


def _is_estimated(review: Review) -> bool:
    return (review.folder / ESTIMATE_FILE).exists()
