"""What was estimated before a sample was drawn: who looks at several samples, and keeps one, is misled.

A look belongs to the readings and to what is decided of them, not to a run or a seed: a scan that runs again without a
change has the same readings, and another seed is another chance to be pleased.
"""

from collections.abc import Iterator, Sequence, Set
from dataclasses import replace

from memagent_batch.errors import SettingsError
from memagent_batch.files.location import Location
from memagent_batch.review.sample.draw import Unit
from memagent_batch.review.sample.record import (
    Growth,
    Review,
    ReviewRecord,
    decision_of,
    find_reviews,
    read_record,
    read_review,
)
from memagent_batch.review.sample.strata import parse_labels
from memagent_batch.runs.estimates import ESTIMATE_FILE, REVIEWS_FOLDER


def find_growth(output: Location, record: ReviewRecord, units: Sequence[Unit]) -> list[Growth]:
    """The sizes that a sample had before, and the samples of the same readings that were estimated.

    Args:
        output: The output.
        record: The review's record, whatever it says of its growth.
        units: Its population.

    Raises:
        OutputError: the record of a review is damaged, or the sample of one of the same decision.
    """
    found: list[Growth] = []
    if record["review_id"] in find_reviews(output):
        folder = _folder(output, record["review_id"])
        before = read_record(folder)
        if before["drawn"] == record["drawn"] or _is_drawn_alike(before, record):
            return before["grown"]
        found = [*before["grown"], {"drawn": before["drawn"], "is_after_look": _is_estimated(folder)}]
    return found + [look for look in _looks_at_others(output, record, units) if look not in found]


def with_looks(output: Location, review: Review) -> Review:
    """The review, with the samples of the same readings that were estimated after it was made.

    Raises:
        OutputError: the record of a review is damaged, or the sample of one of the same decision.
    """
    grown = review.record["grown"]
    looks = _looks_at_others(output, review.record, [each.unit for each in review.sample])
    return replace(review, record={**review.record, "grown": grown + [look for look in looks if look not in grown]})


def _looks_at_others(output: Location, record: ReviewRecord, units: Sequence[Unit]) -> list[Growth]:
    readings = _readings(units)
    found: list[Growth] = []
    for name in find_reviews(output):
        folder = _folder(output, name)
        other = read_record(folder)
        if name == record["review_id"] or not _decides_the_same(other, record):
            continue
        looks = [each for each in _looks(folder, other, record) if each not in found]
        if looks and _has_same_readings(folder, other, record, readings):
            found += looks
    return found


def _decides_the_same(other: ReviewRecord, record: ReviewRecord) -> bool:
    return other["purpose"] == record["purpose"] and decision_of(other).about == decision_of(record).about


def _has_same_readings(
    folder: Location, other: ReviewRecord, record: ReviewRecord, readings: Set[tuple[str, str]]
) -> bool:
    """Whether another review is of some of these readings; of another run only its sample says so."""
    if (other["run_id"], other["question_id"]) == (record["run_id"], record["question_id"]):
        return True
    return not readings.isdisjoint(_readings([each.unit for each in read_review(folder).sample]))


def _readings(units: Sequence[Unit]) -> set[tuple[str, str]]:
    return {(unit.document_hash, unit.question_hash) for unit in units}


def _looks(folder: Location, other: ReviewRecord, record: ReviewRecord) -> Iterator[Growth]:
    """The looks at samples of another review that were drawn otherwise than this one."""
    for growth in other["grown"]:
        if growth["is_after_look"] and growth.get("review_id") != record["review_id"]:
            yield {"review_id": other["review_id"], **growth}
    if _is_estimated(folder) and not _is_drawn_alike(other, record):
        yield {"drawn": other["drawn"], "is_after_look": True, "review_id": other["review_id"]}


def _is_drawn_alike(one: ReviewRecord, other: ReviewRecord) -> bool:
    """Whether seed, strata, and labels as they were asked for are the same: one size for every night is no look."""
    if (one["seed"], one["unsure_below"]) != (other["seed"], other["unsure_below"]):
        return False
    asked = [each["asked_labels"] for each in (one, other) if "asked_labels" in each]
    if len(asked) == 2:
        return asked[0] == asked[1]
    if not asked:
        return sum(one["drawn"].values()) == sum(other["drawn"].values())
    older = other if "asked_labels" in one else one
    try:
        return parse_labels(asked[0], older["readings"], unnamed=0) == older["drawn"]
    except SettingsError:  # it names a stratum that the older sample did not have
        return False


def _folder(output: Location, name: str) -> Location:
    return output / f"{REVIEWS_FOLDER}/{name}"


def _is_estimated(folder: Location) -> bool:
    return (folder / ESTIMATE_FILE).exists()
