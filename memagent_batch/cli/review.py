"""`memagent review`: how good a scan is, by people's labels of a sample."""

import json
from typing import Annotated

from pydantic import Field

from memagent_batch.apps.review.labels import Purpose
from memagent_batch.cli.settings import JsonCommand, OutputCommand, OutputsCommand
from memagent_batch.config.section import Text
from memagent_batch.loop.texts.escapes import unescaped


class MakeReview(OutputsCommand):
    """Draws a sample of the last finished run, and writes a page and a sheet for labelling into OUTPUT/review/ID/.
    Run it again after an import: it writes what a second person should read.
    """

    command = "memagent review make"
    examples = (
        "memagent review make out/ --question clause --labels 750",
        "memagent review make out/ --question risk --flagged \"value_label = 'red'\" --labels 1000",
    )

    pages = ("docs/how-to/review.md",)

    question: Text
    """The question_id of the question that is reviewed."""
    flagged: Text = "value_bool = true"
    """Condition for what the scan found, such as "value_label in ('red', 'amber')" or "answer ~ '(?i)^yes'"."""
    labels: str = "750"
    """Number of labels, in all or per stratum: flagged=150,not_flagged=600."""
    seed: int = 0
    """Seed of the draw."""
    purpose: Purpose = Purpose.VALIDATE
    """`validate` measures the scan; `develop` draws another sample to improve it with."""
    second: Annotated[float, Field(ge=0, le=1)] = 0.1
    """Share that a second person reads too."""
    without_page: bool = False
    """Write only labels.csv: no page, and no text of a document."""

    def run(self) -> None:
        from memagent_batch.apps.review.review import ReviewRequest, make_review

        asked = ReviewRequest(
            question_id=self.question,
            flagged=self.flagged,
            labels=self.labels,
            seed=self.seed,
            purpose=self.purpose,
            second_share=self.second,
            with_page=not self.without_page,
        )
        print(json.dumps(make_review(self.locations, asked), indent=2, ensure_ascii=False))


class ImportLabels(OutputCommand):
    """Imports labels from labels.csv files: all rows, or none if one is wrong."""

    command = "memagent review import"
    examples = (
        "memagent review import out/ labels-clause-1a2b3c4d5e-first.csv",
        "memagent review import s3://bucket/scan/ labels.csv --reviewer ada",
    )
    pages = ("docs/how-to/review.md",)
    words = ("output", "sheets")

    sheets: tuple[str, ...]
    """The sheets, such as labels.csv: files or any fsspec URLs."""
    reviewer: str | None = None
    """Who labelled, for rows that don't say."""

    def run(self) -> None:
        from memagent_batch.apps.review.review import import_labels

        sheets = [self.locate(uri) for uri in self.sheets]
        print(json.dumps(import_labels(self.location, sheets, reviewer=self.reviewer)))


class SignReadings(OutputCommand):
    """Imports sign-offs from signed.csv files that the page saved."""

    command = "memagent review sign"
    examples = ("memagent review sign out/ signed.csv", "memagent review sign s3://bucket/scan/ signed.csv")
    pages = ("docs/how-to/page.md",)
    words = ("output", "sheets")

    sheets: tuple[str, ...]
    """The sheets: files or any fsspec URLs."""

    def run(self) -> None:
        from memagent_batch.apps.review.sign_offs import sign_sheets

        print(json.dumps(sign_sheets(self.location, [self.locate(uri) for uri in self.sheets])))


class EstimateReview(OutputsCommand, JsonCommand):
    """Estimates from the labels of a review how good the scan is, with 95 % intervals. Writes estimate.json and
    estimate.md into the review.
    """

    command = "memagent review estimate"
    examples = (
        "memagent review estimate out/",
        "memagent review estimate out/ --review clause-1a2b3c4d5e --json",
    )
    pages = ("docs/how-to/review.md",)

    review: str | None = None
    """ID of the review (default: the one with the purpose `validate`)."""
    so_far: bool = False
    """Estimate before everything is labelled. The intervals hold for one look only."""

    def run(self) -> None:
        from memagent_batch.apps.review.review import make_estimate

        values, page = make_estimate(self.locations, self.review, so_far=self.so_far)
        print(json.dumps(values, indent=2, ensure_ascii=False) if self.as_json else unescaped(page).rstrip("\n"))
