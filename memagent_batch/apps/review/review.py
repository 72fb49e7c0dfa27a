"""`memagent review`: how good a scan is, by people's labels of a sample: make, import, estimate."""

import logging
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from memagent_batch.apps.review.estimates import MEANINGS, CountedLabels, count_labels, estimate_review
from memagent_batch.apps.review.label_page import ROLES, units_left, write_labelling
from memagent_batch.apps.review.labels import REVIEWS_FOLDER, Purpose, append_labels, person, read_label_rows
from memagent_batch.apps.review.population import draw, find_runs, parse_labels, read_population, seed_text
from memagent_batch.apps.review.record import (
    ANSWERED_BY_YES,
    ESTIMATE_FILE,
    REVIEW_FORMAT,
    Review,
    find_reviews,
    read_record,
    read_review,
    review_id,
    write_review,
)
from memagent_batch.apps.review.sheet import parse_sheet
from memagent_batch.apps.templates.pages import markdown_template
from memagent_batch.data.documents.where import Condition, parse_where
from memagent_batch.data.store.errors import input_errors, output_errors
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.loop.texts.shares import quantity

log = logging.getLogger(__name__)

ESTIMATE_PAGE = "estimate.md"


@dataclass(frozen=True, slots=True, kw_only=True)
class ReviewRequest:
    """What a user says of a review."""

    question_id: str
    flagged: str = ANSWERED_BY_YES
    labels: str = "750"
    """How many labels, as `population.parse_labels` takes them."""
    seed: int = 0
    purpose: Purpose = Purpose.VALIDATE
    second_share: float = 0.1
    with_page: bool = True
    """Whether a page is written, with the texts of the documents; else sheets alone."""

    @property
    def condition(self) -> Condition:
        """What is flagged.

        Raises:
            InputError: it can't be parsed.
        """
        return parse_where(self.flagged.strip(), option="--flagged")


def make_review(outputs: Sequence[Location], asked: ReviewRequest) -> dict[str, Any]:
    """Draws the sample, or makes it larger, and writes what people label on; returns what there is to do.

    Several outputs, such as those of slices, are one scan; the review lies in the first of them.

    Raises:
        OutputError: no run has finished, or its tables can't be read.
        SettingsError: there is no such question, column or stratum.
    """
    output, runs, flagged = outputs[0], find_runs(outputs), asked.condition
    population = read_population(runs, question_id=asked.question_id, flagged=flagged)
    sizes = population.sizes
    drawn = parse_labels(asked.labels, sizes)
    run_id = ", ".join(sorted(run.run_id for run in runs))
    name = review_id(run_id, asked.question_id, flagged=flagged.text, seed=asked.seed, purpose=asked.purpose)
    folder = output / f"{REVIEWS_FOLDER}/{name}"
    seed = seed_text(asked.seed, asked.purpose)
    sample = draw(population.readings, drawn, seed=seed, second_share=asked.second_share)
    record: Any = {
        "format": REVIEW_FORMAT,
        "review_id": name,
        "run_id": run_id,
        "question_id": asked.question_id,
        "question": population.question,
        "flagged": flagged.text,
        "seed": asked.seed,
        "purpose": asked.purpose.value,
        "second_share": asked.second_share,
        "readings": sizes,
        "drawn": drawn,
        "num_unreadable": population.num_unreadable,
        "losses": population.losses,
    }
    review = write_review(folder, record, sample)
    left = units_left(_counted_labels(output, review))
    pages = write_labelling(runs, review, left, with_page=asked.with_page)
    return {
        "review": name,
        "folder": str(folder),
        "page": next(map(str, pages.values()), None),
        "pages": {role: str(page) for role, page in pages.items()},
        "readings": sizes,
        "drawn": drawn,
        "left": {role: len(units) for role, units in left.items()},
    }


def import_labels(output: Location, sheets: Sequence[Location], *, reviewer: str | None) -> dict[str, Any]:
    """Takes the labels of sheets in: all of them or, where one is wrong, none; returns their number and reviewers.

    Raises:
        InputError: a sheet or a row of it can't be taken; names the line.
        StorageError: nothing was added.
    """
    with output_errors(output.uri):
        reviews = {name: read_review(output / f"{REVIEWS_FOLDER}/{name}") for name in find_reviews(output)}
    rows = []
    for sheet in sheets:
        with input_errors(sheet.uri):
            data = sheet.read_bytes()
        rows += parse_sheet(data, name=str(sheet), reviews=reviews, reviewer=reviewer)
    if not rows:
        raise InputError(f"{', '.join(map(str, sheets))}: no row has a label; fill in the column `label`")
    reviewers = {person(row["reviewer"]): row["reviewer"] for row in reversed(rows)}
    return {"labels": len(rows), "added": append_labels(output, rows), "reviewers": sorted(reviewers.values())}


def make_estimate(outputs: Sequence[Location], name: str | None, *, so_far: bool) -> tuple[dict[str, Any], str]:
    """What the labels say of the scan, as JSON and as Markdown; both are written into the review's folder.

    Without a name it is the only review that was made to validate by. `so_far` looks before all is labelled.

    Raises:
        OutputError: there is no such review, or its labels are not to be estimated from.
        SettingsError: there are several such reviews.
    """
    output = outputs[0]
    with output_errors(output.uri):
        review = read_review(output / f"{REVIEWS_FOLDER}/{name or _only_review(output)}")
    record = review.record
    counted = _counted_labels(output, review)
    _require_estimable(review, counted, so_far=so_far)
    losses = record["losses"]
    result = estimate_review(counted, record["readings"], num_unreadable=record["num_unreadable"], losses=losses)
    left = {f"left_{role}": len(units) for role, units in units_left(counted).items() if role != ROLES[0]}
    if any(left.values()):
        log.warning(
            f"review {record['review_id']}: {quantity(left['left_second'], 'reading')} still to be read by a second "
            f"person, {left['left_third']:,} by a third; run `memagent review make` again, label, and import"
        )
    page = markdown_template("memagent_batch.apps.review", "estimate.md.j2").render(
        record=record,
        about=review.decision,
        counted=counted,
        estimate=result,
        meanings=MEANINGS,
        losses=losses,
        left=left,
    )
    values = {
        **record,
        "decision": review.decision,
        "labels": {
            "left": counted.num_left,
            **left,
            "unclear": counted.num_unclear,
            "only_seen": counted.num_seen,
            "develop": counted.num_develop,
            "other_decision": counted.num_other,
        },
        **asdict(result),
    }
    write_json(review.folder / ESTIMATE_FILE, values)
    (review.folder / ESTIMATE_PAGE).write_bytes(page.encode())
    return values, page


def _only_review(output: Location) -> str:
    """Returns the id of the only review of an output that was made to validate by."""
    records = [read_record(output / f"{REVIEWS_FOLDER}/{name}") for name in find_reviews(output)]
    names = [record["review_id"] for record in records if record["purpose"] == Purpose.VALIDATE]
    if len(names) == 1:
        return names[0]
    if names:
        raise SettingsError(f"--review: {output} has several with purpose 'validate'; name one of {', '.join(names)}")
    raise OutputError(
        f"{output} has no review with purpose 'validate': run `memagent review make`, label, and import the labels"
    )


def _counted_labels(output: Location, review: Review) -> CountedLabels:
    """The labels that count for a review."""
    return count_labels(review.sample, read_label_rows(output), purpose=review.purpose, decision=review.decision)


def _require_estimable(review: Review, counted: CountedLabels, *, so_far: bool) -> None:
    if review.purpose is Purpose.DEVELOP:
        raise OutputError(
            f"review {review.record['review_id']} was made to develop by: what was tuned on its labels looks better "
            "there than it is. Make one with --purpose validate"
        )
    if counted.num_left and not so_far:
        seen = f" ({counted.num_seen:,} with labels given with the answer in view only)" if counted.num_seen else ""
        raise OutputError(
            f"{counted.num_left:,} of {len(counted.units):,} readings of the sample are not labelled{seen}; label "
            "them, or pass --so-far to estimate from those that are"
        )
