"""How good a scan is, by people's labels of a sample: make, import, estimate; and sign-offs. No Ray."""

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any, TypedDict

from memagent_batch.apps.review.estimates import MEANINGS, CountedLabels, count_labels, estimate_review
from memagent_batch.apps.review.labelling.page import ROLES, units_left, write_labelling
from memagent_batch.apps.review.labels import REVIEWS_FOLDER, Purpose, append_labels, person, read_label_rows
from memagent_batch.apps.review.population import ReviewedScan, draw, parse_labels, read_population, seed_text
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
from memagent_batch.apps.review.sheet import parse_sheet, parse_sign_sheet
from memagent_batch.apps.review.sign_offs import SignOff, SignOffs, append_sign_offs, older_reading_hash, reading_hash
from memagent_batch.apps.templates.pages import markdown_template
from memagent_batch.data.documents.questions import value_type_of
from memagent_batch.data.documents.where import Condition, parse_where
from memagent_batch.data.store.database import BATCH_ROWS
from memagent_batch.data.store.errors import input_errors, output_errors
from memagent_batch.data.store.json_files import write_json
from memagent_batch.data.store.location import Location
from memagent_batch.errors import InputError, OutputError, SettingsError
from memagent_batch.loop.follow_ups.answer_types import ValueType
from memagent_batch.loop.follow_ups.values import written_value
from memagent_batch.loop.texts.escapes import visible
from memagent_batch.loop.texts.shares import quantity
from memagent_batch.run.history import PastRun, find_run
from memagent_batch.run.tables import ANSWERS_TABLE

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
    output, scan, flagged = outputs[0], ReviewedScan.at(outputs), asked.condition
    population = read_population(scan, question_id=asked.question_id, flagged=flagged)
    sizes = population.sizes
    drawn = parse_labels(asked.labels, sizes)
    name = review_id(scan.run_id, asked.question_id, flagged=flagged.text, seed=asked.seed, purpose=asked.purpose)
    folder = output / f"{REVIEWS_FOLDER}/{name}"
    seed = seed_text(asked.seed, asked.purpose)
    sample = draw(population.readings, drawn, seed=seed, second_share=asked.second_share)
    record: Any = {
        "format": REVIEW_FORMAT,
        "review_id": name,
        "run_id": scan.run_id,
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
    counted = counted_labels(output, review)
    written = write_labelling(scan, review, counted, with_page=asked.with_page)
    pages = {role: str(page) for role, page in written.pages.items()}
    return {
        "review": name,
        "folder": str(folder),
        "page": next(iter(pages.values()), None),
        "pages": pages,
        "readings": sizes,
        "drawn": drawn,
        "left": dict(written.left),
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
    counted = counted_labels(output, review)
    _require_estimable(review, counted, so_far=so_far)
    losses = record.get("losses", {})
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


def counted_labels(output: Location, review: Review) -> CountedLabels:
    """The labels that count for a review."""
    return count_labels(
        review.sample,
        read_label_rows(output),
        purpose=review.purpose,
        decision=review.decision,
    )


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


class Signed(TypedDict):
    """What `memagent review sign` prints."""

    added: int
    """Sign-offs that the table did not have."""
    of_other_runs: int
    """Rows of the sheets that sign a text, answer, value, support or document that the last run does not have."""
    signed: int
    """Readings of the last run that are signed off now."""
    readings: int


def sign_sheets(output: Location, sheets: Sequence[Location]) -> Signed:
    """Takes the sign-offs of sheets in: all of them or, if one is wrong, none.

    Raises:
        InputError: a sheet or a row of it can't be taken; names the line.
        OutputError: no run has finished, or a table can't be read.
        StorageError: nothing was added.
    """
    rows: list[tuple[str, SignOff]] = []
    for sheet in sheets:
        with input_errors(sheet.uri):
            data = sheet.read_bytes()
        rows += parse_sign_sheet(data, name=str(sheet), now=datetime.now(UTC))
    if not rows:
        raise InputError(f"{', '.join(map(str, sheets))}: no row is signed")
    with output_errors(output.uri):
        run = find_run(output)
    readings = _RunReadings([row for _, row in rows], _answer_rows(run))
    checked = _checked_sign_offs(run, rows, readings)
    added, signed = append_sign_offs(output, checked), SignOffs(output)
    others = len(rows) - sum(row["reading_hash"] in readings.hashes for row in checked)
    num_readings = run.manifest["counts"]["answers_rows"]
    num_signed = sum(signed.of(row) is not None for row in _answer_rows(run))
    if others:
        rows_sign = "1 row signs" if others == 1 else f"{others:,} rows sign"
        log.warning(f"{rows_sign} readings of another run; a sign-off counts only for the answer that was signed")
    return Signed(added=added, of_other_runs=others, signed=num_signed, readings=num_readings)


def _answer_rows(run: PastRun) -> Iterator[Mapping[str, Any]]:
    for batch in run.dataset(ANSWERS_TABLE).to_batches(batch_size=BATCH_ROWS):
        yield from batch.to_pylist()


def _ids_on_page(row: Mapping[str, Any]) -> tuple[str, str]:
    """Document and question as a page shows them and a sheet is read: unseen characters as signs, no outer blanks."""
    return visible(row["document_id"]).strip(), visible(row["question_id"]).strip()


class _RunReadings:
    """The readings of a run that rows of sheets may sign: by their hash, by document and question, and by both."""

    def __init__(self, sheet_rows: Sequence[SignOff], answers: Iterable[Mapping[str, Any]]) -> None:
        self.hashes: dict[str, tuple[str, str]] = {}
        """Current hash and question of each reading, by its current hash and by that of earlier versions."""
        self.ids: dict[tuple[str, ...], tuple[str, str]] = {}
        """Ids of document and question, by these as a page shows them, alone and behind the hash."""
        wanted_hashes, wanted_ids = {row["reading_hash"] for row in sheet_rows}, {*map(_ids_on_page, sheet_rows)}
        for row in answers:
            hashes, shown = (reading_hash(row), older_reading_hash(row)), _ids_on_page(row)
            ids = row["document_id"], row["question_id"]
            if not wanted_hashes.isdisjoint(hashes):
                self.hashes |= dict.fromkeys(hashes, (hashes[0], row["question_id"]))
            if shown in wanted_ids:
                self.ids |= {(each, *shown): ids for each in hashes}
                self.ids.setdefault(shown, ids)

    def find(self, row: SignOff) -> tuple[str, str] | None:
        """Returns document and question of a row of a sheet, a document of the same text under its earlier name."""
        shown = _ids_on_page(row)
        ids = self.ids.get((row["reading_hash"], *shown)) or self.ids.get(shown)
        _, question_id = self.hashes.get(row["reading_hash"], ("", ""))
        is_renamed = ids is None and visible(question_id).strip() == shown[1]
        return (row["document_id"], question_id) if is_renamed else ids


def _checked_sign_offs(run: PastRun, rows: Sequence[tuple[str, SignOff]], readings: _RunReadings) -> list[SignOff]:
    """The sign-offs with the ids and hashes of the run, and with corrections of the type that it asked for.

    Those of readings that it does not have are kept as they are; of a slice they are left out, as a page may show
    several as one.
    """
    types: dict[str, ValueType | None] = {}
    if any(row["correction"] for _, row in rows):
        with output_errors(run.output.uri):
            types = {row["question_id"]: value_type_of(row) for row in run.questions.to_pylist()}
    is_slice = run.manifest["settings"].get("input", {}).get("slice") is not None
    checked = list[SignOff]()
    for where, row in rows:
        ids, is_of_run = readings.find(row), row["reading_hash"] in readings.hashes
        if ids is None and is_of_run:
            raise InputError(
                f"{where}: the last run asked no question {row['question_id']!r} of document {row['document_id']!r}; "
                "keep the ids as the page wrote them, or remove the row"
            )
        if ids is None and is_slice:
            continue
        document_id, question_id = ids or (row["document_id"], row["question_id"])
        current, _ = readings.hashes.get(row["reading_hash"], (row["reading_hash"], ""))
        own: SignOff = {**row, "document_id": document_id, "question_id": question_id, "reading_hash": current}
        checked.append(_checked_correction(own, types.get(question_id), where=where))
    return checked


def _checked_correction(row: SignOff, value_type: ValueType | None, *, where: str) -> SignOff:
    """The sign-off; of a number with its unit, the number."""
    if row["correction"] is None or value_type is None:
        return row
    correction = row["correction"].removesuffix(value_type.unit).strip()
    if (problem := written_value(correction, value_type).problem) is not None:
        raise InputError(f"{where}: correction: {problem}; write a value of the type that the question asks for")
    return {**row, "correction": correction}
