"""How good a scan is: the estimates of its reviews."""

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memagent_batch.domain.texts.shares import percent
from memagent_batch.errors import OutputError
from memagent_batch.logs import EventKind
from memagent_batch.store.json_files import read_json
from memagent_batch.store.location import Location

log = logging.getLogger(__name__)

REVIEWS_FOLDER = "review"
ESTIMATE_FILE = "estimate.json"
MEASURES = ("recall", "precision", "f1", "elusion", "richness")
"""Measures of a value that is looked for, in the order in which people ask for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EstimatedShare:
    """A measure with its 95 % interval, 0 to 1."""

    value: float | None
    """The estimate; None if nothing is known of it."""
    low: float
    high: float

    def __str__(self) -> str:
        low, high = (percent(end).removesuffix(" %") for end in (self.low, self.high))
        return f"{percent(self.value)} ({low} to {high})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewEstimates:
    """What a review says of one value that is looked for."""

    review_id: str
    run_id: str
    question_id: str
    looked_for: str
    """The condition, or the value of a column, that counts as found."""
    num_labels: int
    shares: Mapping[str, EstimatedShare | None]
    """By measure; error rate and evidence are of all values. None where nothing of the kind was labelled."""
    remarks: Sequence[str]
    """What limits them, in words."""


def latest_estimates(output: Location) -> list[ReviewEstimates]:
    """Of each question and what was looked for, the estimate of the latest run that was reviewed, by question.

    A damaged one is left out and logged.
    """
    places = [path for path in (output / REVIEWS_FOLDER).files() if path.endswith(f"/{ESTIMATE_FILE}")]
    found = [each for path in places for each in _read_estimates(output.at(path))]
    found.sort(key=lambda each: (each.run_id, each.num_labels))
    latest = {(each.question_id, each.looked_for): each for each in found}
    return [latest[key] for key in sorted(latest)]


def _read_estimates(place: Location) -> list[ReviewEstimates]:
    """The estimates in a file; none where it holds something else."""
    try:
        record = read_json(place)
        return list(_estimates_of(record)) if record is not None else []
    except (OutputError, AttributeError, KeyError, TypeError, ValueError) as error:
        message = f"{place} is not an estimate of a review and is not shown: {type(error).__name__}: {error}"
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return []


def _estimates_of(record: Mapping[str, Any]) -> Iterator[ReviewEstimates]:
    evidence = record["evidence"]
    of_all = {
        "error_rate": _share(record["error_rate"]),
        "evidence": _share({"value": evidence["share"], **evidence["interval"]}) if evidence else None,
    }
    for value in record["values"]:
        yield ReviewEstimates(
            review_id=str(record["review_id"]),
            run_id=str(record["run_id"]),
            question_id=str(record["question_id"]),
            looked_for=str(record["decision"]),
            num_labels=sum(int(stratum["num_labelled"]) for stratum in value["strata"]),
            shares={**{name: _share(value["measures"][name]) for name in MEASURES}, **of_all},
            remarks=[*_remarks(record, value)],
        )


def _remarks(record: Mapping[str, Any], value: Mapping[str, Any]) -> Iterator[str]:
    yield "errors of reviewers are not allowed for"
    yield from _remarks_on_labels(record["labels"])
    for stratum in value["strata"]:
        if stratum["num_readings"] and not stratum["num_labelled"]:
            yield f"nothing is known of the {stratum['num_readings']:,} readings {stratum['name']}"
    if worst := value["recall_at_worst"]:
        number = record["num_unreadable"]
        yield f"if all {number:,} documents that nobody can read were missed, recall is {_share(worst)}"


def _remarks_on_labels(labels: Mapping[str, int]) -> Iterator[str]:
    if labels["left"]:
        yield f"{labels['left']:,} readings of the sample are not labelled"
    if number := labels["judged_seen"]:
        yield f"{number:,} readings count by labels that were given with the scan's answer in view"


def _share(values: Mapping[str, Any]) -> EstimatedShare:
    value = None if values["value"] is None else float(values["value"])
    return EstimatedShare(value=value, low=float(values["low"]), high=float(values["high"]))
