"""What a review is, in `review/ID/`: `review.json` with its rule and sizes, and `sample.parquet`."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from hashlib import sha256
from typing import Any, NotRequired, TypedDict, cast

import pyarrow as pa

from memagent_batch.documents.where import parse_where
from memagent_batch.domain.addresses import fingerprint
from memagent_batch.errors import OutputError
from memagent_batch.review.labels import UNCLEAR, Decision, Purpose
from memagent_batch.review.population import SampleRow, StratumRule
from memagent_batch.runs.estimates import ESTIMATE_FILE, REVIEWS_FOLDER
from memagent_batch.store.errors import table_errors
from memagent_batch.store.json_files import json_bytes, read_json
from memagent_batch.store.location import Location
from memagent_batch.store.parquet import parquet_bytes, read_parquet

REVIEW_FORMAT = "memagent-review/2"
"""Changes with every change of layout that an older version can't read."""
RECORD_FILE = "review.json"
SAMPLE_FILE = "sample.parquet"
ANSWERED_BY_YES = "value_bool = true"
"""The condition that a person decides by answering the question itself."""


class Growth(TypedDict):
    """A size that a sample had before it was made larger."""

    drawn: dict[str, int]
    is_after_look: bool
    """Whether an estimate had been made from it."""
    review_id: NotRequired[str]
    """Of a sample of another review for the same decision."""


class ReviewRecord(TypedDict):
    """What `review.json` says."""

    format: str
    review_id: str
    run_id: str
    question_id: str
    question: str
    flagged: str | None
    by: str | None
    unsure_below: float | None
    seed: int
    purpose: str
    second_share: float
    asked_labels: str
    """How many labels were asked for, as the user wrote it."""
    choices: list[str]
    """Labels that may be given, except for unclear."""
    readings: dict[str, int]
    drawn: dict[str, int]
    """Readings of each stratum in the sample."""
    num_unreadable: int
    grown: list[Growth]
    """Sizes that the sample had before, and samples of the same decision that had been estimated."""
    sample_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A review that has been made."""

    folder: Location
    """Where it lies."""
    record: ReviewRecord
    sample: Sequence[SampleRow]
    """In the order in which people read it."""

    @property
    def rule(self) -> StratumRule:
        """How its strata are made."""
        return rule_of(self.record["flagged"], by=self.record["by"], unsure_below=self.record["unsure_below"])

    @property
    def purpose(self) -> Purpose:
        """What its labels are for."""
        return Purpose(self.record["purpose"])

    @property
    def labels(self) -> list[str]:
        """Labels that people may give."""
        return [*self.record["choices"], UNCLEAR]

    @property
    def decision(self) -> Decision:
        """What people decide."""
        return decision_of(self.record)

    @property
    def instruction(self) -> str:
        """What people decide, in words."""
        about = self.decision.about
        if self.record["by"]:
            return f"choose the right {about}: {', '.join(self.record['choices'])}"
        return f"yes: the right answer {'is yes' if about == ANSWERED_BY_YES else f'fulfils {about}'}"

    @property
    def is_changed_after_look(self) -> bool:
        """Whether it was drawn after an estimate from another sample for the same decision."""
        return any(growth["is_after_look"] for growth in self.record["grown"])


def rule_of(flagged: str | None, *, by: str | None, unsure_below: float | None) -> StratumRule:
    """The rule that a user, or a record, writes.

    Raises:
        InputError: the condition can't be parsed.
    """
    condition = parse_where(flagged, option="--flagged") if flagged else None
    text = flagged.strip() if flagged else None
    return StratumRule(flagged=condition, text=text, by=by, unsure_below=unsure_below)


def review_id(run_id: str, question_id: str, *, rule: StratumRule, seed: int, purpose: Purpose) -> str:
    """Name of a review's folder: the same command on the same run makes the same one, so that no size is hidden."""
    parts = {
        "run_id": run_id,
        "question_id": question_id,
        "flagged": rule.text,
        "by": rule.by,
        "unsure_below": rule.unsure_below,
        "seed": seed,
        "purpose": purpose.value,
    }
    words = "".join(letter if letter.isascii() and letter.isalnum() else "-" for letter in question_id)[:40]
    return f"{words.strip('-') or 'question'}-{fingerprint(parts)[:10]}"


def write_review(folder: Location, record: Mapping[str, Any], sample: pa.Table) -> Review:
    """Writes the sample (`REVIEW_SAMPLE`), then the record, which names its hash."""
    data = parquet_bytes(sample)
    (folder / SAMPLE_FILE).write_bytes(data)
    whole = cast("ReviewRecord", {**record, "sample_sha256": sha256(data).hexdigest()})
    (folder / RECORD_FILE).write_bytes(json_bytes(whole))
    return Review(folder=folder, record=whole, sample=sample.to_pylist())


def read_record(folder: Location) -> ReviewRecord:
    """The record of a review that was made.

    Raises:
        OutputError: there is none, or it is damaged.
    """
    record = cast("ReviewRecord | None", read_json(folder / RECORD_FILE))
    if record is None:
        raise OutputError(f"there is no review at {folder} (no {RECORD_FILE}); run memagent review make first")
    if record["format"] != REVIEW_FORMAT:
        raise OutputError(
            f"{folder} has the layout {record['format']!r}, this version reads {REVIEW_FORMAT!r}; move it out of the "
            "output to look at with the version that wrote it, and make the review again"
        )
    return record


def read_review(folder: Location) -> Review:
    """A review that was made.

    Raises:
        OutputError: there is none, or its sample is not the one that was drawn.
    """
    record = read_record(folder)
    place = folder / SAMPLE_FILE
    with table_errors(place.uri, remedy="run memagent review make again"):
        data, table = place.read_bytes(), read_parquet(place)
    if sha256(data).hexdigest() != record["sample_sha256"]:
        raise OutputError(f"{place} is not the sample that {RECORD_FILE} names; run memagent review make again")
    return Review(folder=folder, record=record, sample=table.to_pylist())


def decision_of(record: ReviewRecord) -> Decision:
    """What people decide, as a record says."""
    rule = rule_of(record["flagged"], by=record["by"], unsure_below=record["unsure_below"])
    return Decision(about=rule.about, choices=tuple(record["choices"]))


def find_reviews(output: Location) -> list[str]:
    """Ids of the reviews below an output, sorted."""
    suffix = f"/{RECORD_FILE}"
    places = (output / REVIEWS_FOLDER).files()
    return sorted(place.removesuffix(suffix).rpartition("/")[2] for place in places if place.endswith(suffix))


def find_growth(output: Location, record: ReviewRecord) -> list[Growth]:
    """The sizes that a sample had before, and the samples of the same decision that were estimated.

    Raises:
        OutputError: the record of a review is damaged.
    """
    found: list[Growth] = []
    if record["review_id"] in find_reviews(output):
        folder = _folder(output, record["review_id"])
        before = read_record(folder)
        if before["drawn"] == record["drawn"] or _is_drawn_alike(before, record):
            return before["grown"]
        found = [*before["grown"], {"drawn": before["drawn"], "is_after_look": _is_estimated(folder)}]
    return found + [look for look in _looks_at_others(output, record) if look not in found]


def with_looks(output: Location, review: Review) -> Review:
    """The review, with the samples of the same decision that were estimated after it was made.

    Raises:
        OutputError: the record of a review is damaged.
    """
    grown = review.record["grown"]
    looks = [look for look in _looks_at_others(output, review.record) if look not in grown]
    return replace(review, record={**review.record, "grown": [*grown, *looks]})


def _looks_at_others(output: Location, record: ReviewRecord) -> list[Growth]:
    """Samples for the same decision on the same question that were drawn otherwise and estimated, of any run.

    Each night serves the labels of the last one, so that a look at its sample counts for tonight's too.
    """
    found: list[Growth] = []
    for name in find_reviews(output):
        other = read_record(_folder(output, name))
        if name == record["review_id"] or not _decides_the_same(other, record):
            continue
        looks: list[Growth] = [
            {"review_id": name, **growth}
            for growth in other["grown"]
            if growth["is_after_look"] and growth.get("review_id") != record["review_id"]
        ]
        if _is_estimated(_folder(output, name)) and not _is_drawn_alike(other, record):
            looks.append({"drawn": other["drawn"], "is_after_look": True, "review_id": name})
        found += [look for look in looks if look not in found]
    return found


def _decides_the_same(other: ReviewRecord, record: ReviewRecord) -> bool:
    pairs = (
        (each["purpose"], each["question_id"], each["question"], decision_of(each).about) for each in (other, record)
    )
    return len(set(pairs)) == 1


def _is_drawn_alike(one: ReviewRecord, other: ReviewRecord) -> bool:
    """Whether seed, strata, and labels as they were asked for are the same: one size for every night is not a look."""
    of_one, of_other = ((each["seed"], each["unsure_below"], each["asked_labels"]) for each in (one, other))
    return of_one == of_other


def _folder(output: Location, name: str) -> Location:
    return output / f"{REVIEWS_FOLDER}/{name}"


def _is_estimated(folder: Location) -> bool:
    return (folder / ESTIMATE_FILE).exists()
