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
MEASURES = ("recall", "precision", "f1", "elusion", "richness", "error_rate")
"""In the order in which people ask for them."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShownEstimate:
    """What a review says."""

    review_id: str
    run_id: str
    question_id: str
    looked_for: str
    num_labels: int
    shares: Mapping[str, str]
    remarks: Sequence[str]


def latest_estimates(output: Location) -> list[ShownEstimate]:
    """Of each question and what was looked for, the estimate of the latest run that was reviewed, by question.

    A damaged one is left out and logged.
    """
    places = [path for path in (output / REVIEWS_FOLDER).files() if path.endswith(f"/{ESTIMATE_FILE}")]
    found = [each for path in places if (each := _read_estimate(output.at(path))) is not None]
    found.sort(key=lambda each: (each.run_id, each.num_labels))
    latest = {(each.question_id, each.looked_for): each for each in found}
    return [latest[key] for key in sorted(latest)]


def _read_estimate(place: Location) -> ShownEstimate | None:
    try:
        record = read_json(place)
        return None if record is None else _shown_estimate(record)
    except (OutputError, AttributeError, KeyError, TypeError, ValueError) as error:
        message = (
            f"{place} is not an estimate of a review and is not shown: {type(error).__name__}: {error}; run `memagent "
            "review estimate` again"
        )
        log.warning(message, extra={"event": EventKind.RECORD_UNREADABLE})
        return None


def _shown_estimate(record: Mapping[str, Any]) -> ShownEstimate:
    return ShownEstimate(
        review_id=str(record["review_id"]),
        run_id=str(record["run_id"]),
        question_id=str(record["question_id"]),
        looked_for=str(record["decision"]),
        num_labels=sum(int(stratum["num_labelled"]) for stratum in record["strata"]),
        shares={name: share_words(record["measures"][name]) for name in MEASURES},
        remarks=[*_remarks(record)],
    )


def _remarks(record: Mapping[str, Any]) -> Iterator[str]:
    yield "errors of reviewers are not allowed for"
    if left := record["labels"]["left"]:
        yield f"{left:,} readings of the sample are not labelled"
    for stratum in record["strata"]:
        if stratum["num_readings"] and not stratum["num_labelled"]:
            yield f"nothing is known of the {stratum['num_readings']:,} readings {stratum['name']}"
    if worst := record["recall_at_worst"]:
        number = record["num_unreadable"]
        yield f"if all {number:,} documents that nobody can read were missed, recall is {share_words(worst)}"


def share_words(measure: Mapping[str, float | None]) -> str:
    """A measure with its 95 % interval: `81 % (68 to 90)`; `not known` if nothing is known of it."""
    low, high = (percent(measure[end]).removesuffix(" %") for end in ("low", "high"))
    return f"{percent(measure['value'])} ({low} to {high})"
