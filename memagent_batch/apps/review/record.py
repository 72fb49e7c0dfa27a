"""What a review is, in `review/ID/`: `review.json` with its rule and sizes, `sample.parquet`, and `estimate.json`."""

import logging
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Any, TypedDict, cast

import pyarrow as pa
from pydantic import AliasPath, BaseModel, Field, ValidationError

from memagent_batch.apps.review.estimates import Measure, MeasureEstimate, StratumCounts
from memagent_batch.apps.review.labels import REVIEWS_FOLDER, Purpose
from memagent_batch.apps.review.population import SampleRow
from memagent_batch.data.documents.where import Condition
from memagent_batch.data.store.errors import table_errors
from memagent_batch.data.store.json_files import json_bytes, read_json
from memagent_batch.data.store.location import Location
from memagent_batch.data.store.parquet import parquet_bytes, read_parquet
from memagent_batch.errors import OutputError
from memagent_batch.logs import EventKind
from memagent_batch.loop.addresses import fingerprint
from memagent_batch.loop.texts.shares import percent

log = logging.getLogger(__name__)

REVIEW_FORMAT = "memagent-review/2"
"""Changes with every change of layout that an older version can't read."""
RECORD_FILE = "review.json"
SAMPLE_FILE = "sample.parquet"
ESTIMATE_FILE = "estimate.json"
ANSWERED_BY_YES = "value_bool = true"
"""The condition that a person decides by answering the question itself."""


class ReviewRecord(TypedDict):
    """What `review.json` says."""

    format: str
    review_id: str
    run_id: str
    question_id: str
    question: str
    flagged: str
    seed: int
    purpose: str
    second_share: float
    readings: dict[str, int]
    drawn: dict[str, int]
    num_unreadable: int
    losses: dict[str, int]
    """Readings of each stratum whose source was not read to the end."""
    sample_sha256: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Review:
    """A review that has been made."""

    folder: Location
    record: ReviewRecord
    sample: Sequence[SampleRow]
    """In the order in which people read it."""

    @property
    def purpose(self) -> Purpose:
        """What its labels are for."""
        return Purpose(self.record["purpose"])

    @property
    def decision(self) -> str:
        """The condition that people decide."""
        return Condition(text=self.record["flagged"]).spaced

    @property
    def instruction(self) -> str:
        """What people decide, in words."""
        return f"say yes if {condition_words(self.decision)}"


_TEXT, _NUMBER = r"'((?:[^']|'')*)'", r"((?:- )?\d+(?:\.\d+)?)"
_TEXTS = rf"\( {_TEXT}(?: , {_TEXT})* \)"
_CONDITIONS = (
    (r"value_bool (?:= true|is true)", "the right answer is yes"),
    (r"value_bool (?:= false|is false)", "the right answer is no"),
    (r"value_number is not null", "the document states such a number"),
    (r"value_number is null", "the document states no such number"),
    (r"value(?:_label|_bool)? is not null", "the document answers the question"),
    (r"value(?:_label|_bool)? is null", "the document does not answer the question"),
    (r"value_status = 'ok'", "the document answers the question"),
    (r"value_status = 'not_stated'", "the document does not answer the question"),
    (rf"value_number >= {_NUMBER}", "the right answer is {} or more"),
    (rf"value_number > {_NUMBER}", "the right answer is more than {}"),
    (rf"value_number <= {_NUMBER}", "the right answer is {} or less"),
    (rf"value_number < {_NUMBER}", "the right answer is less than {}"),
    (rf"value_number = {_NUMBER}", "the right answer is {}"),
    (rf"value_number between {_NUMBER} and {_NUMBER}", "the right answer is from {} to {}"),
    (rf"value_label = {_TEXT}", "the right answer is {}"),
    (rf"value_label (?:<>|!=) {_TEXT}", "the right answer is another one than {}"),
    (rf"value_label in {_TEXTS}", "the right answer is {}"),
    (rf"value_label not in {_TEXTS}", "the right answer is not {}"),
)
"""Conditions on the answer to a question as SQL, its words set apart by one blank, and in words."""


def condition_words(condition: str) -> str:
    """Returns in plain words when a right answer fulfils a condition; of a rare one its SQL."""
    for pattern, words in _CONDITIONS:
        if match := re.fullmatch(pattern, condition, re.IGNORECASE):
            if " in " in pattern:
                labels = [label.replace("''", "'") for label in re.findall(_TEXT, condition)]
                return words.format(" or ".join(filter(None, (", ".join(labels[:-1]), labels[-1]))))
            return words.format(*(value.replace("''", "'").replace("- ", "-") for value in match.groups()))
    return f"this holds of the right answer: {condition}"


def review_id(run_id: str, question_id: str, *, flagged: str, seed: int, purpose: Purpose) -> str:
    """Name of a review's folder: the same command on the same run makes the same one, so that no size is hidden."""
    parts = {
        "run_id": run_id,
        "question_id": question_id,
        "flagged": flagged,
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


def find_reviews(output: Location) -> list[str]:
    """Ids of the reviews below an output, sorted."""
    suffix = f"/{RECORD_FILE}"
    places = (output / REVIEWS_FOLDER).files()
    return sorted(place.removesuffix(suffix).rpartition("/")[2] for place in places if place.endswith(suffix))


class WrittenEstimate(BaseModel, frozen=True):
    """Of `estimate.json`, what a site shows."""

    run_id: str
    question_id: str
    decision: str
    num_left: int = Field(validation_alias=AliasPath("labels", "left"))
    num_left_second: int = Field(validation_alias=AliasPath("labels", "left_second"))
    num_unreadable: int
    num_missed_at_worst: int
    strata: Sequence[StratumCounts]
    measures: Mapping[Measure, MeasureEstimate] = Field(min_length=len(Measure))
    recall_at_worst: MeasureEstimate | None

    @property
    def num_labels(self) -> int:
        """Labelled readings of all strata."""
        return sum(stratum.num_labelled for stratum in self.strata)


def latest_estimates(output: Location) -> list[WrittenEstimate]:
    """Of each question and what was looked for, the estimate of the latest run that was reviewed, by question.

    One that can't be read is left out and logged.
    """
    places = [path for path in (output / REVIEWS_FOLDER).files() if path.endswith(f"/{ESTIMATE_FILE}")]
    found = [each for path in places if (each := _read_estimate(output.at(path))) is not None]
    found.sort(key=lambda each: (each.run_id, each.num_labels))
    latest = {(each.question_id, each.decision): each for each in found}
    return [latest[key] for key in sorted(latest)]


def _read_estimate(place: Location) -> WrittenEstimate | None:
    data = place.read_bytes_if_there()
    try:
        return WrittenEstimate.model_validate_json(data or b"")
    except ValidationError as error:
        problem = error.errors()[0]["msg"]
        message = (
            f"{place} is not an estimate of a review and is not shown ({problem}); run `memagent review estimate` again"
        )
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return None


def share_words(measure: MeasureEstimate) -> str:
    """A measure with its 95 % interval: `81 % (68 to 90)`; `not known` if nothing is known of it."""
    low, high = (percent(end).removesuffix(" %") for end in (measure.low, measure.high))
    return f"{percent(measure.value)} ({low} to {high})"
